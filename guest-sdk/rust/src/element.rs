//! Elements: Rust types with a model coder, written and read in nested form.
//!
//! | Rust | coder |
//! |---|---|
//! | `&[u8]`, `Vec<u8>` | `bytes` |
//! | `&str`, `String` | `string_utf8` |
//! | `bool` | `bool` |
//! | `i64` | `varint` |
//! | `f64` | `double` |
//! | `(K, V)` | `kv` |
//! | `Vec<T>` | `iterable` |
//! | `Option<T>` | `nullable` |
//!
//! Reading checks every length against what is there; bytes that do not fit are an error of that one row.

use std::fmt;

use crate::Coder;

/// A type whose values can be elements of a collection.
pub trait Element {
    /// Its coder.
    const CODER: &'static Coder;

    /// Appends the value in nested form.
    fn encode(&self, out: &mut Vec<u8>);
}

/// An element that can be read; `'a` is the life of the encoded bytes, which `&str` and `&[u8]` borrow.
pub trait Decode<'a>: Element + Sized {
    /// Reads one value.
    fn decode(reader: &mut Reader<'a>) -> Result<Self, DecodeError>;
}

/// Bytes that are not what their coder says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecodeError(pub &'static str);

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for DecodeError {}

/// Reads values off the front of a byte slice.
#[derive(Clone, Debug)]
pub struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// Starts at the first byte.
    pub fn new(bytes: &'a [u8]) -> Self {
        Reader(bytes)
    }

    /// Whether nothing is left.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many bytes are left.
    #[inline]
    pub fn remaining(&self) -> usize {
        self.0.len()
    }

    /// The next `count` bytes.
    #[inline]
    pub fn take(&mut self, count: usize) -> Result<&'a [u8], DecodeError> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(DecodeError("input ends inside a value"))?;
        self.0 = rest;
        Ok(taken)
    }

    /// The next `N` bytes.
    #[inline]
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(DecodeError("input ends inside a value"))?;
        self.0 = rest;
        Ok(*taken)
    }

    /// An unsigned LEB128 number of at most 64 bits.
    #[inline]
    pub fn varint(&mut self) -> Result<u64, DecodeError> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let [byte] = self.array()?;
            if shift == 63 && byte > 1 {
                break;
            }
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(DecodeError("number has more than 64 bits"))
    }

    /// A length and that many bytes.
    #[inline]
    pub fn length_prefixed(&mut self) -> Result<&'a [u8], DecodeError> {
        let length = usize::try_from(self.varint()?).map_err(|_| DecodeError("length does not fit in memory"))?;
        self.take(length)
    }
}

/// Appends an unsigned LEB128 number.
#[inline]
pub fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends a length and the bytes.
#[inline]
pub fn put_length_prefixed(out: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

impl<T: Element + ?Sized> Element for &T {
    const CODER: &'static Coder = T::CODER;

    #[inline]
    fn encode(&self, out: &mut Vec<u8>) {
        T::encode(self, out);
    }
}

impl Element for [u8] {
    const CODER: &'static Coder = &Coder::Bytes;

    #[inline]
    fn encode(&self, out: &mut Vec<u8>) {
        put_length_prefixed(out, self);
    }
}

impl Element for Vec<u8> {
    const CODER: &'static Coder = &Coder::Bytes;

    #[inline]
    fn encode(&self, out: &mut Vec<u8>) {
        put_length_prefixed(out, self);
    }
}

impl<'a> Decode<'a> for &'a [u8] {
    #[inline]
    fn decode(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        reader.length_prefixed()
    }
}

impl Decode<'_> for Vec<u8> {
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        reader.length_prefixed().map(<[u8]>::to_vec)
    }
}

impl Element for str {
    const CODER: &'static Coder = &Coder::StringUtf8;

    #[inline]
    fn encode(&self, out: &mut Vec<u8>) {
        put_length_prefixed(out, self.as_bytes());
    }
}

impl Element for String {
    const CODER: &'static Coder = &Coder::StringUtf8;

    #[inline]
    fn encode(&self, out: &mut Vec<u8>) {
        put_length_prefixed(out, self.as_bytes());
    }
}

impl<'a> Decode<'a> for &'a str {
    #[inline]
    fn decode(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        std::str::from_utf8(reader.length_prefixed()?).map_err(|_| DecodeError("string is not UTF-8"))
    }
}

impl Decode<'_> for String {
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        <&str>::decode(reader).map(str::to_owned)
    }
}

impl Element for bool {
    const CODER: &'static Coder = &Coder::Bool;

    #[inline]
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }
}

impl Decode<'_> for bool {
    #[inline]
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        match reader.array()? {
            [0] => Ok(false),
            [1] => Ok(true),
            _ => Err(DecodeError("boolean is neither 0 nor 1")),
        }
    }
}

impl Element for i64 {
    const CODER: &'static Coder = &Coder::VarInt;

    #[inline]
    fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, *self as u64);
    }
}

impl Decode<'_> for i64 {
    #[inline]
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        reader.varint().map(|value| value as i64)
    }
}

impl Element for f64 {
    const CODER: &'static Coder = &Coder::Double;

    #[inline]
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.to_be_bytes());
    }
}

impl Decode<'_> for f64 {
    #[inline]
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        reader.array().map(f64::from_be_bytes)
    }
}

