//! What a grouping of cells keeps in memory: when to look at which time, and what holds the watermark.
//!
//! Only times are here, counted; which keys and windows they belong to is in state.

use model::Timestamp;

use super::super::Summary;
use super::super::counted::Counted;
use super::super::trigger::Timers;
use super::window_state::WindowState;
use crate::arrivals::Window;

/// Times of all keys and windows.
#[derive(Debug, Default)]
pub(super) struct Index {
    /// Each with the end of its window, as reports name it.
    holds: Counted<(Timestamp, Timestamp)>,
    /// Likewise.
    events: Counted<(Timestamp, Timestamp)>,
    processing: Counted<i64>,
    deferred: u64,
    /// The next number of a buffer.
    pub(super) next_buffer: u64,
    summary: Summary,
}

/// One key and window as the index sees it.
#[derive(Clone, Debug)]
pub(super) struct Indexed {
    hold: Option<Timestamp>,
    timers: Timers,
    end: Timestamp,
    expiry: Timestamp,
    rows: u64,
    bytes: u64,
}

impl Indexed {
    /// `expiry` is the time when the window expires.
    pub(super) fn new(state: &WindowState, window: &Window, expiry: Timestamp) -> Self {
        Indexed {
            hold: state.hold(),
            timers: state.timers.clone(),
            end: window.end,
            expiry,
            rows: state.values,
            bytes: state.bytes,
        }
    }

    /// The event times of its timers; one where both are the same.
    pub(super) fn events(&self) -> impl Iterator<Item = Timestamp> {
        let end = self.timers.end.then_some(self.end);
        let expiry = self.timers.expiry.then_some(self.expiry);
        end.into_iter().chain(expiry.filter(|expiry| Some(*expiry) != end))
    }

    pub(super) fn timers(&self) -> &Timers {
        &self.timers
    }
}

impl Index {
    pub(super) fn add(&mut self, indexed: &Indexed) {
        indexed.hold.into_iter().for_each(|hold| self.holds.add((hold, indexed.end)));
        indexed.events().for_each(|time| self.events.add((time, indexed.end)));
        indexed.timers.processing.iter().for_each(|time| self.processing.add(*time));
        self.deferred += u64::from(indexed.timers.deferred);
        self.summary.windows += 1;
        self.summary.rows += indexed.rows;
        self.summary.bytes += indexed.bytes;
    }

    pub(super) fn remove(&mut self, indexed: &Indexed) {
        indexed.hold.into_iter().for_each(|hold| self.holds.remove((hold, indexed.end)));
        indexed.events().for_each(|time| self.events.remove((time, indexed.end)));
        indexed.timers.processing.iter().for_each(|time| self.processing.remove(*time));
        self.deferred -= u64::from(indexed.timers.deferred);
        self.summary.windows -= 1;
        self.summary.rows -= indexed.rows;
        self.summary.bytes -= indexed.bytes;
    }

    /// Whether a batch of elements waits to be looked at.
    pub(super) fn deferred(&self) -> bool {
        self.deferred > 0
    }

    pub(super) fn next_event(&self) -> Option<Timestamp> {
        self.events.least().map(|(time, _)| time)
    }

    pub(super) fn next_processing(&self) -> Option<i64> {
        self.processing.least()
    }

    /// The least hold and the end of a window that has it. A timer of event time holds the watermark until it has fired: by
    /// then, the pane of its window may be on time.
    pub(super) fn holder(&self) -> Option<(Timestamp, Timestamp)> {
        self.holds.least().into_iter().chain(self.events.least()).min()
    }

    pub(super) fn summary(&self) -> Summary {
        self.summary
    }
}
