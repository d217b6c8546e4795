//! A stage's body as a worker sees it: fused transforms between one source and some sinks.

use bytes::Bytes;
use model::{Coder, EnvironmentId, StageId, TransformId, WindowCoder};

/// A stage for one worker. Everything in it is fixed for the life of the job.
#[derive(Clone, Debug)]
pub struct StageSpec {
    /// Which stage.
    pub stage: StageId,
    /// For logs and messages; user transform names joined.
    pub name: String,
    /// Where it runs.
    pub environment: EnvironmentId,
    /// The fused transforms in topological order, for workers that run them themselves.
    pub transforms: Vec<TransformSpec>,
    /// A serialized `ProcessBundleDescriptor` with everything but its id and endpoints, for SDK harnesses.
    /// Empty for environments that do not need one.
    pub descriptor: Bytes,
    /// Where input enters.
    pub source: PortSpec,
    /// Where output leaves.
    pub sinks: Vec<SinkSpec>,
    /// (transform, timer family) pairs of the stage.
    pub timer_families: Vec<TimerFamily>,
    /// Whether the source feeds a splittable DoFn's process transform, so that a bundle can be split and can leave residuals.
    pub splittable: bool,
}

/// One fused transform.
#[derive(Clone, Debug)]
pub struct TransformSpec {
    /// Its id in the pipeline.
    pub id: TransformId,
    /// The user's name for it.
    pub name: String,
    /// For example `beam:transform:pardo:v1`.
    pub urn: String,
    /// For a ParDo: the URN of its DoFn.
    pub dofn_urn: String,
    /// For a ParDo: the payload of its DoFn.
    pub dofn_payload: Bytes,
    /// Where it runs. Components may share a stage, so this can differ from the stage's.
    pub environment: EnvironmentId,
    /// Main input collection. A Flatten of several collections appears once for each, with the same output.
    pub input: String,
    /// Output tag and collection, by tag.
    pub outputs: Vec<(String, String)>,
}

/// How elements of a collection look on the wire.
#[derive(Clone, Debug)]
pub struct PortSpec {
    /// The `beam:runner:source:v1` or `beam:runner:sink:v1` transform of the descriptor.
    pub transform: TransformId,
    /// The collection.
    pub collection: String,
    /// The wire coder of its elements.
    pub coder: Coder,
    /// The wire coder of its windows.
    pub window_coder: WindowCoder,
}

/// A collection that leaves the stage.
#[derive(Clone, Debug)]
pub struct SinkSpec {
    /// How it looks.
    pub port: PortSpec,
    /// Whom it is for. One collection may have many readers.
    pub deliveries: Vec<Delivery>,
}

/// One reader of a collection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// The stage that reads it; for side inputs the stage that writes it.
    pub stage: StageId,
    /// See `ledger::EntryHeader::input`.
    pub input: u32,
    /// How rows find their shard.
    pub routing: crate::Routing,
    /// Whether rows of different windows must not share an entry, because the reader waits per window.
    pub per_window: bool,
}

/// A family of timers of one transform.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimerFamily {
    /// The ParDo.
    pub transform: TransformId,
    /// The family's id.
    pub family: String,
    /// Event time, or else processing time.
    pub event_time: bool,
    /// The wire coder of the key.
    pub key_coder: Coder,
    /// The wire coder of windows.
    pub window_coder: WindowCoder,
}
