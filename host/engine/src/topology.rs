//! What the engine knows of a plan: the shape of stages, not what they do.

use model::windowing::WindowingStrategy;
use model::{Coder, Duration, Keyed, ShardId, StageId, WindowCoder};

/// All stages of a job, seen from one shard.
#[derive(Clone, Debug)]
pub struct Topology {
    /// Shards of the job.
    pub shards: u32,
    /// The shard this engine is.
    pub shard: ShardId,
    /// Stages in topological order; a [`StageId`] is an index into this.
    pub stages: Vec<StageShape>,
}

/// One stage.
#[derive(Clone, Debug)]
pub struct StageShape {
    /// For reports.
    pub name: String,
    /// How input becomes ready.
    pub head: Head,
    /// Producers of the main input. A stage without any has its input watermark at MAX; initial entries may still be there.
    pub inputs: Vec<Upstream>,
    /// Names of a keyed stage's timer families, for reports.
    pub timer_names: Vec<String>,
    /// Side inputs whose readiness gates the main input per window.
    pub gates: Vec<SideGate>,
    /// Wire coder of rows in entries.
    pub input_coder: Coder,
    /// Wire coder of their windows.
    pub window_coder: WindowCoder,
}

/// How a stage's input becomes ready.
#[derive(Clone, Debug, PartialEq)]
pub enum Head {
    /// As it comes.
    Plain,
    /// Grouped by key and window.
    Grouping(Box<WindowingStrategy>),
    /// Restrictions of a splittable DoFn.
    Restrictions {
        /// Whether they may produce without end.
        unbounded: bool,
    },
    /// By key, with user state, timers or sorted input.
    Keyed(Box<Keyed>),
    /// Entries and watermarks come from a script of the executor: see [`crate::Engine::script_watermark`].
    Script,
}

/// A producer of a stage's main input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Upstream {
    /// The producing stage.
    pub stage: StageId,
    /// Whether only its output on the same shard arrives here.
    pub local: bool,
}

/// A side input as far as readiness needs to know.
#[derive(Clone, Debug, PartialEq)]
pub struct SideGate {
    /// For reports: the transform and tag.
    pub name: String,
    /// Stages that produce the collection, on all shards.
    pub producers: Vec<StageId>,
    /// How the last timestamp of a main window leads to the time that the side watermark must pass.
    pub mapping: GateMapping,
}

/// See [`SideGate::mapping`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GateMapping {
    /// The side input is in the global window: it must be complete.
    Global,
    /// The end of the fixed window that contains the time.
    Fixed {
        /// Length of windows.
        size: Duration,
        /// Start of one of them.
        offset: Duration,
    },
    /// The end of the last sliding window that contains the time.
    Sliding {
        /// Length of windows.
        size: Duration,
        /// Distance between starts.
        period: Duration,
        /// Start of one of them.
        offset: Duration,
    },
    /// The time itself: same windows on both sides, or a mapping that only the SDK knows.
    Same,
}
