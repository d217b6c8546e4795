//! Stages that work per key: late rows, timers, the expiry of windows, rows in order of time.
//!
//! It follows Beam's reference, Java's `StatefulDoFnRunner` (`beam-model.md` 6.2 to 6.4), and works on keyed state only.
//! All that is to come for a key in a window is an item in one agenda, ordered by time:
//!
//! ```text
//!   rows ──▶ late copies dropped ─┬─────────────────────────▶ to the bundle              absorb.rs
//!                                 └─ to be sorted: items ──┐
//!   a timer is set ─────────────────────────────── item ───┤                             change.rs
//!   first row of a key and window ── expiry: item ─────────┴─▶ in order of time: rows,   fire.rs
//!                                                              timers, the end of a pair
//! ```
//!
//! What one call changes is in state cells and in a [`Delta`]; the keys themselves change when it is applied, that is when
//! the cells are durable. One bundle of a stage is in flight: nothing else changes the agenda in between.
//!
//! This module does not decide when a bundle runs, keeps no user state, and does not move a watermark.

mod absorb;
mod agenda;
mod change;
mod fire;
mod names;

use std::collections::BTreeSet;

use bytes::Bytes;
use model::{Batch, Coder, Duration, FiredTimer, Keyed, StageId, TimeDomain, TimerChange, Timestamp, WindowCoder};

use self::agenda::{Agenda, Floors};
use self::names::{Domain, Item, Kind, Names, Pair};
use crate::error::Error;
use crate::state::KeyedState;
use crate::stuck::{self, Due, HeldBy};

/// What a bundle of a keyed stage is to run: rows or timers of any number of keys, but never both for one key.
#[derive(Debug, Default)]
pub struct Readied {
    /// Rows, in order.
    pub input: Vec<Batch>,
    /// Timers, in order of their time per key.
    pub timers: Vec<FiredTimer>,
    /// Encoded keys and windows that expire with this bundle: after it has run their state is to be cleared, and what it did
    /// to it is of no account. Perhaps nothing else is to be run.
    pub expired: Vec<(Bytes, Bytes)>,
    /// Copies of rows (one per window) that came after their window had expired, or too late to be sorted.
    pub dropped_rows: u64,
}

/// The times that decide about dropping and firing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clocks {
    /// The stage's input watermark.
    pub(crate) input_watermark: Timestamp,
    /// Whether all producers are complete: then the watermark says nothing of how far time has come.
    pub(crate) complete: bool,
    /// Processing time, in milliseconds since the epoch.
    pub(crate) now_ms: i64,
    /// How far the clock by which timers of processing time are set is ahead of `now_ms`.
    pub(crate) setters_ahead: Duration,
    /// Whether timers of processing time are not set any more.
    pub(crate) draining: bool,
}

/// How much one call may fire. One row or timer is always allowed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Rows and timers.
    pub(crate) items_max: usize,
    /// Their keys.
    pub(crate) keys_max: usize,
    /// Bytes of rows, keys, tags and panes, about.
    pub(crate) bytes_max: u64,
}

/// The keys and windows of one keyed stage on one shard.
#[derive(Debug)]
pub(crate) struct Keys {
    names: Names,
    input_coder: Coder,
    window_coder: WindowCoder,
    keyed: Keyed,
    agenda: Agenda,
}

/// Changes that go with the state writes of a bundle.
#[derive(Debug)]
pub(crate) struct Delta {
    agenda: Agenda,
    /// Pairs that end with the bundle: what it does to them is of no account.
    expired: BTreeSet<Pair>,
}

/// One call at work.
struct Bundle<'a> {
    keys: &'a Keys,
    clocks: Clocks,
    state: &'a mut dyn KeyedState,
    floors: Floors,
    next_row: u64,
    expired: BTreeSet<Pair>,
    /// Pairs that lost a timer of processing time.
    relieved: BTreeSet<Pair>,
}

impl Keys {
    /// None are known yet. Rows are `KV<K, V>` of `input_coder`.
    pub(crate) fn new(stage: StageId, keyed: Keyed, input_coder: Coder, window_coder: WindowCoder) -> Self {
        let names = Names::new(stage, input_coder.clone(), window_coder);
        Keys { names, input_coder, window_coder, keyed, agenda: Agenda::default() }
    }

    /// Finds the first items in state, before the first row.
    pub(crate) fn restore(&mut self, state: &dyn KeyedState) -> Result<(), Error> {
        self.agenda = Agenda::restore(&self.names, state)?;
        Ok(())
    }

    /// Takes rows in; without rows, takes what is due, within the limits.
    pub(crate) fn run(
        &self,
        rows: &[Batch],
        clocks: Clocks,
        limits: Limits,
        state: &mut dyn KeyedState,
    ) -> Result<(Readied, Delta), Error> {
        let mut bundle = self.bundle(&self.agenda, BTreeSet::new(), clocks, state);
        let readied = if rows.is_empty() { bundle.fire(limits)? } else { bundle.absorb(rows)? };
        Ok((readied, bundle.end()?))
    }

    /// Sets and clears timers, in order, on behalf of the bundle whose [`Keys::run`] returned this delta.
    pub(crate) fn change(
        &self,
        delta: Delta,
        changes: Vec<TimerChange>,
        clocks: Clocks,
        state: &mut dyn KeyedState,
    ) -> Result<Delta, Error> {
        let mut bundle = self.bundle(&delta.agenda, delta.expired, clocks, state);
        changes.into_iter().try_for_each(|change| bundle.change(change))?;
        bundle.end()
    }

