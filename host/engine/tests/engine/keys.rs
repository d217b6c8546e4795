//! What a keyed stage must do, the naive way: everything in maps, looked through from the beginning each time.
//!
//! It does not foretell which bundle does what. It checks that each bundle does only what is next for a key, and says what
//! the watermarks are; a test then sees to it that in the end everything has been done.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use engine::Readied;
use model::batch::Row;
use model::{Batch, Duration, FiredTimer, Keyed, RawTime, TimeDomain, TimerChange, Timestamp, WindowCoder, window};

use crate::rows;

/// Encoded key and window.
pub(crate) type Pair = (Bytes, Bytes);

/// What comes next for a key, in this order for one time.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    Row { window: Bytes, timestamp: Timestamp, number: u64, value: Bytes },
    Timer { window: Bytes, family: usize, tag: Bytes },
    Expiry { window: Bytes },
}

#[derive(Clone, Debug, Default)]
struct Kept {
    /// By family and tag.
    timers: BTreeMap<(usize, Bytes), Timer>,
    /// Release, timestamp, number and value.
    rows: BTreeSet<(Timestamp, Timestamp, u64, Bytes)>,
}

#[derive(Clone, Debug)]
struct Timer {
    /// By the engine's clock.
    time: Timestamp,
    hold: Timestamp,
    /// Fire and hold as set.
    set: (RawTime, RawTime),
}

/// See the file's head.
#[derive(Clone, Debug)]
pub(crate) struct Keys {
    pub(crate) keyed: Keyed,
    pub(crate) window_coder: WindowCoder,
    pairs: BTreeMap<Pair, Kept>,
    next_row: u64,
    pub(crate) upstream: Timestamp,
    pub(crate) input: Timestamp,
    pub(crate) output: Timestamp,
    pub(crate) now_ms: i64,
    pub(crate) draining: bool,
    pub(crate) dropped: u64,
}

