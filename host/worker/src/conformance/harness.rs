//! Stages for the suite's cases, and running one bundle to its end.

use std::sync::{Arc, mpsc};
use std::time::Duration;

use bytes::Bytes;
use model::batch::Row;
use model::metrics::MetricValue;
use model::window::IntervalWindow;
use model::{
    Batch, BatchBuilder, BundleId, Coder, EnvironmentId, ShardId, StageId, Timestamp, TransformId, WindowCoder, pane, urn, window,
};

use super::behaviour::{Behaviour, MAIN_TAG, element};
use crate::outputs::{OutputOptions, Target};
use crate::{
    Bundle, Delivery, Error, FiredTimer, Outcome, Outputs, Page, PortSpec, Routing, SinkSpec, Slot, StageSpec, StateAccess,
    StateKey, TimerFamily, TransformSpec, Worker,
};

/// A worker under test.
pub trait Subject {
    /// A new worker.
    fn worker(&self) -> Arc<dyn Worker>;
    /// Its DoFn of a behaviour.
    fn dofn(&self, behaviour: Behaviour) -> Dofn;
    /// Completes a stage, for example with a descriptor, for workers that need more than the transforms.
    fn prepare(&self, stage: StageSpec) -> StageSpec {
        stage
    }
}

/// A DoFn as a stage names it.
#[derive(Clone, Debug)]
pub struct Dofn {
    /// Where it runs.
    pub environment: EnvironmentId,
    /// URN of the DoFn.
    pub urn: String,
    /// Its payload.
    pub payload: Bytes,
}

/// The environment of the suite's stages.
pub const ENVIRONMENT: EnvironmentId = EnvironmentId(0);

/// A bundle that takes longer has hung. Long, for busy machines.
pub(super) const BUNDLE_TIMEOUT: Duration = Duration::from_secs(120);

/// Collects a stage. Collections are named freely; `in` is the source.
pub(super) struct StageBuilder<'a> {
    subject: &'a dyn Subject,
    stage: StageId,
    transforms: Vec<TransformSpec>,
    sinks: Vec<String>,
    windows: WindowCoder,
    families: Vec<TimerFamily>,
    /// How elements of the source look.
    input: Coder,
}

impl<'a> StageBuilder<'a> {
    pub(super) fn new(subject: &'a dyn Subject) -> Self {
        let (transforms, sinks, families) = (Vec::new(), Vec::new(), Vec::new());
        let (windows, input) = (WindowCoder::Interval, Coder::Bytes);
        StageBuilder { subject, stage: StageId(0), transforms, sinks, windows, families, input }
    }

    /// The source has pairs: see [`keyed_batch`].
    pub(super) fn keyed(mut self) -> Self {
        self.input = Coder::Kv(Box::new(Coder::Bytes), Box::new(Coder::Bytes));
        self
    }

    /// Stages of one worker have different ids.
    pub(super) fn id(mut self, stage: u32) -> Self {
        self.stage = StageId(stage);
        self
    }

    /// Everything is in the global window: see [`global_batch`].
    pub(super) fn global(mut self) -> Self {
        self.windows = WindowCoder::Global;
        self
    }

    pub(super) fn par_do(self, behaviour: Behaviour, input: &str, output: &str) -> Self {
        self.par_do_tagged(behaviour, input, &[(MAIN_TAG, output)])
    }

    pub(super) fn par_do_tagged(mut self, behaviour: Behaviour, input: &str, outputs: &[(&str, &str)]) -> Self {
        let dofn = self.subject.dofn(behaviour);
        let name = format!("{behaviour:?} of {input}");
        self.transforms.push(TransformSpec {
            id: TransformId::from(&name),
            name,
            urn: urn::PAR_DO.to_owned(),
            dofn_urn: dofn.urn,
            dofn_payload: dofn.payload,
            environment: dofn.environment,
            input: input.to_owned(),
            outputs: outputs.iter().map(|(tag, collection)| (tag.to_string(), collection.to_string())).collect(),
        });
        self
    }

