//! Timers of a key in a window: calls back at a time, once.
//!
//! Fields of a [`crate::state::States`] struct. A field is a family: its timers are told apart by a tag, which most have no use
//! for. Setting a timer again moves it.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use crate::state::{Call, Field, FieldKind};

/// A timer that goes by the input watermark: it fires when no element before its time is to be expected any more.
pub struct EventTimer {
    call: Rc<Call>,
    family: u32,
}

/// A timer that goes by the clock of the runner.
pub struct ProcessingTimer {
    call: Rc<Call>,
    family: u32,
}

impl Field for EventTimer {
    const KIND: FieldKind = FieldKind::EventTimer;

    fn attach(call: &Rc<Call>, number: u32) -> Self {
        EventTimer { call: call.clone(), family: number }
    }
}

impl Field for ProcessingTimer {
    const KIND: FieldKind = FieldKind::ProcessingTimer;

    fn attach(call: &Rc<Call>, number: u32) -> Self {
        ProcessingTimer { call: call.clone(), family: number }
    }
}

impl EventTimer {
    /// Sets the timer to an event time, in milliseconds since the epoch. It must not lie behind the end of the window. Until then
    /// the output watermark stays at this time, so that what the callback emits is not late.
    #[inline]
    pub fn set(&mut self, at_ms: i64) {
        self.tag("").set(at_ms);
    }

    /// As [`EventTimer::set`], but the callback emits at `output_ms`, and the output watermark stays there.
    pub fn set_with_output_time(&mut self, at_ms: i64, output_ms: i64) {
        self.tag("").set_with_output_time(at_ms, output_ms);
    }

    /// As [`EventTimer::set`], but the output watermark goes on: what the callback emits may be late.
    pub fn set_without_hold(&mut self, at_ms: i64) {
        self.tag("").set_without_hold(at_ms);
    }

    /// Clears the timer, if it is set.
    pub fn clear(&mut self) {
        self.tag("").clear();
    }

    /// The timer of the family with a tag.
    #[inline]
    pub fn tag<'t>(&'t mut self, tag: &'t str) -> TaggedEventTimer<'t> {
        TaggedEventTimer { call: &self.call, family: self.family, tag }
    }
}

/// A timer of a family, see [`EventTimer`].
pub struct TaggedEventTimer<'t> {
    call: &'t Call,
    family: u32,
    tag: &'t str,
}

impl TaggedEventTimer<'_> {
    /// See [`EventTimer::set`].
    #[inline]
    pub fn set(&mut self, at_ms: i64) {
        self.set_with_output_time(at_ms, at_ms);
    }

    /// See [`EventTimer::set_with_output_time`].
    pub fn set_with_output_time(&mut self, at_ms: i64, output_ms: i64) {
        self.call.timers.change(self.family, self.tag, Some((at_ms, output_ms)));
    }

    /// See [`EventTimer::set_without_hold`].
    pub fn set_without_hold(&mut self, at_ms: i64) {
        self.call.timers.change(self.family, self.tag, Some((at_ms, NO_HOLD_MS)));
    }

    /// See [`EventTimer::clear`].
    pub fn clear(&mut self) {
        self.call.timers.change(self.family, self.tag, None);
    }
}

impl ProcessingTimer {
    /// Sets the timer to fire after so many milliseconds. Until then the output watermark stays at the time of the element or
    /// timer at hand, if the DoFn reads timestamps, and what the callback emits has this time.
    pub fn set_after(&mut self, delay_ms: i64) {
        self.tag("").set_after(delay_ms);
    }

    /// Clears the timer, if it is set.
    pub fn clear(&mut self) {
        self.tag("").clear();
    }

    /// The timer of the family with a tag.
    pub fn tag<'t>(&'t mut self, tag: &'t str) -> TaggedProcessingTimer<'t> {
        TaggedProcessingTimer { call: &self.call, family: self.family, tag }
    }
}

/// A timer of a family, see [`ProcessingTimer`].
pub struct TaggedProcessingTimer<'t> {
    call: &'t Call,
    family: u32,
    tag: &'t str,
}

impl TaggedProcessingTimer<'_> {
    /// See [`ProcessingTimer::set_after`].
    pub fn set_after(&mut self, delay_ms: i64) {
        let timers = &self.call.timers;
        let hold = timers.timestamp_ms.get().unwrap_or(NO_HOLD_MS);
        timers.change(self.family, self.tag, Some((timers.now_ms.get().saturating_add(delay_ms), hold)));
    }

    /// See [`ProcessingTimer::clear`].
    pub fn clear(&mut self) {
        self.call.timers.change(self.family, self.tag, None);
    }
}

/// The hold of a timer that holds nothing.
pub const NO_HOLD_MS: i64 = i64::MAX / 1_000;

/// `keyed.timer-changes`, row by row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimerChange {
    /// Number of key and window in the call.
    pub run: u32,
    /// Number of the family.
    pub family: u32,
    /// Its tag.
    pub tag: String,
    /// When to fire and what to hold; none: cleared.
    pub set: Option<(i64, i64)>,
}

/// The timers that a call sets and clears.
pub(crate) struct TimerBuffer {
    families: u32,
    run: Cell<u32>,
    now_ms: Cell<i64>,
    timestamp_ms: Cell<Option<i64>>,
    changes: RefCell<Vec<TimerChange>>,
    /// One more than the place in `changes` of the timer without tag of family `f` of run `r`, at `r * families + f`.
    untagged: RefCell<Vec<u32>>,
}

impl TimerBuffer {
    pub(crate) fn new(families: u32) -> Self {
        let (run, now_ms, timestamp_ms) = (Cell::new(0), Cell::new(0), Cell::new(None));
        TimerBuffer { families, run, now_ms, timestamp_ms, changes: RefCell::default(), untagged: RefCell::default() }
    }

    pub(crate) fn begin(&self, runs: usize, now_ms: i64) {
        self.now_ms.set(now_ms);
        self.changes.borrow_mut().clear();
        let mut untagged = self.untagged.borrow_mut();
        untagged.clear();
        untagged.resize(runs * self.families as usize, 0);
    }

    #[inline]
    pub(crate) fn enter(&self, run: u32, timestamp_ms: Option<i64>) {
        self.run.set(run);
        self.timestamp_ms.set(timestamp_ms);
    }

    fn change(&self, family: u32, tag: &str, set: Option<(i64, i64)>) {
        let (run, mut changes) = (self.run.get(), self.changes.borrow_mut());
        if tag.is_empty() {
            let mut untagged = self.untagged.borrow_mut();
            let place = untagged.get_mut((run * self.families + family) as usize);
            let place = place.expect("timers are reached only while elements and timers are processed");
            if let Some(known) = (*place as usize).checked_sub(1) {
                changes[known].set = set;
                return;
            }
            *place = changes.len() as u32 + 1;
        }
        changes.push(TimerChange { run, family, tag: tag.to_owned(), set });
    }

    /// Whether a timer of the run at hand was set or cleared in this call.
    pub(crate) fn is_changed(&self, family: u32, tag: &str) -> bool {
        let run = self.run.get();
        self.changes.borrow().iter().any(|change| change.run == run && change.family == family && change.tag == tag)
    }

    pub(crate) fn take(&self) -> Vec<TimerChange> {
        self.untagged.borrow_mut().clear();
        std::mem::take(&mut self.changes.borrow_mut())
    }
}
