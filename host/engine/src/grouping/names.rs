//! Names of a grouping's state cells.
//!
//! ```text
//!   runs    stage 'w' end window                    runs of one window
//!           stage 'r' end window run block          a block of one run
//!   cells   stage 'n'                               the next buffer number
//!           stage 'k' key                           active windows of a key, when windows merge
//!           stage 's' key window                    trigger, pane and hold of one key and window
//!           stage 'v' key buffer chunk              values
//!           stage 't' domain time key window        timers in order of time
//! ```
//!
//! Stage, run, block and chunk are 32 bits, a buffer number 64, all big-endian; times are the eight bytes that sort as
//! times do. Keys and windows are as on the wire, where they delimit themselves: no key is the beginning of another. Cells
//! that are not a grouping's are kept apart by whoever owns the state.

use bytes::Bytes;
use model::{StageId, Timestamp};

pub(super) use crate::state::{after_all, behind};

/// Makes the names of one stage's cells.
#[derive(Clone, Copy, Debug)]
pub(super) struct Names {
    stage: StageId,
}

impl Names {
    pub(super) fn new(stage: StageId) -> Self {
        Names { stage }
    }

    fn kind(self, kind: u8, capacity: usize) -> Vec<u8> {
        let mut name = Vec::with_capacity(BEGINNING + capacity);
        name.extend_from_slice(&self.stage.0.to_be_bytes());
        name.push(kind);
        name
    }

    /// All cells of a kind: the common beginning of their names.
    pub(super) fn all(self, kind: u8) -> Vec<u8> {
        self.kind(kind, 0)
    }

    pub(super) fn window_runs(self, end: Timestamp, window: &[u8]) -> Bytes {
        let mut name = self.kind(WINDOW_RUNS, 8 + window.len());
        name.extend_from_slice(&end.encode());
        name.extend_from_slice(window);
        name.into()
    }

    /// Everything of a block's name but its number.
    pub(super) fn run(self, end: Timestamp, window: &[u8], run: u32) -> Vec<u8> {
        let mut name = self.kind(RUN_BLOCK, 16 + window.len());
        name.extend_from_slice(&end.encode());
        name.extend_from_slice(window);
        name.extend_from_slice(&run.to_be_bytes());
        name
    }

    pub(super) fn next_buffer(self) -> Bytes {
        self.kind(NEXT_BUFFER, 0).into()
    }

    pub(super) fn active(self, key: &[u8]) -> Bytes {
        let mut name = self.kind(ACTIVE, key.len());
        name.extend_from_slice(key);
        name.into()
    }

    pub(super) fn window_state(self, key: &[u8], window: &[u8]) -> Bytes {
        let mut name = self.kind(WINDOW_STATE, key.len() + window.len());
        name.extend_from_slice(key);
        name.extend_from_slice(window);
        name.into()
    }

    /// Everything of a chunk's name but its number.
    pub(super) fn buffer(self, key: &[u8], buffer: u64) -> Vec<u8> {
        let mut name = self.kind(CHUNK, key.len() + 12);
        name.extend_from_slice(key);
        name.extend_from_slice(&buffer.to_be_bytes());
        name
    }

    /// The beginning of the names of all timers of a time.
    pub(super) fn timers(self, domain: Domain, time: [u8; 8]) -> Vec<u8> {
        let mut name = self.kind(TIMER, 9);
        name.push(domain as u8);
        name.extend_from_slice(&time);
        name
    }

    pub(super) fn timer(self, domain: Domain, time: [u8; 8], key: &[u8], window: &[u8]) -> Bytes {
        let mut name = self.timers(domain, time);
        name.extend_from_slice(key);
        name.extend_from_slice(window);
        name.into()
    }
}

/// What the time of a timer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Domain {
    /// Nothing: to be looked at in the next call.
    Deferred = 0,
    /// Event time.
    Event = 1,
    /// Processing time.
    Processing = 2,
}

/// A name made of a beginning and a number.
pub(super) fn numbered(beginning: &[u8], number: u32) -> Bytes {
    let mut name = Vec::with_capacity(beginning.len() + 4);
    name.extend_from_slice(beginning);
    name.extend_from_slice(&number.to_be_bytes());
    name.into()
}

pub(super) const WINDOW_RUNS: u8 = b'w';
pub(super) const WINDOW_STATE: u8 = b's';
const RUN_BLOCK: u8 = b'r';
const NEXT_BUFFER: u8 = b'n';
const ACTIVE: u8 = b'k';
const CHUNK: u8 = b'v';
const TIMER: u8 = b't';

/// Length of what [`Names::all`] returns.
pub(super) const BEGINNING: usize = 5;
/// Where the key begins in the name of a timer: behind stage, kind, domain and time.
pub(super) const TIMER_BEGINNING: usize = BEGINNING + 9;
