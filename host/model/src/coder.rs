//! Model coders, and delimiting encoded values without decoding them.
//!
//! [`Coder::skip`] is the loop that cuts the data plane into elements: it allocates nothing and trusts no length. Values
//! themselves are in [`crate::value`]; making coders from a pipeline is the planner's work.
//!
//! A kv of a length-prefixed key and an iterable of varints, as it travels:
//!
//! ```
//! use model::{Coder, Reader};
//!
//! let key = Coder::LengthPrefix(None);
//! let coder = Coder::Kv(Box::new(key), Box::new(Coder::Iterable(Box::new(Coder::VarInt))));
//! //            key "ab"    2 values      1  300        and the next element
//! let bytes = [2, b'a', b'b', 0, 0, 0, 2, 1, 0xac, 0x02, 1];
//! let mut reader = Reader::new(&bytes);
//! coder.skip(&mut reader).unwrap();
//! assert_eq!(reader.position(), 10);
//! assert_eq!(coder.key_len(&bytes), Ok(3));
//! ```

use std::fmt;

use crate::{DecodeError, Reader, WindowCoder, pane};

/// How deep coders may nest, in levels.
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
    /// `param_windowed_value`; the coder's payload holds everything but the value, encoded as a windowed value.
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
    ///
    /// # Errors
    /// When the bytes end inside the value or cannot be delimited. Contents that need not be looked at are not checked.
    #[inline]
    pub fn skip(&self, reader: &mut Reader<'_>) -> Result<(), DecodeError> {
        self.skip_within(reader, DEPTH_MAX)
    }

    /// Bytes that the key of an encoded `kv` takes.
    ///
    /// # Errors
    /// When this is another coder, or the key cannot be delimited.
    #[inline]
    pub fn key_len(&self, value: &[u8]) -> Result<usize, DecodeError> {
        let Coder::Kv(key, _) = self else {
            return Err(DecodeError::malformed("key", "the coder is not a kv coder"));
        };
        let mut reader = Reader::new(value);
        key.skip(&mut reader)?;
        Ok(reader.position())
    }

    /// The atoms inline, the rest by a call.
    #[inline]
    pub(crate) fn skip_within(&self, reader: &mut Reader<'_>, depth: usize) -> Result<(), DecodeError> {
        match self {
            _ if depth == 0 => Err(DecodeError::TooDeep(DEPTH_MAX)),
            Coder::Bytes | Coder::StringUtf8 | Coder::LengthPrefix(_) => reader.length_prefixed().map(drop),
            Coder::VarInt => reader.varint().map(drop),
            Coder::Bool => reader.skip(1),
            Coder::Double => reader.skip(8),
            Coder::GlobalWindow => Ok(()),
            Coder::IntervalWindow => WindowCoder::Interval.skip(reader),
            _ => self.skip_composite(reader, depth - 1),
        }
    }

    fn skip_composite(&self, reader: &mut Reader<'_>, depth: usize) -> Result<(), DecodeError> {
        match self {
            Coder::Kv(key, value) => {
                key.skip_within(reader, depth)?;
                value.skip_within(reader, depth)
            }
            Coder::Iterable(element) => skip_iterable(reader, false, |reader| element.skip_within(reader, depth)),
            Coder::StateBackedIterable(element) => skip_iterable(reader, true, |reader| element.skip_within(reader, depth)),
            Coder::Nullable(value) if read_presence(reader)? => value.skip_within(reader, depth),
            Coder::Nullable(_) => Ok(()),
            Coder::CustomWindow(window) => {
                reader.skip(8)?;
                window.skip_within(reader, depth)
            }
            Coder::WindowedValue(value, window) => {
                reader.skip(8)?;
                skip_windows(window, reader, depth)?;
                pane::skip(reader)?;
                value.skip_within(reader, depth)
            }
            Coder::ParamWindowedValue(value, ..) => value.skip_within(reader, depth),
            Coder::Timer(key, window) => {
                key.skip_within(reader, depth)?;
                reader.length_prefixed()?;
                skip_windows(window, reader, depth)?;
                let is_cleared = reader.u8()? != 0;
                if !is_cleared {
                    reader.skip(16)?;
                    pane::skip(reader)?;
                }
                Ok(())
            }
            Coder::ShardedKey(key) => {
                reader.length_prefixed()?;
                key.skip_within(reader, depth)
            }
            Coder::Row(schema) => schema.skip(reader, depth),
            Coder::Bytes | Coder::StringUtf8 | Coder::LengthPrefix(_) | Coder::VarInt | Coder::Bool => Ok(()),
            Coder::Double | Coder::GlobalWindow | Coder::IntervalWindow => Ok(()),
        }
    }
}

