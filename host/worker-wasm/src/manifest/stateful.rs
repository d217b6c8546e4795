//! What a transform with state and timers says of itself besides.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::{CoderManifest, TransformManifest};
use crate::Error;
use crate::bindings::describe_keyed;

/// A state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StateManifest {
    /// Its name, unique in the transform.
    pub name: String,
    /// What it is.
    pub kind: StateKind,
    /// Of a map: the coder of its keys.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<CoderManifest>,
    /// Coder of its elements; of a combining state the accumulators, of a map the values.
    pub coder: CoderManifest,
}

/// What a state is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs, reason = "Beam's kinds of state")]
pub enum StateKind {
    Value,
    Bag,
    Combining,
    Map,
    Set,
    OrderedList,
}

impl std::fmt::Display for StateKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            StateKind::Value => "value",
            StateKind::Bag => "bag",
            StateKind::Combining => "combining state",
            StateKind::Map => "map",
            StateKind::Set => "set",
            StateKind::OrderedList => "ordered list",
        })
    }
}

/// A family of timers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TimerManifest {
    /// Its name, unique in the transform.
    pub name: String,
    /// Which time it goes by.
    pub domain: TimeDomain,
}

/// Which time a timer goes by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs, reason = "Beam's domains")]
pub enum TimeDomain {
    EventTime,
    ProcessingTime,
}

impl TransformManifest {
    /// Whether it has state or timers: role `keyed-pardo`.
    pub fn is_keyed(&self) -> bool {
        self.role == KEYED
    }

    /// Checks what is said of state and timers; the error says what is wrong.
    pub(super) fn check_keyed(&self) -> Result<(), String> {
        if !self.is_keyed() {
            let nothing = self.states.is_empty() && self.timers.is_empty() && self.expiration.is_none();
            return if nothing { Ok(()) } else { Err(format!("role {} has no state and no timers", self.role)) };
        }
        if self.states.is_empty() && self.timers.is_empty() {
            return Err("it has neither state nor timers".to_owned());
        }
        if self.input.urn != KV {
            return Err(format!("its input has coder {} instead of a kv coder", self.input));
        }
        let mut names = BTreeSet::new();
        let mut all = self.states.iter().map(|state| &state.name).chain(self.timers.iter().map(|timer| &timer.name));
        if let Some(name) = all.find(|name| name.is_empty() || !names.insert(*name)) {
            return Err(format!("state or timer name `{name}` is empty or not unique"));
        }
        for state in &self.states {
            if state.key.is_some() != (state.kind == StateKind::Map) {
                return Err(format!("state `{}` is a {}, and only maps have a coder of keys", state.name, state.kind));
            }
            for coder in state.key.iter().chain([&state.coder]) {
                coder.model_coder()?;
            }
        }
        let known = |name: &String| self.timers.iter().any(|it| it.name == *name && it.domain == TimeDomain::EventTime);
        match &self.expiration {
            Some(name) if !known(name) => Err(format!("there is no timer of event time `{name}` for the end of windows")),
            _ => Ok(()),
        }
    }
}

/// Role of transforms with state or timers.
const KEYED: &str = "keyed-pardo";
const KV: &str = "beam:coder:kv:v1";

pub(super) fn described(keyed: describe_keyed::KeyedTransform) -> Result<TransformManifest, Error> {
    let described = super::Described::of(keyed.transform)?;
    let state = |state: describe_keyed::StateSpec| -> Result<StateManifest, Error> {
        Ok(StateManifest {
            kind: kind(state.kind),
            key: state.key.map(|key| described.coder(key)).transpose()?,
            coder: described.coder(state.element)?,
            name: state.name,
        })
    };
    let states = keyed.states.into_iter().map(state).collect::<Result<_, Error>>()?;
    let timers: Vec<_> = keyed.timers.into_iter().map(|it| TimerManifest { name: it.name, domain: domain(it.domain) }).collect();
    let missing = || Error::Describe(format!("transform {} names a timer that it does not list", described.name));
    let expiration = keyed.expiration.map(|index| timers.get(index as usize).map(|timer| timer.name.clone()).ok_or_else(missing));
    let expiration = expiration.transpose()?;
    Ok(TransformManifest { role: KEYED.to_owned(), states, timers, expiration, ..described.into_manifest()? })
}

fn kind(kind: describe_keyed::StateKind) -> StateKind {
    match kind {
        describe_keyed::StateKind::Value => StateKind::Value,
        describe_keyed::StateKind::Bag => StateKind::Bag,
        describe_keyed::StateKind::Combining => StateKind::Combining,
        describe_keyed::StateKind::Map => StateKind::Map,
        describe_keyed::StateKind::Set => StateKind::Set,
        describe_keyed::StateKind::OrderedList => StateKind::OrderedList,
    }
}

fn domain(domain: describe_keyed::TimeDomain) -> TimeDomain {
    match domain {
        describe_keyed::TimeDomain::EventTime => TimeDomain::EventTime,
        describe_keyed::TimeDomain::ProcessingTime => TimeDomain::ProcessingTime,
    }
}
