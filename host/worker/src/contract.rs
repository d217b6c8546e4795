//! What a worker must do with a bundle.
//!
//! ```text
//!  open(stage) -> Slot     once per shard and stage
//!  slot.start(bundle)      input, due timers, state access and an output collector go in;
//!                          exactly one Outcome or Error comes out of `done`, perhaps before `start` returns
//!  slot.split / abort      while it runs
//!  slot.finalize           after the bundle's results are durable, if it asked
//!  worker.settle           before others hear that the job has ended: user code has heard of the commits
//! ```
//!
//! A bundle's results are invisible until the executor commits them. A bundle that failed or was aborted has no effect.
//! One slot runs one bundle at a time; slots of different shards and stages run side by side.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use model::metrics::{MetricName, MetricValue};
use model::{Batch, BundleId, ShardId, Timestamp, TransformId};
pub use model::{FiredTimer, TimerChange};

use crate::{Output, Outputs, StageSpec, StateAccess};

/// Work for one slot.
pub struct Bundle {
    /// Unique per shard for the life of the job's run in this process.
    pub id: BundleId,
    /// The shard it belongs to.
    pub shard: ShardId,
    /// Input rows, in order. May be empty when there are timers.
    pub input: Vec<Batch>,
    /// Timers that are due. A bundle has input or timers for one key, never both.
    pub timers: Vec<FiredTimer>,
    /// User state and side inputs.
    pub state: Arc<dyn StateAccess>,
    /// Processing time when the bundle started, in milliseconds since the epoch, by the clock that timers fire by.
    pub now_ms: i64,
    /// Takes the output.
    pub outputs: Outputs,
    /// Takes the result.
    pub done: Completion,
}

/// Called exactly once per bundle, from any thread.
pub type Completion = Box<dyn FnOnce(BundleId, Result<Outcome, Error>) + Send>;

/// Work that a splittable DoFn left undone: one row for the same stage.
#[derive(Clone, Debug)]
pub struct Residual {
    /// One row: the element with its restriction.
    pub batch: Batch,
    /// Least timestamp that it will still produce; MIN when the SDK does not say.
    pub hold: Timestamp,
    /// Least wait before it is processed, in milliseconds.
    pub delay_ms: i64,
    /// Whether it never ends by itself.
    pub unbounded: bool,
}

/// A bundle that succeeded.
#[derive(Debug, Default)]
pub struct Outcome {
    /// What was collected by [`Outputs`].
    pub outputs: Vec<Output>,
    /// Input rows that were not processed, because of a split: they stay pending. Counted over the whole input.
    pub unprocessed: Vec<Range<usize>>,
    /// Restrictions to continue later.
    pub residuals: Vec<Residual>,
    /// Timers set and cleared, in order.
    pub timers: Vec<TimerChange>,
    /// Final metric values of this bundle, labelled with pipeline ids.
    pub metrics: Vec<(MetricName, MetricValue)>,
    /// Whether [`Slot::finalize`] is to be called after the commit.
    pub finalize: bool,
}

/// Why a bundle failed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// User code raised or trapped. The text is the SDK's, verbatim.
    #[error("{message}")]
    User {
        /// The transform, if it is known.
        transform: Option<TransformId>,
        /// The SDK's text with its trace.
        message: String,
    },
    /// The worker is gone or does not answer; the bundle may be run elsewhere.
    #[error("{0}")]
    Infrastructure(String),
    /// The worker answered what it must not: somebody's bug, not the user's.
    #[error("{0}")]
    Protocol(String),
    /// The bundle was aborted as asked.
    #[error("aborted")]
    Aborted,
}

/// How far a running bundle is.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Progress {
    /// Index of the input row that is being processed; none before the first.
    pub row: Option<u64>,
    /// Metric values so far; they replace those of earlier reports of the same bundle.
    pub metrics: Vec<(MetricName, MetricValue)>,
    /// Who has it, in words for people; none when that is the shard's own thread.
    pub worker: Option<String>,
    /// Milliseconds since the worker was last heard of.
    pub silent_ms: u64,
}

/// Runs the stages of one environment.
pub trait Worker: Send + Sync {
    /// Prepares a stage for one shard. Slow work (starting a harness, compiling) happens here or at the first bundle. The slot
    /// does not need the worker's handle: it works on until it is dropped or the worker is closed. A worker of which neither a
    /// handle nor a slot is left is closed by that.
    fn open(&self, stage: Arc<StageSpec>, shard: ShardId) -> Result<Box<dyn Slot>, Error>;
    /// Waits until user code has answered everything that [`Slot::finalize`] told it, of whatever slot, or can answer no more,
    /// but no longer than `patience`. Returns who has not answered, by names for messages: nobody, if all have.
    fn settle(&self, patience: Duration) -> Vec<String>;
    /// Gives up everything. Bundles that still run, or that a slot starts later, complete with [`Error::Aborted`] or an
    /// infrastructure error.
    fn close(&self);
}

/// Runs bundles of one stage for one shard, one at a time.
pub trait Slot: Send {
    /// Starts a bundle. `bundle.done` is called exactly once; a synchronous worker calls it before returning.
    fn start(&mut self, bundle: Bundle);
    /// Asks the running bundle to keep only `fraction` of what remains; 0 means: stop as soon as possible.
    /// What it gave up shows in its outcome. Does nothing when the bundle is over or cannot be split.
    fn split(&mut self, bundle: BundleId, fraction: f64);
    /// The latest progress of the running bundle that the worker knows of. Never blocks.
    fn progress(&mut self, bundle: BundleId) -> Option<Progress>;
    /// Ends the running bundle without effect; it completes with [`Error::Aborted`] soon.
    fn abort(&mut self, bundle: BundleId);
    /// Tells the user code that a bundle's results are durable. Best effort; at most once per bundle, and nothing happens where
    /// the bundle did not ask. Does not wait for an answer: see [`Worker::settle`].
    fn finalize(&mut self, bundle: BundleId);
}
