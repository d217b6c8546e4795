//! Decoded values: what the model coders encode.
//!
//! For tests, scripted sources, and where a person is shown an element. The data plane does not come here: it moves
//! encoded bytes (see [`crate::batch`]). Encoding and decoding follow a [`Coder`], in either context:
//!
//! ```
//! use model::Coder;
//! use model::value::Value;
//!
//! let coder = Coder::Kv(Box::new(Coder::VarInt), Box::new(Coder::Bytes));
//! let value = Value::kv(Value::Int(5), Value::Bytes(b"v".to_vec()));
//! assert_eq!(value.encode(&coder), Ok(vec![5, b'v']));
//! assert_eq!(value.encode_nested(&coder), Ok(vec![5, 1, b'v']));
//! assert_eq!(Value::decode(&coder, &[5, b'v']), Ok(value));
//! ```

mod decode;
mod encode;

use crate::pane::PaneInfo;
use crate::window::IntervalWindow;
use crate::{Coder, DecodeError, Reader, Timestamp};

pub use encode::EncodeError;

/// A value of any model coder.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// `bytes`, and what is under a length prefix with an unknown coder.
    Bytes(Vec<u8>),
    /// `string_utf8`
    String(String),
    /// `bool`
    Bool(bool),
    /// `varint`, and the integers of rows.
    Int(i64),
    /// `double`
    Double(f64),
    /// The four byte number of rows.
    Float(f32),
    /// `kv`
    Kv(Box<(Value, Value)>),
    /// `iterable` and `state_backed_iterable` when all elements are there; arrays of rows.
    Iterable(Vec<Value>),
    /// `state_backed_iterable` whose elements go on in state.
    StateBackedIterable {
        /// The elements that are there.
        inline: Vec<Value>,
        /// The runner state key that holds the rest.
        token: Vec<u8>,
    },
    /// No value, in `nullable` and in rows.
    Null,
    /// `global_window`
    GlobalWindow,
    /// `interval_window`
    IntervalWindow(IntervalWindow),
    /// `custom_window`
    CustomWindow {
        /// The last timestamp in the window.
        max_timestamp: Timestamp,
        /// The window itself.
        window: Box<Value>,
    },
    /// `windowed_value` and `param_windowed_value`
    WindowedValue(Box<WindowedValue>),
    /// `timer`
    Timer(Box<Timer>),
    /// `sharded_key`
    ShardedKey {
        /// Which part of a key that is too hot for one worker.
        shard_id: Vec<u8>,
        /// The key.
        key: Box<Value>,
    },
    /// `row`: one value per field, in schema order.
    Row(Vec<Value>),
    /// The map of rows, in encoded order.
    Map(Vec<(Value, Value)>),
    /// The `millis_instant` of rows.
    Timestamp(Timestamp),
    /// The `decimal` of rows: `unscaled * 10^-scale`.
    Decimal {
        /// Digits behind the point.
        scale: i64,
        /// Two's complement, big-endian, at least one byte.
        unscaled: Vec<u8>,
    },
}

/// An element with everything that travels along.
#[derive(Clone, Debug, PartialEq)]
pub struct WindowedValue {
    /// The element.
    pub value: Value,
    /// Its event time.
    pub timestamp: Timestamp,
    /// The windows it is in.
    pub windows: Vec<Value>,
    /// The firing that produced it.
    pub pane: Pane,
}

/// A pane with the element metadata behind it.
#[derive(Clone, Debug, PartialEq)]
pub struct Pane {
    /// The firing.
    pub info: PaneInfo,
    /// A serialized `ElementMetadata`, if there is one.
    pub metadata: Option<Vec<u8>>,
}

/// A timer that was set or cleared.
#[derive(Clone, Debug, PartialEq)]
pub struct Timer {
    /// The key it belongs to.
    pub user_key: Value,
    /// Tells apart the timers of a family.
    pub dynamic_timer_tag: String,
    /// The windows it belongs to.
    pub windows: Vec<Value>,
    /// When it fires; nothing if it was cleared.
    pub firing: Option<TimerFiring>,
}

/// When a timer fires, and what it holds back until then.
#[derive(Clone, Debug, PartialEq)]
pub struct TimerFiring {
    /// When it fires, in the family's time domain.
    pub fire_timestamp: Timestamp,
    /// The event time of what it will output.
    pub hold_timestamp: Timestamp,
    /// The firing of the element that set it.
    pub pane: Pane,
}

impl Value {
    /// A key and a value.
    pub fn kv(key: Value, value: Value) -> Self {
        Value::Kv(Box::new((key, value)))
    }

    /// Decodes all of `bytes` in outer context, where the end of the bytes is the end of the value.
    ///
    /// # Errors
    /// When the bytes are no value of this coder, or go on after it.
    pub fn decode(coder: &Coder, bytes: &[u8]) -> Result<Self, DecodeError> {
        decode::outer(coder, bytes)
    }

    /// Decodes one value in nested context, where a value says itself where it ends.
    ///
    /// # Errors
    /// When the bytes do not start with a value of this coder.
    pub fn decode_nested(coder: &Coder, reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        decode::nested(coder, reader)
    }

    /// Encodes in outer context.
    ///
    /// # Errors
    /// When this is no value of the coder.
    pub fn encode(&self, coder: &Coder) -> Result<Vec<u8>, EncodeError> {
        encode::outer(self, coder)
    }

    /// Encodes in nested context.
    ///
    /// # Errors
    /// When this is no value of the coder.
    pub fn encode_nested(&self, coder: &Coder) -> Result<Vec<u8>, EncodeError> {
        encode::nested(self, coder)
    }

    /// What kind of value this is, for messages.
    fn kind(&self) -> &'static str {
        match self {
            Value::Bytes(_) => "bytes",
            Value::String(_) => "a string",
            Value::Bool(_) => "a bool",
            Value::Int(_) => "an integer",
            Value::Double(_) => "a double",
            Value::Float(_) => "a float",
            Value::Kv(_) => "a kv",
            Value::Iterable(_) => "an iterable",
            Value::StateBackedIterable { .. } => "a state-backed iterable",
            Value::Null => "null",
            Value::GlobalWindow => "a global window",
            Value::IntervalWindow(_) => "an interval window",
            Value::CustomWindow { .. } => "a custom window",
            Value::WindowedValue(_) => "a windowed value",
            Value::Timer(_) => "a timer",
            Value::ShardedKey { .. } => "a sharded key",
            Value::Row(_) => "a row",
            Value::Map(_) => "a map",
            Value::Timestamp(_) => "a timestamp",
            Value::Decimal { .. } => "a decimal",
        }
    }
}

/// Whether a value ends where its bytes do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Context {
    /// It is followed by other values.
    Nested,
    /// It is the last one.
    Outer,
}
