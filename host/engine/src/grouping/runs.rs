//! Grouping that fires once per window, without a cell per key.
//!
//! Each call writes its rows of one window as one *run*: blocks of groups, sorted by key. When the input watermark passes
//! the end of the window, the runs are merged and every key is one pane: first, last, on time. Where runs pile up, they
//! are merged into longer ones on the way, a bounded amount of work per call.
//!
//! ```text
//!   call 1   a b d ──▶ run 0 ┐
//!   call 2   a c   ──▶ run 1 ├─ watermark passes the end ──▶ a b c d, one pane each, as many as the limits allow;
//!   call 3   b     ──▶ run 2 ┘                               the rest in the next call, from where the runs stand
//! ```
//!
//! Correct for what [`fires_once`] accepts, see `beam-model.md` 5.7: no early firings, and a window that expires when it
//! ends, so that the final pane is the on-time pane and is never empty.

mod block;
mod compaction;
mod merge;
mod window;

use std::collections::BTreeMap;

use model::pane::{PaneInfo, Timing};
use model::windowing::{Merging, OutputTime, Trigger, WindowingStrategy};
use model::{Batch, Coder, StageId, Timestamp, WindowCoder};

use self::block::RunWriter;
use self::merge::{Gathered, Merge, OpenBlocks};
use self::window::OpenWindow;
use super::counted::Counted;
use super::names::{self, Names};
use super::output::{Panes, combine_holds};
use super::{Clocks, Delta, Error, Grouped, Limits, Summary};
use crate::KeyedState;
use crate::arrivals::{Arrival, Arrivals, Order, Window};

/// Cells and bytes that recovery reads at once.
const RESTORE_CELLS_MAX: usize = 1024;
const RESTORE_BYTES_MAX: usize = 4 << 20;

/// Whether a window's only pane is its on-time pane at its end.
pub(super) fn fires_once(strategy: &WindowingStrategy) -> bool {
    let expires_at_end = strategy.allowed_lateness.0 <= 0 || strategy.window_coder == WindowCoder::Global;
    expires_at_end && strategy.merging != Merging::NeedsMerge && fires_at_end_only(&strategy.trigger)
}

/// What fires after the end does not matter to a window that expires at its end.
fn fires_at_end_only(trigger: &Trigger) -> bool {
    match trigger {
        Trigger::Default | Trigger::Never => true,
        Trigger::AfterEndOfWindow { early, .. } => early.as_deref().is_none_or(|early| *early == Trigger::Never),
        _ => false,
    }
}

/// All windows of one stage.
#[derive(Debug)]
pub(super) struct Runs {
    format: Format,
    coder: Coder,
    windows: BTreeMap<Window, OpenWindow>,
    /// Each with the end of its window.
    holds: Counted<(Timestamp, Timestamp)>,
    summary: Summary,
    /// What the last call that fired has read and not used up, so that firing in many calls reads a block once.
    blocks: OpenBlocks,
}

/// How cells are named and blocks are written.
#[derive(Clone, Copy, Debug)]
struct Format {
    names: Names,
    window_coder: WindowCoder,
    output_time: OutputTime,
}

/// Windows as they are after a call; none: gone.
#[derive(Debug, Default)]
pub(super) struct Changes {
    windows: BTreeMap<Window, Option<OpenWindow>>,
    blocks: OpenBlocks,
}

impl Runs {
    pub(super) fn new(stage: StageId, strategy: &WindowingStrategy, coder: Coder, window_coder: WindowCoder) -> Self {
        Runs {
            format: Format { names: Names::new(stage), window_coder, output_time: strategy.output_time },
            coder,
            windows: BTreeMap::new(),
            holds: Counted::default(),
            summary: Summary::default(),
            blocks: OpenBlocks::new(),
        }
    }

    pub(super) fn restore(&mut self, state: &dyn KeyedState) -> Result<(), Error> {
        let all = self.format.names.all(names::WINDOW_RUNS);
        let end = names::after_all(&all);
        let mut from = all;
        loop {
            let page = state.scan(&from, &end, RESTORE_CELLS_MAX, RESTORE_BYTES_MAX)?;
            let Some((last, _)) = page.last() else {
                return Ok(());
            };
            from = names::behind(last);
            for (cell, value) in page {
                let bytes = cell.slice(names::BEGINNING + 8..);
                let window = Window::new(self.format.window_coder, bytes)?;
                self.change(window, Some(OpenWindow::decode(&value)?));
            }
        }
    }

    pub(super) fn run(
        &self,
        rows: &[Batch],
        clocks: Clocks,
        limits: Limits,
        state: &mut dyn KeyedState,
    ) -> Result<Grouped, Error> {
        let mut changes = Changes::default();
        // A window whose panes are going out takes no more rows, even if the watermark seems to be behind after recovery.
        let open =
            |window: &Window| window.end >= clocks.input_watermark && !self.windows.get(window).is_some_and(|open| open.firing);
        let arrivals = Arrivals::new(rows, &self.coder, self.format.window_coder, Order::WindowFirst, open)?;
        self.absorb(&arrivals, clocks, &mut changes, state)?;
        let panes = self.fire(clocks, limits, &mut changes, state)?;
        for (window, open) in &changes.windows {
            let cell = self.format.names.window_runs(window.end, &window.bytes);
            state.put(cell, open.as_ref().map(OpenWindow::encode));
        }
        Ok(Grouped { panes, delta: Delta(super::Changes::Runs(changes)), dropped_rows: arrivals.dropped })
    }

