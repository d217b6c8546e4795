//! What a stage has, and what holds its watermark: for `jobs describe` and for the report of a job that cannot go on.
//!
//! Nothing here decides anything.

use std::fmt;

use model::{BundleId, ShardId, StageId, Timestamp};

use crate::grouping::Summary;
use crate::pending::Position;

/// A stage of one shard as it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StageStatus {
    /// The stage.
    pub stage: StageId,
    /// Its name.
    pub name: String,
    /// Entries with rows that are not consumed, those of the bundle in flight included.
    pub pending_entries: usize,
    /// Rows that are not consumed, those in flight included.
    pub pending_rows: u64,
    /// Bytes of these rows, about.
    pub pending_bytes: u64,
    /// Entries that wait for side inputs.
    pub gated_entries: usize,
    /// Entries whose processing time has not come.
    pub delayed_entries: usize,
    /// The bundle in flight and its rows.
    pub in_flight: Option<(BundleId, usize)>,
    /// What a grouping stage has buffered; none for other stages.
    pub groups: Option<Summary>,
    /// What is known to have arrived.
    pub input_watermark: Timestamp,
    /// What follows from that for the stage's output.
    pub output_watermark: Timestamp,
    /// Rows that a grouping or keyed stage dropped since the engine was made: late ones, and ones for closed windows.
    pub dropped_rows: u64,
    /// What holds the output watermark.
    pub held_by: HeldBy,
}

/// What keeps a watermark from moving on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HeldBy {
    /// Nothing: it is at the end.
    Nothing,
    /// An entry that waits for its turn.
    Pending {
        /// The entry.
        entry: Position,
        /// What it holds at.
        hold: Timestamp,
    },
    /// An entry with rows in the bundle in flight.
    InFlight {
        /// The bundle.
        bundle: BundleId,
        /// What it holds at.
        hold: Timestamp,
    },
    /// An entry, mostly a residual, whose processing time has not come.
    Delayed {
        /// The entry.
        entry: Position,
        /// What it holds at.
        hold: Timestamp,
        /// Processing time in milliseconds at which it may be processed.
        not_before_ms: i64,
    },
    /// An entry whose side input is not complete.
    SideInput {
        /// The entry.
        entry: Position,
        /// What it holds at.
        hold: Timestamp,
        /// The side input's transform and tag.
        side_input: String,
        /// The time that the side input's watermark must pass.
        required: Timestamp,
        /// The slowest producer of the side input, its name, shard and watermark.
        producer: Option<Producer>,
    },
    /// An open window of a grouping stage.
    Group {
        /// What it holds at.
        hold: Timestamp,
    },
    /// A timer of a keyed stage, a window that is to expire, or a row that is to be sorted.
    Key {
        /// What it holds at.
        hold: Timestamp,
        /// The beginning of its encoded key, in hexadecimal digits.
        key: String,
        /// What is to come for the key.
        waits_for: String,
    },
    /// The script that feeds the stage.
    Script {
        /// How far it has come.
        watermark: Timestamp,
    },
    /// A stage before this one.
    Upstream(Producer),
}

/// A producer and what it has promised.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Producer {
    /// The stage.
    pub stage: StageId,
    /// Its name.
    pub name: String,
    /// The shard.
    pub shard: ShardId,
    /// Its last report.
    pub watermark: Timestamp,
}

impl fmt::Display for StageStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} \"{}\": input {}, output {}", self.stage, self.name, self.input_watermark, self.output_watermark)?;
        if self.pending_entries > 0 {
            write!(f, ", pending rows: {} ({} bytes)", self.pending_rows, self.pending_bytes)?;
        }
        if self.gated_entries > 0 {
            write!(f, ", entries that wait for side inputs: {}", self.gated_entries)?;
        }
        if self.delayed_entries > 0 {
            write!(f, ", entries that wait for their time: {}", self.delayed_entries)?;
        }
        if let Some((bundle, rows)) = self.in_flight {
            write!(f, ", {bundle} in flight (rows: {rows})")?;
        }
        if let Some(Summary { windows, rows, bytes }) = self.groups.filter(|groups| groups.windows > 0) {
            write!(f, ", open windows: {windows} (rows: {rows}, {bytes} bytes)")?;
        }
        if self.dropped_rows > 0 {
            write!(f, ", dropped rows: {}", self.dropped_rows)?;
        }
        write!(f, "; {}", self.held_by)
    }
}

impl fmt::Display for HeldBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HeldBy::Nothing => write!(f, "complete"),
            HeldBy::Pending { entry, hold } => write!(f, "held at {hold} by pending entry {entry}"),
            HeldBy::InFlight { bundle, hold } => write!(f, "held at {hold} by {bundle} in flight"),
            HeldBy::Delayed { entry, hold, not_before_ms } => {
                write!(f, "held at {hold} by entry {entry}, which waits until {not_before_ms} ms")
            }
            HeldBy::SideInput { entry, hold, side_input, required, producer } => {
                write!(f, "held at {hold} by entry {entry}, which waits for side input \"{side_input}\" to pass {required}")?;
                producer.iter().try_for_each(|producer| write!(f, ", {producer}"))
            }
            HeldBy::Group { hold } => write!(f, "held at {hold} by an open window"),
            HeldBy::Key { hold, key, waits_for } => write!(f, "held at {hold} by key {key}, which has {waits_for}"),
            HeldBy::Script { watermark } => write!(f, "waits for its script, which is at {watermark}"),
            HeldBy::Upstream(producer) => write!(f, "waits for {producer}"),
        }
    }
}

impl fmt::Display for Producer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} \"{}\" on {}, which is at {}", self.stage, self.name, self.shard, self.watermark)
    }
}
