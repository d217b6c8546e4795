//! A bundle's view of its shard's state: committed cells with the bundle's own writes on top.
//!
//! Nothing is written here; the writes become part of the bundle's commit.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use engine::KeyedState;
use engine::state::{StateError, behind};
use ledger::{StateReader, StateWrite};

/// What a cell's first byte says about its owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum CellSpace {
    /// The executor's own marks.
    Executor = b'e',
    /// What heads of stages keep by key: groupings, timers.
    Heads = b'g',
    /// Committed metrics.
    Metrics = b'm',
    /// User state.
    UserState = b'u',
}

impl CellSpace {
    /// The full name of a cell in this space.
    pub fn cell(self, name: &[u8]) -> Bytes {
        let mut cell = Vec::with_capacity(1 + name.len());
        cell.push(self as u8);
        cell.extend_from_slice(name);
        cell.into()
    }
}

/// See the file's head. Covers the cells of one space.
pub struct Overlay {
    committed: Arc<dyn StateReader>,
    space: CellSpace,
    writes: BTreeMap<Bytes, Option<Bytes>>,
    bytes: usize,
}

impl Overlay {
    /// A view without writes.
    pub fn new(committed: Arc<dyn StateReader>, space: CellSpace) -> Self {
        Overlay { committed, space, writes: BTreeMap::new(), bytes: 0 }
    }

    /// Bytes of the names and values of all writes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The writes, for the commit.
    pub fn into_writes(self) -> Vec<StateWrite> {
        self.writes.into_iter().map(|(cell, value)| StateWrite { cell, value }).collect()
    }
}

fn unreadable(error: ledger::Error) -> StateError {
    StateError(error.to_string())
}

impl KeyedState for Overlay {
    fn get(&self, cell: &[u8]) -> Result<Option<Bytes>, StateError> {
        let cell = self.space.cell(cell);
        match self.writes.get(&cell) {
            Some(written) => Ok(written.clone()),
            None => self.committed.get(&cell).map_err(unreadable),
        }
    }

    fn scan(&self, from: &[u8], to: &[u8], cells_max: usize, bytes_max: usize) -> Result<Vec<(Bytes, Bytes)>, StateError> {
        let (from, to) = (self.space.cell(from), self.space.cell(to));
        if from >= to {
            return Ok(Vec::new());
        }
        let mut found: Vec<(Bytes, Bytes)> = Vec::new();
        let mut bytes = 0;
        let mut next = from;
        loop {
            let committed = self.committed.scan(&next, &to, cells_max, bytes_max).map_err(unreadable)?;
            let end = match committed.last() {
                Some((cell, _)) => behind(cell).into(),
                None => to.clone(),
            };
            for (cell, value) in merge(committed, self.writes.range(next.clone()..end.clone())) {
                if found.len() >= cells_max || (!found.is_empty() && bytes >= bytes_max) {
                    return Ok(found);
                }
                bytes += value.len();
                found.push((cell.slice(1..), value));
            }
            if end == to {
                return Ok(found);
            }
            next = end;
        }
    }

    fn put(&mut self, cell: Bytes, value: Option<Bytes>) {
        let cell = self.space.cell(&cell);
        let size = |value: &Option<Bytes>| value.as_ref().map_or(0, Bytes::len);
        self.bytes += size(&value);
        let name_bytes = cell.len();
        match self.writes.insert(cell, value) {
            Some(before) => self.bytes -= size(&before),
            None => self.bytes += name_bytes,
        }
    }
}

/// Written cells replace committed ones; both come in order and leave in order.
fn merge<'a>(
    committed: Vec<(Bytes, Bytes)>,
    written: impl Iterator<Item = (&'a Bytes, &'a Option<Bytes>)>,
) -> Vec<(Bytes, Bytes)> {
    let mut written = written.peekable();
    if written.peek().is_none() {
        return committed;
    }
    let mut all: BTreeMap<Bytes, Bytes> = committed.into_iter().collect();
    for (cell, value) in written {
        match value {
            Some(value) => all.insert(cell.clone(), value.clone()),
            None => all.remove(cell),
        };
    }
    all.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Cells(BTreeMap<Bytes, Bytes>);

    impl StateReader for Cells {
        fn get(&self, cell: &[u8]) -> Result<Option<Bytes>, ledger::Error> {
            Ok(self.0.get(cell).cloned())
        }

        fn scan(&self, from: &[u8], to: &[u8], cells: usize, _: usize) -> Result<Vec<(Bytes, Bytes)>, ledger::Error> {
            let range = self.0.range(Bytes::copy_from_slice(from)..Bytes::copy_from_slice(to));
            Ok(range.take(cells).map(|(cell, value)| (cell.clone(), value.clone())).collect())
        }
    }

    fn check(committed: &[&str], writes: &[(&str, bool)], cells_max: usize, expected: &[&str]) {
        let cells = committed.iter().map(|cell| (CellSpace::Heads.cell(cell.as_bytes()), Bytes::from_static(b"old")));
        let mut overlay = Overlay::new(Arc::new(Cells(cells.collect())), CellSpace::Heads);
        for (cell, set) in writes {
            overlay.put(Bytes::copy_from_slice(cell.as_bytes()), set.then(|| Bytes::from_static(b"new")));
        }
        let found = overlay.scan(b"a", b"z", cells_max, usize::MAX).unwrap();
        let text: Vec<String> = found
            .iter()
            .map(|(cell, value)| format!("{}:{}", String::from_utf8_lossy(cell), String::from_utf8_lossy(value)))
            .collect();
        assert_eq!(text, expected);
    }

    #[test]
    fn writes_lie_on_top_of_committed_cells() {
        check(&["a", "c"], &[("b", true), ("c", false), ("y", true)], 9, &["a:old", "b:new", "y:new"]);
        check(&["a", "b", "c", "d"], &[("a", false), ("b", false)], 2, &["c:old", "d:old"]);
        check(&["b"], &[("a", true), ("z", true)], 1, &["a:new"]);
        check(&[], &[("b", true)], 9, &["b:new"]);
    }
}
