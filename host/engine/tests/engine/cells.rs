//! Keyed state in memory: committed cells, and a bundle's writes on top of them.

use std::collections::BTreeMap;
use std::ops::Bound;

use bytes::Bytes;
use engine::{KeyedState, StateError};

/// Committed cells of one shard.
pub(crate) type Cells = BTreeMap<Bytes, Bytes>;

/// Cells as one bundle sees them.
pub(crate) struct Overlay<'a> {
    pub(crate) committed: &'a Cells,
    pub(crate) writes: BTreeMap<Bytes, Option<Bytes>>,
}

impl<'a> Overlay<'a> {
    pub(crate) fn new(committed: &'a Cells) -> Self {
        Overlay { committed, writes: BTreeMap::new() }
    }
}

/// Makes a bundle's writes durable.
pub(crate) fn commit(cells: &mut Cells, writes: BTreeMap<Bytes, Option<Bytes>>) {
    for (cell, value) in writes {
        match value {
            Some(value) => cells.insert(cell, value),
            None => cells.remove(&cell),
        };
    }
}

impl KeyedState for Overlay<'_> {
    fn get(&self, cell: &[u8]) -> Result<Option<Bytes>, StateError> {
        match self.writes.get(cell) {
            Some(value) => Ok(value.clone()),
            None => Ok(self.committed.get(cell).cloned()),
        }
    }

    fn scan(&self, from: &[u8], to: &[u8], cells_max: usize, bytes_max: usize) -> Result<Vec<(Bytes, Bytes)>, StateError> {
        let range = (Bound::Included(from), Bound::Excluded(to));
        let committed = self.committed.range::<[u8], _>(range).map(|(cell, value)| (cell.clone(), value.clone()));
        let mut seen: BTreeMap<Bytes, Bytes> = committed.collect();
        let writes = self.writes.range::<[u8], _>(range).map(|(cell, value)| (cell.clone(), value.clone()));
        commit(&mut seen, writes.collect());
        let mut bytes = 0;
        let within = |(cell, value): &(Bytes, Bytes)| {
            let first = bytes == 0;
            bytes += cell.len() + value.len();
            first || bytes <= bytes_max
        };
        Ok(seen.into_iter().take(cells_max).take_while(within).collect())
    }

    fn put(&mut self, cell: Bytes, value: Option<Bytes>) {
        self.writes.insert(cell, value);
    }
}