impl<K: Element, V: Element> Element for (K, V) {
    const CODER: &'static Coder = &Coder::Kv(K::CODER, V::CODER);

    #[inline]
    fn encode(&self, out: &mut Vec<u8>) {
        self.0.encode(out);
        self.1.encode(out);
    }
}

impl<'a, K: Decode<'a>, V: Decode<'a>> Decode<'a> for (K, V) {
    #[inline]
    fn decode(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        Ok((K::decode(reader)?, V::decode(reader)?))
    }
}

impl<T: Element> Element for Option<T> {
    const CODER: &'static Coder = &Coder::Nullable(T::CODER);

    fn encode(&self, out: &mut Vec<u8>) {
        out.push(u8::from(self.is_some()));
        if let Some(value) = self {
            value.encode(out);
        }
    }
}

impl<'a, T: Decode<'a>> Decode<'a> for Option<T> {
    fn decode(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        match reader.array()? {
            [0] => Ok(None),
            [1] => T::decode(reader).map(Some),
            _ => Err(DecodeError("presence is neither 0 nor 1")),
        }
    }
}

impl<T: Element> Element for Vec<T> {
    const CODER: &'static Coder = &Coder::Iterable(T::CODER);

    /// # Panics
    /// When there are more than 2^31 - 1 values.
    fn encode(&self, out: &mut Vec<u8>) {
        let count = i32::try_from(self.len()).expect("an element of more than 2^31 - 1 values does not fit into memory");
        out.extend_from_slice(&count.to_be_bytes());
        self.iter().for_each(|value| value.encode(out));
    }
}

impl<'a, T: Decode<'a>> Decode<'a> for Vec<T> {
    /// A count and the values; or -1 and counted chunks, the last of them empty.
    fn decode(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let mut values = Vec::new();
        match i32::from_be_bytes(reader.array()?) {
            -1 => loop {
                match reader.varint()? {
                    0 => return Ok(values),
                    count => decode_many(count, reader, &mut values)?,
                }
            },
            count => {
                let count = u64::try_from(count).map_err(|_| DecodeError("iterable has a negative count"))?;
                decode_many(count, reader, &mut values)?;
                Ok(values)
            }
        }
    }
}

/// Every coder here takes at least one byte, so a count beyond the input fails before it fills the memory.
fn decode_many<'a, T: Decode<'a>>(count: u64, reader: &mut Reader<'a>, values: &mut Vec<T>) -> Result<(), DecodeError> {
    for _ in 0..count {
        values.push(T::decode(reader)?);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check<T: for<'a> Decode<'a> + PartialEq + fmt::Debug>(value: T, bytes: &[u8]) {
        let mut encoded = Vec::new();
        value.encode(&mut encoded);
        assert_eq!(encoded, bytes, "{value:?}");
        let mut reader = Reader::new(bytes);
        assert_eq!(T::decode(&mut reader).as_ref(), Ok(&value));
        assert!(reader.is_empty(), "{value:?}");
        for cut in 0..bytes.len() {
            assert!(T::decode(&mut Reader::new(&bytes[..cut])).is_err(), "{value:?} cut at {cut}");
        }
    }

    #[test]
    fn elements_have_the_models_bytes() {
        check(b"ab".to_vec(), b"\x02ab");
        check("héé".to_string(), b"\x05h\xc3\xa9\xc3\xa9");
        check(true, &[1]);
        check(300i64, &[0xac, 2]);
        check(-1i64, &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1]);
        check(1.5f64, &[0x3f, 0xf8, 0, 0, 0, 0, 0, 0]);
        check(("a".to_string(), 7i64), b"\x01a\x07");
        check(Some(5i64), &[1, 5]);
        check(None::<i64>, &[0]);
        check(vec![1i64, 2], &[0, 0, 0, 2, 1, 2]);
        check(("k".to_string(), vec!["a".to_string()]), b"\x01k\0\0\0\x01\x01a");
    }

    #[test]
    fn an_iterable_of_unknown_length_is_read() {
        let bytes = [0xff, 0xff, 0xff, 0xff, 2, 1, 2, 1, 3, 0];
        assert_eq!(Vec::<i64>::decode(&mut Reader::new(&bytes)), Ok(vec![1, 2, 3]));
    }

    #[test]
    fn impossible_values_are_refused() {
        assert!(<&str>::decode(&mut Reader::new(b"\x01\xff")).is_err());
        assert!(bool::decode(&mut Reader::new(&[2])).is_err());
        assert!(i64::decode(&mut Reader::new(&[0xff; 11])).is_err());
        assert!(Vec::<i64>::decode(&mut Reader::new(&[0xff, 0xff, 0xff, 0xfe])).is_err());
        assert!(Vec::<i64>::decode(&mut Reader::new(&[0x7f, 0xff, 0xff, 0xff, 1])).is_err());
    }

    #[test]
    fn pairs_nest() {
        assert_eq!(<(&str, (i64, Vec<f64>))>::CODER.urn(), "beam:coder:kv:v1");
        assert_eq!(
            <(&str, (i64, Vec<f64>))>::CODER,
            &Coder::Kv(&Coder::StringUtf8, &Coder::Kv(&Coder::VarInt, &Coder::Iterable(&Coder::Double)))
        );
    }
}
