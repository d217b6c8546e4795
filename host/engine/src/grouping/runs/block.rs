//! Blocks: the cells that a run consists of.
//!
//! ```text
//!   group | group | ...        in the order of keys; neighbours may have the same key
//!   group = key length, key, count, length of values, (eight bytes of hold,) values
//! ```
//!
//! Lengths and the count are varints. The hold is there unless panes take their time from the window; MAX stands for
//! none. Values lie one after another, so that a pane of several groups is made by copying.

use std::ops::Range;

use bytes::Bytes;
use model::reader::put_varint;
use model::{Reader, Timestamp};

use super::super::{Error, names};
use super::Format;
use super::window::Run;
use crate::KeyedState;
use crate::arrivals::{Window, key_hash};

/// A block is closed when it has this many bytes.
const BLOCK_BYTES: usize = 128 << 10;
/// A group ends when its values have this many bytes, so that a block has at most 256 KiB and one value.
pub(super) const GROUP_BYTES: usize = 96 << 10;

/// Writes one run.
#[derive(Debug)]
pub(super) struct RunWriter {
    run: Run,
    name: Vec<u8>,
    timed: bool,
    block: Vec<u8>,
}

impl RunWriter {
    /// Continues `run` behind its last block.
    pub(super) fn new(format: &Format, window: &Window, run: Run) -> Self {
        let name = format.names.run(window.end, &window.bytes, run.number);
        RunWriter { run, name, timed: format.timed(), block: Vec::new() }
    }

    /// Adds a group. Groups come in the order of keys.
    #[inline]
    pub(super) fn push<'a>(
        &mut self,
        key: &[u8],
        count: u64,
        bytes: usize,
        hold: Option<Timestamp>,
        values: impl Iterator<Item = &'a [u8]>,
        state: &mut dyn KeyedState,
    ) {
        let block = &mut self.block;
        if block.is_empty() && self.run.blocks > 0 {
            block.reserve(BLOCK_BYTES + BLOCK_BYTES / 8);
        }
        put_varint(block, key.len() as u64);
        block.extend_from_slice(key);
        put_varint(block, count);
        put_varint(block, bytes as u64);
        if self.timed {
            block.extend_from_slice(&hold.unwrap_or(Timestamp::MAX).encode());
        }
        values.for_each(|value| block.extend_from_slice(value));
        if block.len() >= BLOCK_BYTES {
            self.flush(state);
        }
    }

    fn flush(&mut self, state: &mut dyn KeyedState) {
        if self.block.is_empty() {
            return;
        }
        // A block waits for its commit, and many of them may: none keeps room that it does not need.
        let block = Bytes::copy_from_slice(&self.block);
        self.block.clear();
        self.run.bytes += block.len() as u64;
        state.put(names::numbered(&self.name, self.run.blocks), Some(block));
        self.run.blocks += 1;
    }

    /// Writes what is left.
    pub(super) fn finish(mut self, state: &mut dyn KeyedState) -> Run {
        self.flush(state);
        self.run
    }
}

/// A block that is being read.
#[derive(Clone, Debug)]
pub(super) struct Block {
    bytes: Bytes,
    timed: bool,
}

/// A group of a block.
#[derive(Clone, Debug)]
pub(super) struct Group {
    pub(super) hash: u64,
    key: Range<usize>,
    pub(super) count: u64,
    pub(super) hold: Option<Timestamp>,
    values: Range<usize>,
}

impl Block {
    pub(super) fn new(bytes: Bytes, timed: bool) -> Self {
        Block { bytes, timed }
    }

    /// The cell.
    pub(super) fn bytes(self) -> Bytes {
        self.bytes
    }

    /// The group at an offset, or none at the block's end.
    #[inline]
    pub(super) fn group(&self, offset: usize) -> Result<Option<Group>, Error> {
        if offset >= self.bytes.len() {
            return Ok(None);
        }
        let mut reader = Reader::new(&self.bytes[offset..]);
        let key = reader.length_prefixed()?;
        let hash = key_hash(key);
        let key = offset + reader.position() - key.len()..offset + reader.position();
        let count = reader.varint()?;
        let length = reader.length()?;
        let hold = if self.timed { Some(Timestamp::decode(&mut reader)?).filter(|hold| *hold < Timestamp::MAX) } else { None };
        let start = offset + reader.position();
        reader.take(length)?;
        Ok(Some(Group { hash, key, count, hold, values: start..start + length }))
    }

    #[inline]
    pub(super) fn key(&self, group: &Group) -> &[u8] {
        &self.bytes[group.key.clone()]
    }

    #[inline]
    pub(super) fn values(&self, group: &Group) -> &[u8] {
        &self.bytes[group.values.clone()]
    }
}

impl Group {
    /// Where the next group begins.
    #[inline]
    pub(super) fn end(&self) -> usize {
        self.values.end
    }
}