impl Keys {
    pub(crate) fn new(keyed: Keyed, window_coder: WindowCoder) -> Self {
        Keys {
            keyed,
            window_coder,
            pairs: BTreeMap::new(),
            next_row: 0,
            upstream: Timestamp::MIN,
            input: Timestamp::MIN,
            output: Timestamp::MIN,
            now_ms: 0,
            draining: false,
            dropped: 0,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.pairs.is_empty()
    }

    fn lateness(&self) -> Duration {
        self.keyed.windowing.allowed_lateness
    }

    fn end(&self, window: &[u8]) -> Timestamp {
        self.window_coder.max_timestamp(window).unwrap()
    }

    fn expiry(&self, window: &[u8]) -> Timestamp {
        self.end(window).plus(self.lateness()).min(Timestamp::GLOBAL_WINDOW_END)
    }

    fn complete(&self) -> bool {
        self.upstream == Timestamp::MAX
    }

    /// `rows`: the least hold of rows that are pending or in flight.
    pub(crate) fn settle(&mut self, rows: Timestamp) {
        self.input = self.input.max(self.upstream.min(rows));
        self.output = self.output.max(self.input.min(self.hold()));
    }

    fn hold(&self) -> Timestamp {
        let mut hold = if self.pairs.is_empty() { Timestamp::MAX } else { Timestamp::GLOBAL_WINDOW_END };
        for ((_, window), kept) in &self.pairs {
            let timers = kept.timers.values().map(|timer| timer.hold);
            let rows = kept.rows.iter().map(|(_, timestamp, ..)| *timestamp);
            let last = self.keyed.expiration_family.map(|_| self.end(window));
            hold = timers.chain(rows).chain(last).fold(hold, Timestamp::min);
        }
        hold
    }

    fn waits_for_clock(&self, kept: &Kept) -> bool {
        kept.timers.keys().any(|(family, _)| self.keyed.timer_families[*family] == TimeDomain::Processing)
    }

    /// What is due for a key, event time first.
    fn due(&self, key: &Bytes) -> Vec<What> {
        let (mut events, mut clock) = (Vec::new(), Vec::new());
        for ((_, window), kept) in self.pairs.iter().filter(|((of, _), _)| of == key) {
            let expiry = self.expiry(window);
            for (release, timestamp, number, value) in &kept.rows {
                let (window, value) = (window.clone(), value.clone());
                events.push((*release, What::Row { window, timestamp: *timestamp, number: *number, value }));
            }
            for ((family, tag), Timer { time, .. }) in &kept.timers {
                let timer = What::Timer { window: window.clone(), family: *family, tag: tag.clone() };
                match self.keyed.timer_families[*family] {
                    TimeDomain::Event => events.push((*time, timer)),
                    TimeDomain::Processing if self.complete() || expiry >= self.input => clock.push((*time, timer)),
                    TimeDomain::Processing => {}
                }
            }
            if !(self.complete() && self.waits_for_clock(kept)) {
                events.push((expiry.plus(Duration(1)), What::Expiry { window: window.clone() }));
            }
        }
        events.retain(|(time, _)| *time <= self.input);
        clock.retain(|(time, _)| time.millis() <= self.now_ms || self.draining);
        events.sort();
        clock.sort();
        events.into_iter().chain(clock).map(|(_, what)| what).collect()
    }

    fn keys(&self) -> BTreeSet<Bytes> {
        self.pairs.keys().map(|(key, _)| key.clone()).collect()
    }

    pub(crate) fn is_due(&self) -> bool {
        self.keys().iter().any(|key| !self.due(key).is_empty())
    }

    /// Whether an event that is due comes before a time.
    pub(crate) fn is_due_before(&self, time: Timestamp) -> bool {
        let earlier = Keys { input: self.input.min(time.minus(Duration(1))), now_ms: i64::MIN, draining: false, ..self.clone() };
        earlier.is_due()
    }

    /// Whether the clock is all that a pair waits for whose end was due: to find that out is work too.
    pub(crate) fn may_postpone(&self) -> bool {
        let waits = |((_, window), kept): (&Pair, &Kept)| self.waits_for_clock(kept) && self.expiry(window) < self.input;
        self.complete() && self.pairs.iter().any(waits)
    }

    /// Rows come in. What must have become of them is compared with what has.
    pub(crate) fn absorb(&mut self, batches: &[Batch], readied: &Readied) {
        assert!(readied.timers.is_empty() && readied.expired.is_empty(), "rows and timers in one bundle");
        let (mut passed, mut dropped) = (Vec::new(), 0);
        for row in batches.iter().flat_map(|batch| batch.iter()) {
            let number = self.next_row;
            self.next_row += 1;
            let key = rows::key_of(row.value);
            let windows: Vec<_> = self.windows(row).into_iter().map(Bytes::copy_from_slice).collect();
            let overtaken = self.keyed.time_sorted && row.timestamp.plus(self.lateness()) < self.input;
            let open = |window: &Bytes| self.expiry(window) >= self.input && !overtaken;
            let (open, closed): (Vec<_>, Vec<_>) = windows.into_iter().partition(open);
            dropped += closed.len() as u64;
            for window in &open {
                let release = row.timestamp.plus(self.lateness()).min(self.expiry(window));
                let kept = self.pairs.entry((key.clone(), window.clone())).or_default();
                if self.keyed.time_sorted {
                    kept.rows.insert((release, row.timestamp, number, Bytes::copy_from_slice(row.value)));
                }
            }
            if !self.keyed.time_sorted && !open.is_empty() {
                passed.push((row.value.to_vec(), row.timestamp, open));
            }
        }
        let seen = readied.input.iter().flat_map(|batch| batch.iter()).map(|row| {
            let windows = self.windows(row).into_iter().map(Bytes::copy_from_slice).collect();
            (row.value.to_vec(), row.timestamp, windows)
        });
        assert_eq!(seen.collect::<Vec<_>>(), passed);
        assert_eq!(readied.dropped_rows, dropped);
        self.dropped += dropped;
    }

    fn windows<'r>(&self, row: Row<'r>) -> Vec<&'r [u8]> {
        self.window_coder.windows_of(row.windows).unwrap()
    }

    /// What was due. Each key must have got what comes next for it.
    pub(crate) fn fire(&mut self, readied: &Readied) {
        let expired: BTreeSet<Pair> = readied.expired.iter().cloned().collect();
        assert_eq!(expired.len(), readied.expired.len(), "a pair expires twice");
        let mut rows: BTreeMap<Bytes, Vec<(Bytes, Bytes, Timestamp)>> = BTreeMap::new();
        for row in readied.input.iter().flat_map(|batch| batch.iter()) {
            let windows = self.windows(row);
            assert_eq!(windows.len(), 1, "a sorted row is in one window");
            let row = (Bytes::copy_from_slice(windows[0]), Bytes::copy_from_slice(row.value), row.timestamp);
            rows.entry(rows::key_of(&row.1)).or_default().push(row);
        }
        let mut timers: BTreeMap<Bytes, Vec<FiredTimer>> = BTreeMap::new();
        for timer in &readied.timers {
            timers.entry(timer.key.clone()).or_default().push(timer.clone());
        }
        assert!(rows.keys().all(|key| !timers.contains_key(key)), "rows and timers for one key");
        for key in self.keys() {
            let due = self.due(&key);
            let mut rows = rows.remove(&key).unwrap_or_default().into_iter();
            let mut timers = timers.remove(&key).unwrap_or_default().into_iter().peekable();
            let mut touched = BTreeSet::new();
            for what in due {
                let done = match what {
                    What::Row { window, timestamp, number, value } => rows.next().is_some_and(|row| {
                        assert_eq!(row, (window.clone(), value.clone(), timestamp));
                        touched.insert(window.clone());
                        let kept = self.pairs.get_mut(&(key.clone(), window)).unwrap();
                        kept.rows.retain(|(_, _, of, _)| *of != number);
                        true
                    }),
                    What::Timer { window, family, tag } => timers.next().is_some_and(|timer| {
                        let kept = self.pairs.get_mut(&(key.clone(), window.clone())).unwrap();
                        let (fire, hold) = kept.timers.remove(&(family, tag.clone())).unwrap().set;
                        touched.insert(window.clone());
                        let pane = Bytes::from_static(b"pane");
                        assert_eq!(timer, FiredTimer { family, tag, key: key.clone(), window, fire, hold, pane });
                        true
                    }),
                    What::Expiry { window } => {
                        let pair = (key.clone(), window.clone());
                        let ends = expired.contains(&pair);
                        if let (true, Some(family)) = (ends, self.keyed.expiration_family) {
                            let (tag, end) = (Bytes::new(), self.end(&window));
                            let pane = Bytes::from_static(model::pane::NO_FIRING);
                            let last =
                                FiredTimer { family, tag, key: key.clone(), window, fire: end.into(), hold: end.into(), pane };
                            assert_eq!(timers.next(), Some(last));
                        }
                        if ends {
                            assert!(!touched.contains(&pair.1), "a pair expires with what it is to run");
                            self.pairs.remove(&pair);
                        }
                        ends
                    }
                };
                if !done {
                    break;
                }
            }
            assert_eq!((rows.next(), timers.next()), (None, None), "something ran before its turn");
        }
        assert!(rows.is_empty() && timers.is_empty(), "something ran for keys without anything: {readied:?}");
        assert!(expired.iter().all(|pair| !self.pairs.contains_key(pair)), "a pair expires before its turn");
    }

    /// Timers are set and cleared by a bundle with which `expired` pairs end; those of processing time by a clock that is ahead.
    pub(crate) fn change(&mut self, changes: &[TimerChange], ahead: Duration, expired: &[Pair]) {
        for TimerChange { family, tag, key, window, set } in changes {
            let (pair, identity) = ((key.clone(), window.clone()), (*family, tag.clone()));
            if expired.contains(&pair) {
                continue;
            }
            self.pairs.get_mut(&pair).map(|kept| kept.timers.remove(&identity));
            let Some((fire, hold)) = set.as_ref().map(|set| (set.0, set.1)) else { continue };
            let expiry = self.expiry(window);
            let forgotten = expiry.plus(Duration(1));
            let held = if hold.timestamp() == forgotten { expiry } else { hold.timestamp() };
            let (time, in_time) = match self.keyed.timer_families[*family] {
                TimeDomain::Event => (fire.timestamp(), fire.timestamp() <= forgotten),
                TimeDomain::Processing => {
                    let in_time = !self.draining && (self.complete() || expiry >= self.input);
                    (fire.timestamp().minus(ahead), in_time)
                }
            };
            if in_time && (self.pairs.contains_key(&pair) || expiry >= self.input) {
                self.pairs.entry(pair).or_default().timers.insert(identity, Timer { time, hold: held, set: (fire, hold) });
            }
        }
    }
}

/// A window set of several windows.
pub(crate) fn set_of(windows: &[Vec<u8>]) -> Vec<u8> {
    let mut set = window::single(&[]);
    set[..4].copy_from_slice(&(windows.len() as i32).to_be_bytes());
    windows.iter().for_each(|window| set.extend_from_slice(window));
    set
}
