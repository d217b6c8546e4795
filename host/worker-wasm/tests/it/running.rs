//! Runs one transform of a component over elements.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock};

use bytes::Bytes;
use model::batch::Row;
use model::metrics::{MetricName, MetricValue};
use model::{
    Batch, BatchBuilder, BundleId, Coder, EnvironmentId, FiredTimer, ShardId, StageId, Timestamp, TransformId, WindowCoder, pane,
    urn, window,
};
use worker::outputs::OutputOptions;
use worker::{
    Bundle, Delivery, Error, Outcome, Outputs, Page, PortSpec, Routing, SinkSpec, Slot, StageSpec, StateAccess, StateKey,
    TransformSpec,
};
use worker_wasm::payload::DofnPayload;
use worker_wasm::{Component, LogLevel, Options, WasmEngine};

use crate::guests::guest;

/// The engine with default options and the test guest, shared by all tests.
pub(crate) fn test_guest() -> (&'static WasmEngine, Arc<Component>) {
    static ENGINE: OnceLock<WasmEngine> = OnceLock::new();
    static COMPONENT: OnceLock<Arc<Component>> = OnceLock::new();
    let engine = ENGINE.get_or_init(|| WasmEngine::new(Options::default()).expect("the engine is made"));
    (engine, COMPONENT.get_or_init(|| engine.component(&guest("test-guest")).expect("the test guest is a component")).clone())
}

/// A slot for one transform, and what it needs.
pub(crate) struct Fixture {
    pub(crate) stage: Arc<StageSpec>,
    pub(crate) slot: Box<dyn Slot>,
    pub(crate) logs: Arc<Mutex<Vec<(LogLevel, String)>>>,
}

/// A transform to run: name in the component, configuration, coders, tags of the outputs that the stage delivers.
pub(crate) struct Transform<'a> {
    pub(crate) name: &'a str,
    pub(crate) config: &'a [u8],
    pub(crate) input: Coder,
    pub(crate) outputs: &'a [(&'a str, Coder)],
}

impl Transform<'_> {
    pub(crate) fn stage(&self) -> StageSpec {
        let port = |transform: &str, collection: &str, coder: &Coder| PortSpec {
            transform: TransformId::from(transform),
            collection: collection.to_owned(),
            coder: coder.clone(),
            window_coder: WindowCoder::Global,
        };
        let deliveries = |input| vec![Delivery { stage: StageId(1), input, routing: Routing::Local, per_window: false }];
        let payload = DofnPayload { name: self.name.to_owned(), config: self.config.to_vec() };
        StageSpec {
            stage: StageId(0),
            name: self.name.to_owned(),
            environment: EnvironmentId(0),
            transforms: vec![TransformSpec {
                id: TransformId::from("t1"),
                name: "My step".to_owned(),
                urn: urn::PAR_DO.to_owned(),
                dofn_urn: urn::DOFN_WASM.to_owned(),
                dofn_payload: payload.encode().into(),
                environment: EnvironmentId(0),
                input: "in".to_owned(),
                outputs: self.outputs.iter().map(|(tag, _)| (tag.to_string(), tag.to_string())).collect(),
            }],
            descriptor: Bytes::new(),
            source: port("source", "in", &self.input),
            sinks: self
                .outputs
                .iter()
                .zip(0..)
                .map(|((tag, coder), index)| SinkSpec { port: port("sink", tag, coder), deliveries: deliveries(index) })
                .collect(),
            timer_families: Vec::new(),
            splittable: false,
        }
    }

    pub(crate) fn open_in(&self, engine: &WasmEngine, component: Arc<Component>) -> Result<Fixture, Error> {
        self.open_stage(engine, component, self.stage())
    }

    pub(crate) fn open_stage(&self, engine: &WasmEngine, component: Arc<Component>, stage: StageSpec) -> Result<Fixture, Error> {
        let logs: Arc<Mutex<Vec<(LogLevel, String)>>> = Arc::default();
        let sink = logs.clone();
        let log = move |entry: &worker_wasm::LogEntry<'_>| {
            sink.lock().expect("no test panics while it logs").push((entry.level, entry.message.to_owned()))
        };
        let worker = engine.worker_logging_to(BTreeMap::from([(EnvironmentId(0), component)]), Arc::new(log));
        let stage = Arc::new(stage);
        Ok(Fixture { slot: worker.open(stage.clone(), ShardId(0))?, stage, logs })
    }

    pub(crate) fn open(&self) -> Fixture {
        let (engine, component) = test_guest();
        self.open_in(engine, component).expect("the stage opens")
    }
}

