//! Values to bytes. What does not fit its coder is an error, never a panic.

use super::{Context, Pane, Timer, Value};
use crate::coder::{Coder, TOKEN_FOLLOWS};
use crate::reader::{put_length_prefixed, put_varint};
use crate::schema::{FieldType, Schema, TypeInfo};
use crate::{Timestamp, pane};

/// A value that is not one of its coder.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EncodeError {
    /// The value is of another kind.
    #[error("{coder} cannot encode {found}")]
    Mismatch {
        /// The coder or field type.
        coder: String,
        /// The kind of the value.
        found: &'static str,
    },
    /// The value is of the right kind and out of bounds.
    #[error("{0} is out of range")]
    OutOfRange(&'static str),
    /// A row has more or fewer values than its schema has fields.
    #[error("row of {found} values for a schema of {expected} fields")]
    Fields {
        /// Fields of the schema.
        expected: usize,
        /// Values of the row.
        found: usize,
    },
}

pub(super) fn outer(value: &Value, coder: &Coder) -> Result<Vec<u8>, EncodeError> {
    let mut out = Vec::new();
    put(value, coder, Context::Outer, &mut out)?;
    Ok(out)
}

pub(super) fn nested(value: &Value, coder: &Coder) -> Result<Vec<u8>, EncodeError> {
    let mut out = Vec::new();
    put(value, coder, Context::Nested, &mut out)?;
    Ok(out)
}

fn put(value: &Value, coder: &Coder, context: Context, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    match (coder, value) {
        (Coder::Bytes, Value::Bytes(bytes)) => put_text(bytes, context, out),
        (Coder::StringUtf8, Value::String(text)) => put_text(text.as_bytes(), context, out),
        (Coder::Bool, Value::Bool(value)) => out.push(u8::from(*value)),
        (Coder::VarInt, Value::Int(value)) => put_varint(out, *value as u64),
        (Coder::Double, Value::Double(value)) => out.extend_from_slice(&value.to_be_bytes()),
        (Coder::Kv(key, second), Value::Kv(pair)) => {
            put(&pair.0, key, Context::Nested, out)?;
            put(&pair.1, second, context, out)?;
        }
        (Coder::Iterable(element) | Coder::StateBackedIterable(element), Value::Iterable(values)) => {
            put_counted(values, element, out)?;
        }
        (Coder::StateBackedIterable(element), Value::StateBackedIterable { inline, token }) => {
            out.extend_from_slice(&(-1i32).to_be_bytes());
            if !inline.is_empty() {
                put_varint(out, inline.len() as u64);
                put_all(inline, element, out)?;
            }
            put_varint(out, TOKEN_FOLLOWS);
            put_length_prefixed(out, token);
        }
        (Coder::LengthPrefix(None), Value::Bytes(bytes)) => put_length_prefixed(out, bytes),
        (Coder::LengthPrefix(Some(inner)), value) => put_length_prefixed(out, &outer(value, inner)?),
        (Coder::Nullable(_), Value::Null) => out.push(0),
        (Coder::Nullable(inner), value) => {
            out.push(1);
            put(value, inner, context, out)?;
        }
        (Coder::GlobalWindow, Value::GlobalWindow) => {}
        (Coder::IntervalWindow, Value::IntervalWindow(window)) => window.encode(out),
        (Coder::CustomWindow(inner), Value::CustomWindow { max_timestamp, window }) => {
            put_timestamp(*max_timestamp, out);
            put(window, inner, context, out)?;
        }
        (Coder::WindowedValue(inner, window), Value::WindowedValue(element)) => {
            put_timestamp(element.timestamp, out);
            put_counted(&element.windows, window, out)?;
            put_pane(&element.pane, out);
            put(&element.value, inner, context, out)?;
        }
        (Coder::ParamWindowedValue(inner, ..), Value::WindowedValue(element)) => {
            put(&element.value, inner, context, out)?;
        }
        (Coder::Timer(key, window), Value::Timer(timer)) => put_timer(timer, key, window, out)?,
        (Coder::ShardedKey(inner), Value::ShardedKey { shard_id, key }) => {
            put_length_prefixed(out, shard_id);
            put(key, inner, Context::Nested, out)?;
        }
        (Coder::Row(schema), Value::Row(values)) => put_row(values, schema, out)?,
        _ => return Err(EncodeError::Mismatch { coder: coder.to_string(), found: value.kind() }),
    }
    Ok(())
}

fn put_text(bytes: &[u8], context: Context, out: &mut Vec<u8>) {
    match context {
        Context::Nested => put_length_prefixed(out, bytes),
        Context::Outer => out.extend_from_slice(bytes),
    }
}

fn put_timestamp(timestamp: Timestamp, out: &mut Vec<u8>) {
    out.extend_from_slice(&timestamp.encode());
}

fn put_count(count: usize, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    let count = i32::try_from(count).map_err(|_| EncodeError::OutOfRange("number of elements"))?;
    out.extend_from_slice(&count.to_be_bytes());
    Ok(())
}

