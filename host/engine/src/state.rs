//! Keyed state as the engine uses it: ordered cells, read through the bundle's own writes.

use bytes::Bytes;

/// The state could not be read.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
pub struct StateError(pub String);

/// Cells of one shard, seen by one bundle: committed cells with the bundle's writes on top.
pub trait KeyedState {
    /// A cell's value.
    fn get(&self, cell: &[u8]) -> Result<Option<Bytes>, StateError>;
    /// Cells in `[from, to)` in order, at most `cells_max` and, beyond the first, about `bytes_max` bytes of them.
    fn scan(&self, from: &[u8], to: &[u8], cells_max: usize, bytes_max: usize) -> Result<Vec<(Bytes, Bytes)>, StateError>;
    /// Sets a cell, or deletes it.
    fn put(&mut self, cell: Bytes, value: Option<Bytes>);
}

/// The least name after `name`.
pub fn behind(name: &[u8]) -> Vec<u8> {
    [name, &[0]].concat()
}

/// The least name above all that begin with `beginning`.
pub(crate) fn after_all(beginning: &[u8]) -> Vec<u8> {
    let mut end = beginning.to_vec();
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            return end;
        }
    }
    unreachable!("a cell's name has a kind below 255")
}
