//! What a component exports for stateful DoFns, and the state that it imports.

use super::bindings::exports::purlin::dofn::describe_keyed::{
    self, KeyedTransform, StateKind, StateSpec, TimeDomain, TimerFamily,
};
use super::bindings::exports::purlin::dofn::keyed;
use super::bindings::purlin::dofn::state;
use super::bindings::purlin::dofn::types::{Failure, Rows};
use super::exports::{Exports, add_coder, column, outcome, rows, transform, with_instance};
use crate::keyed::Runs;
use crate::manifest::{Description, KeyedDescription};
use crate::runtime::{self, DueTimers, KeyedInput, KeyedOutcome};
use crate::state::{ChangeKind, Changes, FieldKind, FieldSpec, Page, Store};
use crate::stateful::EXPIRATION_FAMILY;
use crate::timers::TimerChange;

/// The host's state.
#[derive(Clone, Copy, Debug)]
pub struct HostStore;

impl Store for HostStore {
    fn read(&self, run: u32, state: u32, part: &[u8], next: Option<&[u8]>) -> Page {
        page(state::read(run, state, part, next))
    }

    fn keys(&self, run: u32, state: u32, next: Option<&[u8]>) -> Page {
        page(state::keys(run, state, next))
    }

    fn apply(&self, changes: Changes) {
        state::apply(&lowered(changes));
    }
}

fn page(page: state::Page) -> Page {
    Page { elements: page.elements, next: page.next }
}

fn lowered(changes: Changes) -> state::Changes {
    let kind = |kind| match kind {
        ChangeKind::Append => state::ChangeKind::Append,
        ChangeKind::Replace => state::ChangeKind::Replace,
        ChangeKind::Clear => state::ChangeKind::Clear,
    };
    state::Changes {
        runs: changes.runs,
        states: changes.states,
        kinds: changes.kinds.into_iter().map(kind).collect(),
        parts: Rows { bytes: changes.part_bytes, ends: changes.part_ends },
        elements: Rows { bytes: changes.element_bytes, ends: changes.element_ends },
    }
}

impl<T: Exports> describe_keyed::Guest for T {
    fn transforms() -> Vec<KeyedTransform> {
        let keyed = T::REGISTERED.iter().map(|registered| &registered.description);
        keyed.filter_map(|description| Some(described(description, description.keyed.as_ref()?))).collect()
    }
}

fn described(description: &Description, keyed: &KeyedDescription) -> KeyedTransform {
    let mut transform = transform(description);
    let states = keyed.fields.iter().filter_map(|field| {
        let (_, key, element) = field.kind.state()?;
        let key = key.map(|key| add_coder(&mut transform.coders, key));
        let element = add_coder(&mut transform.coders, element);
        Some(StateSpec { name: field.name.into(), kind: kind(&field.kind), element, key })
    });
    let states = states.collect();
    let mut timers: Vec<TimerFamily> = keyed.fields.iter().filter_map(family).collect();
    let expiration = keyed.expiration.then_some(timers.len() as u32);
    timers.extend(keyed.expiration.then(|| TimerFamily { name: EXPIRATION_FAMILY.into(), domain: TimeDomain::EventTime }));
    KeyedTransform { transform, states, timers, expiration }
}

fn kind(kind: &FieldKind) -> StateKind {
    match kind {
        FieldKind::Value(_) => StateKind::Value,
        FieldKind::Bag(_) => StateKind::Bag,
        FieldKind::Combining(_) => StateKind::Combining,
        FieldKind::Map(..) => StateKind::Map,
        FieldKind::Set(_) => StateKind::Set,
        FieldKind::OrderedList(_) => StateKind::OrderedList,
        FieldKind::EventTimer | FieldKind::ProcessingTimer => unreachable!("timers are not states"),
    }
}

fn family(field: &FieldSpec) -> Option<TimerFamily> {
    let domain = match field.kind {
        FieldKind::EventTimer => TimeDomain::EventTime,
        FieldKind::ProcessingTimer => TimeDomain::ProcessingTime,
        _ => return None,
    };
    Some(TimerFamily { name: field.name.into(), domain })
}

impl<T: Exports> keyed::Guest for T {
    fn process(handle: u32, input: keyed::KeyedBatch) -> Result<keyed::KeyedOutcome, Failure> {
        let runs = runs(&input.runs, &input.run_of);
        let keyed = KeyedInput { rows: rows(&input.batch), runs, now_ms: input.now };
        with_instance(handle, |instance| instance.process_keyed(&keyed)).map(keyed_outcome)
    }

    fn on_timers(handle: u32, due: keyed::DueTimers) -> Result<keyed::KeyedOutcome, Failure> {
        let due = DueTimers {
            runs: runs(&due.runs, &due.run_of),
            families: &due.families,
            tags: runtime::Rows { bytes: &due.tags.bytes, ends: &due.tags.ends },
            fire: &due.fire,
            hold: &due.hold,
            now_ms: due.now,
        };
        with_instance(handle, |instance| instance.on_timers(&due)).map(keyed_outcome)
    }
}

fn runs<'a>(runs: &'a keyed::Runs, run_of: &'a [u32]) -> Runs<'a> {
    Runs { key_bytes: &runs.keys.bytes, key_ends: &runs.keys.ends, windows: column(&runs.windows), run_of }
}

fn keyed_outcome(done: KeyedOutcome) -> keyed::KeyedOutcome {
    keyed::KeyedOutcome { outcome: outcome(done.outcome), state: lowered(done.changes), timers: timer_changes(&done.timers) }
}

fn timer_changes(changes: &[TimerChange]) -> keyed::TimerChanges {
    let kind = |change: &TimerChange| match change.set {
        Some(_) => keyed::TimerChangeKind::Set,
        None => keyed::TimerChangeKind::Clear,
    };
    let mut tags = Rows { bytes: Vec::new(), ends: Vec::new() };
    if changes.iter().any(|change| !change.tag.is_empty()) {
        for change in changes {
            tags.bytes.extend_from_slice(change.tag.as_bytes());
            tags.ends.push(tags.bytes.len() as u32);
        }
    }
    keyed::TimerChanges {
        runs: changes.iter().map(|change| change.run).collect(),
        families: changes.iter().map(|change| change.family).collect(),
        kinds: changes.iter().map(kind).collect(),
        tags,
        fire: changes.iter().map(|change| change.set.map_or(0, |(fire, _)| fire)).collect(),
        hold: changes.iter().map(|change| change.set.map_or(0, |(_, hold)| hold)).collect(),
    }
}
