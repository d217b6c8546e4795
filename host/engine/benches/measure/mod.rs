//! What benches measure with: state in memory, and the time that a thread had a processor.

use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Included};
use std::time::{Duration as Span, Instant};

use bytes::Bytes;
use engine::KeyedState;
use engine::state::StateError;

/// Time of this thread on a processor, or else of the clock.
pub(crate) struct Stopwatch {
    clock: Instant,
    on_processor: Option<Span>,
}

impl Stopwatch {
    pub(crate) fn start() -> Self {
        Stopwatch { clock: Instant::now(), on_processor: on_processor() }
    }

    pub(crate) fn elapsed(&self) -> Span {
        let on_processor = self.on_processor.zip(on_processor());
        on_processor.map_or_else(|| self.clock.elapsed(), |(before, now)| now - before)
    }
}

/// Linux tells, in nanoseconds.
fn on_processor() -> Option<Span> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    text.split(' ').next()?.parse().ok().map(Span::from_nanos)
}

/// Cells in a map.
#[derive(Default)]
pub(crate) struct State {
    cells: BTreeMap<Bytes, Bytes>,
    writes: BTreeMap<Bytes, Option<Bytes>>,
    /// Bytes.
    pub(crate) written: usize,
}

impl State {
    /// A bundle is durable.
    pub(crate) fn commit(&mut self) {
        for (cell, value) in std::mem::take(&mut self.writes) {
            self.written += cell.len() + value.as_ref().map_or(0, Bytes::len);
            match value {
                Some(value) => self.cells.insert(cell, value),
                None => self.cells.remove(&cell),
            };
        }
    }
}

impl KeyedState for State {
    fn get(&self, cell: &[u8]) -> Result<Option<Bytes>, StateError> {
        Ok(self.writes.get(cell).cloned().unwrap_or_else(|| self.cells.get(cell).cloned()))
    }

    fn scan(&self, from: &[u8], to: &[u8], cells_max: usize, _: usize) -> Result<Vec<(Bytes, Bytes)>, StateError> {
        let range = (Included(from), Excluded(to));
        let written = self.writes.range::<[u8], _>(range).map(|(cell, value)| (cell, value.as_ref()));
        let committed = self.cells.range::<[u8], _>(range).filter(|(cell, _)| !self.writes.contains_key(*cell));
        // Both are cut before they are merged: at most this many of each can be among the first.
        let written = written.filter_map(|(cell, value)| value.map(|value| (cell, value))).take(cells_max);
        let mut found: Vec<_> = written.chain(committed.take(cells_max)).collect();
        found.sort();
        Ok(found.into_iter().take(cells_max).map(|(cell, value)| (cell.clone(), value.clone())).collect())
    }

    fn put(&mut self, cell: Bytes, value: Option<Bytes>) {
        self.writes.insert(cell, value);
    }
}
