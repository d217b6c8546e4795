//! The entries of one stage that are not consumed yet, those of its running bundle included.
//!
//! ```text
//!  insert ──▶ gated ──open──▶ delayed ──wake──▶ ready ──take──▶ taken ──consume──▶ gone
//!             (side inputs)   (time)              ▲               │
//!                                                 └───give_back───┘
//! ```
//!
//! An entry holds the watermark at its `hold` until its last row is consumed, whatever state it is in. Each step costs
//! the logarithm of the number of entries; nothing here looks at all of them.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use model::{Duration, ShardId, StageId, Timestamp};

use crate::policy::InputLimits;
use crate::rows;

/// Where an entry is in the log of a shard. A stage takes its entries in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// Whether it is in the partition that all shards read.
    pub broadcast: bool,
    /// Offset there.
    pub offset: u64,
}

impl std::fmt::Display for Position {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.broadcast {
            true => write!(f, "broadcast {}", self.offset),
            false => write!(f, "{}", self.offset),
        }
    }
}

/// An entry of the ledger that is addressed to this shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Where it is; unique.
    pub position: Position,
    /// The stage that consumes it.
    pub stage: StageId,
    /// The stage and shard that wrote it, for reports. Its own stage: rows from outside, or what is left of restrictions.
    pub producer: (StageId, ShardId),
    /// Rows that were not consumed yet, ascending and disjoint; at least one.
    pub remaining: Vec<Range<u32>>,
    /// Bytes of all its rows.
    pub bytes: u64,
    /// All its rows, those that were consumed included.
    pub rows: u32,
    /// What the stage's watermark may not pass while rows remain: the least element timestamp, for a residual the
    /// output watermark that came with it.
    pub hold: Timestamp,
    /// Last timestamp of the latest window in the entry.
    pub window_end: Timestamp,
    /// Processing time in milliseconds before which it must not be processed.
    pub not_before_ms: Option<i64>,
}

/// Some rows of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryRows {
    /// The entry.
    pub position: Position,
    /// Its rows, ascending and disjoint.
    pub rows: Vec<Range<u32>>,
}

/// What an entry waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    SideInputs { window_end: Timestamp },
    Until { not_before_ms: i64 },
    Turn,
    Commit,
}

#[derive(Debug)]
struct Kept {
    producer: (StageId, ShardId),
    remaining: Vec<Range<u32>>,
    rows: u32,
    bytes: u64,
    hold: Timestamp,
    window_end: Timestamp,
    not_before_ms: Option<i64>,
    /// Rows in the running bundle.
    taken: usize,
    gated: bool,
}

impl Kept {
    fn rows_left(&self) -> usize {
        rows::count(&self.remaining) + self.taken
    }

    /// The share of the bytes that these rows have, rounded up.
    fn bytes_of(&self, rows: usize) -> u64 {
        let share = u128::from(self.bytes) * rows as u128;
        share.div_ceil(u128::from(self.rows)) as u64
    }
}

/// See the file's head.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    entries: BTreeMap<Position, Kept>,
    holds: BTreeSet<(Timestamp, Position)>,
    gated: BTreeSet<(Timestamp, Position)>,
    delayed: BTreeSet<(i64, Position)>,
    ready: BTreeSet<Position>,
    rows: u64,
    gated_bytes: u64,
    open_bytes: u64,
}

impl Pending {
    /// Adds an entry, whose rows must not be here already.
    pub(crate) fn insert(&mut self, entry: Entry) {
        let Entry { position, stage, producer, remaining, bytes, rows, hold, window_end, not_before_ms } = entry;
        rows::assert_sane(&remaining, rows, "rows of an entry");
        assert!(!remaining.is_empty(), "entry {position} for {stage} has no rows");
        let kept =
            Kept { producer, remaining, rows, bytes, hold: hold_of(hold), window_end, not_before_ms, taken: 0, gated: true };
        self.rows += kept.rows_left() as u64;
        self.gated_bytes += kept.bytes_of(kept.rows_left());
        self.holds.insert((kept.hold, position));
        self.gated.insert((window_end, position));
        let before = self.entries.insert(position, kept);
        assert!(before.is_none(), "entry {position} for {stage} arrived twice");
    }

    /// Lets entries through whose side inputs are ready. `ready` must hold for all times before one for which it holds.
    pub(crate) fn open(&mut self, ready: impl Fn(Timestamp) -> bool) {
        while let Some(&(window_end, position)) = self.gated.first() {
            if !ready(window_end) {
                break;
            }
            self.gated.pop_first();
            let kept = self.entries.get_mut(&position).expect("a gated entry is kept");
            kept.gated = false;
            let bytes = kept.bytes_of(kept.rows_left());
            self.gated_bytes -= bytes;
            self.open_bytes += bytes;
            match kept.not_before_ms {
                Some(not_before_ms) => self.delayed.insert((not_before_ms, position)),
                None => self.ready.insert(position),
            };
        }
    }

