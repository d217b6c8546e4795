//! The states of one call: what was read of them and what has changed, by run and state.
//!
//! ```text
//!  first access   the store is asked, once
//!  later          from memory
//!  end of call    all changes at once, in one arena
//!  too much       changes are handed over early, and everything is forgotten
//! ```

use std::cell::{Cell as Shared, RefCell, RefMut};

use crate::timers::TimerBuffer;

use super::list::List;
use super::map::Map;
use super::ordered::Ordered;

/// Where states come from: the host, or memory in tests.
pub trait Store {
    /// A page of a part of a state, from the beginning or from an earlier page's `next`.
    fn read(&self, run: u32, state: u32, part: &[u8], next: Option<&[u8]>) -> Page;
    /// A page of the keys of a map, or of the elements of a set.
    fn keys(&self, run: u32, state: u32, next: Option<&[u8]>) -> Page;
    /// Takes changes before the call is over.
    fn apply(&self, changes: Changes);
}

/// `state.page`
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are those of state.page")]
pub struct Page {
    pub elements: Vec<u8>,
    pub next: Option<Vec<u8>>,
}

/// `state.change-kind`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the cases are those of state.change-kind")]
pub enum ChangeKind {
    Append,
    Replace,
    Clear,
}

/// `state.changes`
#[derive(Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are those of state.changes")]
pub struct Changes {
    pub runs: Vec<u32>,
    pub states: Vec<u32>,
    pub kinds: Vec<ChangeKind>,
    pub part_bytes: Vec<u8>,
    pub part_ends: Vec<u32>,
    pub element_bytes: Vec<u8>,
    pub element_ends: Vec<u32>,
}

impl Changes {
    /// State, kind, part and elements of each change.
    #[cfg(not(target_arch = "wasm32"))]
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, ChangeKind, &[u8], &[u8])> {
        fn slice<'a>(bytes: &'a [u8], ends: &[u32], at: usize) -> &'a [u8] {
            let start = if at == 0 { 0 } else { ends.get(at - 1).map_or(0, |end| *end as usize) };
            ends.get(at).map_or(&[], |end| &bytes[start..*end as usize])
        }
        (0..self.runs.len()).map(|at| {
            let part = slice(&self.part_bytes, &self.part_ends, at);
            (self.states[at], self.kinds[at], part, slice(&self.element_bytes, &self.element_ends, at))
        })
    }

    pub(super) fn push(&mut self, (run, state): (u32, u32), kind: ChangeKind, part: &[u8], elements: &[u8]) {
        if !part.is_empty() && self.part_ends.is_empty() {
            self.part_ends.resize(self.runs.len(), 0);
        }
        self.runs.push(run);
        self.states.push(state);
        self.kinds.push(kind);
        self.part_bytes.extend_from_slice(part);
        if !self.part_ends.is_empty() || !part.is_empty() {
            self.part_ends.push(self.part_bytes.len() as u32);
        }
        self.element_bytes.extend_from_slice(elements);
        self.element_ends.push(self.element_bytes.len() as u32);
    }
}

/// One state of one run.
pub(super) enum Cell {
    Untouched,
    List(List),
    Map(Map),
    Ordered(Ordered),
}

/// What all states and timers of an instance share: the call that is under way, and where it is.
pub struct Call {
    store: Box<dyn Store>,
    states: u32,
    /// State `s` of run `r` is at `r * states + s`.
    cells: RefCell<Vec<Cell>>,
    run: Shared<u32>,
    /// About how many bytes the cells hold.
    bytes: Shared<usize>,
    bytes_max: usize,
    pub(crate) timers: TimerBuffer,
}

impl Call {
    /// For an instance with so many states and timer families. Cells that hold more than `bytes_max` bytes together are handed
    /// over between two elements.
    pub fn new(store: Box<dyn Store>, states: u32, families: u32, bytes_max: usize) -> Self {
        let (cells, run, bytes) = (RefCell::default(), Shared::new(0), Shared::new(0));
        Call { store, states, cells, run, bytes, bytes_max, timers: TimerBuffer::new(families) }
    }

    /// A call with so many runs begins.
    pub(crate) fn begin(&self, runs: usize, now_ms: i64) {
        self.forget(runs);
        self.timers.begin(runs, now_ms);
    }

    /// From now on states are those of this run. `timestamp_ms`: of the element or timer, if it is known.
    #[inline]
    pub(crate) fn enter(&self, run: u32, timestamp_ms: Option<i64>) {
        if self.bytes.get() > self.bytes_max {
            self.spill();
        }
        self.run.set(run);
        self.timers.enter(run, timestamp_ms);
    }

    /// All that has changed since the last time.
    pub(crate) fn take_changes(&self) -> Changes {
        let mut changes = Changes::default();
        for (index, cell) in self.cells.borrow_mut().iter_mut().enumerate() {
            let place = (index as u32 / self.states, index as u32 % self.states);
            match std::mem::replace(cell, Cell::Untouched) {
                Cell::Untouched => {}
                Cell::List(list) => list.changes(place, &mut changes),
                Cell::Map(map) => map.changes(place, &mut changes),
                Cell::Ordered(ordered) => ordered.changes(place, &mut changes),
            }
        }
        changes
    }

    fn forget(&self, runs: usize) {
        let mut cells = self.cells.borrow_mut();
        cells.clear();
        cells.resize_with(runs * self.states as usize, || Cell::Untouched);
        self.bytes.set(0);
    }

    fn spill(&self) {
        let changes = self.take_changes();
        if !changes.runs.is_empty() {
            self.store.apply(changes);
        }
        self.bytes.set(0);
    }

    /// The cell of a state of the run at hand, made by `make` at its first access.
    #[inline]
    pub(super) fn cell(&self, state: u32, make: impl FnOnce() -> Cell) -> RefMut<'_, Cell> {
        let index = (self.run.get() * self.states + state) as usize;
        RefMut::map(self.cells.borrow_mut(), |cells| {
            let cell = cells.get_mut(index).expect("states are reached only while elements and timers are processed");
            if matches!(cell, Cell::Untouched) {
                *cell = make();
            }
            cell
        })
    }

    /// Counts what a cell now holds more.
    #[inline]
    pub(super) fn grew(&self, bytes: usize) {
        self.bytes.set(self.bytes.get() + bytes);
    }

    pub(super) fn page(&self, state: u32, part: &[u8], next: Option<&[u8]>) -> Page {
        self.store.read(self.run.get(), state, part, next)
    }

    pub(super) fn keys_page(&self, state: u32, next: Option<&[u8]>) -> Page {
        self.store.keys(self.run.get(), state, next)
    }

    /// All pages of a part.
    pub(super) fn all(&self, state: u32, part: &[u8]) -> Vec<u8> {
        let mut page = self.page(state, part, None);
        let mut elements = std::mem::take(&mut page.elements);
        while let Some(next) = page.next {
            page = self.page(state, part, Some(&next));
            elements.append(&mut page.elements);
        }
        self.grew(elements.len());
        elements
    }
}
