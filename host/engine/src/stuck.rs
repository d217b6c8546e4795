//! What a stage has, and what holds its watermark: for `jobs describe` and for the report of a job that cannot go on.
//!
//! ```text
//!   what comes in       rows that are not consumed, a TestStream, a stage before     holds the input watermark
//!   what is kept        windows, timers, rows to be sorted                           holds the output watermark besides
//! ```
//!
//! Nothing here decides anything. `words` says how all this is told.

mod words;

use model::{BundleId, Coder, Reader, ShardId, StageId, TimeDomain, Timestamp};

use crate::grouping::Summary;
use crate::pending::Position;
pub use words::{Plain, Times};

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
    /// What holds the input watermark: the same, unless the stage keeps something.
    pub input_held_by: HeldBy,
}

/// What keeps a watermark from moving on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HeldBy {
    /// Nothing: it is at the end.
    Nothing,
    /// Rows that are not consumed.
    Rows(HeldRows),
    /// An open window of a grouping stage.
    Window {
        /// What it holds at.
        hold: Timestamp,
        /// Its last timestamp.
        end: Timestamp,
    },
    /// Something that is to come for a key of a keyed stage.
    Key {
        /// What it holds at.
        hold: Timestamp,
        /// The beginning of the key, in quotes where it is text, else its encoding in hexadecimal digits.
        key: String,
        /// What is to come.
        due: Due,
    },
    /// The TestStream that feeds the stage.
    Script {
        /// How far it has come.
        watermark: Timestamp,
    },
    /// A stage before this one.
    Upstream(Producer),
}

/// An entry with rows that are not consumed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldRows {
    /// The entry.
    pub entry: Position,
    /// Where its rows come from.
    pub origin: Origin,
    /// What they hold at.
    pub hold: Timestamp,
    /// What they wait for.
    pub wait: RowsWait,
}

/// Where rows come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The job was given them at its beginning, or by a TestStream.
    Outside,
    /// They are what is left of restrictions.
    Residual,
    /// A stage made them.
    Stage {
        /// Which.
        stage: StageId,
        /// Its name.
        name: String,
        /// On which shard.
        shard: ShardId,
    },
}

/// What rows wait for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RowsWait {
    /// Their turn.
    Turn,
    /// More of their kind, so that triggers see them together.
    More,
    /// Fewer rows below: the backlog is at its bound.
    Backlog,
    /// Their time, mostly that of a residual.
    Until {
        /// Processing time in milliseconds.
        not_before_ms: i64,
    },
    /// A side input that is not complete.
    SideInput {
        /// Its tag and transform.
        name: String,
        /// The last timestamp of the main window that needs it.
        window_end: Timestamp,
        /// The time that the side input's watermark must pass for that.
        required: Timestamp,
        /// The slowest producer of the side input.
        producer: Option<Producer>,
    },
    /// The bundle that has them to end.
    Bundle(BundleId),
    /// The effects of the bundle that had them to be durable.
    Commit(BundleId),
}

/// What is to come for a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Due {
    /// A row that waits to be sorted.
    Row {
        /// Event time by which it is.
        time: Timestamp,
    },
    /// A timer.
    Timer {
        /// Its family's name.
        family: String,
        /// What its time is compared with.
        domain: TimeDomain,
        /// When it fires.
        time: Timestamp,
    },
    /// The end of its window.
    Expiry {
        /// When the window is forgotten, in event time.
        time: Timestamp,
    },
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

impl StageStatus {
    /// Whether what holds the output can only go when the input watermark moves, so that what holds that one counts too.
    pub fn waits_for_input(&self) -> bool {
        match &self.held_by {
            HeldBy::Window { hold, end } => *hold.max(end) >= self.input_watermark,
            HeldBy::Key { due, .. } => due.event_time().is_some_and(|time| time > self.input_watermark),
            _ => false,
        }
    }

    /// The stage and shard that this one waits for, if it is not itself what holds.
    pub fn waits_for(&self) -> Option<&Producer> {
        let held_by = if self.waits_for_input() { &self.input_held_by } else { &self.held_by };
        match held_by {
            HeldBy::Upstream(producer) => Some(producer),
            HeldBy::Rows(HeldRows { wait: RowsWait::SideInput { producer, .. }, .. }) => producer.as_ref(),
            _ => None,
        }
    }
}

impl Due {
    /// The time that the input watermark has to reach; none for what waits for the clock.
    fn event_time(&self) -> Option<Timestamp> {
        match self {
            Due::Timer { domain: TimeDomain::Processing, .. } => None,
            Due::Row { time } | Due::Timer { time, .. } | Due::Expiry { time } => Some(*time),
        }
    }
}

/// Characters that a report shows of a key, and of the name of another stage.
const SHOWN_MAX: usize = 32;

/// The beginning of an encoded key as people can read it.
pub(crate) fn shown_key(coder: &Coder, key: &[u8]) -> String {
    let text = match coder {
        Coder::Bytes | Coder::StringUtf8 | Coder::LengthPrefix(_) => Reader::new(key).length_prefixed().ok(),
        _ => None,
    };
    let text = text.and_then(|bytes| std::str::from_utf8(bytes).ok());
    match text.filter(|text| !text.is_empty() && !text.chars().any(char::is_control)) {
        Some(text) => format!("{:?}", shortened(text)),
        None => shortened(&key.iter().take(SHOWN_MAX).map(|byte| format!("{byte:02x}")).collect::<String>()),
    }
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(SHOWN_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_shown_as_text_where_they_are_text() {
        let check = |coder: Coder, key: &[u8], expected: &str| assert_eq!(shown_key(&coder, key), expected);
        check(Coder::Bytes, b"\x03abc", "\"abc\"");
        check(Coder::StringUtf8, b"\x02\xc3\xa9", "\"é\"");
        check(Coder::Bytes, b"\x02a\n", "02610a");
        check(Coder::Bytes, b"\x00", "00");
        check(Coder::VarInt, b"\x61", "61");
        let long = [&[40][..], &[b'k'; 40]].concat();
        check(Coder::Bytes, &long, &format!("\"{}…\"", "k".repeat(32)));
        check(Coder::VarInt, &[0xab; 40], &format!("{}…", "ab".repeat(16)));
    }
}