    /// The state writes that go with this delta are durable.
    pub(crate) fn apply(&mut self, delta: Delta) {
        self.agenda = delta.agenda;
    }

    /// Whether [`Keys::run`] without rows would do something.
    pub(crate) fn due(&self, input_watermark: Timestamp, now_ms: i64) -> bool {
        self.due_before(input_watermark, Timestamp::MAX) || self.next_processing_ms().is_some_and(|time_ms| time_ms <= now_ms)
    }

    /// Whether something of event time is due whose time is before `before`.
    pub(crate) fn due_before(&self, input_watermark: Timestamp, before: Timestamp) -> bool {
        self.agenda.event.as_ref().is_some_and(|item| item.time <= input_watermark && item.time < before)
    }

    /// The processing time in milliseconds from which [`Keys::due`] holds because of a timer.
    pub(crate) fn next_processing_ms(&self) -> Option<i64> {
        self.agenda.processing.as_ref().map(|item| item.time.millis())
    }

    /// The time that the stage's output watermark may reach but not pass. MAX if nothing is to come.
    pub(crate) fn hold(&self) -> Timestamp {
        self.agenda.holder().map_or(Timestamp::MAX, |(hold, _)| hold)
    }

    /// What has the least hold, for reports. Timer families have `names`.
    pub(crate) fn held_by(&self, names: &[String]) -> HeldBy {
        let Some((hold, item)) = self.agenda.holder() else { return HeldBy::Nothing };
        let due = match item.kind {
            Kind::Row { .. } => Due::Row { time: item.time },
            Kind::Timer { family, .. } => {
                let known = names.get(family as usize).cloned();
                Due::Timer {
                    family: known.unwrap_or_else(|| format!("family {family}")),
                    domain: match item.domain {
                        Domain::Event => TimeDomain::Event,
                        Domain::Processing => TimeDomain::Processing,
                    },
                    time: item.time,
                }
            }
            Kind::Expiry => Due::Expiry { time: item.time },
        };
        let key = match &self.input_coder {
            Coder::Kv(key, _) => stuck::shown_key(key, &item.pair.key),
            other => stuck::shown_key(other, &item.pair.key),
        };
        HeldBy::Key { hold, key, due }
    }

    fn bundle<'a>(
        &'a self,
        agenda: &Agenda,
        expired: BTreeSet<Pair>,
        clocks: Clocks,
        state: &'a mut dyn KeyedState,
    ) -> Bundle<'a> {
        let (floors, next_row) = (agenda.floors(&self.names), agenda.next_row);
        Bundle { keys: self, clocks, state, floors, next_row, expired, relieved: BTreeSet::new() }
    }

    /// When a window is forgotten: once the input watermark has passed this time.
    fn expiry(&self, end: Timestamp) -> Timestamp {
        end.plus(self.lateness()).min(Timestamp::GLOBAL_WINDOW_END)
    }

    fn lateness(&self) -> Duration {
        self.keyed.windowing.allowed_lateness.max(Duration(0))
    }

    /// The last timestamp of an encoded window.
    fn end(&self, window: &[u8]) -> Result<Timestamp, Error> {
        Ok(self.window_coder.max_timestamp(window)?.min(Timestamp::GLOBAL_WINDOW_END))
    }

    fn domain(&self, family: u32) -> Result<Domain, Error> {
        match self.keyed.timer_families.get(family as usize) {
            Some(TimeDomain::Event) => Ok(Domain::Event),
            Some(TimeDomain::Processing) => Ok(Domain::Processing),
            None => Err(Error::Timer(format!("of family {family}, which the stage does not have"))),
        }
    }

    /// Timer families of processing time.
    fn clock_families(&self) -> impl Iterator<Item = u32> {
        let families = (0..).zip(&self.keyed.timer_families);
        families.filter(|(_, domain)| **domain == TimeDomain::Processing).map(|(family, _)| family)
    }

    /// The end of a pair whose window ends with `end`, and what it holds: where a last timer is to fire, its outputs have that
    /// time and must not come late.
    fn expiry_of(&self, pair: &Pair, end: Timestamp) -> (Item, Timestamp) {
        let time = self.expiry(end).plus(Duration(1));
        let hold = if self.keyed.expiration_family.is_some() { end } else { Timestamp::MAX };
        (Item { domain: Domain::Event, time, kind: Kind::Expiry, pair: pair.clone() }, hold)
    }
}

impl Bundle<'_> {
    /// Sees to it that a pair whose window ends with `end` ends some day. Returns whether that is still to come.
    fn see(&mut self, pair: &Pair, end: Timestamp) -> Result<bool, Error> {
        let (item, hold) = self.keys.expiry_of(pair, end);
        if self.state.get(&self.keys.names.due(&item))?.is_some() {
            return Ok(true);
        }
        if self.keys.expiry(end) < self.clocks.input_watermark {
            return Ok(self.state.get(&self.keys.names.postponed(pair))?.is_some());
        }
        self.add(&item, hold, Bytes::new());
        Ok(true)
    }

    fn add(&mut self, item: &Item, hold: Timestamp, value: Bytes) {
        self.floors.add(&self.keys.names, self.state, item, hold, value);
    }

    fn remove(&mut self, item: &Item, hold: Timestamp) {
        agenda::remove(&self.keys.names, self.state, item, hold);
    }

    /// Looks for what comes first now.
    fn end(mut self) -> Result<Delta, Error> {
        for pair in std::mem::take(&mut self.relieved) {
            self.resume(&pair)?;
        }
        let agenda = self.floors.first(&self.keys.names, self.state, self.next_row)?;
        Ok(Delta { agenda, expired: self.expired })
    }
}
