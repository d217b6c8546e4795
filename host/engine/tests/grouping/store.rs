//! Keyed state in memory: committed cells, and the writes of one call on top of them.

use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Included};

use bytes::Bytes;
use engine::KeyedState;
use engine::state::StateError;

/// Cells of one shard.
#[derive(Clone, Debug, Default)]
pub(crate) struct Store {
    committed: BTreeMap<Bytes, Bytes>,
    writes: BTreeMap<Bytes, Option<Bytes>>,
}

impl Store {
    /// Makes the writes durable.
    pub(crate) fn commit(&mut self) {
        for (cell, value) in std::mem::take(&mut self.writes) {
            match value {
                Some(value) => self.committed.insert(cell, value),
                None => self.committed.remove(&cell),
            };
        }
    }

    /// Forgets the writes.
    pub(crate) fn abort(&mut self) {
        self.writes.clear();
    }

    /// Committed cells, for tests that nothing is left over and that cells stay small.
    pub(crate) fn cells(&self) -> &BTreeMap<Bytes, Bytes> {
        &self.committed
    }
}

impl KeyedState for Store {
    fn get(&self, cell: &[u8]) -> Result<Option<Bytes>, StateError> {
        match self.writes.get(cell) {
            Some(value) => Ok(value.clone()),
            None => Ok(self.committed.get(cell).cloned()),
        }
    }

    fn scan(&self, from: &[u8], to: &[u8], cells_max: usize, bytes_max: usize) -> Result<Vec<(Bytes, Bytes)>, StateError> {
        assert!(from <= to && cells_max > 0, "a scan goes forward");
        let range = (Included(from), Excluded(to));
        let mut committed = self.committed.range::<[u8], _>(range).peekable();
        let mut writes = self.writes.range::<[u8], _>(range).peekable();
        let (mut found, mut bytes) = (Vec::new(), 0);
        loop {
            let write_first = match (committed.peek(), writes.peek()) {
                (None, None) => break,
                (Some(_), None) => false,
                (None, Some(_)) => true,
                (Some((old, _)), Some((new, _))) => new <= old,
            };
            let (cell, value) = if write_first {
                let (cell, value) = writes.next().unwrap();
                committed.next_if(|(old, _)| *old == cell);
                (cell, value.clone())
            } else {
                committed.next().map(|(cell, value)| (cell, Some(value.clone()))).unwrap()
            };
            let Some(value) = value else { continue };
            bytes += cell.len() + value.len();
            if found.len() >= cells_max || (!found.is_empty() && bytes > bytes_max) {
                break;
            }
            found.push((cell.clone(), value));
        }
        Ok(found)
    }

    fn put(&mut self, cell: Bytes, value: Option<Bytes>) {
        self.writes.insert(cell, value);
    }
}
