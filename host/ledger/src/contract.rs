//! What a ledger must do. Prose is contract: the conformance suite tests each sentence that can be tested.
//!
//! Nothing here says where bytes go. What an adapter keeps in memory for its shards is in [`crate::log`].

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use model::{Batch, JobId, ShardId, StageId, Timestamp};

/// A place in the log that a shard reads: its own partition or the broadcast partition. Positions of one partition grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// Which of the two partitions.
    pub partition: Partition,
    /// Grows by at least one per entry; never used twice in the life of a job.
    pub offset: u64,
}

/// The partitions that one shard reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Partition {
    /// The shard's own.
    Own,
    /// The one that all shards read.
    Broadcast,
}

/// What is known of an entry without its payload. The fields from `hold` on are chosen by the producer and kept as given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryHeader {
    /// Where it is.
    pub position: Position,
    /// The stage that consumes it. For broadcast entries: the stage that *produced* the side input, see `input`.
    pub stage: StageId,
    /// Which input of that stage, or which output of it for broadcast entries; meaning is the executor's.
    pub input: u32,
    /// Who wrote it.
    pub producer: (StageId, ShardId),
    /// Rows in the payload.
    pub rows: u32,
    /// Rows that were not consumed yet, ascending and disjoint. All of them when the entry is new.
    pub remaining: Vec<Range<u32>>,
    /// Bytes of the payload, for bounds.
    pub bytes: u64,
    /// Earliest time that the watermark of the consuming stage may not pass while the entry is pending.
    pub hold: Timestamp,
    /// Last timestamp of the latest window in the entry.
    pub window_end: Timestamp,
    /// Processing time in milliseconds before which the entry must not be processed.
    pub not_before_ms: Option<i64>,
}

impl EntryHeader {
    /// The header of a new entry that `shard` appends and that lands at `position`.
    pub fn new(append: &Append, shard: ShardId, position: Position) -> Self {
        let rows = append.payload.rows;
        EntryHeader {
            position,
            stage: append.stage,
            input: append.input,
            producer: (append.producer, shard),
            rows,
            remaining: vec![0..rows],
            bytes: append.payload.bytes,
            hold: append.hold,
            window_end: append.window_end,
            not_before_ms: append.not_before_ms,
        }
    }
}

/// How far a stage on one shard has come. Reports of one (stage, shard) never go backwards: one that is not later than
/// what was committed before is not delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WatermarkReport {
    /// The producing stage.
    pub stage: StageId,
    /// The producing shard, which is the one that commits the report.
    pub shard: ShardId,
    /// Nothing below this time follows from this (stage, shard). MAX: nothing follows at all.
    pub watermark: Timestamp,
}

/// What [`ShardLedger::poll`] finds, in the order in which it was committed per producer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// An entry for this shard, or a broadcast entry.
    Entry(EntryHeader),
    /// A watermark report, delivered after all entries of commits that precede it from the same producer shard.
    Watermark(WatermarkReport),
}

/// A payload on its way into the log: written ahead of the commit when it is large, invisible until then.
/// Dropping it without a commit frees whatever it took. Clones share what they take; several appends may carry one payload.
#[derive(Clone, Debug)]
pub struct Staged {
    /// The rows, when they are still in memory.
    pub batch: Option<Batch>,
    /// The adapter's handle when they are not.
    pub handle: Option<Arc<dyn StagedHandle>>,
    /// Rows of the batch.
    pub rows: u32,
    /// Bytes of the batch.
    pub bytes: u64,
}

/// An adapter's own reference to a staged payload; dropping the last one frees it.
pub trait StagedHandle: std::fmt::Debug + Send + Sync + std::any::Any {
    /// For the adapter to find its own type again.
    fn as_any(&self) -> &dyn std::any::Any;
}

impl Staged {
    /// A payload that stays in memory until it is committed.
    pub fn in_memory(batch: Batch) -> Self {
        let (rows, bytes) = (batch.rows() as u32, batch.memory_bytes() as u64);
        Staged { batch: Some(batch), handle: None, rows, bytes }
    }
}

