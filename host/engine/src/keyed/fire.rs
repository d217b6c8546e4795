//! What is due, in order of time: rows that are sorted, timers, and the end of pairs.
//!
//! A bundle has rows or timers of one key, not both: what comes next for a key and is of the other sort waits for a later
//! bundle, and with it everything behind it. A pair ends only in a bundle that does nothing else to it, because its timers
//! may set others that are due before its end.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use model::batch::Row;
use model::{BatchBuilder, FiredTimer, Timestamp, pane, window};

use super::absorb::put_by;
use super::change::Set;
use super::names::{Domain, Item, Kind, Pair};
use super::{Bundle, Limits, Readied};
use crate::error::Error;
use crate::state::{after_all, behind};

/// Cells and bytes that are read at once.
const SCAN_CELLS_MAX: usize = 1024;
const SCAN_BYTES_MAX: usize = 1 << 20;

/// Items that a call looks at in vain, because they have to wait for what it fires.
const WAITING_MAX: usize = 1024;

/// What a call has taken so far.
struct Taken {
    limits: Limits,
    rows: BatchBuilder,
    readied: Readied,
    keys: BTreeMap<Bytes, Turn>,
    pairs: BTreeSet<Pair>,
    items: usize,
    bytes: u64,
    waiting: usize,
}

/// What a key has in the bundle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    Rows,
    Timers,
    /// Nothing more.
    Over,
}

enum Admission {
    Now,
    /// In a later bundle.
    Later,
    /// The bundle is full.
    Full,
}

