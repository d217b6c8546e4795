//! What is kept for one key and window, beside the values: one small cell.

use bytes::Bytes;
use model::pane::PaneInfo;
use model::reader::put_varint;
use model::time::{decode_millis, encode_millis};
use model::{DecodeError, Reader, Timestamp};

use super::super::trigger::{Slot, Timers, Tree};

/// State of one key and window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct WindowState {
    /// What the trigger remembers. Its root has finished: the window is closed, and only this is left until it expires.
    pub(super) slots: Vec<Slot>,
    pub(super) timers: Timers,
    /// The pane before, if one was emitted.
    pub(super) pane: Option<PaneInfo>,
    /// Where elements since the last pane hold the watermark.
    pub(super) element_hold: Option<Timestamp>,
    /// The time when the window expires, when there is something to emit that no element hold stands for.
    pub(super) extra_hold: Option<Timestamp>,
    /// Elements since the last pane.
    pub(super) since_pane: u64,
    /// Values in the buffers, and their bytes.
    pub(super) values: u64,
    pub(super) bytes: u64,
    /// Where the values are, in order.
    pub(super) buffers: Vec<Buffer>,
}

/// A sequence of cells with values. Merging windows concatenates buffers without touching them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Buffer {
    /// Unique in the stage and shard.
    pub(super) number: u64,
    pub(super) chunks: u32,
}

const END: u8 = 1;
const EXPIRY: u8 = 2;
const DEFERRED: u8 = 4;
const PANE: u8 = 8;
const ELEMENT_HOLD: u8 = 16;
const EXTRA_HOLD: u8 = 32;

impl WindowState {
    pub(super) fn new(tree: &Tree) -> Self {
        WindowState {
            slots: tree.slots(),
            timers: Timers::default(),
            pane: None,
            element_hold: None,
            extra_hold: None,
            since_pane: 0,
            values: 0,
            bytes: 0,
            buffers: Vec::new(),
        }
    }

    /// Whether the trigger has finished: nothing more comes in.
    pub(super) fn is_closed(&self) -> bool {
        self.slots[0].finished
    }

    pub(super) fn hold(&self) -> Option<Timestamp> {
        self.element_hold.into_iter().chain(self.extra_hold).min()
    }

    pub(super) fn encode(&self) -> Bytes {
        let mut out = Vec::with_capacity(64);
        let Timers { end, expiry, deferred, processing } = &self.timers;
        let flag = |flag, set| if set { flag } else { 0 };
        out.push(
            flag(END, *end)
                | flag(EXPIRY, *expiry)
                | flag(DEFERRED, *deferred)
                | flag(PANE, self.pane.is_some())
                | flag(ELEMENT_HOLD, self.element_hold.is_some())
                | flag(EXTRA_HOLD, self.extra_hold.is_some()),
        );
        self.pane.into_iter().for_each(|pane| pane.encode(&mut out));
        for hold in self.element_hold.into_iter().chain(self.extra_hold) {
            out.extend_from_slice(&hold.encode());
        }
        for number in [self.since_pane, self.values, self.bytes, self.buffers.len() as u64] {
            put_varint(&mut out, number);
        }
        for buffer in &self.buffers {
            put_varint(&mut out, buffer.number);
            put_varint(&mut out, buffer.chunks.into());
        }
        put_varint(&mut out, processing.len() as u64);
        processing.iter().for_each(|time| out.extend_from_slice(&encode_millis(*time)));
        self.slots.iter().for_each(|slot| slot.encode(&mut out));
        out.into()
    }

    pub(super) fn decode(bytes: &[u8], tree: &Tree) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        let flags = reader.u8()?;
        let pane = if flags & PANE != 0 { Some(PaneInfo::decode(&mut reader)?) } else { None };
        let mut hold = |flag| if flags & flag != 0 { Timestamp::decode(&mut reader).map(Some) } else { Ok(None) };
        let (element_hold, extra_hold) = (hold(ELEMENT_HOLD)?, hold(EXTRA_HOLD)?);
        let (since_pane, values, bytes) = (reader.varint()?, reader.varint()?, reader.varint()?);
        let buffers = (0..reader.varint()?)
            .map(|_| {
                let number = reader.varint()?;
                let chunks = reader.varint()?;
                let chunks = u32::try_from(chunks).map_err(|_| DecodeError::malformed("buffer", "over 2^32 chunks"))?;
                Ok(Buffer { number, chunks })
            })
            .collect::<Result<_, DecodeError>>()?;
        let processing = (0..reader.varint()?).map(|_| decode_millis(&mut reader)).collect::<Result<_, _>>()?;
        let (end, expiry, deferred) = (flags & END != 0, flags & EXPIRY != 0, flags & DEFERRED != 0);
        let timers = Timers { end, expiry, deferred, processing };
        let slots = tree.decode(&mut reader)?;
        Ok(WindowState { slots, timers, pane, element_hold, extra_hold, since_pane, values, bytes, buffers })
    }
}
