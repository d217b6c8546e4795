//! Grouping by key and window: from rows of `KV<K, V>` to panes of `KV<K, Iterable<V>>`.
//!
//! It follows Beam's reference, Java's `ReduceFnRunner`, and works on keyed state only: no clock, no disk, no threads.
//! What one call of [`Grouping::run`] changes is in state cells and in a [`Delta`]; the grouping itself changes when the
//! delta is applied, that is when the cells are durable. There are two ways to group, chosen by the windowing strategy:
//!
//! ```text
//!   fires once per window  ──▶ runs.rs   sorted runs per window, merged when the watermark passes its end
//!   anything else          ──▶ cells.rs  a cell per key and window: trigger state, holds, panes; values in chunks
//! ```
//!
//! This module does not decide when a bundle runs, and it does not move a watermark: it says what holds it.

mod cells;
mod counted;
mod merger;
mod names;
mod output;
mod runs;
mod trigger;

use model::windowing::WindowingStrategy;
use model::{Batch, Coder, StageId, Timestamp, WindowCoder};

pub use crate::error::Error;
pub use merger::{MergeError, MergedWindows, NoMerger, WindowMerger};

use crate::KeyedState;
use cells::Cells;
use runs::Runs;

/// The times that decide about dropping, firing and panes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clocks {
    /// The stage's input watermark. Never goes backwards from one durable call to the next.
    pub input_watermark: Timestamp,
    /// The stage's output watermark, not after the input watermark and not after [`Grouping::hold`].
    pub output_watermark: Timestamp,
    /// Processing time, in milliseconds since the epoch.
    pub now_ms: i64,
}

/// How much one call may fire. One pane is always allowed, however large it is. Where a trigger is asked after every row, rows
/// that come in fire as often as they make it ready, until there are too many bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// No further pane is begun once panes have this many bytes of values.
    pub bytes_max: u64,
    /// Panes.
    pub keys_max: usize,
}

/// What a call of [`Grouping::run`] produced beside its state writes.
#[derive(Debug)]
pub struct Grouped {
    /// Rows of key bytes, int32 count and values, each in exactly one window.
    pub panes: Vec<Batch>,
    /// What [`Grouping::apply`] needs once the state writes are durable.
    pub delta: Delta,
    /// Copies of rows (one per window) that came after their window expired or after its trigger finished.
    pub dropped_rows: u64,
}

/// Changes of the grouping's indexes that go with the state writes of one call.
#[derive(Debug)]
pub struct Delta(Changes);

#[derive(Debug)]
enum Changes {
    Runs(runs::Changes),
    Cells(cells::Changes),
}

/// What is buffered, for status.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Windows with buffered rows; per key where windows are kept per key.
    pub windows: u64,
    /// Rows in them, each counted once per window.
    pub rows: u64,
    /// Bytes that they take in state, about.
    pub bytes: u64,
}

/// The groups of one grouping stage on one shard.
#[derive(Debug)]
pub struct Grouping {
    path: Path,
}

#[derive(Debug)]
enum Path {
    Runs(Runs),
    Cells(Box<Cells>),
    Refused(String),
}

impl Grouping {
    /// An empty grouping. Rows are `KV<K, V>` of `input_coder`; their windows are encoded with `window_coder`.
    ///
    /// A strategy that cannot be run (a trigger that nests too deep) makes every later call fail with [`Error::Refused`]; plans
    /// do not contain one.
    pub fn new(stage: StageId, strategy: WindowingStrategy, input_coder: Coder, window_coder: WindowCoder) -> Self {
        let path = if runs::fires_once(&strategy) {
            Path::Runs(Runs::new(stage, &strategy, input_coder, window_coder))
        } else {
            match Cells::new(stage, strategy, input_coder, window_coder) {
                Ok(cells) => Path::Cells(Box::new(cells)),
                Err(what) => Path::Refused(what),
            }
        };
        Grouping { path }
    }

    /// From now on a trigger that counts rows is asked when all those of one key in one call are in, as all others are. To be
    /// called before the first row.
    pub fn gather(&mut self) {
        if let Path::Cells(cells) = &mut self.path {
            cells.gather();
        }
    }

    /// Rebuilds the indexes from state, on an empty grouping and before the first row.
    pub fn restore(&mut self, state: &dyn KeyedState) -> Result<(), Error> {
        match &mut self.path {
            Path::Runs(runs) => runs.restore(state),
            Path::Cells(cells) => cells.restore(state),
            Path::Refused(what) => Err(Error::Refused(what.clone())),
        }
    }

    /// Absorbs rows, then fires what is due at these clocks, at most `limits` worth of panes. Deterministic.
    ///
    /// A trigger that counts rows is asked after every one, so that its panes do not depend on which rows share a call; see
    /// [`Grouping::gather`]. Others are asked once for all rows of a key. `merger` is asked about windows of a function that only an
    /// SDK knows.
    pub fn run(
        &self,
        rows: &[Batch],
        clocks: Clocks,
        limits: Limits,
        state: &mut dyn KeyedState,
        merger: &mut dyn WindowMerger,
    ) -> Result<Grouped, Error> {
        match &self.path {
            Path::Runs(runs) => runs.run(rows, clocks, limits, state),
            Path::Cells(cells) => cells.run(rows, clocks, limits, state, merger),
            Path::Refused(what) => Err(Error::Refused(what.clone())),
        }
    }

    /// The state writes of the call that returned this delta are durable.
    pub fn apply(&mut self, delta: Delta) {
        match (&mut self.path, delta.0) {
            (Path::Runs(runs), Changes::Runs(changes)) => runs.apply(changes),
            (Path::Cells(cells), Changes::Cells(changes)) => cells.apply(changes),
            _ => unreachable!("a delta comes back to the grouping that made it"),
        }
    }

    /// Whether [`Grouping::run`] without rows would do something at these clocks.
    pub fn due(&self, clocks: Clocks) -> bool {
        match &self.path {
            Path::Runs(runs) => runs.due(clocks),
            Path::Cells(cells) => cells.due(clocks),
            Path::Refused(_) => false,
        }
    }

    /// The processing time in milliseconds from which [`Grouping::due`] holds because of a processing-time trigger.
    pub fn next_processing_ms(&self) -> Option<i64> {
        match &self.path {
            Path::Cells(cells) => cells.next_processing_ms(),
            Path::Runs(_) | Path::Refused(_) => None,
        }
    }

    /// The time that the stage's output watermark may reach but not pass: the least hold of all open panes and of event
    /// timers that are not yet fired. MAX if there is none.
    pub fn hold(&self) -> Timestamp {
        self.holder().map_or(Timestamp::MAX, |(hold, _)| hold)
    }

    /// The least hold and the last timestamp of a window that has it.
    pub fn holder(&self) -> Option<(Timestamp, Timestamp)> {
        match &self.path {
            Path::Runs(runs) => runs.holder(),
            Path::Cells(cells) => cells.holder(),
            Path::Refused(_) => None,
        }
    }

    /// Open windows, buffered rows and bytes.
    pub fn summary(&self) -> Summary {
        match &self.path {
            Path::Runs(runs) => runs.summary(),
            Path::Cells(cells) => cells.summary(),
            Path::Refused(_) => Summary::default(),
        }
    }
}
