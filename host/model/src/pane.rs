//! Pane information: the how-manieth firing of a window an element belongs to, and the element metadata that rides along.
//!
//! Wire form: one byte of flags and layout, up to two varint indices, then metadata bytes if bit 7 is set.

use crate::reader::{put_length_prefixed, put_varint};
use crate::{DecodeError, Reader};

/// When a pane fired relative to the end of its window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Timing {
    /// Before the watermark passed the end of the window.
    Early,
    /// The first firing after it.
    OnTime,
    /// Any later firing.
    Late,
    /// No trigger has produced this element.
    Unknown,
}

/// What is known of the firing that produced an element.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PaneInfo {
    /// Whether this is the window's first pane.
    pub is_first: bool,
    /// Whether this is the window's last pane.
    pub is_last: bool,
    /// Relation to the end of the window.
    pub timing: Timing,
    /// Panes of the window before this one.
    pub index: i64,
    /// Panes before this one that were not early; -1 for an early pane.
    pub nonspeculative_index: i64,
}

/// The pane of elements that no trigger produced, as encoded.
pub const NO_FIRING: &[u8] = &[0x0f];

const METADATA: u8 = 0x80;

impl PaneInfo {
    /// The pane of elements that no trigger produced.
    pub const NO_FIRING: PaneInfo =
        PaneInfo { is_first: true, is_last: true, timing: Timing::Unknown, index: 0, nonspeculative_index: 0 };

    /// Appends the wire form, without metadata.
    pub fn encode(self, out: &mut Vec<u8>) {
        let flags = u8::from(self.is_first) | u8::from(self.is_last) << 1 | (self.timing as u8) << 2;
        let early = self.timing == Timing::Early;
        if self.index == 0 && !early && (self.nonspeculative_index == 0 || self.timing == Timing::Unknown) {
            return out.push(flags);
        }
        if early || self.index == self.nonspeculative_index {
            out.push(flags | 1 << 4);
            return put_varint(out, self.index as u64);
        }
        out.push(flags | 2 << 4);
        put_varint(out, self.index as u64);
        put_varint(out, self.nonspeculative_index as u64);
    }

    /// Reads a pane; metadata is read over (see [`skip`] to keep it).
    pub fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let first = reader.u8().map_err(|_| DecodeError::Truncated("pane"))?;
        let timing = match first >> 2 & 3 {
            0 => Timing::Early,
            1 => Timing::OnTime,
            2 => Timing::Late,
            _ => Timing::Unknown,
        };
        let early = timing == Timing::Early;
        let (index, nonspeculative_index) = match first >> 4 & 7 {
            0 => (0, if early { -1 } else { 0 }),
            1 => {
                let index = reader.varint()? as i64;
                (index, if early { -1 } else { index })
            }
            2 => (reader.varint()? as i64, reader.varint()? as i64),
            _ => return Err(DecodeError::malformed("pane", "unknown layout")),
        };
        if first & METADATA != 0 {
            reader.length_prefixed()?;
        }
        Ok(PaneInfo { is_first: first & 1 != 0, is_last: first & 2 != 0, timing, index, nonspeculative_index })
    }
}

/// Reads over one encoded pane with its metadata.
#[inline]
pub fn skip(reader: &mut Reader<'_>) -> Result<(), DecodeError> {
    let first = reader.u8().map_err(|_| DecodeError::Truncated("pane"))?;
    for _ in 0..first >> 4 & 7 {
        reader.varint()?;
    }
    if first >> 4 & 7 > 2 {
        return Err(DecodeError::malformed("pane", "unknown layout"));
    }
    if first & METADATA != 0 {
        reader.length_prefixed()?;
    }
    Ok(())
}

/// The metadata of an encoded pane (a serialized `ElementMetadata`), if it has any.
pub fn metadata(pane: &[u8]) -> Result<Option<&[u8]>, DecodeError> {
    let mut reader = Reader::new(pane);
    let first = reader.u8().map_err(|_| DecodeError::Truncated("pane"))?;
    for _ in 0..first >> 4 & 7 {
        reader.varint()?;
    }
    if first & METADATA == 0 {
        return Ok(None);
    }
    reader.length_prefixed().map(Some)
}

/// The encoded pane without its metadata, for SDKs that have not declared that they read it.
pub fn without_metadata(pane: &[u8]) -> Result<Vec<u8>, DecodeError> {
    let mut out = Vec::with_capacity(pane.len());
    PaneInfo::decode(&mut Reader::new(pane))?.encode(&mut out);
    Ok(out)
}

/// The encoded pane with `metadata` (a serialized `ElementMetadata`) attached.
pub fn with_metadata(pane: PaneInfo, metadata: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    pane.encode(&mut out);
    out[0] |= METADATA;
    put_length_prefixed(&mut out, metadata);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(is_first: bool, is_last: bool, timing: Timing, index: i64, nonspeculative_index: i64, bytes: &[u8]) {
        let pane = PaneInfo { is_first, is_last, timing, index, nonspeculative_index };
        let mut encoded = Vec::new();
        pane.encode(&mut encoded);
        assert_eq!(encoded, bytes, "{pane:?}");
        assert_eq!(PaneInfo::decode(&mut Reader::new(bytes)), Ok(pane));
        let mut reader = Reader::new(bytes);
        skip(&mut reader).unwrap();
        assert!(reader.is_empty());
    }

    #[test]
    fn panes_have_beams_bytes() {
        check(true, true, Timing::Unknown, 0, 0, &[0x0f]);
        check(true, true, Timing::OnTime, 0, 0, &[0x07]);
        check(true, false, Timing::OnTime, 0, 0, &[0x05]);
        check(true, false, Timing::Early, 0, -1, &[0x11, 0]);
        check(false, false, Timing::Early, 1, -1, &[0x10, 1]);
        check(false, true, Timing::OnTime, 2, 0, &[0x26, 2, 0]);
        check(false, false, Timing::Late, 3, 1, &[0x28, 3, 1]);
    }

    #[test]
    fn metadata_is_kept_or_stripped() {
        let bytes = with_metadata(PaneInfo::NO_FIRING, b"\x08\x02");
        assert_eq!(bytes, [0x8f, 2, 8, 2]);
        let mut reader = Reader::new(&bytes);
        skip(&mut reader).unwrap();
        assert!(reader.is_empty());
        assert_eq!(metadata(&bytes), Ok(Some(b"\x08\x02".as_slice())));
        assert_eq!(metadata(NO_FIRING), Ok(None));
        assert_eq!(without_metadata(&bytes), Ok(NO_FIRING.to_vec()));
    }
}
