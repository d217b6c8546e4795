//! What planning produces. Descriptions only: the executor turns them into an engine topology and worker stages.

use bytes::Bytes;
use model::windowing::WindowingStrategy;
use model::{Batch, Coder, Duration, EnvironmentId, Keyed, StageId, Timestamp, TransformId, WindowCoder};

/// A pipeline cut into fused stages, in topological order (side inputs count as edges).
#[derive(Clone, Debug)]
pub struct Plan {
    /// Stages; a [`StageId`] is an index into this.
    pub stages: Vec<Stage>,
    /// Environments in use; an [`EnvironmentId`] is an index into this.
    pub environments: Vec<Environment>,
    /// TestStreams.
    pub scripts: Vec<Script>,
    /// How ids that planning made up map to ids of the submitted pipeline, for metrics and messages.
    pub origins: Origins,
}

/// Head, body, and where output goes.
#[derive(Clone, Debug)]
pub struct Stage {
    /// Its index.
    pub id: StageId,
    /// User transform names, joined, shortened.
    pub name: String,
    /// How input becomes ready.
    pub head: Head,
    /// Whose output is the main input. Index = `input` of entries. Empty only for a stage that never gets any.
    pub inputs: Vec<Input>,
    /// The wire form of the main input, as it arrives in entries (before grouping).
    pub input_coder: Coder,
    /// The windows of the main input.
    pub input_windows: WindowCoder,
    /// Side inputs of all transforms in the body.
    pub side_inputs: Vec<SideInput>,
    /// For a grouping whose windows merge as only an SDK knows: whom to ask.
    pub merging: Option<WindowMerging>,
    /// For restrictions: what cuts them short when the job is drained (`beam:transform:sdf_truncate_sized_restrictions:v1`), from
    /// elements as they arrive to such elements, perhaps none. None where the SDK has no such transform.
    pub truncation: Option<Aside>,
    /// What runs in a worker. None: what the head produces goes straight to the only sink.
    pub body: Option<Body>,
    /// Collections that leave the stage. Order = order of sinks in the body.
    pub sinks: Vec<Sink>,
}

/// How a stage's input becomes ready for its body.
#[derive(Clone, Debug, PartialEq)]
pub enum Head {
    /// As it comes. Side inputs, if the stage has any, gate it per window.
    Plain,
    /// Grouped by key and window; the body sees `KV<K, Iterable<V>>` panes.
    Grouping(Box<WindowingStrategy>),
    /// Restrictions of a splittable DoFn: rows can be split, delayed and returned.
    Restrictions {
        /// Whether the DoFn may produce without end.
        unbounded: bool,
    },
    /// By key, with user state, timers or sorted input; the body's first transform is the one that asks for it.
    Keyed(Box<Keyed>),
    /// One output of a TestStream, which has no body.
    Script,
}

/// One source of a stage's main input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// One empty element at the beginning of time, once per job.
    Impulse,
    /// An output of a TestStream; the only input of its stage.
    Script {
        /// Index into [`Plan::scripts`].
        script: u32,
        /// Index into [`Script::outputs`].
        output: u32,
    },
    /// A sink of another stage.
    Stage {
        /// The producing stage.
        stage: StageId,
        /// Whether only the same shard's output arrives here.
        local: bool,
    },
}

/// A side input of a transform in the body.
#[derive(Clone, Debug)]
pub struct SideInput {
    /// The transform that reads it.
    pub transform: TransformId,
    /// Its tag there.
    pub tag: String,
    /// `beam:side_input:iterable:v1` or `..multimap:v1`.
    pub access_pattern: String,
    /// The collection.
    pub collection: String,
    /// (Stage, sink) pairs that produce it; several when a Flatten is in between.
    pub producers: Vec<(StageId, u32)>,
    /// Wire coder of its elements.
    pub coder: Coder,
    /// Its own windowing.
    pub windowing: WindowingStrategy,
    /// How a main input window finds its window here.
    pub mapping: WindowMapping,
}

/// How a main input window finds its side input window, as far as readiness needs to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WindowMapping {
    /// The side input is in the global window.
    ToGlobal,
    /// Through the side window that contains the last timestamp of the main window.
    ByEnd,
    /// Only the SDK knows.
    Custom(Bytes),
}

/// A body that is asked on the side while a stage's bundle is put together. Nothing is fed to it but by who asks, and nobody
/// else reads what comes out.
#[derive(Clone, Debug)]
pub struct Aside {
    /// What is to be run.
    pub body: Body,
    /// Where the answer comes out.
    pub sink: Sink,
}

/// A transform that says which windows of a key merge (`beam:transform:merge_windows:v1`), in the global window: in goes
/// `KV<bytes, Iterable<W>>` with any bytes and all windows of a key, out comes
/// `KV<bytes, KV<Iterable<W>, Iterable<KV<W, Iterable<W>>>>>` with the same bytes, the windows that stay, and each new window
/// with those that it takes the place of.
#[derive(Clone, Debug)]
pub struct WindowMerging {
    /// Whom to ask.
    pub aside: Aside,
    /// The wire coder of W.
    pub window: Coder,
}

