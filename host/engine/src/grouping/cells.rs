//! Grouping with a cell per key and window: every trigger, every accumulation mode, lateness, merging windows.
//!
//! The rules are those of Java's `ReduceFnRunner` as `beam-model.md` writes them down in 5.2 to 5.6:
//!
//! ```text
//!   rows of one key  ─▶ late copies dropped ─▶ windows merged ─▶ values, holds, trigger ─▶ ready? panes    batch.rs
//!   a timer is due   ─▶ expired? the final pane, and all is cleared; else ready? a pane                    timers.rs
//!   a pane           ─▶ trigger moves on, holds released, pane info counted, buffer kept or cleared        emit.rs
//! ```
//!
//! One call works on one [`Bundle`]: a view of state with what changed in memory beside it.

mod batch;
mod emit;
mod index;
mod merging;
mod timers;
mod window_state;

use bytes::Bytes;
use model::time::encode_millis;
use model::windowing::{Merging, WindowFn, WindowingStrategy};
use model::{Batch, Coder, Duration, Reader, StageId, Timestamp, WindowCoder};

use self::index::{Index, Indexed};
use self::window_state::WindowState;
use super::names::{self, Domain, Names};
use super::output::Panes;
use super::trigger::{Machine, Moment, Tree};
use super::{Clocks, Delta, Error, Grouped, Limits, Summary, WindowMerger};
use crate::KeyedState;
use crate::arrivals::{Arrivals, Order, Window};

/// Cells and bytes that are read at once.
const SCAN_CELLS_MAX: usize = 1024;
const SCAN_BYTES_MAX: usize = 1 << 20;

/// All keys and windows of one stage.
#[derive(Debug)]
pub(super) struct Cells {
    names: Names,
    coder: Coder,
    window_coder: WindowCoder,
    strategy: WindowingStrategy,
    tree: Tree,
    merges: Option<Merges>,
    /// The trigger is asked after every row, not when all rows of a key in a call are in.
    by_row: bool,
    index: Index,
}

/// Who knows which windows merge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Merges {
    Sessions,
    Asked,
}

/// What a call changed in the index.
#[derive(Debug)]
pub(super) struct Changes {
    /// One key and window each: as it was and as it is, none where there was or is no cell.
    indexed: Vec<(Option<Indexed>, Option<Indexed>)>,
    next_buffer: u64,
}

/// One call at work.
struct Bundle<'a> {
    cells: &'a Cells,
    clocks: Clocks,
    state: &'a mut dyn KeyedState,
    merger: &'a mut dyn WindowMerger,
    panes: Panes,
    changes: Changes,
    dropped: u64,
}

/// One key and window at work.
struct Loaded {
    window: Window,
    /// As the index has it; none: there is no cell.
    before: Option<Indexed>,
    now: WindowState,
}

impl Cells {
    /// Says what is wrong with a strategy that cannot be run.
    pub(super) fn new(
        stage: StageId,
        strategy: WindowingStrategy,
        coder: Coder,
        window_coder: WindowCoder,
    ) -> Result<Self, String> {
        let merges = match (strategy.merging, &strategy.window_fn) {
            (Merging::NeedsMerge, WindowFn::Custom { .. }) => Some(Merges::Asked),
            (Merging::NeedsMerge, _) => Some(Merges::Sessions),
            (Merging::NonMerging | Merging::AlreadyMerged, _) => None,
        };
        if merges == Some(Merges::Sessions) && window_coder != WindowCoder::Interval {
            return Err("sessions whose windows are no intervals".into());
        }
        let tree = Tree::new(&strategy.trigger)?;
        let (names, by_row) = (Names::new(stage), strategy.trigger.counts_elements());
        Ok(Cells { names, coder, window_coder, strategy, tree, merges, by_row, index: Index::default() })
    }

    /// See [`super::Grouping::gather`].
    pub(super) fn gather(&mut self) {
        self.by_row = false;
    }

    pub(super) fn restore(&mut self, state: &dyn KeyedState) -> Result<(), Error> {
        if let Some(number) = state.get(&self.names.next_buffer())? {
            self.index.next_buffer = Reader::new(&number).be_u64()?;
        }
        let all = self.names.all(names::WINDOW_STATE);
        let end = names::after_all(&all);
        let mut from = all;
        loop {
            let page = state.scan(&from, &end, SCAN_CELLS_MAX, SCAN_BYTES_MAX)?;
            let Some((last, _)) = page.last() else {
                return Ok(());
            };
            from = names::behind(last);
            for (cell, value) in page {
                let (_, window) = self.split(&cell.slice(names::BEGINNING..))?;
                let window_state = WindowState::decode(&value, &self.tree)?;
                self.index.add(&self.indexed(&window_state, &window));
            }
        }
    }

