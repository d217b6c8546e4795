//! Stages that work per key: what governs them, and the timers that pass between a worker and the engine.
//!
//! Descriptions only; when a timer fires is the engine's decision.

use bytes::Bytes;

use crate::RawTime;
use crate::windowing::WindowingStrategy;

/// What governs a stage with user state, timers or time-sorted input. Its input comes by key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keyed {
    /// The windows of the input, which do not merge, and how long after its end a window is kept.
    pub windowing: WindowingStrategy,
    /// The time domain of each timer family, in the order of the stage's families.
    pub timer_families: Vec<TimeDomain>,
    /// The family of the one timer that is to fire when a window expires, before its state is cleared. Users cannot set it.
    pub expiration_family: Option<usize>,
    /// Whether elements of one key and window are to be processed in the order of their timestamps.
    pub time_sorted: bool,
}

/// What the time of a timer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TimeDomain {
    /// The input watermark.
    Event,
    /// The clock.
    Processing,
}

/// A timer that is due.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FiredTimer {
    /// Index into the stage's timer families.
    pub family: usize,
    /// Dynamic tag.
    pub tag: Bytes,
    /// Encoded key.
    pub key: Bytes,
    /// Encoded window.
    pub window: Bytes,
    /// When it was to fire, as set: where time passes by a script, SDKs set timers of processing time by a clock of their own.
    pub fire: RawTime,
    /// What it held, as set.
    pub hold: RawTime,
    /// Encoded pane, as set.
    pub pane: Bytes,
}

/// A timer that a bundle set or cleared. The last change of one (family, tag, key, window) counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimerChange {
    /// Index into the stage's timer families.
    pub family: usize,
    /// Dynamic tag.
    pub tag: Bytes,
    /// Encoded key.
    pub key: Bytes,
    /// Encoded window.
    pub window: Bytes,
    /// When to fire, what to hold (MAX and beyond: nothing) and the encoded pane; none clears the timer.
    pub set: Option<(RawTime, RawTime, Bytes)>,
}