fn skip_windows(window: &Coder, reader: &mut Reader<'_>, depth: usize) -> Result<(), DecodeError> {
    let count = read_count(reader)?;
    skip_many(reader, count, |reader| window.skip_within(reader, depth))
}

/// Elements without bytes (global windows, and kvs of them) end the loop, whatever count is declared.
#[inline]
pub(crate) fn skip_many(
    reader: &mut Reader<'_>,
    count: u64,
    mut skip: impl FnMut(&mut Reader<'_>) -> Result<(), DecodeError>,
) -> Result<(), DecodeError> {
    for _ in 0..count {
        let before = reader.position();
        skip(reader)?;
        if reader.position() == before {
            return Ok(());
        }
    }
    Ok(())
}

/// Reads over an iterable: a count and elements; or -1 and counted blocks until an empty one or, where allowed, until a state token.
/// `skip` reads one element.
#[inline]
pub fn skip_iterable(
    reader: &mut Reader<'_>,
    may_have_token: bool,
    mut skip: impl FnMut(&mut Reader<'_>) -> Result<(), DecodeError>,
) -> Result<(), DecodeError> {
    match reader.be_i32()? {
        -1 => {}
        count if count < 0 => return Err(DecodeError::malformed("iterable", "negative count")),
        count => return skip_many(reader, count as u64, skip),
    }
    loop {
        match reader.varint()? {
            0 => return Ok(()),
            TOKEN_FOLLOWS if may_have_token => return reader.length_prefixed().map(drop),
            count => skip_many(reader, count, &mut skip)?,
        }
    }
}

/// The block count, -1 as a varint, that says that the rest of an iterable is behind a state token.
pub(crate) const TOKEN_FOLLOWS: u64 = u64::MAX;

/// The count of a window set or map.
#[inline]
pub(crate) fn read_count(reader: &mut Reader<'_>) -> Result<u64, DecodeError> {
    let count = reader.be_i32()?;
    u64::try_from(count).map_err(|_| DecodeError::malformed("count", "negative"))
}

/// The byte before a nullable value: whether there is a value.
#[inline]
pub(crate) fn read_presence(reader: &mut Reader<'_>) -> Result<bool, DecodeError> {
    match reader.u8()? {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(DecodeError::malformed("nullable", "neither null nor present")),
    }
}

/// Levels left one level down.
#[inline]
pub(crate) fn deeper(depth: usize) -> Result<usize, DecodeError> {
    depth.checked_sub(1).ok_or(DecodeError::TooDeep(DEPTH_MAX))
}

/// `kv<bytes, iterable<varint>>`
impl fmt::Display for Coder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Coder::Bytes => f.write_str("bytes"),
            Coder::StringUtf8 => f.write_str("string_utf8"),
            Coder::Bool => f.write_str("bool"),
            Coder::VarInt => f.write_str("varint"),
            Coder::Double => f.write_str("double"),
            Coder::Kv(key, value) => write!(f, "kv<{key}, {value}>"),
            Coder::Iterable(element) => write!(f, "iterable<{element}>"),
            Coder::StateBackedIterable(element) => write!(f, "state_backed_iterable<{element}>"),
            Coder::LengthPrefix(Some(value)) => write!(f, "length_prefix<{value}>"),
            Coder::LengthPrefix(None) => f.write_str("length_prefix<?>"),
            Coder::Nullable(value) => write!(f, "nullable<{value}>"),
            Coder::GlobalWindow => f.write_str("global_window"),
            Coder::IntervalWindow => f.write_str("interval_window"),
            Coder::CustomWindow(window) => write!(f, "custom_window<{window}>"),
            Coder::WindowedValue(value, window) => write!(f, "windowed_value<{value}, {window}>"),
            Coder::ParamWindowedValue(value, window, _) => write!(f, "param_windowed_value<{value}, {window}>"),
            Coder::Timer(key, window) => write!(f, "timer<{key}, {window}>"),
            Coder::ShardedKey(key) => write!(f, "sharded_key<{key}>"),
            Coder::Row(schema) => {
                f.write_str("row<")?;
                for (index, field) in schema.fields().iter().enumerate() {
                    write!(f, "{}{}", if index > 0 { ", " } else { "" }, field.name)?;
                }
                f.write_str(">")
            }
        }
    }
}
