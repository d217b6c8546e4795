//! A cursor over encoded bytes, and the varint that all of Beam's formats share.
//!
//! Reading never panics and never allocates: lengths are checked against what remains before anything is taken.

use crate::DecodeError;

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

    /// One byte.
    #[inline]
    pub fn u8(&mut self) -> Result<u8, DecodeError> {
        Ok(self.take(1)?[0])
    }

    /// A big-endian 32-bit integer, as in iterable counts.
    #[inline]
    pub fn be_i32(&mut self) -> Result<i32, DecodeError> {
        let bytes = self.take(4)?;
        Ok(i32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }

    /// A big-endian unsigned 64-bit integer.
    #[inline]
    pub fn be_u64(&mut self) -> Result<u64, DecodeError> {
        let bytes = self.take(8)?;
        let mut array = [0; 8];
        array.copy_from_slice(bytes);
        Ok(u64::from_be_bytes(array))
    }

    /// An unsigned LEB128 varint of at most 64 bits.
    #[inline]
    pub fn varint(&mut self) -> Result<u64, DecodeError> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.u8().map_err(|_| DecodeError::Truncated("varint"))?;
            if shift == 63 && byte > 1 {
                break;
            }
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
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
    }
}
