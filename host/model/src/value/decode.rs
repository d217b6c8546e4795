//! Bytes to values. Bytes are untrusted: nothing is reserved for a declared count, and nesting is bounded.

use super::{Context, Pane, Timer, TimerFiring, Value, WindowedValue};
use crate::coder::{self, DEPTH_MAX, TOKEN_FOLLOWS};
use crate::pane::{self, PaneInfo};
use crate::schema::{FieldType, RowHeader, Schema, TypeInfo, more_fields_than_schema};
use crate::window::IntervalWindow;
use crate::{Coder, DecodeError, Reader, Timestamp};

/// Elements without bytes that one value may hold. Their number is the only one that the input's length does not bound.
const EMPTY_ELEMENTS_MAX: usize = 1 << 12;

pub(super) fn outer(coder: &Coder, bytes: &[u8]) -> Result<Value, DecodeError> {
    let mut reader = Reader::new(bytes);
    let value = Decoder::new(&mut reader).value(coder, Context::Outer, DEPTH_MAX)?;
    if !reader.is_empty() {
        return Err(DecodeError::malformed("value", "bytes are left behind it"));
    }
    Ok(value)
}

pub(super) fn nested(coder: &Coder, reader: &mut Reader<'_>) -> Result<Value, DecodeError> {
    Decoder::new(reader).value(coder, Context::Nested, DEPTH_MAX)
}

struct Decoder<'r, 'a> {
    reader: &'r mut Reader<'a>,
    empty_elements_left: usize,
}

impl<'r, 'a> Decoder<'r, 'a> {
    fn new(reader: &'r mut Reader<'a>) -> Self {
        Decoder { reader, empty_elements_left: EMPTY_ELEMENTS_MAX }
    }

    fn value(&mut self, coder: &Coder, context: Context, depth: usize) -> Result<Value, DecodeError> {
        let depth = coder::deeper(depth)?;
        Ok(match coder {
            Coder::Bytes | Coder::LengthPrefix(None) if context == Context::Nested => {
                Value::Bytes(self.reader.length_prefixed()?.to_vec())
            }
            Coder::Bytes => Value::Bytes(self.rest()?.to_vec()),
            Coder::StringUtf8 if context == Context::Nested => string(self.reader.length_prefixed()?)?,
            Coder::StringUtf8 => string(self.rest()?)?,
            Coder::Bool => self.bool()?,
            Coder::VarInt => Value::Int(self.reader.varint()? as i64),
            Coder::Double => Value::Double(f64::from_bits(self.reader.be_u64()?)),
            Coder::Kv(key, value) => {
                let key = self.value(key, Context::Nested, depth)?;
                Value::kv(key, self.value(value, context, depth)?)
            }
            Coder::Iterable(element) => self.iterable(false, |decoder| decoder.value(element, Context::Nested, depth))?,
            Coder::StateBackedIterable(element) => {
                self.iterable(true, |decoder| decoder.value(element, Context::Nested, depth))?
            }
            Coder::LengthPrefix(inner) => {
                let bytes = self.reader.length_prefixed()?;
                match inner {
                    Some(inner) => self.within(bytes, |decoder| decoder.value(inner, Context::Outer, depth))?,
                    None => Value::Bytes(bytes.to_vec()),
                }
            }
            // SDKs give the value the context of the whole.
            Coder::Nullable(value) if coder::read_presence(self.reader)? => self.value(value, context, depth)?,
            Coder::Nullable(_) => Value::Null,
            Coder::GlobalWindow => Value::GlobalWindow,
            Coder::IntervalWindow => Value::IntervalWindow(IntervalWindow::decode(self.reader)?),
            Coder::CustomWindow(window) => {
                Value::CustomWindow { max_timestamp: self.timestamp()?, window: Box::new(self.value(window, context, depth)?) }
            }
            Coder::WindowedValue(value, window) => {
                let (timestamp, windows, pane) = self.element_header(window, depth)?;
                let value = self.value(value, context, depth)?;
                Value::WindowedValue(Box::new(WindowedValue { value, timestamp, windows, pane }))
            }
            Coder::ParamWindowedValue(value, window, payload) => {
                let (timestamp, windows, pane) = Decoder::new(&mut Reader::new(payload)).element_header(window, depth)?;
                let value = self.value(value, context, depth)?;
                Value::WindowedValue(Box::new(WindowedValue { value, timestamp, windows, pane }))
            }
            Coder::Timer(key, window) => self.timer(key, window, depth)?,
            Coder::ShardedKey(key) => Value::ShardedKey {
                shard_id: self.reader.length_prefixed()?.to_vec(),
                key: Box::new(self.value(key, Context::Nested, depth)?),
            },
            Coder::Row(schema) => self.row(schema, context, depth)?,
        })
    }

