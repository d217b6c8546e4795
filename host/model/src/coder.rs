//! Model coders: enough of each to delimit encoded values without decoding them.

use crate::{DecodeError, Reader, WindowCoder, pane};

/// How deep coders and values may nest.
pub const DEPTH_MAX: usize = 64;

/// A coder of Beam's model. Names are the tails of the URNs, `beam:coder:...:v1`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Coder {
    /// `bytes`
    Bytes,
    /// `string_utf8`
    StringUtf8,
    /// `bool`
    Bool,
    /// `varint`
    VarInt,
    /// `double`
    Double,
    /// `kv`
    Kv(Box<Coder>, Box<Coder>),
    /// `iterable`
    Iterable(Box<Coder>),
    /// `state_backed_iterable`
    StateBackedIterable(Box<Coder>),
    /// `length_prefix`; what is inside is opaque to the host and may be unknown.
    LengthPrefix(Option<Box<Coder>>),
    /// `nullable`
    Nullable(Box<Coder>),
    /// `global_window`
    GlobalWindow,
    /// `interval_window`
    IntervalWindow,
    /// `custom_window`
    CustomWindow(Box<Coder>),
    /// `windowed_value`
    WindowedValue(Box<Coder>, Box<Coder>),
    /// `param_windowed_value`; the constant part is the coder's payload.
    ParamWindowedValue(Box<Coder>, Box<Coder>, bytes::Bytes),
    /// `timer`
    Timer(Box<Coder>, Box<Coder>),
    /// `sharded_key`
    ShardedKey(Box<Coder>),
    /// `row`
    Row(crate::schema::Schema),
}

impl Coder {
    /// Reads over one value in nested context.
    #[inline]
    pub fn skip(&self, reader: &mut Reader<'_>) -> Result<(), DecodeError> {
        self.skip_within(reader, DEPTH_MAX)
    }

    fn skip_within(&self, reader: &mut Reader<'_>, depth: usize) -> Result<(), DecodeError> {
        let depth = depth.checked_sub(1).ok_or(DecodeError::TooDeep(DEPTH_MAX))?;
        match self {
            Coder::Bytes | Coder::StringUtf8 | Coder::LengthPrefix(_) => reader.length_prefixed().map(drop),
            Coder::Bool => reader.take(1).map(drop),
            Coder::VarInt => reader.varint().map(drop),
            Coder::Double => reader.take(8).map(drop),
            Coder::Kv(key, value) => {
                key.skip_within(reader, depth)?;
                value.skip_within(reader, depth)
            }
            Coder::Iterable(element) => skip_iterable(element, false, reader, depth),
            Coder::StateBackedIterable(element) => skip_iterable(element, true, reader, depth),
            Coder::Nullable(value) => match reader.u8()? {
                0 => Ok(()),
                _ => value.skip_within(reader, depth),
            },
            Coder::GlobalWindow => Ok(()),
            Coder::IntervalWindow => WindowCoder::Interval.skip(reader),
            Coder::CustomWindow(window) => {
                reader.take(8)?;
                window.skip_within(reader, depth)
            }
            Coder::WindowedValue(value, window) => {
                reader.take(8)?;
                skip_counted(window, reader, depth)?;
                pane::skip(reader)?;
                value.skip_within(reader, depth)
            }
            Coder::ParamWindowedValue(value, ..) => value.skip_within(reader, depth),
            Coder::Timer(key, window) => {
                key.skip_within(reader, depth)?;
                reader.length_prefixed()?;
                skip_counted(window, reader, depth)?;
                if reader.u8()? == 0 {
                    reader.take(16)?;
                    pane::skip(reader)?;
                }
                Ok(())
            }
            Coder::ShardedKey(key) => {
                reader.length_prefixed()?;
                key.skip_within(reader, depth)
            }
            Coder::Row(schema) => schema.skip(reader, depth),
        }
    }

    /// Bytes that the key of an encoded `kv` takes. Fails for other coders.
    #[inline]
    pub fn key_len(&self, value: &[u8]) -> Result<usize, DecodeError> {
        let Coder::Kv(key, _) = self else {
            return Err(DecodeError::malformed("key", "the coder is not a kv coder"));
        };
        let mut reader = Reader::new(value);
        key.skip(&mut reader)?;
        Ok(reader.position())
    }
}

fn skip_counted(element: &Coder, reader: &mut Reader<'_>, depth: usize) -> Result<(), DecodeError> {
    let count = reader.be_i32()?;
    if count < 0 {
        return Err(DecodeError::malformed("count", "negative"));
    }
    skip_many(element, count as u64, reader, depth)
}

/// Elements without bytes (global windows, empty rows) end the loop early, whatever count is declared.
fn skip_many(element: &Coder, count: u64, reader: &mut Reader<'_>, depth: usize) -> Result<(), DecodeError> {
    for _ in 0..count {
        let before = reader.position();
        element.skip_within(reader, depth)?;
        if reader.position() == before {
            return Ok(());
        }
    }
    Ok(())
}

fn skip_iterable(element: &Coder, state_backed: bool, reader: &mut Reader<'_>, depth: usize) -> Result<(), DecodeError> {
    let count = reader.be_i32()?;
    if count >= 0 {
        return skip_many(element, count as u64, reader, depth);
    }
    if count != -1 {
        return Err(DecodeError::malformed("iterable", "negative count"));
    }
    loop {
        match reader.varint()? {
            0 => return Ok(()),
            u64::MAX if state_backed => return reader.length_prefixed().map(drop),
            count => skip_many(element, count, reader, depth)?,
        }
    }
}
