//! Event time and spans, in milliseconds, with Beam's bounds.
//!
//! No clock is here: the present is always an argument.

use std::fmt;

use crate::{DecodeError, Reader};

/// A span in milliseconds. Negative spans occur in arithmetic only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Duration(pub i64);

/// A point of event time (or of processing time where a name says so), in milliseconds since the Unix epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i64);

impl Timestamp {
    /// The least time that Beam knows, "minus infinity".
    pub const MIN: Timestamp = Timestamp(-9_223_372_036_854_775);
    /// The greatest time that Beam knows, "plus infinity": a collection whose watermark is here is complete.
    pub const MAX: Timestamp = Timestamp(9_223_372_036_854_775);
    /// The end of the global window, one day before [`Timestamp::MAX`].
    pub const GLOBAL_WINDOW_END: Timestamp = Timestamp(9_223_371_950_454_775);

    /// The time `millis` milliseconds after the epoch, clamped to [MIN, MAX].
    pub fn from_millis(millis: i64) -> Self {
        Timestamp(millis.clamp(Self::MIN.0, Self::MAX.0))
    }

    /// Milliseconds since the epoch.
    #[inline]
    pub fn millis(self) -> i64 {
        self.0
    }

    /// This time moved by `span`, clamped to [MIN, MAX].
    pub fn plus(self, span: Duration) -> Self {
        Self::from_millis(self.0.saturating_add(span.0))
    }

    /// This time moved back by `span`, clamped to [MIN, MAX].
    pub fn minus(self, span: Duration) -> Self {
        Self::from_millis(self.0.saturating_sub(span.0))
    }

    /// Eight bytes, big-endian with the sign bit flipped, so that bytes sort as times do.
    #[inline]
    pub fn encode(self) -> [u8; 8] {
        encode_millis(self.0)
    }

    /// Reads what [`Timestamp::encode`] writes. Times outside [MIN, MAX] are clamped.
    #[inline]
    pub fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Timestamp::from_millis(decode_millis(reader)?))
    }
}

/// A time as an SDK wrote it, perhaps beyond Beam's bounds, in milliseconds since the epoch. It goes back to the SDK as it is;
/// what decides goes by [`RawTime::timestamp`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RawTime(pub i64);

impl RawTime {
    /// The hold of Java's timers that hold nothing; any from MAX on means the same.
    pub const NO_HOLD: RawTime = RawTime(Timestamp::MAX.0 + 1);

    /// What it means, clamped to [MIN, MAX].
    pub fn timestamp(self) -> Timestamp {
        Timestamp::from_millis(self.0)
    }

    /// As [`Timestamp::encode`] does.
    pub fn encode(self) -> [u8; 8] {
        encode_millis(self.0)
    }

    /// Reads what [`RawTime::encode`] writes, and nothing is lost.
    pub fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        decode_millis(reader).map(RawTime)
    }
}

impl From<Timestamp> for RawTime {
    fn from(timestamp: Timestamp) -> Self {
        RawTime(timestamp.millis())
    }
}

/// Milliseconds in the order-preserving form of [`Timestamp::encode`], without bounds.
#[inline]
pub fn encode_millis(millis: i64) -> [u8; 8] {
    (millis as u64 ^ (1 << 63)).to_be_bytes()
}

/// Reads what [`encode_millis`] writes.
#[inline]
pub fn decode_millis(reader: &mut Reader<'_>) -> Result<i64, DecodeError> {
    let bits = reader.be_u64().map_err(|_| DecodeError::Truncated("timestamp"))?;
    Ok((bits ^ (1 << 63)) as i64)
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Timestamp::MIN => f.write_str("MIN"),
            Timestamp::MAX => f.write_str("MAX"),
            Timestamp::GLOBAL_WINDOW_END => f.write_str("END"),
            Timestamp(millis) => write!(f, "{millis}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_sort_as_times_do() {
        let times = [Timestamp::MIN, Timestamp(-1), Timestamp(0), Timestamp(1), Timestamp::GLOBAL_WINDOW_END, Timestamp::MAX];
        assert!(times.windows(2).all(|pair| pair[0].encode() < pair[1].encode()));
        for time in times {
            assert_eq!(Timestamp::decode(&mut Reader::new(&time.encode())), Ok(time));
        }
    }

    #[test]
    fn raw_times_read_back_as_written() {
        for millis in [i64::MIN, Timestamp::MIN.millis() - 1, 0, RawTime::NO_HOLD.0, i64::MAX] {
            let time = RawTime(millis);
            assert_eq!(RawTime::decode(&mut Reader::new(&time.encode())), Ok(time));
            assert!((Timestamp::MIN..=Timestamp::MAX).contains(&time.timestamp()));
        }
    }

    #[test]
    fn arithmetic_stays_within_bounds() {
        assert_eq!(Timestamp::MAX.plus(Duration(i64::MAX)), Timestamp::MAX);
        assert_eq!(Timestamp::MIN.minus(Duration(1)), Timestamp::MIN);
    }
}