    /// A family of event-time timers of the latest transform.
    pub(super) fn timers(mut self, family: &str) -> Self {
        let transform = self.transforms.last().expect("timers follow their transform").id.clone();
        let (family, window_coder) = (family.to_owned(), self.windows);
        self.families.push(TimerFamily { transform, family, event_time: true, key_coder: Coder::Bytes, window_coder });
        self
    }

    pub(super) fn flatten(mut self, inputs: &[&str], output: &str) -> Self {
        let flatten = |input: &&str| TransformSpec {
            id: TransformId::from(format!("Flatten into {output}")),
            name: "Flatten".to_owned(),
            urn: urn::FLATTEN.to_owned(),
            dofn_urn: String::new(),
            dofn_payload: Bytes::new(),
            environment: ENVIRONMENT,
            input: input.to_string(),
            outputs: vec![("out".to_owned(), output.to_owned())],
        };
        self.transforms.extend(inputs.iter().map(flatten));
        self
    }

    pub(super) fn sink(mut self, collection: &str) -> Self {
        self.sinks.push(collection.to_owned());
        self
    }

    pub(super) fn build(self) -> Arc<StageSpec> {
        let port = |transform: String, collection: &str, coder: &Coder| PortSpec {
            transform: TransformId::from(transform),
            collection: collection.to_owned(),
            coder: coder.clone(),
            window_coder: self.windows,
        };
        let deliveries = |index| vec![Delivery { stage: StageId(1), input: index, routing: Routing::Local, per_window: false }];
        let sinks = self.sinks.iter().zip(0..).map(|(collection, index)| SinkSpec {
            port: port(format!("sink of {collection}"), collection, &Coder::Bytes),
            deliveries: deliveries(index),
        });
        Arc::new(self.subject.prepare(StageSpec {
            stage: self.stage,
            name: "conformance".to_owned(),
            environment: ENVIRONMENT,
            sinks: sinks.collect(),
            transforms: self.transforms,
            descriptor: Bytes::new(),
            source: port("source".to_owned(), "in", &self.input),
            timer_families: self.families,
            splittable: false,
        }))
    }
}

/// A stage of one transform from `in` to `out`.
pub(super) fn single(subject: &dyn Subject, behaviour: Behaviour) -> Arc<StageSpec> {
    StageBuilder::new(subject).par_do(behaviour, "in", "out").sink("out").build()
}

/// Rows with these contents, of different times, windows and panes.
pub(super) fn batch(contents: &[&[u8]]) -> Batch {
    rows(contents.iter().map(|content| element(content)))
}

/// As [`batch`], with pairs: the key is the second byte of what is given, the value all other bytes.
pub(super) fn keyed_batch(contents: &[&[u8]]) -> Batch {
    let pair = |content: &&[u8]| [element(&content[1..2]), element(&[&content[..1], &content[2..]].concat())].concat();
    rows(contents.iter().map(pair))
}

fn rows(values: impl Iterator<Item = Vec<u8>>) -> Batch {
    let mut builder = BatchBuilder::new();
    for (number, value) in values.enumerate() {
        let number = number as i64;
        let mut bytes = Vec::new();
        let start = number / 3 * 10;
        IntervalWindow { start: Timestamp::from_millis(start), end: Timestamp::from_millis(start + 10) }.encode(&mut bytes);
        let on_time = pane::PaneInfo { timing: pane::Timing::OnTime, ..pane::PaneInfo::NO_FIRING };
        let mut pane_bytes = Vec::new();
        if number % 2 == 0 { pane::PaneInfo::NO_FIRING } else { on_time }.encode(&mut pane_bytes);
        builder.push(Row {
            value: &value,
            timestamp: Timestamp::from_millis(start + number % 3),
            windows: &window::single(&bytes),
            pane: &pane_bytes,
        });
    }
    builder.finish()
}

/// Rows with these contents in the global window.
pub(super) fn global_batch(contents: &[&[u8]]) -> Batch {
    let mut builder = BatchBuilder::new();
    for content in contents {
        let timestamp = Timestamp::from_millis(0);
        builder.push(Row { value: &element(content), timestamp, windows: window::GLOBAL_SET, pane: pane::NO_FIRING });
    }
    builder.finish()
}

