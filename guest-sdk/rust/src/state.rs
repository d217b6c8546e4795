//! State of a key in a window: what a stateful DoFn keeps from one element to the next.
//!
//! States are declared as the fields of a struct that derives [`States`]; they are values that read and write the state of the
//! key and window at hand. Reading is lazy and remembered for a batch; changes go to the runner once per batch, and become
//! durable with their bundle.
//!
//! ```
//! use purlin::prelude::*;
//!
//! #[derive(States)]
//! struct Visit {
//!     pages: BagState<String>,
//!     clicks: CombiningState<Sum>,
//!     gap: EventTimer,
//! }
//! ```
//!
//! The names of the fields are those by which the runner keeps them: a field that is renamed is a new state.

mod cells;
mod combining;
mod list;
mod map;
mod ordered;

use std::rc::Rc;

pub use cells::{Call, ChangeKind, Changes, Page, Store};
pub use combining::{CombineFn, CombiningState, Max, Min, Sum};
pub use list::{BagState, ValueState};
pub use map::{MapState, SetState};
pub use ordered::OrderedListState;

use crate::Coder;

/// All states and timers of a stateful DoFn. Derive it for a struct whose fields are states and timers; `()` has none.
pub trait States {
    /// The fields in their order.
    const FIELDS: &'static [FieldSpec];

    /// The fields of the calls of one instance.
    fn attach(call: &Rc<Call>) -> Self;
}

impl States for () {
    const FIELDS: &'static [FieldSpec] = &[];

    fn attach(_call: &Rc<Call>) -> Self {}
}

/// A state or a timer, as a field of a [`States`] struct.
pub trait Field {
    /// What it is.
    const KIND: FieldKind;

    /// The field with this number among the fields of its kind, states or timers.
    fn attach(call: &Rc<Call>, number: u32) -> Self;
}

/// A field as the manifest names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldSpec {
    /// The field's name.
    pub name: &'static str,
    /// What it is.
    pub kind: FieldKind,
}

/// What a field is, with the coders of what it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldKind {
    /// [`ValueState`]
    Value(&'static Coder),
    /// [`BagState`]
    Bag(&'static Coder),
    /// [`CombiningState`], of accumulators
    Combining(&'static Coder),
    /// [`MapState`], of keys and values
    Map(&'static Coder, &'static Coder),
    /// [`SetState`]
    Set(&'static Coder),
    /// [`OrderedListState`]
    OrderedList(&'static Coder),
    /// [`crate::EventTimer`]
    EventTimer,
    /// [`crate::ProcessingTimer`]
    ProcessingTimer,
}

impl FieldKind {
    /// Whether it is a timer and not a state.
    pub const fn is_timer(&self) -> bool {
        matches!(self, FieldKind::EventTimer | FieldKind::ProcessingTimer)
    }

    /// The word of the manifest, and the coders of keys and of elements.
    pub const fn state(&self) -> Option<(&'static str, Option<&'static Coder>, &'static Coder)> {
        match self {
            FieldKind::Value(element) => Some(("value", None, element)),
            FieldKind::Bag(element) => Some(("bag", None, element)),
            FieldKind::Combining(accumulator) => Some(("combining", None, accumulator)),
            FieldKind::Map(key, value) => Some(("map", Some(key), value)),
            FieldKind::Set(element) => Some(("set", None, element)),
            FieldKind::OrderedList(element) => Some(("ordered-list", None, element)),
            FieldKind::EventTimer | FieldKind::ProcessingTimer => None,
        }
    }
}

/// How many states come before a field, or timers if `timers`; for code made by `#[derive(States)]`.
#[doc(hidden)]
pub const fn number(fields: &[FieldSpec], field: usize, timers: bool) -> u32 {
    let (mut at, mut before) = (0, 0);
    while at < field {
        if fields[at].kind.is_timer() == timers {
            before += 1;
        }
        at += 1;
    }
    before
}

/// Stored bytes that cannot be read have no better answer: nobody could go on.
fn decoded<'a, T: crate::Decode<'a>>(reader: &mut crate::Reader<'a>, what: &str) -> T {
    match T::decode(reader) {
        Ok(value) => value,
        Err(error) => panic!("{what} cannot be read, was it written by another version of the DoFn?: {error}"),
    }
}

fn encoded<T: crate::Element + ?Sized>(value: &T) -> Vec<u8> {
    let mut bytes = Vec::new();
    value.encode(&mut bytes);
    bytes
}
