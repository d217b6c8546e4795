//! Windows as the host sees them: opaque bytes of a known coder, with a last timestamp.
//!
//! The host parses global and interval windows; a custom window is its last timestamp and a length-prefixed rest that
//! only its SDK understands.

use crate::reader::put_varint;
use crate::{DecodeError, Duration, Reader, Timestamp};

/// How the windows of a collection are encoded on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WindowCoder {
    /// No bytes at all.
    Global,
    /// Exclusive end and span.
    Interval,
    /// Last timestamp and length-prefixed bytes: `custom_window<length_prefix<..>>`.
    Custom,
}

/// An interval window: `[start, end)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IntervalWindow {
    /// First timestamp in the window.
    pub start: Timestamp,
    /// First timestamp after the window.
    pub end: Timestamp,
}

impl IntervalWindow {
    /// The last timestamp in the window.
    pub fn max_timestamp(self) -> Timestamp {
        self.end.minus(Duration(1))
    }

    /// Appends the wire form: eight bytes of end, and the span as a varint.
    pub fn encode(self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.end.encode());
        put_varint(out, self.end.millis().wrapping_sub(self.start.millis()) as u64);
    }

    /// Reads what [`IntervalWindow::encode`] writes.
    pub fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let end = Timestamp::decode(reader)?;
        let span = i64::try_from(reader.varint()?).map_err(|_| DecodeError::malformed("interval window", "span over 2^63 ms"))?;
        Ok(IntervalWindow { start: end.minus(Duration(span)), end })
    }
}

impl WindowCoder {
    /// Reads over one window.
    #[inline]
    pub fn skip(self, reader: &mut Reader<'_>) -> Result<(), DecodeError> {
        match self {
            WindowCoder::Global => {}
            WindowCoder::Interval => {
                reader.skip(8)?;
                reader.varint()?;
            }
            WindowCoder::Custom => {
                reader.skip(8)?;
                reader.length_prefixed()?;
            }
        }
        Ok(())
    }

    /// The last timestamp that belongs to an encoded window.
    pub fn max_timestamp(self, window: &[u8]) -> Result<Timestamp, DecodeError> {
        let mut reader = Reader::new(window);
        Ok(match self {
            WindowCoder::Global => Timestamp::GLOBAL_WINDOW_END,
            WindowCoder::Interval => IntervalWindow::decode(&mut reader)?.max_timestamp(),
            WindowCoder::Custom => Timestamp::decode(&mut reader)?,
        })
    }

    /// The single windows inside an encoded window set (an int32 count and the windows), as byte slices.
    pub fn windows_of(self, set: &[u8]) -> Result<Vec<&[u8]>, DecodeError> {
        let mut reader = Reader::new(set);
        let count = reader.be_i32()?;
        if count < 0 || (self != WindowCoder::Global && count as usize > reader.remaining() / 9) {
            return Err(DecodeError::malformed("window set", "impossible count"));
        }
        let mut windows = Vec::with_capacity((count as usize).min(64));
        for _ in 0..count {
            let from = reader.position();
            self.skip(&mut reader)?;
            windows.push(reader.between(from, reader.position()));
        }
        Ok(windows)
    }
}

/// The encoded window set that holds exactly `window`.
pub fn single(window: &[u8]) -> Vec<u8> {
    let mut set = Vec::with_capacity(4 + window.len());
    set.extend_from_slice(&1i32.to_be_bytes());
    set.extend_from_slice(window);
    set
}

/// The encoded window set that holds only the global window.
pub const GLOBAL_SET: &[u8] = &[0, 0, 0, 1];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interval_windows_have_beams_bytes() {
        let window = IntervalWindow { start: Timestamp::from_millis(0), end: Timestamp::from_millis(10_000) };
        let mut bytes = Vec::new();
        window.encode(&mut bytes);
        assert_eq!(bytes, [0x80, 0, 0, 0, 0, 0, 0x27, 0x10, 0x90, 0x4e]);
        assert_eq!(IntervalWindow::decode(&mut Reader::new(&bytes)), Ok(window));
        assert_eq!(WindowCoder::Interval.max_timestamp(&bytes), Ok(Timestamp::from_millis(9_999)));
        assert_eq!(WindowCoder::Interval.windows_of(&single(&bytes)), Ok(vec![bytes.as_slice()]));
    }

    #[test]
    fn a_window_set_with_an_impossible_count_is_refused() {
        assert!(WindowCoder::Interval.windows_of(&[0x7f, 0xff, 0xff, 0xff]).is_err());
        assert!(WindowCoder::Interval.windows_of(&[0xff, 0xff, 0xff, 0xff]).is_err());
    }
}