fn put_counted(values: &[Value], coder: &Coder, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    put_count(values.len(), out)?;
    put_all(values, coder, out)
}

fn put_all(values: &[Value], coder: &Coder, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    values.iter().try_for_each(|value| put(value, coder, Context::Nested, out))
}

fn put_pane(pane: &Pane, out: &mut Vec<u8>) {
    match &pane.metadata {
        Some(metadata) => out.extend_from_slice(&pane::with_metadata(pane.info, metadata)),
        None => pane.info.encode(out),
    }
}

fn put_timer(timer: &Timer, key: &Coder, window: &Coder, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    put(&timer.user_key, key, Context::Nested, out)?;
    put_length_prefixed(out, timer.dynamic_timer_tag.as_bytes());
    put_counted(&timer.windows, window, out)?;
    out.push(u8::from(timer.firing.is_none()));
    if let Some(firing) = &timer.firing {
        put_timestamp(firing.fire_timestamp, out);
        put_timestamp(firing.hold_timestamp, out);
        put_pane(&firing.pane, out);
    }
    Ok(())
}

fn put_row(values: &[Value], schema: &Schema, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    let fields = schema.fields();
    if values.len() != fields.len() {
        return Err(EncodeError::Fields { expected: fields.len(), found: values.len() });
    }
    let is_null = |index: usize| fields[index].field_type.nullable && values[index] == Value::Null;
    put_varint(out, fields.len() as u64);
    put_length_prefixed(out, &null_bitmap(fields.len(), is_null));
    for &index in schema.encoding_order() {
        if !is_null(index) {
            put_typed(&values[index], &fields[index].field_type.type_info, out)?;
        }
    }
    Ok(())
}

/// One bit per field, or nothing when no field is null.
fn null_bitmap(fields: usize, is_null: impl Fn(usize) -> bool) -> Vec<u8> {
    let mut bitmap = vec![0; fields.div_ceil(8)];
    for index in (0..fields).filter(|&index| is_null(index)) {
        bitmap[index / 8] |= 1 << (index % 8);
    }
    if bitmap.iter().all(|&bits| bits == 0) {
        bitmap.clear();
    }
    bitmap
}

fn put_item(value: &Value, item: &FieldType, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    if item.nullable {
        out.push(u8::from(*value != Value::Null));
        if *value == Value::Null {
            return Ok(());
        }
    }
    put_typed(value, &item.type_info, out)
}

fn put_typed(value: &Value, type_info: &TypeInfo, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    match (type_info, value) {
        (TypeInfo::Byte, Value::Int(value)) => out.push(narrow::<i8>(*value, "byte")? as u8),
        (TypeInfo::Int16, Value::Int(value)) => {
            out.extend_from_slice(&narrow::<i16>(*value, "int16")?.to_be_bytes());
        }
        (TypeInfo::Int32, Value::Int(value)) => put_varint(out, u64::from(narrow::<i32>(*value, "int32")? as u32)),
        (TypeInfo::Int64, Value::Int(value)) => put_varint(out, *value as u64),
        (TypeInfo::Float, Value::Float(value)) => out.extend_from_slice(&value.to_be_bytes()),
        (TypeInfo::Double, Value::Double(value)) => out.extend_from_slice(&value.to_be_bytes()),
        (TypeInfo::String, Value::String(text)) => put_length_prefixed(out, text.as_bytes()),
        (TypeInfo::Boolean, Value::Bool(value)) => out.push(u8::from(*value)),
        (TypeInfo::Bytes, Value::Bytes(bytes)) => put_length_prefixed(out, bytes),
        (TypeInfo::Array(item) | TypeInfo::Iterable(item), Value::Iterable(values)) => {
            put_count(values.len(), out)?;
            values.iter().try_for_each(|value| put_item(value, item, out))?;
        }
        (TypeInfo::Map(key, item), Value::Map(entries)) => {
            put_count(entries.len(), out)?;
            for entry in entries {
                put_item(&entry.0, key, out)?;
                put_item(&entry.1, item, out)?;
            }
        }
        (TypeInfo::Row(schema), Value::Row(values)) => put_row(values, schema, out)?,
        (TypeInfo::MillisInstant, Value::Timestamp(timestamp)) => put_timestamp(*timestamp, out),
        (TypeInfo::Decimal, Value::Decimal { scale, unscaled }) => {
            put_varint(out, *scale as u64);
            put_length_prefixed(out, unscaled);
        }
        (TypeInfo::Logical { representation, .. }, value) => put_item(value, representation, out)?,
        _ => return Err(EncodeError::Mismatch { coder: format!("field type {type_info:?}"), found: value.kind() }),
    }
    Ok(())
}

fn narrow<T: TryFrom<i64>>(value: i64, kind: &'static str) -> Result<T, EncodeError> {
    T::try_from(value).map_err(|_| EncodeError::OutOfRange(kind))
}
