//! The seam between the Job API and whatever executes jobs.
//!
//! The server knows jobs by these four traits and values only: it hands a [`Submission`] to a [`JobRunner`], hears of it through
//! an [`Observer`], and speaks to it through a [`RunningJob`]. Nothing here knows gRPC, and nothing behind it knows the Job API.
//!
//! ```text
//!  start ──► running() ──► finished(Done | Failed | Cancelled | Suspended)
//!     │                        ▲
//!     └── Err ── the job fails with that text
//! ```

use std::path::PathBuf;
use std::sync::Arc;

use ledger::JobLedger;
use model::metrics::{MetricName, MetricValue};
use model::{JobId, ShardId, StageId, Timestamp};
use plan::Plan;
use proto::pipeline::{ArtifactInformation, Pipeline};

/// Executes jobs.
pub trait JobRunner: Send + Sync {
    /// Starts a job and returns once it is under way or certain not to be. May block; is called on a thread of its own.
    /// `observer` may be used from any thread, also before this returns. An error ends the job as failed; then the observer
    /// must not be used any more. A panic does the same.
    fn start(&self, submission: Submission, observer: Arc<dyn Observer>) -> Result<Box<dyn RunningJob>, Error>;
}

/// Why a job could not be started. The text is shown to the user as it is.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
pub struct Error(pub String);

/// Everything that a runner needs to know of a job.
pub struct Submission {
    /// Unique for ever in one ledger.
    pub job: JobId,
    /// The user's name for it; not unique.
    pub name: String,
    /// What to run.
    pub plan: Plan,
    /// The pipeline as submitted.
    pub pipeline: Arc<Pipeline>,
    /// Pipeline options as submitted, to be passed to workers unchanged.
    pub options: prost_types::Struct,
    /// What the runner itself was asked for by options or by the server's configuration.
    pub settings: Settings,
    /// Artifacts per environment of the plan: the index is an [`model::EnvironmentId`]. As many entries as `plan.environments`.
    pub artifacts: Vec<Vec<Artifact>>,
    /// The job's own storage, registered already.
    pub ledger: Arc<dyn JobLedger>,
    /// Whether the job ran before in an earlier life of the server and goes on from what its ledger holds.
    pub resumed: bool,
}

/// A job's own choices, complete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Number of shards; fixed for the life of the job.
    pub shards: u32,
    /// How often a bundle that failed in user code is tried again before the job fails.
    pub retries: u32,
    /// Harness processes per environment; 0 lets the runner choose.
    pub harnesses: u32,
    /// `experiments` as submitted, each `name` or `name=value`.
    pub experiments: Vec<String>,
    /// Whether the user asked for streaming.
    pub streaming: bool,
}

/// An artifact as a worker is to see it, and where its bytes are.
#[derive(Clone, Debug, PartialEq)]
pub struct Artifact {
    /// Type `beam:artifact:type:file:v1` with the stored path and the sha256; role as the client gave it.
    pub information: ArtifactInformation,
    /// The stored file, under a name made of the digest, never of the client's text.
    pub path: PathBuf,
    /// Lower-case hexadecimal sha256 of the bytes.
    pub sha256: String,
}

/// Hears what becomes of a job. Calls return quickly, from any thread; order counts.
pub trait Observer: Send + Sync {
    /// Bundles may run from now on. Called at most once, before `finished`.
    fn running(&self);
    /// Something to tell the user. Failure is not told here but by [`End::Failed`].
    fn message(&self, importance: Importance, text: &str);
    /// The job is over, in one way, with its last figures; called exactly once and last. The runner holds nothing of it any more.
    fn finished(&self, end: End, metrics: Metrics, stages: Vec<StageStatus>);
}

/// How much a message matters (`JobMessage.MessageImportance`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Importance {
    /// For developers of the runner.
    Debug,
    /// For users who look closely.
    Detailed,
    /// For users.
    Basic,
    /// Look here first.
    Warning,
    /// The cause of a failure. Beam's clients show the last or the first of these.
    Error,
}

/// How a job ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// Everything was processed, or all that [`RunningJob::drain`] left.
    Done,
    /// With the cause, which for user code is the SDK's text verbatim. It becomes the ERROR message before the state changes.
    Failed(String),
    /// As asked by [`RunningJob::cancel`].
    Cancelled,
    /// As asked by [`RunningJob::suspend`]: not over, to be resumed from its ledger.
    Suspended,
}

/// A job under way. All calls return quickly and may come from any thread, also after the job finished.
pub trait RunningJob: Send + Sync {
    /// Stops without finishing work; ends with [`End::Cancelled`] within seconds. May be repeated.
    fn cancel(&self);
    /// Stops reading and finishes what was read; ends with [`End::Done`]. May be repeated, and has to be after a restart.
    fn drain(&self);
    /// Commits what runs and stops; ends with [`End::Suspended`]. May be repeated.
    fn suspend(&self);
    /// Metrics so far.
    fn metrics(&self) -> Metrics;
    /// One entry per stage of the plan, in order.
    fn status(&self) -> Vec<StageStatus>;
}

/// Metric values of a job, labelled with ids of the plan. A metric appears at most once per list.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Metrics {
    /// Over all attempts: committed, in flight and failed.
    pub attempted: Vec<(MetricName, MetricValue)>,
    /// Over committed bundles.
    pub committed: Vec<(MetricName, MetricValue)>,
}

/// One line of `purlin jobs describe`. Counts are over the life of the job in this process, all shards together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StageStatus {
    /// The stage.
    pub stage: StageId,
    /// Its name in the plan.
    pub name: String,
    /// Rows that its bundles consumed.
    pub rows_in: u64,
    /// Rows that its bundles produced.
    pub rows_out: u64,
    /// Rows that wait.
    pub backlog: u64,
    /// Least input watermark of all shards.
    pub input_watermark: Timestamp,
    /// Least output watermark of all shards.
    pub output_watermark: Timestamp,
    /// What keeps the output watermark of the slowest shard where it is; empty if nothing does.
    pub held_by: String,
    /// Which shard that is.
    pub slowest: ShardId,
    /// Since when it stands there, in milliseconds since the epoch.
    pub since_ms: i64,
    /// The shards on which the stage is held by itself and not just by another stage.
    pub holds: Vec<Hold>,
}

/// What holds a stage on a shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hold {
    /// The shard.
    pub shard: ShardId,
    /// Where its output watermark is.
    pub output_watermark: Timestamp,
    /// Since when, in milliseconds since the epoch.
    pub since_ms: i64,
    /// What keeps it there.
    pub held_by: String,
}