    pub(super) fn run(
        &self,
        rows: &[Batch],
        clocks: Clocks,
        limits: Limits,
        state: &mut dyn KeyedState,
        merger: &mut dyn WindowMerger,
    ) -> Result<Grouped, Error> {
        let changes = Changes { indexed: Vec::new(), next_buffer: self.index.next_buffer };
        let mut bundle = Bundle { cells: self, clocks, state, merger, panes: Panes::new(limits), changes, dropped: 0 };
        bundle.fire_deferred()?;
        let open = |window: &Window| self.expiry(window) >= clocks.input_watermark;
        let arrivals = Arrivals::new(rows, &self.coder, self.window_coder, Order::KeyFirst, open)?;
        for group in arrivals.groups(Order::KeyFirst) {
            bundle.batch(&arrivals, group)?;
        }
        bundle.fire_event_timers()?;
        bundle.fire_processing_timers()?;
        let Bundle { state, panes, changes, dropped, .. } = bundle;
        if changes.next_buffer != self.index.next_buffer {
            let number = Bytes::copy_from_slice(&changes.next_buffer.to_be_bytes());
            state.put(self.names.next_buffer(), Some(number));
        }
        let delta = Delta(super::Changes::Cells(changes));
        Ok(Grouped { panes: panes.finish(), delta, dropped_rows: arrivals.dropped + dropped })
    }

    pub(super) fn apply(&mut self, changes: Changes) {
        for (before, now) in &changes.indexed {
            // Added first: a time that stays is not forgotten in between.
            now.iter().for_each(|now| self.index.add(now));
            before.iter().for_each(|before| self.index.remove(before));
        }
        self.index.next_buffer = changes.next_buffer;
    }

    pub(super) fn due(&self, clocks: Clocks) -> bool {
        self.index.deferred()
            || self.index.next_event().is_some_and(|time| time < clocks.input_watermark)
            || self.index.next_processing().is_some_and(|time| time < clocks.now_ms)
    }

    /// A timer fires when its time has passed.
    pub(super) fn next_processing_ms(&self) -> Option<i64> {
        self.index.next_processing().map(|time| time.saturating_add(1))
    }

    pub(super) fn holder(&self) -> Option<(Timestamp, Timestamp)> {
        self.index.holder()
    }

    pub(super) fn summary(&self) -> Summary {
        self.index.summary()
    }

    /// When a window is forgotten: once the input watermark has passed this time.
    fn expiry(&self, window: &Window) -> Timestamp {
        let lateness = self.strategy.allowed_lateness.max(Duration(0));
        window.end.plus(lateness).min(Timestamp::GLOBAL_WINDOW_END)
    }

    fn indexed(&self, state: &WindowState, window: &Window) -> Indexed {
        Indexed::new(state, window, self.expiry(window))
    }

    /// Key and window at the end of a cell's name.
    fn split(&self, name: &Bytes) -> Result<(Bytes, Window), Error> {
        let key_len = self.coder.key_len(name)?;
        let window = Window::new(self.window_coder, name.slice(key_len..))?;
        Ok((name.slice(..key_len), window))
    }
}

impl Bundle<'_> {
    fn load(&self, key: &[u8], window: &Window) -> Result<Loaded, Error> {
        let cell = self.state.get(&self.cells.names.window_state(key, &window.bytes))?;
        let (before, now) = match cell {
            Some(cell) => {
                let now = WindowState::decode(&cell, &self.cells.tree)?;
                (Some(self.cells.indexed(&now, window)), now)
            }
            None => (None, WindowState::new(&self.cells.tree)),
        };
        Ok(Loaded { window: window.clone(), before, now })
    }

    /// Writes one key and window back, with its timers.
    fn store(&mut self, key: &[u8], loaded: Loaded) {
        let Loaded { window, before, now } = loaded;
        let name = self.cells.names.window_state(key, &window.bytes);
        self.state.put(name, Some(now.encode()));
        let now = self.cells.indexed(&now, &window);
        self.put_timers(key, &window, before.as_ref(), Some(&now));
        self.changes.indexed.push((before, Some(now)));
    }

    /// Forgets one key and window. Its values are gone already, or belong to another window.
    fn delete(&mut self, key: &[u8], loaded: Loaded) {
        let Loaded { window, before, .. } = loaded;
        self.state.put(self.cells.names.window_state(key, &window.bytes), None);
        self.put_timers(key, &window, before.as_ref(), None);
        self.changes.indexed.push((before, None));
    }

    fn put_timers(&mut self, key: &[u8], window: &Window, before: Option<&Indexed>, now: Option<&Indexed>) {
        let (before, now) = (timer_cells(before), timer_cells(now));
        let removed = before.iter().filter(|timer| !now.contains(timer)).map(|timer| (timer, None));
        let added = now.iter().filter(|timer| !before.contains(timer)).map(|timer| (timer, Some(Bytes::new())));
        for (&(domain, time), value) in removed.chain(added) {
            self.state.put(self.cells.names.timer(domain, time, key, &window.bytes), value);
        }
    }

    /// The trigger of a loaded window.
    fn machine<'a>(&'a self, loaded: &'a mut Loaded) -> Machine<'a> {
        let Loaded { window, now, .. } = loaded;
        let Clocks { input_watermark, now_ms, .. } = self.clocks;
        let at = Moment { end: window.end, input_watermark, now_ms };
        let WindowState { slots, timers, .. } = now;
        Machine { tree: &self.cells.tree, slots, timers, at, merging: self.cells.merges.is_some() }
    }
}

fn timer_cells(indexed: Option<&Indexed>) -> Vec<(Domain, [u8; 8])> {
    let Some(indexed) = indexed else {
        return Vec::new();
    };
    let deferred = indexed.timers().deferred.then_some((Domain::Deferred, [0; 8]));
    let events = indexed.events().map(|time| (Domain::Event, time.encode()));
    let processing = indexed.timers().processing.iter().map(|&time| (Domain::Processing, encode_millis(time)));
    deferred.into_iter().chain(events).chain(processing).collect()
}
