//! State that a guest reads and changes: names are checked, sizes are counted, and the rest is the bundle's state access.

use std::sync::Arc;

use bytes::Bytes;
use model::TransformId;
use worker::{StateAccess, StateKey};

use crate::Options;
use crate::bindings::{state, types};
use crate::host::{HostState, LimitHit};
use crate::manifest::{StateKind, StateManifest};
use crate::runs::Runs;

/// What state a call may reach: that of its transform, for its runs.
#[derive(Clone)]
pub(crate) struct Reach {
    pub(crate) transform: TransformId,
    pub(crate) states: Arc<[StateManifest]>,
    pub(crate) runs: Arc<Runs>,
    pub(crate) access: Arc<dyn StateAccess>,
}

/// The state of the running call, and what the bundle has used of its limits.
#[derive(Default)]
pub(crate) struct StateCalls {
    /// During keyed calls.
    pub(crate) reach: Option<Reach>,
    calls: usize,
    read_bytes: usize,
    changed_bytes: usize,
    /// Why a request failed: the bundle fails for the same reason.
    pub(crate) failed: Option<worker::Error>,
}

/// Why a request of a guest ends its call.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refused {
    /// The reason is in [`StateCalls::failed`].
    #[error("state: {0}")]
    State(String),
    #[error("{0}")]
    Misuse(String),
    #[error(transparent)]
    Limit(LimitHit),
}

impl StateCalls {
    /// A bundle is over, or another one begins.
    pub(crate) fn end_bundle(&mut self) {
        *self = StateCalls::default();
    }

    fn count_call(&mut self, options: &Options) -> Result<(), Refused> {
        self.calls += 1;
        let max = options.state_calls_max;
        if self.calls > max { Err(Refused::Limit(LimitHit::StateCalls { max })) } else { Ok(()) }
    }

    fn get(&mut self, key: &StateKey, next: Option<Vec<u8>>, options: &Options) -> Result<state::Page, Refused> {
        let access = self.reach()?.access.clone();
        let page = access.get(key, next.map(Bytes::from).as_ref()).map_err(|error| self.fail(error))?;
        self.read_bytes = self.read_bytes.saturating_add(page.data.len());
        let max = options.state_read_bytes_max;
        if self.read_bytes > max {
            return Err(Refused::Limit(LimitHit::StateRead { max }));
        }
        Ok(state::Page { elements: page.data.into(), next: page.next.map(Vec::from) })
    }

    fn reach(&self) -> Result<&Reach, Refused> {
        self.reach.as_ref().ok_or_else(|| Refused::Misuse("state was asked for where there is none".to_owned()))
    }

    fn fail(&mut self, error: worker::Error) -> Refused {
        let text = error.to_string();
        self.failed = Some(error);
        Refused::State(text)
    }

    /// Makes changes of a guest, in their order.
    pub(crate) fn apply(&mut self, changes: &state::Changes, options: &Options) -> Result<(), Refused> {
        let malformed = || Refused::Misuse("changes of state whose columns do not fit together".to_owned());
        let count = changes.runs.len();
        let (parts, elements) = (Slices::new(&changes.parts, count), Slices::new(&changes.elements, count));
        let (parts, elements) = (parts.ok_or_else(malformed)?, elements.ok_or_else(malformed)?);
        if changes.states.len() != count || changes.kinds.len() != count {
            return Err(malformed());
        }
        // Every change costs a little, also one without bytes.
        const CHANGE_BYTES: usize = 32;
        let bytes = changes.parts.bytes.len() + changes.elements.bytes.len() + count * CHANGE_BYTES;
        self.changed_bytes = self.changed_bytes.saturating_add(bytes);
        let max = options.state_change_bytes_max;
        if self.changed_bytes > max {
            return Err(Refused::Limit(LimitHit::StateChanges { max }));
        }
        for at in 0..count {
            let reach = self.reach()?;
            let (part, elements) = (parts.get(at), elements.get(at));
            let changed = change(reach, (changes.runs[at], changes.states[at]), changes.kinds[at], part, elements)?;
            changed.map_err(|error| self.fail(error))?;
        }
        Ok(())
    }
}

/// One change; the inner error is that of the state.
fn change(
    reach: &Reach,
    place: (u32, u32),
    kind: state::ChangeKind,
    part: &[u8],
    elements: &[u8],
) -> Result<Result<(), worker::Error>, Refused> {
    let key = reach.key(place, part, kind)?;
    let access = &reach.access;
    let append =
        |elements: &[u8]| if elements.is_empty() { Ok(()) } else { access.append(&key, Bytes::copy_from_slice(elements)) };
    Ok(match kind {
        state::ChangeKind::Append => append(elements),
        state::ChangeKind::Clear => access.clear(&key),
        state::ChangeKind::Replace => access.clear(&key).and_then(|()| append(elements)),
    })
}

impl Reach {
    fn place(&self, (run, number): (u32, u32)) -> Result<(&StateManifest, Named), Refused> {
        let state = self.states.get(number as usize);
        let state = state.ok_or_else(|| Refused::Misuse(format!("state {number} was asked for, which was not declared")))?;
        let (key, window) =
            self.runs.get(run).ok_or_else(|| Refused::Misuse(format!("state of run {run} was asked for, which is not there")))?;
        let (transform, name) = (self.transform.clone(), state.name.clone());
        Ok((state, Named { transform, state: name, window: window.clone(), key: key.clone() }))
    }

