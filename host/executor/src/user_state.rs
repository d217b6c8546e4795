//! User state of one bundle: what its DoFn reads and writes by key and window.
//!
//! ```text
//!  read    committed cells with the bundle's own writes on top, in pages
//!  write   into memory, within a bound; the writes become part of the bundle's commit
//!  expire  after the bundle: all state of a key and window is removed in the same commit
//! ```
//!
//! What the bytes of elements mean is not known here, except where one ends: for cutting and counting.

mod cells;
mod list;
mod multimap;
mod names;
mod ordered;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use ledger::{StateReader, StateWrite};
use model::{StageId, TransformId};
use plan::{Plan, StateKind};
use worker::{Error, Page, StateAccess, StateKey};

use cells::Cells;
use list::List;
use multimap::Multimap;
use names::Place;
use ordered::Ordered;

use crate::side_inputs::SideInputs;

/// The states that a stage declares.
#[derive(Debug)]
pub struct StageStates {
    stage: StageId,
    transform: Option<TransformId>,
    kinds: BTreeMap<String, StateKind>,
}

impl StageStates {
    /// Of one stage of `plan`, whose states are all of one transform.
    pub fn of(plan: &Plan, stage: StageId) -> Self {
        let states = plan.stages[stage.0 as usize].body.iter().flat_map(|body| &body.states);
        let transform = states.clone().next().map(|state| state.transform.clone());
        let own = states.filter(|state| Some(&state.transform) == transform.as_ref());
        let kinds = own.map(|state| (state.state.clone(), state.kind.clone())).collect();
        StageStates { stage, transform, kinds }
    }

    fn kind(&self, transform: &TransformId, state: &str) -> Result<&StateKind, Error> {
        let known = self.kinds.get(state).filter(|_| self.transform.as_ref() == Some(transform));
        known.ok_or_else(|| Error::Protocol(format!("{transform} has no user state \"{state}\" in {}", self.stage)))
    }
}

/// See the file's head. Side inputs are served as well.
pub struct BundleState {
    states: Arc<StageStates>,
    side_inputs: Arc<SideInputs>,
    /// None once the bundle is over. Held for one request, which may read a page from the storage.
    cells: Mutex<Option<Cells>>,
}

impl BundleState {
    /// For one bundle of a shard whose committed state this is. Names and values of its writes may take `bytes_max`.
    pub fn new(
        states: Arc<StageStates>,
        committed: Arc<dyn StateReader>,
        side_inputs: Arc<SideInputs>,
        bytes_max: usize,
    ) -> Self {
        BundleState { states, side_inputs, cells: Mutex::new(Some(Cells::new(committed, bytes_max))) }
    }

    /// Whether the writes exceed their bound: then the bundle cannot be finished.
    pub fn is_full(&self) -> bool {
        self.lock().as_ref().is_some_and(|cells| cells.check_bound().is_err())
    }

    /// The bundle is over and has succeeded: its writes, after which nothing is left of the (key, window) pairs in `expired`.
    /// Whoever asks for state from now on gets an error.
    pub fn finish(&self, expired: &[(Bytes, Bytes)]) -> Result<Vec<StateWrite>, Error> {
        let mut cells = self.lock().take().ok_or_else(over)?;
        cells.check_bound()?;
        for (key, window) in expired {
            self.expire(&mut cells, key, window)?;
        }
        Ok(cells.into_writes())
    }

