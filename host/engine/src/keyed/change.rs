//! Timers are set and cleared. The last change of an identity counts; each replaces what was set before it.

use bytes::Bytes;
use model::{Duration, Reader, TimerChange, Timestamp};

use super::Bundle;
use super::names::{Domain, Item, Kind, Pair};
use crate::error::Error;

/// What a timer is set to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Set {
    pub(super) fire: Timestamp,
    /// MAX: it holds nothing.
    pub(super) hold: Timestamp,
    pub(super) pane: Bytes,
}

impl Set {
    fn encode_value(&self) -> Bytes {
        [&self.hold.encode(), &self.pane[..]].concat().into()
    }

    /// The rest is in the item's name.
    pub(super) fn decode_value(fire: Timestamp, value: &Bytes) -> Result<Set, Error> {
        let mut reader = Reader::new(value);
        let hold = Timestamp::decode(&mut reader)?;
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
    fn set(&mut self, domain: Domain, pair: Pair, family: u32, tag: Bytes, mut set: Set) -> Result<(), Error> {
        let expiry = self.keys.expiry(self.keys.end(&pair.window)?);
        let forgotten = expiry.plus(Duration(1));
        if set.hold == forgotten {
            set.hold = expiry;
        }
        let in_time = match domain {
            Domain::Event => set.fire <= forgotten,
            Domain::Processing if self.clocks.draining => false,
            Domain::Processing => self.clocks.complete || expiry >= self.clocks.input_watermark,
        };
        let identity = self.keys.names.timer(&pair, family, &tag);
        let times = Bytes::from([set.fire.encode(), set.hold.encode()].concat());
        if in_time && self.state.get(&identity)?.as_ref() == Some(&times) {
            // As it was, which is what every element of a key and window does in many pipelines: only the pane may differ.
            let item = Item { domain, time: set.fire, kind: Kind::Timer { family, tag }, pair };
            self.state.put(self.keys.names.due(&item), Some(set.encode_value()));
            return Ok(());
        }
        self.clear(&pair, family, &tag)?;
        if !in_time || !self.see(&pair, expiry)? {
            return Ok(());
        }
        self.state.put(identity, Some(times));
        let item = Item { domain, time: set.fire, kind: Kind::Timer { family, tag }, pair };
        self.add(&item, set.hold, set.encode_value());
        Ok(())
    }

    /// Forgets a timer, if it is set.
    pub(super) fn clear(&mut self, pair: &Pair, family: u32, tag: &Bytes) -> Result<(), Error> {
        let identity = self.keys.names.timer(pair, family, tag);
        let Some(cell) = self.state.get(&identity)? else {
            return Ok(());
        };
        let mut reader = Reader::new(&cell);
        let (fire, hold) = (Timestamp::decode(&mut reader)?, Timestamp::decode(&mut reader)?);
        let domain = self.keys.domain(family)?;
        let item = Item { domain, time: fire, kind: Kind::Timer { family, tag: tag.clone() }, pair: pair.clone() };
        self.remove(&item, hold);
        self.state.put(identity, None);
        if domain == Domain::Processing {
            self.relieved.insert(pair.clone());
        }
        Ok(())
    }
}