    /// The part of a state that a change is about.
    fn key(&self, place: (u32, u32), part: &[u8], change: state::ChangeKind) -> Result<StateKey, Refused> {
        let (state, named) = self.place(place)?;
        let is_clear = change == state::ChangeKind::Clear;
        match (state.kind, part.is_empty()) {
            (StateKind::Map | StateKind::Set, true) if is_clear => Ok(named.map_keys()),
            (StateKind::OrderedList, true) if is_clear => Ok(named.ordered((i64::MIN, i64::MAX))),
            (StateKind::OrderedList, true) if change == state::ChangeKind::Append => Ok(named.ordered((i64::MIN, i64::MAX))),
            (StateKind::OrderedList, false) if is_clear => Ok(named.ordered(range(part)?)),
            (StateKind::Map | StateKind::Set, false) => Ok(named.map_value(part)),
            (StateKind::Value | StateKind::Bag | StateKind::Combining, true) => Ok(named.bag()),
            _ => Err(state.has_no_such_part()),
        }
    }

    fn read_key(&self, place: (u32, u32), part: &[u8]) -> Result<StateKey, Refused> {
        let (state, named) = self.place(place)?;
        match (state.kind, part.is_empty()) {
            (StateKind::OrderedList, false) => Ok(named.ordered(range(part)?)),
            (StateKind::Map | StateKind::Set, false) => Ok(named.map_value(part)),
            (StateKind::Value | StateKind::Bag | StateKind::Combining, true) => Ok(named.bag()),
            _ => Err(state.has_no_such_part()),
        }
    }

    fn keys_key(&self, place: (u32, u32)) -> Result<StateKey, Refused> {
        let (state, named) = self.place(place)?;
        match state.kind {
            StateKind::Map | StateKind::Set => Ok(named.map_keys()),
            _ => Err(state.has_no_such_part()),
        }
    }
}

impl StateManifest {
    fn has_no_such_part(&self) -> Refused {
        Refused::Misuse(format!("state `{}` was asked for a part that a {} does not have", self.name, self.kind))
    }
}

/// A state of a run.
struct Named {
    transform: TransformId,
    state: String,
    window: Bytes,
    key: Bytes,
}

impl Named {
    fn bag(self) -> StateKey {
        let Named { transform, state, window, key } = self;
        StateKey::Bag { transform, state, window, key }
    }

    fn map_value(self, map_key: &[u8]) -> StateKey {
        let Named { transform, state, window, key } = self;
        StateKey::Multimap { transform, state, window, key, map_key: Bytes::copy_from_slice(map_key) }
    }

    fn map_keys(self) -> StateKey {
        let Named { transform, state, window, key } = self;
        StateKey::MultimapKeys { transform, state, window, key }
    }

    fn ordered(self, (start, end): (i64, i64)) -> StateKey {
        let Named { transform, state, window, key } = self;
        StateKey::OrderedList { transform, state, window, key, start, end }
    }
}

fn range(part: &[u8]) -> Result<(i64, i64), Refused> {
    let misuse = || Refused::Misuse(format!("a range of an ordered list has {} bytes instead of 16", part.len()));
    let bytes: &[u8; 16] = part.try_into().map_err(|_| misuse())?;
    let number = |at: usize| i64::from_be_bytes(std::array::from_fn(|index| bytes[at + index]));
    Ok((number(0), number(8)))
}

/// Byte strings of a guest that were found to fill their arena; without ends all are empty.
pub(crate) struct Slices<'a> {
    bytes: &'a [u8],
    ends: &'a [u32],
}

impl<'a> Slices<'a> {
    pub(crate) fn new(rows: &'a types::RowsResult, count: usize) -> Option<Self> {
        let (bytes, ends) = (rows.bytes.as_slice(), rows.ends.as_slice());
        let filled = ends.last().is_none_or(|last| *last as usize == bytes.len()) && (!ends.is_empty() || bytes.is_empty());
        let counted = ends.len() == count || ends.is_empty();
        (filled && counted && ends.is_sorted()).then_some(Slices { bytes, ends })
    }

    pub(crate) fn get(&self, at: usize) -> &'a [u8] {
        let start = if at == 0 { 0 } else { self.ends.get(at - 1).map_or(0, |end| *end as usize) };
        self.ends.get(at).map_or(&[], |end| &self.bytes[start..*end as usize])
    }
}

impl state::Host for HostState {
    fn read(&mut self, run: u32, state: u32, part: Vec<u8>, next: Option<Vec<u8>>) -> wasmtime::Result<state::Page> {
        self.state.count_call(&self.options)?;
        let key = self.state.reach()?.read_key((run, state), &part)?;
        Ok(self.state.get(&key, next, &self.options)?)
    }

    fn keys(&mut self, run: u32, state: u32, next: Option<Vec<u8>>) -> wasmtime::Result<state::Page> {
        self.state.count_call(&self.options)?;
        let key = self.state.reach()?.keys_key((run, state))?;
        Ok(self.state.get(&key, next, &self.options)?)
    }

    fn apply(&mut self, changes: state::Changes) -> wasmtime::Result<()> {
        self.state.count_call(&self.options)?;
        Ok(self.state.apply(&changes, &self.options)?)
    }
}