    fn expire(&self, cells: &mut Cells, key: &Bytes, window: &Bytes) -> Result<(), Error> {
        for (state, kind) in &self.states.kinds {
            let place = Place::new(self.states.stage, key, window, state);
            match kind {
                StateKind::Bag { .. } => List { place: &place, map_key: &[] }.clear(cells)?,
                StateKind::Multimap { .. } => Multimap { place: &place }.clear(cells)?,
                StateKind::OrderedList => Ordered { place: &place }.remove(cells)?,
            }
        }
        Ok(())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Cells>> {
        self.cells.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Where the state of a key is; none for side inputs.
    fn find<'a>(&'a self, key: &'a StateKey) -> Result<Option<Found<'a>>, Error> {
        let (transform, state, window, user_key) = match key {
            StateKey::Bag { transform, state, window, key }
            | StateKey::Multimap { transform, state, window, key, .. }
            | StateKey::MultimapKeys { transform, state, window, key }
            | StateKey::MultimapEntries { transform, state, window, key }
            | StateKey::OrderedList { transform, state, window, key, .. } => (transform, state, window, key),
            _ => return Ok(None),
        };
        let kind = self.states.kind(transform, state)?;
        let fits = match kind {
            StateKind::Bag { .. } => matches!(key, StateKey::Bag { .. }),
            StateKind::Multimap { .. } => !matches!(key, StateKey::Bag { .. } | StateKey::OrderedList { .. }),
            StateKind::OrderedList => matches!(key, StateKey::OrderedList { .. }),
        };
        match fits {
            true => Ok(Some(Found { kind, place: Place::new(self.states.stage, user_key, window, state), transform, state })),
            false => Err(Error::Protocol(format!("{transform} asks for its user state \"{state}\" as what it is not"))),
        }
    }
}

struct Found<'a> {
    kind: &'a StateKind,
    place: Place,
    transform: &'a TransformId,
    state: &'a str,
}

impl Found<'_> {
    fn cannot(&self, what: &str) -> Error {
        Error::Protocol(format!("user state \"{}\" of {} cannot be {what} in this way", self.state, self.transform))
    }

    /// Says whose request it was.
    fn named(&self, error: Error) -> Error {
        let text = |message: String| format!("user state \"{}\" of {}: {message}", self.state, self.transform);
        match error {
            Error::User { message, .. } => Error::User { transform: Some(self.transform.clone()), message: text(message) },
            Error::Protocol(message) => Error::Protocol(text(message)),
            other => other,
        }
    }
}

fn over() -> Error {
    Error::Protocol("state was asked for after the end of its bundle".to_owned())
}

impl StateAccess for BundleState {
    fn get(&self, key: &StateKey, from: Option<&Bytes>) -> Result<Page, Error> {
        let Some(found) = self.find(key)? else { return self.side_inputs.get(key, from) };
        let (cells, place) = (self.lock(), &found.place);
        let cells = cells.as_ref().ok_or_else(over)?;
        let page = match (key, found.kind) {
            (StateKey::Multimap { map_key, .. }, _) => List { place, map_key }.page(cells, from),
            (StateKey::MultimapKeys { .. }, _) => Multimap { place }.keys(cells, from),
            (StateKey::MultimapEntries { .. }, StateKind::Multimap { value: Some(value) }) => {
                Multimap { place }.entries(cells, from, value)
            }
            (StateKey::OrderedList { start, end, .. }, _) => Ordered { place }.page(cells, *start, *end, from),
            (StateKey::Bag { .. }, _) => List { place, map_key: &[] }.page(cells, from),
            _ => Err(found.cannot("read")),
        };
        page.map_err(|error| found.named(error))
    }

    fn append(&self, key: &StateKey, data: Bytes) -> Result<(), Error> {
        let Some(found) = self.find(key)? else { return self.side_inputs.append(key, data) };
        let (mut cells, place) = (self.lock(), &found.place);
        let cells = cells.as_mut().ok_or_else(over)?;
        let appended = match (key, found.kind) {
            (StateKey::Bag { .. }, _) if data.is_empty() => Ok(()),
            (StateKey::Bag { .. }, StateKind::Bag { element }) => {
                List { place, map_key: &[] }.append(cells, &data, element.as_ref())
            }
            (StateKey::Multimap { map_key, .. }, StateKind::Multimap { value }) => {
                List { place, map_key }.append(cells, &data, value.as_ref())
            }
            (StateKey::OrderedList { .. }, _) => Ordered { place }.append(cells, &data),
            _ => Err(found.cannot("appended to")),
        };
        appended.and_then(|()| cells.check_bound()).map_err(|error| found.named(error))
    }

    fn clear(&self, key: &StateKey) -> Result<(), Error> {
        let Some(found) = self.find(key)? else { return self.side_inputs.clear(key) };
        let (mut cells, place) = (self.lock(), &found.place);
        let cells = cells.as_mut().ok_or_else(over)?;
        let cleared = match key {
            StateKey::Multimap { map_key, .. } => List { place, map_key }.clear(cells),
            StateKey::MultimapKeys { .. } | StateKey::MultimapEntries { .. } => Multimap { place }.clear(cells),
            StateKey::OrderedList { start, end, .. } => Ordered { place }.clear(cells, *start, *end),
            _ => List { place, map_key: &[] }.clear(cells),
        };
        cleared.and_then(|()| cells.check_bound()).map_err(|error| found.named(error))
    }
}
