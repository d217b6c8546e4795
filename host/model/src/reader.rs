//! A cursor over encoded bytes, and the varint that all of Beam's formats share.
//!
//! Reading never panics and never allocates: lengths are checked against what remains before anything is taken.

use crate::DecodeError;

/// What 64 bits take, seven to a byte.
const VARINT_BYTES_MAX: usize = 10;

/// Reads values off the front of a byte slice.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    bytes: &'a [u8],
    position: usize,
}

impl<'a> Reader<'a> {
    /// Starts at the first byte.
    pub fn new(bytes: &'a [u8]) -> Self {
        Reader { bytes, position: 0 }
    }

    /// Bytes read so far.
    #[inline]
    pub fn position(&self) -> usize {
        self.position
    }

    /// Bytes that are left.
    #[inline]
    pub fn remaining(&self) -> usize {
        self.bytes.len() - self.position
    }

    /// Whether nothing is left.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.remaining() == 0
    }

    /// What is left, without reading it.
    #[inline]
    pub fn rest(&self) -> &'a [u8] {
        &self.bytes[self.position..]
    }

    /// The bytes between two positions that were already read.
    #[inline]
    pub fn between(&self, from: usize, to: usize) -> &'a [u8] {
        &self.bytes[from..to]
    }

    /// The next `count` bytes.
    #[inline]
    pub fn take(&mut self, count: usize) -> Result<&'a [u8], DecodeError> {
        if count > self.remaining() {
            return Err(DecodeError::Truncated("bytes"));
        }
        let taken = &self.bytes[self.position..self.position + count];
        self.position += count;
        Ok(taken)
    }

    /// Reads over `count` bytes.
    #[inline]
    pub fn skip(&mut self, count: usize) -> Result<(), DecodeError> {
        if count > self.remaining() {
            return Err(DecodeError::Truncated("bytes"));
        }
        self.position += count;
        Ok(())
    }

    /// One byte.
    #[inline]
    pub fn u8(&mut self) -> Result<u8, DecodeError> {
        let [byte] = self.array()?;
        Ok(byte)
    }

    /// A big-endian 32-bit integer, as in iterable counts.
    #[inline]
    pub fn be_i32(&mut self) -> Result<i32, DecodeError> {
        self.array().map(i32::from_be_bytes)
    }

    /// A big-endian unsigned 64-bit integer.
    #[inline]
    pub fn be_u64(&mut self) -> Result<u64, DecodeError> {
        self.array().map(u64::from_be_bytes)
    }

    #[inline]
    fn array<const LENGTH: usize>(&mut self) -> Result<[u8; LENGTH], DecodeError> {
        let array = *self.rest().first_chunk().ok_or(DecodeError::Truncated("bytes"))?;
        self.position += LENGTH;
        Ok(array)
    }

    /// An unsigned LEB128 varint of at most 64 bits.
    #[inline]
    pub fn varint(&mut self) -> Result<u64, DecodeError> {
        match self.bytes.get(self.position) {
            Some(&byte) if byte < 0x80 => {
                self.position += 1;
                Ok(u64::from(byte))
            }
            _ => self.long_varint(),
        }
    }

    /// Out of line, so that the common single byte stays small where it is inlined.
    #[inline(never)]
    fn long_varint(&mut self) -> Result<u64, DecodeError> {
        let rest = self.rest();
        let mut value = 0u64;
        for (index, &byte) in rest.iter().take(VARINT_BYTES_MAX).enumerate() {
            value |= u64::from(byte & 0x7f) << (7 * index);
            if byte < 0x80 {
                if index == VARINT_BYTES_MAX - 1 && byte > 1 {
                    break;
                }
                self.position += index + 1;
                return Ok(value);
            }
        }
        if rest.len() < VARINT_BYTES_MAX {
            return Err(DecodeError::Truncated("varint"));
        }
        Err(DecodeError::malformed("varint", "more than 64 bits"))
    }

    /// A varint that counts bytes or items still to come.
    #[inline]
    pub fn length(&mut self) -> Result<usize, DecodeError> {
        let length = self.varint()?;
        usize::try_from(length).map_err(|_| DecodeError::malformed("length", "does not fit in memory"))
    }

    /// A varint length and that many bytes.
    #[inline]
    pub fn length_prefixed(&mut self) -> Result<&'a [u8], DecodeError> {
        let length = self.length()?;
        self.take(length)
    }
}

/// Appends `value` as an unsigned LEB128 varint.
#[inline]
pub fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends the length of `bytes` as a varint, and `bytes`.
#[inline]
pub fn put_length_prefixed(out: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varints_round_trip() {
        for value in [0, 1, 127, 128, 300, u64::from(u32::MAX), u64::MAX] {
            let mut bytes = Vec::new();
            put_varint(&mut bytes, value);
            let mut reader = Reader::new(&bytes);
            assert_eq!(reader.varint(), Ok(value));
            assert!(reader.is_empty());
        }
    }

    #[test]
    fn a_varint_of_more_than_64_bits_is_refused() {
        assert!(Reader::new(&[0xff; 11]).varint().is_err());
        let mut two_too_many = [0xff; 10];
        two_too_many[9] = 2;
        assert!(Reader::new(&two_too_many).varint().is_err());
        assert_eq!(Reader::new(&[0xff; 9]).varint(), Err(DecodeError::Truncated("varint")));
    }
}