impl Bundle<'_> {
    pub(super) fn fire(&mut self, limits: Limits) -> Result<Readied, Error> {
        let mut taken = Taken::new(limits);
        let now = Timestamp::from_millis(self.clocks.now_ms);
        if self.fire_until(Domain::Event, self.clocks.input_watermark, &mut taken)? {
            self.fire_until(Domain::Processing, now, &mut taken)?;
        }
        Ok(taken.finish())
    }

    /// Returns whether it got to the end.
    fn fire_until(&mut self, domain: Domain, until: Timestamp, taken: &mut Taken) -> Result<bool, Error> {
        let names = &self.keys.names;
        let end = after_all(&names.due_at(domain, until));
        let Some(first) = self.floors.from(domain).filter(|first| first[..] < end[..]) else {
            return Ok(true);
        };
        let mut from = first.to_vec();
        loop {
            let page = self.state.scan(&from, &end, SCAN_CELLS_MAX, SCAN_BYTES_MAX)?;
            let Some((last, _)) = page.last() else {
                return Ok(true);
            };
            from = behind(last);
            for (name, value) in page {
                let item = names.item_due(&name)?;
                match taken.admit(&item) {
                    Admission::Now => self.take(item, value, taken)?,
                    Admission::Later => {}
                    Admission::Full => return Ok(false),
                }
            }
        }
    }

    fn take(&mut self, item: Item, value: Bytes, taken: &mut Taken) -> Result<(), Error> {
        match (&item.kind, item.domain) {
            (Kind::Row { timestamp, .. }, _) => {
                self.remove(&item, *timestamp);
                let (pane, bytes) = put_by(&value)?;
                let windows = window::single(&item.pair.window);
                taken.rows.push(Row { value: bytes, timestamp: *timestamp, windows: &windows, pane });
                taken.count(&item, value.len());
            }
            (Kind::Timer { .. }, Domain::Processing) if !self.may_fire_late(&item.pair)? => {}
            (Kind::Timer { family, tag }, _) => {
                let set = Set::decode(&value)?;
                let timer = fired(&item, *family, tag, &set);
                self.clear(&item.pair, *family, tag)?;
                taken.count(&item, tag.len() + set.pane.len());
                taken.readied.timers.push(timer);
            }
            (Kind::Expiry, _) if self.clocks.complete && self.waits_for_the_clock(&item.pair)? => {
                // The hold of the expiry stays.
                self.state.put(self.keys.names.due(&item), None);
                self.state.put(self.keys.names.postponed(&item.pair), Some(Bytes::new()));
                taken.count(&item, 0);
            }
            (Kind::Expiry, _) => self.expire(item, taken)?,
        }
        Ok(())
    }

    /// Whether a timer of processing time may fire. Where its window has expired, its end is due and takes it along; but
    /// the completion of the input expires no window that waits for the clock.
    fn may_fire_late(&self, pair: &Pair) -> Result<bool, Error> {
        let expiry = self.keys.expiry(self.keys.end(&pair.window)?);
        Ok(self.clocks.complete || expiry >= self.clocks.input_watermark)
    }

    /// The end of a pair: its last timer fires, and all others are gone.
    fn expire(&mut self, item: Item, taken: &mut Taken) -> Result<(), Error> {
        let end = self.keys.end(&item.pair.window)?;
        let (_, hold) = self.keys.expiry_of(&item.pair, end);
        self.remove(&item, hold);
        self.clear_the_clock(&item.pair)?;
        taken.count(&item, 0);
        if let Some(family) = self.keys.keyed.expiration_family {
            let set = Set { fire: end.into(), hold: end.into(), pane: Bytes::from_static(pane::NO_FIRING) };
            taken.readied.timers.push(fired(&item, family as u32, &Bytes::new(), &set));
        }
        taken.readied.expired.push((item.pair.key.clone(), item.pair.window.clone()));
        self.expired.insert(item.pair);
        Ok(())
    }

    /// Whether timers of processing time are set for a pair.
    fn waits_for_the_clock(&self, pair: &Pair) -> Result<bool, Error> {
        for family in self.keys.clock_families() {
            let beginning = self.keys.names.timer(pair, family, &[]);
            if !self.state.scan(&beginning, &after_all(&beginning), 1, 1)?.is_empty() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Clears all timers of a pair that ends: those of event time have fired before.
    fn clear_the_clock(&mut self, pair: &Pair) -> Result<(), Error> {
        let keys = self.keys;
        for family in keys.clock_families() {
            let beginning = keys.names.timer(pair, family, &[]);
            loop {
                let page = self.state.scan(&beginning, &after_all(&beginning), SCAN_CELLS_MAX, SCAN_BYTES_MAX)?;
                if page.is_empty() {
                    break;
                }
                for (name, _) in page {
                    self.clear(pair, family, &name.slice(beginning.len()..))?;
                }
            }
        }
        Ok(())
    }

    /// Where a pair's end waited for the clock and need not any more, it comes.
    pub(super) fn resume(&mut self, pair: &Pair) -> Result<(), Error> {
        let postponed = self.keys.names.postponed(pair);
        if self.state.get(&postponed)?.is_some() && !self.waits_for_the_clock(pair)? {
            self.state.put(postponed, None);
            let (item, hold) = self.keys.expiry_of(pair, self.keys.end(&pair.window)?);
            self.add(&item, hold, Bytes::new());
        }
        Ok(())
    }
}

fn fired(item: &Item, family: u32, tag: &Bytes, set: &Set) -> FiredTimer {
    FiredTimer {
        family: family as usize,
        tag: tag.clone(),
        key: item.pair.key.clone(),
        window: item.pair.window.clone(),
        fire: set.fire,
        hold: set.hold,
        pane: set.pane.clone(),
    }
}

impl Turn {
    fn of(item: &Item) -> Self {
        match item.kind {
            Kind::Row { .. } => Turn::Rows,
            Kind::Timer { .. } | Kind::Expiry => Turn::Timers,
        }
    }
}

impl Taken {
    fn new(limits: Limits) -> Self {
        Taken {
            limits,
            rows: BatchBuilder::new(),
            readied: Readied::default(),
            keys: BTreeMap::new(),
            pairs: BTreeSet::new(),
            items: 0,
            bytes: 0,
            waiting: 0,
        }
    }

    fn admit(&mut self, item: &Item) -> Admission {
        if self.items >= self.limits.items_max || (self.items > 0 && self.bytes >= self.limits.bytes_max) {
            return Admission::Full;
        }
        let keys = self.keys.len();
        let Some(before) = self.keys.get_mut(&item.pair.key) else {
            return if keys < self.limits.keys_max { Admission::Now } else { Admission::Full };
        };
        let ends_what_it_runs = item.kind == Kind::Expiry && self.pairs.contains(&item.pair);
        if *before == Turn::of(item) && !ends_what_it_runs {
            return Admission::Now;
        }
        *before = Turn::Over;
        self.waiting += 1;
        if self.waiting < WAITING_MAX { Admission::Later } else { Admission::Full }
    }

    /// An item takes its part of the bundle.
    fn count(&mut self, item: &Item, bytes: usize) {
        self.keys.entry(item.pair.key.clone()).or_insert(Turn::of(item));
        self.pairs.insert(item.pair.clone());
        self.items += 1;
        self.bytes += (item.pair.key.len() + bytes) as u64;
    }

    fn finish(mut self) -> Readied {
        if !self.rows.is_empty() {
            self.readied.input.push(self.rows.finish());
        }
        self.readied
    }
}