    /// Writes one run per window.
    fn absorb(
        &self,
        arrivals: &Arrivals<'_>,
        clocks: Clocks,
        changes: &mut Changes,
        state: &mut dyn KeyedState,
    ) -> Result<(), Error> {
        let mut groups = arrivals.groups(Order::WindowFirst).peekable();
        while let Some(first) = groups.peek() {
            let number = first[0].window;
            let window = &arrivals.windows[number as usize];
            let open = changes.windows.entry(window.clone()).or_insert_with(|| self.windows.get(window).cloned());
            let open = open.get_or_insert_default();
            let mut writer = RunWriter::new(&self.format, window, open.next_run());
            while let Some(group) = groups.next_if(|group| group[0].window == number) {
                self.write_group(arrivals, group, window, clocks, open, &mut writer, state);
            }
            open.append(writer.finish(state));
            compaction::step(&self.format, window, open, state)?;
        }
        Ok(())
    }

    #[expect(clippy::too_many_arguments, reason = "the loop body of `absorb`, kept apart for its length only")]
    fn write_group(
        &self,
        arrivals: &Arrivals<'_>,
        group: &[Arrival],
        window: &Window,
        clocks: Clocks,
        open: &mut OpenWindow,
        writer: &mut RunWriter,
        state: &mut dyn KeyedState,
    ) {
        let key = arrivals.key(&group[0]);
        let mut rest = group;
        while !rest.is_empty() {
            let (mut rows, mut bytes, mut hold) = (0, 0, None);
            for arrival in rest {
                rows += 1;
                bytes += arrivals.value(arrival).len();
                if self.format.timed() {
                    let time = arrivals.timestamp(arrival).min(window.end);
                    let this = (time >= clocks.output_watermark).then_some(time);
                    open.hold = open.hold.min(this.unwrap_or(window.end));
                    hold = combine_holds(self.format.output_time, hold, this);
                }
                if bytes >= block::GROUP_BYTES {
                    break;
                }
            }
            let (now, later) = rest.split_at(rows);
            let values = now.iter().map(|arrival| arrivals.value(arrival));
            writer.push(key, rows as u64, bytes, hold, values, state);
            open.rows += rows as u64;
            rest = later;
        }
        open.hold = open.hold.min(window.end);
    }

    /// Merges windows that have ended into panes, the earliest end first.
    fn fire(
        &self,
        clocks: Clocks,
        limits: Limits,
        changes: &mut Changes,
        state: &mut dyn KeyedState,
    ) -> Result<Vec<Batch>, Error> {
        let mut panes = Panes::new(limits);
        for (window, open) in self.windows.iter().take_while(|(window, _)| window.end < clocks.input_watermark) {
            if panes.full() {
                break;
            }
            let mut open = open.clone();
            open.firing = true;
            changes.blocks = self.fire_window(window, &mut open, &mut panes, state)?;
            let finished = open.is_consumed();
            changes.windows.insert(window.clone(), (!finished).then_some(open));
        }
        Ok(panes.finish())
    }

    /// Returns the blocks that are not used up; none if the window is done.
    fn fire_window(
        &self,
        window: &Window,
        open: &mut OpenWindow,
        panes: &mut Panes,
        state: &mut dyn KeyedState,
    ) -> Result<OpenBlocks, Error> {
        const ONLY: PaneInfo =
            PaneInfo { is_first: true, is_last: true, timing: Timing::OnTime, index: 0, nonspeculative_index: 0 };
        let mut merge = Merge::new(&self.format, window, &open.runs, &self.blocks, state)?;
        let mut gathered = Gathered::default();
        while !panes.full() && merge.next(&mut gathered, usize::MAX, state)? {
            let timestamp = gathered.hold.unwrap_or(window.end);
            panes.count_key();
            panes.push(&gathered.key, &gathered.values, timestamp, &window.bytes, ONLY)?;
            open.rows = open.rows.saturating_sub(gathered.values.count);
        }
        merge.store(&mut open.runs)
    }

    pub(super) fn apply(&mut self, changes: Changes) {
        for (window, open) in changes.windows {
            self.change(window, open);
        }
        self.blocks = changes.blocks;
    }

    fn change(&mut self, window: Window, open: Option<OpenWindow>) {
        let end = window.end;
        if let Some(open) = &open {
            self.holds.add((open.hold, end));
            self.summary.windows += 1;
            self.summary.rows += open.rows;
            self.summary.bytes += open.bytes();
        }
        let before = match open {
            Some(open) => self.windows.insert(window, open),
            None => self.windows.remove(&window),
        };
        if let Some(before) = before {
            self.holds.remove((before.hold, end));
            self.summary.windows -= 1;
            self.summary.rows -= before.rows;
            self.summary.bytes -= before.bytes();
        }
    }

    pub(super) fn due(&self, clocks: Clocks) -> bool {
        self.windows.first_key_value().is_some_and(|(window, _)| window.end < clocks.input_watermark)
    }

    /// The least hold and the end of a window that has it.
    pub(super) fn holder(&self) -> Option<(Timestamp, Timestamp)> {
        self.holds.least()
    }

    pub(super) fn summary(&self) -> Summary {
        self.summary
    }
}

impl Format {
    /// Whether blocks say when their elements were.
    fn timed(&self) -> bool {
        self.output_time != OutputTime::EndOfWindow
    }
}
