//! Timers are set and cleared. The last change of an identity counts; each replaces what was set before it.

use bytes::Bytes;
use model::{Duration, RawTime, Reader, TimerChange, Timestamp};

use super::Bundle;
use super::names::{Domain, Item, Kind, Pair};
use crate::error::Error;

/// What a timer is set to, as it is handed back when it fires.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Set {
    pub(super) fire: RawTime,
    /// MAX and beyond: it holds nothing.
    pub(super) hold: RawTime,
    pub(super) pane: Bytes,
}

impl Set {
    fn encode(&self) -> Bytes {
        [&self.fire.encode(), &self.hold.encode(), &self.pane[..]].concat().into()
    }

    pub(super) fn decode(value: &Bytes) -> Result<Set, Error> {
        let mut reader = Reader::new(value);
        let (fire, hold) = (RawTime::decode(&mut reader)?, RawTime::decode(&mut reader)?);
        Ok(Set { fire, hold, pane: value.slice_ref(reader.rest()) })
    }
}

impl Bundle<'_> {
    pub(super) fn change(&mut self, change: TimerChange) -> Result<(), Error> {
        let TimerChange { family, tag, key, window, set } = change;
        let pair = Pair { key, window };
        let number = u32::try_from(family).unwrap_or(u32::MAX);
        let domain = self.keys.domain(number)?;
        if self.keys.keyed.expiration_family == Some(family) {
            return Err(Error::Timer("of the family that is for the end of windows was set".into()));
        }
        if !self.keys.names.delimits(&pair) {
            return Err(Error::Timer("has a key or window that its stage cannot have".into()));
        }
        if self.expired.contains(&pair) {
            return Ok(());
        }
        match set {
            Some((fire, hold, pane)) => self.set(domain, pair, number, tag, Set { fire, hold, pane }),
            None => self.clear(&pair, number, &tag),
        }
    }

    /// Sets a timer, if it can fire before its window is forgotten; in any case the one before it is gone.
    ///
    /// The last event time at which one can is when the window expires, a millisecond behind the last that belongs to it:
    /// Python's `timer.set(window.end)` without lateness. What it puts out belongs to the window, so it holds the last.
    fn set(&mut self, domain: Domain, pair: Pair, family: u32, tag: Bytes, set: Set) -> Result<(), Error> {
        let end = self.keys.end(&pair.window)?;
        let expiry = self.keys.expiry(end);
        let forgotten = expiry.plus(Duration(1));
        let hold = Some(set.hold.timestamp()).filter(|hold| *hold != forgotten).unwrap_or(expiry);
        let time = match domain {
            Domain::Event => set.fire.timestamp(),
            Domain::Processing => set.fire.timestamp().minus(self.clocks.setters_ahead),
        };
        let in_time = match domain {
            Domain::Event => time <= forgotten,
            Domain::Processing if self.clocks.draining => false,
            Domain::Processing => self.clocks.complete || expiry >= self.clocks.input_watermark,
        };
        let identity = self.keys.names.timer(&pair, family, &tag);
        let times = Bytes::from([time.encode(), hold.encode()].concat());
        if in_time && self.state.get(&identity)?.as_ref() == Some(&times) {
            // As it was, which is what every element of a key and window does in many pipelines: only what goes back may differ.
            let item = Item { domain, time, kind: Kind::Timer { family, tag }, pair };
            self.state.put(self.keys.names.due(&item), Some(set.encode()));
            return Ok(());
        }
        self.clear(&pair, family, &tag)?;
        if !in_time || !self.see(&pair, end)? {
            return Ok(());
        }
        self.state.put(identity, Some(times));
        let item = Item { domain, time, kind: Kind::Timer { family, tag }, pair };
        self.add(&item, hold, set.encode());
        Ok(())
    }

    /// Forgets a timer, if it is set.
    pub(super) fn clear(&mut self, pair: &Pair, family: u32, tag: &Bytes) -> Result<(), Error> {
        let identity = self.keys.names.timer(pair, family, tag);
        let Some(cell) = self.state.get(&identity)? else {
            return Ok(());
        };
        let mut reader = Reader::new(&cell);
        let (time, hold) = (Timestamp::decode(&mut reader)?, Timestamp::decode(&mut reader)?);
        let domain = self.keys.domain(family)?;
        let item = Item { domain, time, kind: Kind::Timer { family, tag: tag.clone() }, pair: pair.clone() };
        self.remove(&item, hold);
        self.state.put(identity, None);
        if domain == Domain::Processing {
            self.relieved.insert(pair.clone());
        }
        Ok(())
    }
}
