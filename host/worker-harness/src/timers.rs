//! Timer records: `key, tag, windows, clear bit, fire, hold, pane`. What fires is written as it was set, byte for byte.

use bytes::Bytes;
use model::reader::put_length_prefixed;
use model::{DecodeError, RawTime, Reader, pane};
use worker::{FiredTimer, TimerChange, TimerFamily};

use crate::rows::skip_windows;

/// Reads the concatenated records of `data`; a record in several windows is one change per window.
pub(crate) fn parse(data: &[u8], index: usize, family: &TimerFamily, changes: &mut Vec<TimerChange>) -> Result<(), DecodeError> {
    let mut reader = Reader::new(data);
    while !reader.is_empty() {
        let key_at = reader.position();
        family.key_coder.skip(&mut reader)?;
        let key = Bytes::copy_from_slice(reader.between(key_at, reader.position()));
        let tag = Bytes::copy_from_slice(reader.length_prefixed()?);
        let windows_at = reader.position();
        skip_windows(&mut reader, family.window_coder)?;
        let windows = reader.between(windows_at, reader.position());
        let set = match reader.u8()? {
            0 => {
                let (fire, hold) = (RawTime::decode(&mut reader)?, RawTime::decode(&mut reader)?);
                let pane_at = reader.position();
                pane::skip(&mut reader)?;
                Some((fire, hold, Bytes::copy_from_slice(reader.between(pane_at, reader.position()))))
            }
            1 => None,
            _ => return Err(DecodeError::malformed("timer", "the clear bit is neither 0 nor 1")),
        };
        for window in family.window_coder.windows_of(windows)? {
            let window = Bytes::copy_from_slice(window);
            changes.push(TimerChange { family: index, tag: tag.clone(), key: key.clone(), window, set: set.clone() });
        }
    }
    Ok(())
}

/// Appends the record of a timer that is due.
pub(crate) fn encode(timer: &FiredTimer, out: &mut Vec<u8>) {
    out.extend_from_slice(&timer.key);
    put_length_prefixed(out, &timer.tag);
    out.extend_from_slice(&1i32.to_be_bytes());
    out.extend_from_slice(&timer.window);
    out.push(0);
    out.extend_from_slice(&timer.fire.encode());
    out.extend_from_slice(&timer.hold.encode());
    out.extend_from_slice(&timer.pane);
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{Coder, WindowCoder};

    fn family() -> TimerFamily {
        TimerFamily {
            transform: "t".into(),
            family: "f".to_owned(),
            event_time: true,
            key_coder: Coder::Bytes,
            window_coder: WindowCoder::Global,
        }
    }

    #[test]
    fn a_fired_timer_reads_back_as_set() {
        let fired = FiredTimer {
            family: 3,
            tag: Bytes::from_static(b"tag"),
            key: Bytes::from_static(b"\x01k"),
            window: Bytes::new(),
            fire: RawTime(i64::MIN),
            hold: RawTime::NO_HOLD,
            // An early pane, number 300.
            pane: Bytes::from_static(b"\x10\xac\x02"),
        };
        let mut bytes = Vec::new();
        encode(&fired, &mut bytes);
        let mut changes = Vec::new();
        parse(&bytes, 3, &family(), &mut changes).unwrap();
        let set = Some((fired.fire, fired.hold, fired.pane.clone()));
        assert_eq!(changes, [TimerChange { family: 3, tag: fired.tag, key: fired.key, window: fired.window, set }]);
    }

    #[test]
    fn clears_are_read_and_broken_records_are_not() {
        // Key "k", tag "", one global window, set to fire at 1 with Java's "no hold"; then the same, cleared.
        let hold = RawTime::NO_HOLD;
        let set = [b"\x01k\x00\x00\x00\x00\x01\x00".as_slice(), &RawTime(1).encode(), &hold.encode(), &[0x0f]].concat();
        let clear = b"\x01k\x00\x00\x00\x00\x01\x01".as_slice();
        let mut changes = Vec::new();
        parse(&[&set, clear].concat(), 0, &family(), &mut changes).unwrap();
        assert_eq!(changes[0].set.as_ref().map(|set| set.1), Some(hold));
        assert_eq!(changes[1].set, None);
        assert!(parse(&set[..set.len() - 1], 0, &family(), &mut changes).is_err());
        assert!(parse(&clear[..2], 0, &family(), &mut changes).is_err());
    }
}
