//! Names of a keyed stage's cells.
//!
//! ```text
//!   stage 'd' domain time kind key window rest          what is to come, in order of time
//!   stage 'h' hold domain time kind key window rest     the same where it holds the watermark, in order of that
//!   stage 't' key window family tag                     a timer by its identity
//!   stage 'p' key window                                an expiry that waits for timers of processing time
//!   stage 'n'                                           the next number of a row that is to be sorted
//! ```
//!
//! The rest is the family and tag of a timer, or the timestamp and number of a row. Stage and family are 32 bits, the
//! number 64, all big-endian; times are the eight bytes that sort as times do. Keys and windows are as on the wire, where
//! they delimit themselves; a tag is last. Cells that are not the engine's are kept apart by whoever owns the state.

use bytes::Bytes;
use model::{Coder, Reader, StageId, Timestamp, WindowCoder};

use crate::error::Error;

/// An encoded key in an encoded window.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Pair {
    pub(super) key: Bytes,
    pub(super) window: Bytes,
}

/// Something that is to come for a key in a window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Item {
    pub(super) domain: Domain,
    pub(super) time: Timestamp,
    pub(super) kind: Kind,
    pub(super) pair: Pair,
}

/// What an item's time is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Domain {
    /// The input watermark.
    Event = 1,
    /// The clock.
    Processing = 2,
}

/// What is to come. Of one time, items come in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A row that no row before it in time can follow any more.
    Row { timestamp: Timestamp, number: u64 },
    /// A user's timer.
    Timer { family: u32, tag: Bytes },
    /// The end of the pair: its state and timers go.
    Expiry,
}

/// Makes and reads the names of one stage's cells.
#[derive(Clone, Debug)]
pub(super) struct Names {
    stage: StageId,
    coder: Coder,
    window_coder: WindowCoder,
}

const DUE: u8 = b'd';
const HOLD: u8 = b'h';
const TIMER: u8 = b't';
const POSTPONED: u8 = b'p';
const NEXT_ROW: u8 = b'n';

const ROW_KIND: u8 = 0;
const TIMER_KIND: u8 = 1;
const EXPIRY_KIND: u8 = 2;

/// Length of stage and kind.
const BEGINNING: usize = 5;

impl Names {
    /// Keys are those of `coder`, a `kv`.
    pub(super) fn new(stage: StageId, coder: Coder, window_coder: WindowCoder) -> Self {
        Names { stage, coder, window_coder }
    }

    fn kind(&self, kind: u8, capacity: usize) -> Vec<u8> {
        let mut name = Vec::with_capacity(BEGINNING + capacity);
        name.extend_from_slice(&self.stage.0.to_be_bytes());
        name.push(kind);
        name
    }

    pub(super) fn due(&self, item: &Item) -> Bytes {
        let mut name = self.kind(DUE, item.capacity());
        item.write(&mut name);
        name.into()
    }

    /// The beginning of the names of all items of a time.
    pub(super) fn due_at(&self, domain: Domain, time: Timestamp) -> Vec<u8> {
        let mut name = self.kind(DUE, 9);
        name.push(domain as u8);
        name.extend_from_slice(&time.encode());
        name
    }

    pub(super) fn hold(&self, hold: Timestamp, item: &Item) -> Bytes {
        let mut name = self.kind(HOLD, 8 + item.capacity());
        name.extend_from_slice(&hold.encode());
        item.write(&mut name);
        name.into()
    }

    /// The beginning of the names of all that holds at a time.
    pub(super) fn held_at(&self, hold: Timestamp) -> Vec<u8> {
        let mut name = self.kind(HOLD, 8);
        name.extend_from_slice(&hold.encode());
        name
    }

    /// With an empty tag also the beginning of the names of all timers of the family and pair.
    pub(super) fn timer(&self, pair: &Pair, family: u32, tag: &[u8]) -> Bytes {
        let mut name = self.of_pair(TIMER, pair);
        name.extend_from_slice(&family.to_be_bytes());
        name.extend_from_slice(tag);
        name.into()
    }