    /// Lets entries through whose time has come.
    pub(crate) fn wake(&mut self, now_ms: i64) {
        while let Some(&(not_before_ms, position)) = self.delayed.first() {
            if not_before_ms > now_ms {
                break;
            }
            self.delayed.pop_first();
            self.ready.insert(position);
        }
    }

    /// When [`Pending::wake`] will let something through.
    pub(crate) fn wake_at_ms(&self) -> Option<i64> {
        self.delayed.first().map(|&(not_before_ms, _)| not_before_ms)
    }

    /// Whether [`Pending::take`] would find something.
    pub(crate) fn is_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Takes ready rows in order, at least one if there is any.
    pub(crate) fn take(&mut self, limits: InputLimits) -> Vec<EntryRows> {
        let (mut rows_left, mut bytes_left) = (limits.rows_max, limits.bytes_max);
        let mut taken: Vec<EntryRows> = Vec::new();
        while let Some(&position) = self.ready.first() {
            let kept = self.entries.get_mut(&position).expect("a ready entry is kept");
            let fitting = match kept.bytes_of(1) {
                0 => rows_left,
                row_bytes => rows_left.min(usize::try_from(bytes_left / row_bytes).unwrap_or(usize::MAX)),
            };
            let available = rows::count(&kept.remaining);
            let rows = available.min(fitting).max(usize::from(taken.is_empty()));
            if rows == 0 {
                break;
            }
            rows_left = rows_left.saturating_sub(rows);
            bytes_left = bytes_left.saturating_sub(kept.bytes_of(rows));
            taken.push(EntryRows { position, rows: rows::take_first(&mut kept.remaining, rows) });
            kept.taken += rows;
            if rows < available {
                break;
            }
            self.ready.pop_first();
            if taken.len() == limits.entries_max {
                break;
            }
        }
        taken
    }

    /// Rows that were taken are pending again, in front of those that come after them.
    pub(crate) fn give_back(&mut self, rows: &[EntryRows]) {
        for EntryRows { position, rows } in rows {
            let kept = self.entries.get_mut(position).expect("an entry is kept while rows of it are taken");
            let count = rows::count(rows);
            assert!(count <= kept.taken, "{count} rows of entry {position} come back, {} were taken", kept.taken);
            kept.taken -= count;
            rows::join(&mut kept.remaining, rows);
            self.ready.insert(*position);
        }
    }

    /// Rows that were taken are done for ever.
    pub(crate) fn consume(&mut self, rows: &[EntryRows]) {
        for EntryRows { position, rows } in rows {
            let kept = self.entries.get_mut(position).expect("an entry is kept while rows of it are taken");
            let count = rows::count(rows);
            assert!(count <= kept.taken, "{count} rows of entry {position} are consumed, {} were taken", kept.taken);
            let before = kept.bytes_of(kept.rows_left());
            kept.taken -= count;
            self.rows -= count as u64;
            self.open_bytes -= before - kept.bytes_of(kept.rows_left());
            if kept.rows_left() == 0 {
                self.holds.remove(&(kept.hold, *position));
                self.entries.remove(position);
            }
        }
    }

    /// The least hold and the entry that has it.
    pub(crate) fn min_hold(&self) -> Option<(Timestamp, Position)> {
        self.holds.first().copied()
    }

    /// What an entry waits for, while rows of it are left.
    pub(crate) fn wait(&self, position: Position) -> Option<Wait> {
        let kept = self.entries.get(&position)?;
        Some(match kept.not_before_ms {
            _ if kept.gated => Wait::SideInputs { window_end: kept.window_end },
            _ if kept.taken > 0 => Wait::Commit,
            Some(not_before_ms) if !self.ready.contains(&position) => Wait::Until { not_before_ms },
            _ => Wait::Turn,
        })
    }

    /// Who wrote an entry, while rows of it are left.
    pub(crate) fn producer(&self, position: Position) -> Option<(StageId, ShardId)> {
        self.entries.get(&position).map(|kept| kept.producer)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Rows that are left, those in the running bundle included.
    pub(crate) fn rows(&self) -> u64 {
        self.rows
    }

    /// Bytes of entries that wait for side inputs.
    pub(crate) fn gated_bytes(&self) -> u64 {
        self.gated_bytes
    }

    /// Bytes of all other entries, those in the running bundle included.
    pub(crate) fn open_bytes(&self) -> u64 {
        self.open_bytes
    }

    pub(crate) fn entries(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn gated_entries(&self) -> usize {
        self.gated.len()
    }

    pub(crate) fn delayed_entries(&self) -> usize {
        self.delayed.len()
    }
}

/// A stage with anything left is not complete, even if that promises to produce nothing: MAX is for stages that are done.
fn hold_of(hold: Timestamp) -> Timestamp {
    hold.min(Timestamp::MAX.minus(Duration(1)))
}