/// Who reads an appended entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Destination {
    /// One shard.
    Shard(ShardId),
    /// Every shard.
    Broadcast,
}

/// An entry to append. Without rows it leaves nothing.
#[derive(Clone, Debug)]
pub struct Append {
    /// Who reads it.
    pub to: Destination,
    /// See [`EntryHeader::stage`].
    pub stage: StageId,
    /// See [`EntryHeader::input`].
    pub input: u32,
    /// The stage that wrote it.
    pub producer: StageId,
    /// The rows.
    pub payload: Staged,
    /// See [`EntryHeader::hold`].
    pub hold: Timestamp,
    /// See [`EntryHeader::window_end`].
    pub window_end: Timestamp,
    /// See [`EntryHeader::not_before_ms`].
    pub not_before_ms: Option<i64>,
}

/// Rows of an entry that a bundle has consumed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Consumed {
    /// The entry.
    pub position: Position,
    /// Rows, ascending and disjoint, each still remaining.
    pub rows: Vec<Range<u32>>,
}

/// A change of one cell of the shard's state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateWrite {
    /// The cell; cells sort by their bytes.
    pub cell: Bytes,
    /// Its new value, or none to delete it.
    pub value: Option<Bytes>,
}

/// Everything that one or more bundles changed. All of it becomes visible together, or none.
///
/// A commit that contradicts the ledger (rows that do not remain, a shard that the job does not have, a report for
/// another shard, a payload staged elsewhere) is a bug of the caller and answers [`CommitError::Fatal`].
#[derive(Clone, Debug, Default)]
pub struct Commit {
    /// Input that is done, taken one after the other: an entry may be named more than once, its rows only once.
    /// An entry none of whose rows remain is forgotten; a broadcast entry, by this shard only.
    pub consumed: Vec<Consumed>,
    /// New entries, in this order per destination.
    pub appends: Vec<Append>,
    /// New state; the last write of a cell counts.
    pub state: Vec<StateWrite>,
    /// Reports for every shard, this one included; delivered after the appends of this commit.
    pub reports: Vec<WatermarkReport>,
}

impl Commit {
    /// Whether committing would change nothing.
    pub fn is_empty(&self) -> bool {
        self.consumed.is_empty() && self.appends.is_empty() && self.state.is_empty() && self.reports.is_empty()
    }

    /// Adds another commit's changes after this one's.
    pub fn extend(&mut self, other: Commit) {
        self.consumed.extend(other.consumed);
        self.appends.extend(other.appends);
        self.state.extend(other.state);
        self.reports.extend(other.reports);
    }

    /// Refuses what no shard of any state could accept: destinations outside `0..shards`, reports for others than `by`.
    pub fn check(&self, by: ShardId, shards: u32) -> Result<(), CommitError> {
        for append in &self.appends {
            match append.to {
                Destination::Shard(shard) if shard.0 >= shards => {
                    return Err(CommitError::Fatal(format!("append to {shard}, but the job has {shards} shards")));
                }
                _ => {}
            }
        }
        match self.reports.iter().find(|report| report.shard != by) {
            Some(report) => Err(CommitError::Fatal(format!("{by} commits a watermark report for {}", report.shard))),
            None => Ok(()),
        }
    }
}

/// Why a commit did not happen. Nothing of it is visible.
#[derive(Debug, thiserror::Error)]
pub enum CommitError {
    /// The storage is away for now; the same commit may be tried again.
    #[error("storage is not available for now: {0}")]
    Retry(String),
    /// Somebody else owns the shard.
    #[error("another process has taken over the shard")]
    Fenced,
    /// Trying again would not help.
    #[error("storage failed: {0}")]
    Fatal(String),
}

/// Why a read failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The storage cannot be used.
    #[error("storage failed: {0}")]
    Storage(String),
    /// What was read is not what was written.
    #[error("storage is corrupt: {0}")]
    Corrupt(String),
    /// There is no such job, shard, entry or staged payload.
    #[error("{0} is not in the ledger")]
    Missing(String),
    /// There is one of that name.
    #[error("{0} is in the ledger already")]
    Exists(String),
}