/// Fused transforms for one worker.
#[derive(Clone, Debug)]
pub struct Body {
    /// Where they run.
    pub environment: EnvironmentId,
    /// A serialized `ProcessBundleDescriptor` without id and endpoints.
    pub descriptor: Bytes,
    /// The transforms in topological order.
    pub transforms: Vec<Transform>,
    /// The descriptor's source transform.
    pub source: TransformId,
    /// The source's collection.
    pub source_collection: String,
    /// Wire coder of what the head hands over.
    pub source_coder: Coder,
    /// Wire coder of its windows.
    pub source_windows: WindowCoder,
    /// Timer families.
    pub timer_families: Vec<TimerFamily>,
    /// User states; all of one transform.
    pub states: Vec<UserState>,
}

/// One fused transform.
#[derive(Clone, Debug, PartialEq)]
pub struct Transform {
    /// Its id in the (lowered) pipeline.
    pub id: TransformId,
    /// The user's name.
    pub name: String,
    /// Where it runs: the body's environment, or another WebAssembly component that shares the stage with it.
    pub environment: EnvironmentId,
    /// Its URN. A Flatten here has one input: it hands on what it is given, in an SDK perhaps with another coder.
    pub urn: String,
    /// For a ParDo, the URN of the DoFn.
    pub dofn_urn: String,
    /// For a ParDo, the payload of the DoFn.
    pub dofn_payload: Bytes,
    /// Main input collection.
    pub input: String,
    /// Output tag and collection.
    pub outputs: Vec<(String, String)>,
}

/// A timer family of a transform in the body.
#[derive(Clone, Debug, PartialEq)]
pub struct TimerFamily {
    /// The transform.
    pub transform: TransformId,
    /// The family.
    pub family: String,
    /// Event time, or else processing time.
    pub event_time: bool,
    /// Wire coder of keys.
    pub key_coder: Coder,
    /// Wire coder of windows.
    pub window_coder: WindowCoder,
}

/// A user state of a transform in the body.
#[derive(Clone, Debug, PartialEq)]
pub struct UserState {
    /// The transform.
    pub transform: TransformId,
    /// The state's id there.
    pub state: String,
    /// How it is read and written.
    pub kind: StateKind,
}

/// How an SDK reads and writes a state. Coders are wire coders; none: only the SDK can delimit its elements.
#[derive(Clone, Debug, PartialEq)]
pub enum StateKind {
    /// A list that is appended to, read and cleared as a whole; also single values and accumulators.
    Bag {
        /// Of its elements.
        element: Option<Coder>,
    },
    /// Such a list per key of a map.
    Multimap {
        /// Of the values.
        value: Option<Coder>,
    },
    /// Entries of a sort key and a length-prefixed value.
    OrderedList,
}

/// A collection that leaves a stage.
#[derive(Clone, Debug)]
pub struct Sink {
    /// The descriptor's sink transform; made up when there is no body.
    pub transform: TransformId,
    /// The collection.
    pub collection: String,
    /// Wire coder of its elements.
    pub coder: Coder,
    /// Wire coder of its windows.
    pub windows: WindowCoder,
    /// Who reads it.
    pub readers: Vec<Reader>,
}

/// One reader of a sink.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reader {
    /// The main input of a stage.
    Main {
        /// The stage.
        stage: StageId,
        /// Index into its `inputs`.
        input: u32,
        /// How rows find their shard.
        routing: Routing,
    },
    /// Side inputs of any number of stages. At most one per sink.
    Side,
}

/// How rows find the shard that reads them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Routing {
    /// They stay where they were made.
    Local,
    /// By the hash of the encoded key.
    ByKey,
    /// Evenly.
    RoundRobin,
}

/// An environment as submitted, after a choice among alternatives.
#[derive(Clone, Debug, PartialEq)]
pub struct Environment {
    /// Its id in the pipeline.
    pub id: String,
    /// Its URN.
    pub urn: String,
    /// Its payload.
    pub payload: Bytes,
    /// The serialized `Environment` message without display data.
    pub serialized: Bytes,
    /// What its SDK says it can do.
    pub capabilities: Vec<String>,
}

/// Where made-up ids come from.
#[derive(Clone, Debug, Default)]
pub struct Origins {
    /// Made-up transform id to submitted transform id.
    pub transforms: std::collections::BTreeMap<String, String>,
    /// Submitted transform id to the user's name.
    pub names: std::collections::BTreeMap<String, String>,
    /// Made-up collection ids, which are not reported.
    pub collections: std::collections::BTreeSet<String>,
}

/// A TestStream: what happens, in order, each step when nothing else can happen any more.
#[derive(Clone, Debug)]
pub struct Script {
    /// The user's name of the transform.
    pub name: String,
    /// Its outputs' tags, each a stage of its own.
    pub outputs: Vec<String>,
    /// What happens. After the last event all outputs are complete.
    pub events: Vec<ScriptEvent>,
}

/// A step of a [`Script`]. Outputs are indices into [`Script::outputs`].
#[derive(Clone, Debug)]
pub enum ScriptEvent {
    /// Elements arrive, as one bundle, in the wire coder of the output's stage.
    Elements {
        /// Where.
        output: u32,
        /// What.
        batch: Batch,
    },
    /// The watermark of an output moves.
    Watermark {
        /// Of which.
        output: u32,
        /// Whereto.
        watermark: Timestamp,
    },
    /// Processing time passes.
    ProcessingTime(Duration),
}