    /// All that is left.
    fn rest(&mut self) -> Result<&'a [u8], DecodeError> {
        self.reader.take(self.reader.remaining())
    }

    /// Decodes all of `bytes` by `decode`.
    fn within(
        &mut self,
        bytes: &[u8],
        decode: impl FnOnce(&mut Decoder<'_, '_>) -> Result<Value, DecodeError>,
    ) -> Result<Value, DecodeError> {
        let mut reader = Reader::new(bytes);
        let mut inner = Decoder { reader: &mut reader, empty_elements_left: self.empty_elements_left };
        let value = decode(&mut inner)?;
        self.empty_elements_left = inner.empty_elements_left;
        if !reader.is_empty() {
            return Err(DecodeError::malformed("length prefix", "bytes are left behind the value"));
        }
        Ok(value)
    }

    fn bool(&mut self) -> Result<Value, DecodeError> {
        match self.reader.u8()? {
            0 => Ok(Value::Bool(false)),
            1 => Ok(Value::Bool(true)),
            _ => Err(DecodeError::malformed("bool", "neither 0 nor 1")),
        }
    }

    fn timestamp(&mut self) -> Result<Timestamp, DecodeError> {
        Timestamp::decode(self.reader)
    }

    fn many<T>(
        &mut self,
        count: u64,
        into: &mut Vec<T>,
        mut element: impl FnMut(&mut Self) -> Result<T, DecodeError>,
    ) -> Result<(), DecodeError> {
        for _ in 0..count {
            let before = self.reader.position();
            into.push(element(self)?);
            if self.reader.position() == before {
                self.empty_elements_left = self
                    .empty_elements_left
                    .checked_sub(1)
                    .ok_or(DecodeError::malformed("iterable", "too many elements without bytes"))?;
            }
        }
        Ok(())
    }

    fn iterable(
        &mut self,
        may_have_token: bool,
        mut element: impl FnMut(&mut Self) -> Result<Value, DecodeError>,
    ) -> Result<Value, DecodeError> {
        let mut elements = Vec::new();
        match self.reader.be_i32()? {
            -1 => {}
            count if count < 0 => return Err(DecodeError::malformed("iterable", "negative count")),
            count => {
                self.many(count as u64, &mut elements, element)?;
                return Ok(Value::Iterable(elements));
            }
        }
        loop {
            match self.reader.varint()? {
                0 => return Ok(Value::Iterable(elements)),
                TOKEN_FOLLOWS if may_have_token => {
                    let token = self.reader.length_prefixed()?.to_vec();
                    return Ok(Value::StateBackedIterable { inline: elements, token });
                }
                count => self.many(count, &mut elements, &mut element)?,
            }
        }
    }

    fn windows(&mut self, window: &Coder, depth: usize) -> Result<Vec<Value>, DecodeError> {
        let count = coder::read_count(self.reader)?;
        let mut windows = Vec::new();
        self.many(count, &mut windows, |decoder| decoder.value(window, Context::Nested, depth))?;
        Ok(windows)
    }

    /// What comes before the value of a windowed value.
    fn element_header(&mut self, window: &Coder, depth: usize) -> Result<(Timestamp, Vec<Value>, Pane), DecodeError> {
        Ok((self.timestamp()?, self.windows(window, depth)?, self.pane()?))
    }

    fn pane(&mut self) -> Result<Pane, DecodeError> {
        let from = self.reader.position();
        pane::skip(self.reader)?;
        let encoded = self.reader.between(from, self.reader.position());
        let metadata = pane::metadata(encoded)?.map(<[u8]>::to_vec);
        Ok(Pane { info: PaneInfo::decode(&mut Reader::new(encoded))?, metadata })
    }

    fn timer(&mut self, key: &Coder, window: &Coder, depth: usize) -> Result<Value, DecodeError> {
        let user_key = self.value(key, Context::Nested, depth)?;
        let dynamic_timer_tag = text(self.reader.length_prefixed()?)?;
        let windows = self.windows(window, depth)?;
        let is_cleared = self.reader.u8()? != 0;
        let firing = if is_cleared {
            None
        } else {
            Some(TimerFiring { fire_timestamp: self.timestamp()?, hold_timestamp: self.timestamp()?, pane: self.pane()? })
        };
        Ok(Value::Timer(Box::new(Timer { user_key, dynamic_timer_tag, windows, firing })))
    }

    fn row(&mut self, schema: &Schema, context: Context, depth: usize) -> Result<Value, DecodeError> {
        let fields = schema.fields();
        let header = RowHeader::read(self.reader)?;
        if header.fields > fields.len() && context == Context::Nested {
            return Err(more_fields_than_schema());
        }
        let mut values = vec![Value::Null; fields.len()];
        for &index in schema.encoding_order().iter().take(header.fields) {
            if !header.is_null(index) {
                values[index] = self.typed(&fields[index].field_type.type_info, depth)?;
            } else if !fields[index].field_type.nullable {
                return Err(DecodeError::malformed("row", "null in a field that is not nullable"));
            }
        }
        if header.fields > fields.len() {
            self.rest()?;
        }
        Ok(Value::Row(values))
    }

    fn item(&mut self, item: &FieldType, depth: usize) -> Result<Value, DecodeError> {
        if item.nullable && !coder::read_presence(self.reader)? {
            return Ok(Value::Null);
        }
        self.typed(&item.type_info, depth)
    }

    fn typed(&mut self, type_info: &TypeInfo, depth: usize) -> Result<Value, DecodeError> {
        let depth = coder::deeper(depth)?;
        Ok(match type_info {
            TypeInfo::Byte => Value::Int(i64::from(self.reader.u8()? as i8)),
            TypeInfo::Int16 => {
                let bytes = self.reader.take(2)?;
                Value::Int(i64::from(i16::from_be_bytes([bytes[0], bytes[1]])))
            }
            TypeInfo::Int32 => Value::Int(i64::from(int32(self.reader.varint()?)?)),
            TypeInfo::Int64 => Value::Int(self.reader.varint()? as i64),
            TypeInfo::Float => Value::Float(f32::from_bits(self.reader.be_i32()? as u32)),
            TypeInfo::Double => Value::Double(f64::from_bits(self.reader.be_u64()?)),
            TypeInfo::String => string(self.reader.length_prefixed()?)?,
            TypeInfo::Boolean => self.bool()?,
            TypeInfo::Bytes => Value::Bytes(self.reader.length_prefixed()?.to_vec()),
            TypeInfo::Array(item) | TypeInfo::Iterable(item) => self.iterable(false, |decoder| decoder.item(item, depth))?,
            TypeInfo::Map(key, value) => {
                let count = coder::read_count(self.reader)?;
                let mut entries = Vec::new();
                self.many(count, &mut entries, |decoder| Ok((decoder.item(key, depth)?, decoder.item(value, depth)?)))?;
                Value::Map(entries)
            }
            TypeInfo::Row(schema) => self.row(schema, Context::Nested, depth)?,
            TypeInfo::MillisInstant => Value::Timestamp(self.timestamp()?),
            TypeInfo::Decimal => {
                let scale = self.reader.varint()? as i64;
                let unscaled = self.reader.length_prefixed()?.to_vec();
                if unscaled.is_empty() {
                    return Err(DecodeError::malformed("decimal", "no digits"));
                }
                Value::Decimal { scale, unscaled }
            }
            TypeInfo::Logical { representation, .. } => self.item(representation, depth)?,
        })
    }
}

fn text(bytes: &[u8]) -> Result<String, DecodeError> {
    let text = std::str::from_utf8(bytes).map_err(|_| DecodeError::malformed("string", "not UTF-8"))?;
    Ok(text.to_owned())
}

fn string(bytes: &[u8]) -> Result<Value, DecodeError> {
    text(bytes).map(Value::String)
}

/// Java and Python write the 32-bit two's complement, which takes five bytes; others extend the sign to 64 bits.
fn int32(varint: u64) -> Result<i32, DecodeError> {
    let out_of_range = || DecodeError::malformed("int32", "out of range");
    match u32::try_from(varint) {
        Ok(bits) => Ok(bits as i32),
        Err(_) => i32::try_from(varint as i64).map_err(|_| out_of_range()),
    }
}