/// Runs one bundle and waits for its completion.
pub(super) fn run(slot: &mut dyn Slot, stage: &StageSpec, id: u64, input: Vec<Batch>) -> Result<Outcome, Error> {
    complete(start(slot, stage, id, input))
}

/// Runs one bundle of rows or timers on some state.
pub(super) fn run_keyed(
    slot: &mut dyn Slot,
    stage: &StageSpec,
    (input, timers): (Vec<Batch>, Vec<FiredTimer>),
    state: &Arc<dyn StateAccess>,
) -> Result<Outcome, Error> {
    complete(start_keyed(slot, stage, 0, (input, timers), state.clone()))
}

fn complete(completed: mpsc::Receiver<Result<Outcome, Error>>) -> Result<Outcome, Error> {
    let result = completed.recv_timeout(BUNDLE_TIMEOUT).expect("a bundle completes");
    assert!(completed.recv_timeout(BUNDLE_TIMEOUT).is_err(), "a bundle completes once");
    result
}

/// Starts one bundle; what comes out of the channel is its completion.
pub(super) fn start(
    slot: &mut dyn Slot,
    stage: &StageSpec,
    id: u64,
    input: Vec<Batch>,
) -> mpsc::Receiver<Result<Outcome, Error>> {
    start_keyed(slot, stage, id, (input, Vec::new()), Arc::new(NoState))
}

fn start_keyed(
    slot: &mut dyn Slot,
    stage: &StageSpec,
    id: u64,
    (input, timers): (Vec<Batch>, Vec<FiredTimer>),
    state: Arc<dyn StateAccess>,
) -> mpsc::Receiver<Result<Outcome, Error>> {
    let (sender, receiver) = mpsc::channel();
    let stager: crate::outputs::Stager = Arc::new(|batch| Ok(Box::new(batch)));
    let outputs = Outputs::new(stage, OutputOptions { shards: 1, shard: ShardId(0), first: 0, stager });
    let done = move |bundle: BundleId, result| {
        assert_eq!(bundle, BundleId(id), "a completion names its bundle");
        sender.send(result).expect("the case waits for the completion");
    };
    let (id, shard, done) = (BundleId(id), ShardId(0), Box::new(done));
    slot.start(Bundle { id, shard, input, timers, state, now_ms: 0, outputs, done });
    receiver
}

/// The contents of all rows that reached the sink with this index, in order.
pub(super) fn contents(outcome: &Outcome, sink: u32) -> Vec<Vec<u8>> {
    batches(outcome, sink)
        .iter()
        .flat_map(|batch| batch.iter().map(|row| super::behaviour::content(row).to_vec()).collect::<Vec<_>>())
        .collect()
}

/// The batches that reached the sink with this index, in order.
pub(super) fn batches(outcome: &Outcome, sink: u32) -> Vec<&Batch> {
    let reached = outcome.outputs.iter().filter(|output| output.input == sink);
    reached
        .map(|output| {
            assert_eq!(output.target, Target::Shard(ShardId(0)));
            output.payload.downcast_ref().expect("the suite stages batches as they are")
        })
        .collect()
}

/// The value of a metric whose URN and one label are these.
pub(super) fn metric<'a>(outcome: &'a Outcome, urn: &str, label: (&str, &str)) -> Option<&'a MetricValue> {
    let wanted = |labels: &std::collections::BTreeMap<String, String>| labels.get(label.0).is_some_and(|value| value == label.1);
    outcome.metrics.iter().find(|(name, _)| name.urn == urn && wanted(&name.labels)).map(|(_, value)| value)
}

/// The suite's bundles have no state.
struct NoState;

fn no_state<T>() -> Result<T, Error> {
    Err(Error::Protocol("a stateless DoFn asked for state".to_owned()))
}

impl StateAccess for NoState {
    fn get(&self, _key: &StateKey, _from: Option<&Bytes>) -> Result<Page, Error> {
        no_state()
    }

    fn append(&self, _key: &StateKey, _data: Bytes) -> Result<(), Error> {
        no_state()
    }

    fn clear(&self, _key: &StateKey) -> Result<(), Error> {
        no_state()
    }
}