/// What a new owner starts from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Entries with rows that remain, own and broadcast, in order of position. `poll` continues behind them.
    pub entries: Vec<EntryHeader>,
    /// The latest report of every (stage, shard) that this shard was sent before the point where `poll` continues.
    pub reports: Vec<WatermarkReport>,
}

/// A job that the ledger knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobRecord {
    /// Its id.
    pub job: JobId,
    /// Number of shards, fixed for the life of the job.
    pub shards: u32,
    /// What the server wants to know after a restart; opaque here.
    pub description: Bytes,
}

/// Storage of one process for many jobs.
pub trait Ledger: Send + Sync {
    /// Registers a job under an id that was never used. Its description and number of shards are durable when this returns.
    fn create(&self, record: JobRecord) -> Result<Arc<dyn JobLedger>, Error>;
    /// Opens a job that was registered before.
    fn open(&self, job: &JobId) -> Result<Arc<dyn JobLedger>, Error>;
    /// All registered jobs, by id.
    fn jobs(&self) -> Result<Vec<JobRecord>, Error>;
    /// Replaces a job's description.
    fn describe(&self, job: &JobId, description: Bytes) -> Result<(), Error>;
    /// Frees the log and the state of a job; its record and description stay. Whatever was opened before is of no use
    /// any more and answers errors; the job can be opened again, empty.
    fn purge(&self, job: &JobId) -> Result<(), Error>;
    /// Forgets a job altogether.
    fn remove(&self, job: &JobId) -> Result<(), Error>;
}

/// One job's storage.
pub trait JobLedger: Send + Sync {
    /// Takes a shard over from whoever had it. `wake` is called, from any thread and perhaps too often, when
    /// [`ShardLedger::poll`] may find something; it must not block and must not call into the ledger. From here on the
    /// earlier owner's polls find nothing and its commits answer [`CommitError::Fenced`].
    fn shard(&self, shard: ShardId, wake: Arc<dyn Fn() + Send + Sync>) -> Result<Box<dyn ShardLedger>, Error>;
    /// Keeps a payload for a later commit by any shard of this job in this process, in memory or on disk by the adapter's memory budget.
    /// Callable from any thread.
    fn stage(&self, batch: Batch) -> Result<Staged, Error>;
    /// A broadcast entry's payload, from any thread. Broadcast entries stay until the job is purged.
    fn fetch_broadcast(&self, offset: u64) -> Result<Batch, Error>;
}

/// One shard's storage, held by its only owner.
pub trait ShardLedger: Send {
    /// Where the shard stands. Called once, before the first poll.
    fn recover(&mut self) -> Result<Recovered, Error>;
    /// What has been committed for this shard since the last poll, at most about `entries_max` arrivals. Cheap when that
    /// is nothing.
    fn poll(&mut self, entries_max: usize) -> Result<Vec<Arrival>, Error>;
    /// The payload of an entry that still has rows.
    fn fetch(&self, position: Position) -> Result<Batch, Error>;
    /// Committed state, readable from any thread.
    fn state(&self) -> Arc<dyn StateReader>;
    /// Makes everything in `commit` visible and, where the ledger is durable, safe against a crash; or nothing of it.
    fn commit(&mut self, commit: &Commit) -> Result<(), CommitError>;
}

/// Committed cells of one shard.
pub trait StateReader: Send + Sync {
    /// A cell's value.
    fn get(&self, cell: &[u8]) -> Result<Option<Bytes>, Error>;
    /// Cells in `[from, to)` in order, at most `cells_max` and, beyond the first, about `bytes_max` bytes of them.
    /// Fewer than there are means: ask again from behind the last one.
    fn scan(&self, from: &[u8], to: &[u8], cells_max: usize, bytes_max: usize) -> Result<Vec<(Bytes, Bytes)>, Error>;
}
