//! A pane goes out, or would: `ReduceFnRunner.onTrigger`. See `beam-model.md` 5.3.

use model::Timestamp;
use model::batch::BATCH_BYTES_MAX;
use model::pane::{PaneInfo, Timing};
use model::windowing::{Accumulation, ClosingBehavior, OnTimeBehavior};

use super::super::Error;
use super::super::names;
use super::super::output::Values;
use super::window_state::WindowState;
use super::{Bundle, Clocks, Loaded, SCAN_BYTES_MAX, SCAN_CELLS_MAX};

impl Bundle<'_> {
    /// Fires an open window: because its trigger is ready, or for the last time because it has `expired`.
    /// The caller stores it.
    pub(super) fn emit(&mut self, key: &[u8], loaded: &mut Loaded, expired: bool) -> Result<(), Error> {
        if !expired {
            self.machine(loaded).on_fire();
        }
        let finished = expired || loaded.now.is_closed();
        let timestamp = self.release_holds(loaded, finished);
        let pane = next_pane(loaded.now.pane, loaded.window.end, self.clocks, finished);
        if self.is_wanted(loaded.now.since_pane == 0, finished, pane.timing) {
            let values = self.values(key, &loaded.now)?;
            self.panes.push(key, &values, timestamp, &loaded.window.bytes, pane)?;
            loaded.now.pane = Some(pane);
        }
        loaded.now.since_pane = 0;
        if finished || self.cells.strategy.accumulation == Accumulation::Discarding {
            self.clear_values(key, &mut loaded.now);
        }
        if finished {
            loaded.now.pane = None;
            self.machine(loaded).clear();
            self.deactivate(key, &loaded.window.clone())?;
        }
        Ok(())
    }

    /// Whether a pane is emitted though it may be empty.
    fn is_wanted(&self, empty: bool, finished: bool, timing: Timing) -> bool {
        let strategy = &self.cells.strategy;
        !empty
            || (timing == Timing::OnTime && strategy.on_time == OnTimeBehavior::Always)
            || (finished && strategy.closing == ClosingBehavior::Always)
    }

    /// Returns the pane's timestamp. Where a final pane will come even if it is empty, the window goes on holding the
    /// watermark, so that the pane is not late beyond its lateness.
    fn release_holds(&self, loaded: &mut Loaded, finished: bool) -> Timestamp {
        let end = loaded.window.end;
        let timestamp = loaded.now.hold().map_or(end, |hold| hold.min(end));
        loaded.now.element_hold = None;
        loaded.now.extra_hold = None;
        if !finished && self.cells.strategy.closing == ClosingBehavior::Always {
            self.add_expiry_hold(loaded);
        }
        timestamp
    }

    fn values(&self, key: &[u8], now: &WindowState) -> Result<Values, Error> {
        if now.bytes > BATCH_BYTES_MAX as u64 {
            return Err(Error::PaneTooLarge("4 GiB"));
        }
        let mut values = Values { count: now.values, bytes: Vec::with_capacity(now.bytes as usize) };
        for buffer in &now.buffers {
            let beginning = self.cells.names.buffer(key, buffer.number);
            let end = names::numbered(&beginning, buffer.chunks);
            let (mut from, mut chunks) = (beginning, 0);
            while chunks < buffer.chunks {
                let page = self.state.scan(&from, &end, SCAN_CELLS_MAX, SCAN_BYTES_MAX)?;
                let Some((last, _)) = page.last() else {
                    return Err(Error::Corrupt("a chunk of values is missing".into()));
                };
                from = names::behind(last);
                chunks += page.len() as u32;
                page.iter().for_each(|(_, chunk)| values.bytes.extend_from_slice(chunk));
            }
        }
        if values.bytes.len() as u64 != now.bytes {
            return Err(Error::Corrupt("chunks of values are not those that were written".into()));
        }
        Ok(values)
    }

    pub(super) fn clear_values(&mut self, key: &[u8], now: &mut WindowState) {
        for buffer in std::mem::take(&mut now.buffers) {
            let beginning = self.cells.names.buffer(key, buffer.number);
            (0..buffer.chunks).for_each(|chunk| self.state.put(names::numbered(&beginning, chunk), None));
        }
        (now.values, now.bytes) = (0, 0);
    }
}

/// What the next pane is, given the one before: Java's `PaneInfoTracker.describePane`.
fn next_pane(before: Option<PaneInfo>, end: Timestamp, clocks: Clocks, finished: bool) -> PaneInfo {
    let only_early_before = before.is_none_or(|pane| pane.timing == Timing::Early);
    let timing = match () {
        () if end < clocks.output_watermark || !only_early_before => Timing::Late,
        () if clocks.input_watermark <= end => Timing::Early,
        () => Timing::OnTime,
    };
    PaneInfo {
        is_first: before.is_none(),
        is_last: finished,
        timing,
        index: before.map_or(0, |pane| pane.index + 1),
        nonspeculative_index: match timing {
            Timing::Early => -1,
            _ => before.map_or(0, |pane| pane.nonspeculative_index + 1),
        },
    }
}