impl Fixture {
    pub(crate) fn run(&mut self, input: Vec<Batch>) -> Result<Outcome, Error> {
        self.run_keyed(input, Vec::new(), Arc::new(NoState))
    }

    /// One bundle of rows or timers on some state. Its clock stands at one second.
    pub(crate) fn run_keyed(
        &mut self,
        input: Vec<Batch>,
        timers: Vec<FiredTimer>,
        state: Arc<dyn StateAccess>,
    ) -> Result<Outcome, Error> {
        let result = Arc::new(Mutex::new(None));
        let done = result.clone();
        let stager: worker::outputs::Stager = Arc::new(|batch| Ok(Box::new(batch)));
        let options = OutputOptions { shards: 1, shard: ShardId(0), first: 0, stager };
        self.slot.start(Bundle {
            id: BundleId(0),
            shard: ShardId(0),
            input,
            timers,
            state,
            now_ms: 1_000,
            outputs: Outputs::new(&self.stage, options),
            done: Box::new(move |_, outcome| *done.lock().expect("it is locked for a moment") = Some(outcome)),
        });
        let result = result.lock().expect("it is locked for a moment").take();
        result.expect("a synchronous worker completes before it returns")
    }

    /// Runs one batch that must succeed.
    pub(crate) fn ok(&mut self, input: Batch) -> Outcome {
        self.run(vec![input]).expect("the bundle succeeds")
    }

    /// Runs one batch that must fail in user code; the message.
    pub(crate) fn fails(&mut self, input: Batch) -> String {
        match self.run(vec![input]) {
            Err(Error::User { transform, message }) => {
                assert_eq!(transform, Some(TransformId::from("t1")), "{message}");
                message
            }
            other => panic!("expected an error of user code, got {other:?}"),
        }
    }
}

/// Encoded values in the global window at time 0.
pub(crate) fn batch(values: impl IntoIterator<Item = Vec<u8>>) -> Batch {
    let mut builder = BatchBuilder::new();
    for value in values {
        let timestamp = Timestamp::from_millis(0);
        builder.push(Row { value: &value, timestamp, windows: window::GLOBAL_SET, pane: pane::NO_FIRING });
    }
    builder.finish()
}

pub(crate) fn text(text: &str) -> Vec<u8> {
    let mut value = Vec::new();
    model::reader::put_length_prefixed(&mut value, text.as_bytes());
    value
}

pub(crate) fn int(number: i64) -> Vec<u8> {
    let mut value = Vec::new();
    model::reader::put_varint(&mut value, number as u64);
    value
}

/// All values of a sink, one after another, in order.
pub(crate) fn values(outcome: &Outcome, sink: u32) -> Vec<Vec<u8>> {
    let batches = outcome
        .outputs
        .iter()
        .filter(|output| output.input == sink)
        .map(|output| output.payload.downcast_ref::<Batch>().expect("the stager keeps batches"));
    batches.flat_map(|batch| batch.iter().map(|row| row.value.to_vec()).collect::<Vec<_>>()).collect()
}

pub(crate) fn metric(outcome: &Outcome, wanted: impl Fn(&MetricName) -> bool) -> Option<&MetricValue> {
    outcome.metrics.iter().find(|(name, _)| wanted(name)).map(|(_, value)| value)
}

struct NoState;

impl StateAccess for NoState {
    fn get(&self, _key: &StateKey, _from: Option<&Bytes>) -> Result<Page, Error> {
        panic!("stateless")
    }
    fn append(&self, _key: &StateKey, _data: Bytes) -> Result<(), Error> {
        panic!("stateless")
    }
    fn clear(&self, _key: &StateKey) -> Result<(), Error> {
        panic!("stateless")
    }
}
