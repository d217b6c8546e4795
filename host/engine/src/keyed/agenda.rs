//! What is to come, in order of time, and what holds the watermark: in state, with the first of each order at hand.
//!
//! Memory has three items however many there are in state. Where the first items are gone, the next ones are looked for
//! from there on and not from the beginning: what was deleted is not walked over again.

use bytes::Bytes;
use model::{Reader, Timestamp};

use super::names::{Domain, Item, Names};
use crate::error::Error;
use crate::pending::hold_of;
use crate::state::{KeyedState, after_all};

/// Bytes that are read to see one cell.
const FIRST_BYTES_MAX: usize = 1;

/// The first items of a stage.
#[derive(Clone, Debug, Default)]
pub(super) struct Agenda {
    pub(super) event: Option<Item>,
    pub(super) processing: Option<Item>,
    /// With what it holds at.
    pub(super) held: Option<(Timestamp, Item)>,
    /// The next number of a row.
    pub(super) next_row: u64,
}

/// Before these times there is nothing; none: nothing at all.
#[derive(Clone, Copy, Debug)]
pub(super) struct Floors {
    event: Option<Timestamp>,
    processing: Option<Timestamp>,
    hold: Option<Timestamp>,
}

impl Agenda {
    /// From everything that is in state.
    pub(super) fn restore(names: &Names, state: &dyn KeyedState) -> Result<Self, Error> {
        let next_row = match state.get(&names.next_row())? {
            Some(number) => Reader::new(&number).be_u64()?,
            None => 0,
        };
        let everything = Some(Timestamp::MIN);
        Floors { event: everything, processing: everything, hold: everything }.first(names, state, next_row)
    }

    pub(super) fn floors(&self) -> Floors {
        Floors {
            event: self.event.as_ref().map(|item| item.time),
            processing: self.processing.as_ref().map(|item| item.time),
            hold: self.held.as_ref().map(|(hold, _)| *hold),
        }
    }

    /// What keeps the stage from being complete, if anything does: the least hold, or else what comes first.
    pub(super) fn holder(&self) -> Option<(Timestamp, &Item)> {
        let held = self.held.as_ref().map(|(hold, item)| (*hold, item));
        let holder = held.or_else(|| self.event.as_ref().or(self.processing.as_ref()).map(|item| (Timestamp::MAX, item)));
        holder.map(|(hold, item)| (hold_of(hold), item))
    }
}

impl Floors {
    /// Writes an item, which is not there already; a hold of MAX holds nothing.
    pub(super) fn add(&mut self, names: &Names, state: &mut dyn KeyedState, item: &Item, hold: Timestamp, value: Bytes) {
        state.put(names.due(item), Some(value));
        let floor = match item.domain {
            Domain::Event => &mut self.event,
            Domain::Processing => &mut self.processing,
        };
        lower(floor, item.time);
        if hold < Timestamp::MAX {
            state.put(names.hold(hold, item), Some(Bytes::new()));
            lower(&mut self.hold, hold);
        }
    }

    pub(super) fn from(&self, domain: Domain) -> Option<Timestamp> {
        match domain {
            Domain::Event => self.event,
            Domain::Processing => self.processing,
        }
    }

    /// The first items, given that nothing lies below the floors.
    pub(super) fn first(&self, names: &Names, state: &dyn KeyedState, next_row: u64) -> Result<Agenda, Error> {
        let due = |domain| {
            let range = self.from(domain).map(|floor| (names.due_at(domain, floor), names.due_at(domain, Timestamp::MAX)));
            let name = first_in(state, range)?;
            name.map(|name| names.item_due(&name)).transpose()
        };
        let holds = self.hold.map(|floor| (names.held_at(floor), names.held_at(Timestamp::MAX)));
        let held = first_in(state, holds)?.map(|name| names.item_held(&name)).transpose()?;
        Ok(Agenda { event: due(Domain::Event)?, processing: due(Domain::Processing)?, held, next_row })
    }
}

/// Deletes an item that holds at `hold`.
pub(super) fn remove(names: &Names, state: &mut dyn KeyedState, item: &Item, hold: Timestamp) {
    state.put(names.due(item), None);
    if hold < Timestamp::MAX {
        state.put(names.hold(hold, item), None);
    }
}

fn lower(floor: &mut Option<Timestamp>, time: Timestamp) {
    *floor = Some(floor.map_or(time, |floor| floor.min(time)));
}

/// The first name from one on and up to all that begin with another.
fn first_in(state: &dyn KeyedState, range: Option<(Vec<u8>, Vec<u8>)>) -> Result<Option<Bytes>, Error> {
    let Some((from, last)) = range else {
        return Ok(None);
    };
    let page = state.scan(&from, &after_all(&last), 1, FIRST_BYTES_MAX)?;
    Ok(page.into_iter().next().map(|(name, _)| name))
}