    pub(super) fn postponed(&self, pair: &Pair) -> Bytes {
        self.of_pair(POSTPONED, pair).into()
    }

    fn of_pair(&self, kind: u8, pair: &Pair) -> Vec<u8> {
        let mut name = self.kind(kind, pair.key.len() + pair.window.len() + 16);
        name.extend_from_slice(&pair.key);
        name.extend_from_slice(&pair.window);
        name
    }

    pub(super) fn next_row(&self) -> Bytes {
        self.kind(NEXT_ROW, 0).into()
    }

    /// The item of a name that [`Names::due`] made.
    pub(super) fn item_due(&self, name: &Bytes) -> Result<Item, Error> {
        self.item(&name.slice(BEGINNING..))
    }

    /// The hold and the item of a name that [`Names::hold`] made.
    pub(super) fn item_held(&self, name: &Bytes) -> Result<(Timestamp, Item), Error> {
        let hold = Timestamp::decode(&mut Reader::new(&name[BEGINNING..]))?;
        Ok((hold, self.item(&name.slice(BEGINNING + 8..))?))
    }

    fn item(&self, bytes: &Bytes) -> Result<Item, Error> {
        let mut reader = Reader::new(bytes);
        let domain = match reader.u8()? {
            1 => Domain::Event,
            2 => Domain::Processing,
            other => return Err(Error::Corrupt(format!("{other} is no time domain"))),
        };
        let time = Timestamp::decode(&mut reader)?;
        let kind = reader.u8()?;
        let key_len = self.coder.key_len(reader.rest())?;
        let key = bytes.slice_ref(reader.take(key_len)?);
        let window_from = reader.position();
        self.window_coder.skip(&mut reader)?;
        let window = bytes.slice(window_from..reader.position());
        let kind = match kind {
            ROW_KIND => Kind::Row { timestamp: Timestamp::decode(&mut reader)?, number: reader.be_u64()? },
            TIMER_KIND => Kind::Timer { family: reader.be_i32()? as u32, tag: bytes.slice_ref(reader.rest()) },
            EXPIRY_KIND => Kind::Expiry,
            other => return Err(Error::Corrupt(format!("{other} is no kind of item"))),
        };
        Ok(Item { domain, time, kind, pair: Pair { key, window } })
    }

    /// Whether these are exactly one key and one window.
    pub(super) fn delimits(&self, pair: &Pair) -> bool {
        let mut reader = Reader::new(&pair.window);
        let window = self.window_coder.skip(&mut reader).is_ok() && reader.is_empty();
        window && self.coder.key_len(&pair.key).is_ok_and(|length| length == pair.key.len())
    }
}

impl Item {
    fn capacity(&self) -> usize {
        let tag = if let Kind::Timer { tag, .. } = &self.kind { tag.len() } else { 0 };
        10 + self.pair.key.len() + self.pair.window.len() + 16 + tag
    }

    fn write(&self, name: &mut Vec<u8>) {
        name.push(self.domain as u8);
        name.extend_from_slice(&self.time.encode());
        name.push(match self.kind {
            Kind::Row { .. } => ROW_KIND,
            Kind::Timer { .. } => TIMER_KIND,
            Kind::Expiry => EXPIRY_KIND,
        });
        name.extend_from_slice(&self.pair.key);
        name.extend_from_slice(&self.pair.window);
        match &self.kind {
            Kind::Row { timestamp, number } => {
                name.extend_from_slice(&timestamp.encode());
                name.extend_from_slice(&number.to_be_bytes());
            }
            Kind::Timer { family, tag } => {
                name.extend_from_slice(&family.to_be_bytes());
                name.extend_from_slice(tag);
            }
            Kind::Expiry => {}
        }
    }
}
