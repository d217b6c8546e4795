//! What is to come, in order of time, and what holds the watermark: in state, with the first of each order at hand.
//!
//! Memory has three items however many there are in state. Where the first items are gone, the next ones are looked for
//! from there on and not from the beginning: what was deleted is not walked over again.

use bytes::Bytes;
use model::{Reader, Timestamp};

use super::names::{Domain, Item, Names};
use crate::error::Error;
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

/// Where to look for the first cell of each order: before these names there is none. None: there is none at all.
///
/// They are names and not times: where many items have one time, those that are gone are not walked over again.
#[derive(Clone, Debug)]
pub(super) struct Floors {
    event: Option<Bytes>,
    processing: Option<Bytes>,
    hold: Option<Bytes>,
}

impl Agenda {
    /// From everything that is in state.
    pub(super) fn restore(names: &Names, state: &dyn KeyedState) -> Result<Self, Error> {
        let next_row = match state.get(&names.next_row())? {
            Some(number) => Reader::new(&number).be_u64()?,
            None => 0,
        };
        let floors = Floors {
            event: Some(names.due_at(Domain::Event, Timestamp::MIN).into()),
            processing: Some(names.due_at(Domain::Processing, Timestamp::MIN).into()),
            hold: Some(names.held_at(Timestamp::MIN).into()),
        };
        floors.first(names, state, next_row)
    }

    pub(super) fn floors(&self, names: &Names) -> Floors {
        Floors {
            event: self.event.as_ref().map(|item| names.due(item)),
            processing: self.processing.as_ref().map(|item| names.due(item)),
            hold: self.held.as_ref().map(|(hold, item)| names.hold(*hold, item)),
        }
    }

    /// What keeps the stage from being complete, if anything does: the least hold, or else what comes first. What holds nothing
    /// by itself, as Go's and Java's timers without output timestamp, may still have outputs: so the global window, in which
    /// there is no later time for them, is not over for the stage's readers.
    pub(super) fn holder(&self) -> Option<(Timestamp, &Item)> {
        let held = self.held.as_ref().map(|(hold, item)| (*hold, item));
        let holder = held.or_else(|| self.event.as_ref().or(self.processing.as_ref()).map(|item| (Timestamp::MAX, item)));
        holder.map(|(hold, item)| (hold.min(Timestamp::GLOBAL_WINDOW_END), item))
    }
}

impl Floors {
    /// Writes an item, which is not there already; a hold of MAX holds nothing.
    pub(super) fn add(&mut self, names: &Names, state: &mut dyn KeyedState, item: &Item, hold: Timestamp, value: Bytes) {
        let name = names.due(item);
        let floor = match item.domain {
            Domain::Event => &mut self.event,
            Domain::Processing => &mut self.processing,
        };
        lower(floor, &name);
        state.put(name, Some(value));
        if hold < Timestamp::MAX {
            let name = names.hold(hold, item);
            lower(&mut self.hold, &name);
            state.put(name, Some(Bytes::new()));
        }
    }

    /// The name to look for the items of a domain from.
    pub(super) fn from(&self, domain: Domain) -> Option<&Bytes> {
        match domain {
            Domain::Event => self.event.as_ref(),
            Domain::Processing => self.processing.as_ref(),
        }
    }

    /// The first items.
    pub(super) fn first(&self, names: &Names, state: &dyn KeyedState, next_row: u64) -> Result<Agenda, Error> {
        let due = |domain| {
            let name = first_in(state, self.from(domain), &names.due_at(domain, Timestamp::MAX))?;
            name.map(|name| names.item_due(&name)).transpose()
        };
        let held = first_in(state, self.hold.as_ref(), &names.held_at(Timestamp::MAX))?;
        let held = held.map(|name| names.item_held(&name)).transpose()?;
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

fn lower(floor: &mut Option<Bytes>, name: &Bytes) {
    if floor.as_ref().is_none_or(|floor| name < floor) {
        *floor = Some(name.clone());
    }
}

/// The first name from one on and up to all that begin with another.
fn first_in(state: &dyn KeyedState, from: Option<&Bytes>, last: &[u8]) -> Result<Option<Bytes>, Error> {
    let Some(from) = from else {
        return Ok(None);
    };
    let page = state.scan(from, &after_all(last), 1, FIRST_BYTES_MAX)?;
    Ok(page.into_iter().next().map(|(name, _)| name))
}
