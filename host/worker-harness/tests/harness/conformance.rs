//! The worker contract, kept over the Fn API: the suite's cases against harnesses that run the native reference's DoFns.
//!
//! Nothing but the Fn API is between the two: a harness knows of a stage what its descriptor says, of rows what was on the wire.

use std::collections::BTreeMap;
use std::sync::{Arc, mpsc};

use bytes::Bytes;
use model::batch::Row;
use model::metrics::{MetricName, MetricValue};
use model::reader::put_varint;
use model::{
    Batch, BatchBuilder, BundleId, Coder, EnvironmentId, Reader, ShardId, StageId, Timestamp, TransformId, WindowCoder, pane, urn,
};
use prost::Message;
use proto::fnapi::instruction_request::Request as Ask;
use proto::fnapi::instruction_response::Response as Answer;
use proto::fnapi::*;
use proto::pipeline as pb;
use worker::conformance::{Behaviour, Dofn, Subject, native};
use worker::outputs::OutputOptions;
use worker::{Bundle, Delivery, Outcome, Outputs, PortSpec, Routing, SinkSpec, Slot, StageSpec, TransformSpec, Worker};
use worker_harness::{HarnessHost, HostOptions};

use crate::fake::{Pool, Sdk};
use crate::stage::{Bag, external, options};

mod on_streams {
    worker::conformance!(super::OverFnApi::new(&[]));
    worker::conformance_of_commits!(super::OverFnApi::new(&[]));
}

mod embedded {
    worker::conformance!(super::OverFnApi::new(&["control_request_elements_embedding:v1"]));
}

const GLOBAL_WINDOW: &str = "beam:coder:global_window:v1";
const INTERVAL_WINDOW: &str = "beam:coder:interval_window:v1";
const WINDOWED_VALUE: &str = "beam:coder:windowed_value:v1";
const BYTES: &str = "beam:coder:bytes:v1";

/// A host whose harnesses run native DoFns.
struct OverFnApi {
    host: HarnessHost,
    pool: Pool,
    capabilities: &'static [&'static str],
    /// Ended last.
    _runtime: tokio::runtime::Runtime,
}

impl OverFnApi {
    fn new(capabilities: &'static [&'static str]) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let entered = runtime.enter();
        let pool = Pool::start(run_native);
        let host = HarnessHost::start(HostOptions::loopback("test"), runtime.handle().clone()).unwrap();
        drop(entered);
        OverFnApi { host, pool, capabilities, _runtime: runtime }
    }
}

impl Subject for OverFnApi {
    fn worker(&self) -> Arc<dyn Worker> {
        let options = options(external(self.pool.address, self.capabilities), Arc::default());
        self.host.environment(options).unwrap()
    }

    fn dofn(&self, behaviour: Behaviour) -> Dofn {
        native(false).dofn(behaviour)
    }

    fn prepare(&self, stage: StageSpec) -> StageSpec {
        StageSpec { descriptor: descriptor(&stage).encode_to_vec().into(), ..stage }
    }
}

// What a plan would write.

fn descriptor(stage: &StageSpec) -> ProcessBundleDescriptor {
    let function = |urn: &str, payload: Vec<u8>| Some(pb::FunctionSpec { urn: urn.to_owned(), payload: payload.into() });
    let one = |name: &str, collection: &str| BTreeMap::from([(name.to_owned(), collection.to_owned())]);
    let port = RemoteGrpcPort { api_service_descriptor: None, coder_id: "wire".to_owned() }.encode_to_vec();
    let mut transforms: BTreeMap<String, pb::PTransform> = BTreeMap::new();
    for transform in &stage.transforms {
        let made = transforms.entry(transform.id.to_string()).or_default();
        let dofn =
            pb::ParDoPayload { do_fn: function(&transform.dofn_urn, transform.dofn_payload.to_vec()), ..Default::default() };
        made.spec = function(&transform.urn, if transform.urn == urn::PAR_DO { dofn.encode_to_vec() } else { Vec::new() });
        made.inputs.insert(format!("input {}", made.inputs.len()), transform.input.clone());
        made.outputs = transform.outputs.iter().cloned().collect();
    }
    for sink in &stage.sinks {
        let spec = function(urn::RUNNER_SINK, port.clone());
        let transform = pb::PTransform { spec, inputs: one("in", &sink.port.collection), ..Default::default() };
        transforms.insert(sink.port.transform.to_string(), transform);
    }
    let spec = function(urn::RUNNER_SOURCE, port.clone());
    let source = pb::PTransform { spec, outputs: one("out", &stage.source.collection), ..Default::default() };
    transforms.insert(stage.source.transform.to_string(), source);
    let window = if stage.source.window_coder == WindowCoder::Global { GLOBAL_WINDOW } else { INTERVAL_WINDOW };
    let coder = |urn: &str, components: &[&str]| pb::Coder {
        spec: function(urn, Vec::new()),
        component_coder_ids: components.iter().map(|id| id.to_string()).collect(),
    };
    let coders =
        [("value", coder(BYTES, &[])), ("window", coder(window, &[])), ("wire", coder(WINDOWED_VALUE, &["value", "window"]))];
    let coders = coders.map(|(id, coder)| (id.to_owned(), coder)).into();
    ProcessBundleDescriptor { transforms, coders, ..Default::default() }
}

// The harness.

/// Bundles that were asked for or have data, and the stages they are of.
struct Harness {
    worker: Arc<dyn Worker>,
    awaited: BTreeMap<String, Awaited>,
    stages: BTreeMap<String, Known>,
    bundles: u64,
    /// The descriptor and the bundle of every instruction that may be finalised.
    finalizable: BTreeMap<String, (String, BundleId)>,
}

/// One bundle before it runs.
#[derive(Default)]
struct Awaited {
    descriptor: Option<String>,
    input: Vec<u8>,
    ended: bool,
}

/// A stage and the slot for all its bundles, so that DoFns outlive a bundle.
struct Known {
    stage: Arc<StageSpec>,
    slot: Box<dyn Slot>,
}

/// A sink, rows for it, and whether that was all.
type Sent = (String, Bytes, bool);

/// Runs bundles one after another, each when its request and all of its input are there, in whatever order they came.
async fn run_native(mut sdk: Sdk) {
    let mut data = sdk.data("").await;
    let worker = native(false).worker();
    let mut harness =
        Harness { worker, awaited: BTreeMap::new(), stages: BTreeMap::new(), bundles: 0, finalizable: BTreeMap::new() };
    loop {
        tokio::select! {
            asked = sdk.next() => match asked {
                Some((id, Ask::ProcessBundle(request))) => {
                    harness.learn(&sdk, &request.process_bundle_descriptor_id).await;
                    harness.awaited.entry(id).or_default().descriptor = Some(request.process_bundle_descriptor_id);
                    harness.take(request.elements.unwrap_or_default());
                }
                Some((id, Ask::ProcessBundleProgress(_))) => sdk.answer(&id, Answer::ProcessBundleProgress(Default::default())),
                Some((id, Ask::ProcessBundleSplit(_))) => sdk.answer(&id, Answer::ProcessBundleSplit(Default::default())),
                Some((id, Ask::FinalizeBundle(request))) => match harness.finalize(&request.instruction_id) {
                    true => sdk.answer(&id, Answer::FinalizeBundle(Default::default())),
                    false => sdk.error(&id, "no such bundle"),
                },
                Some((_, other)) => panic!("unexpected {other:?}"),
                None => return,
            },
            elements = data.next() => match elements {
                Some(elements) => harness.take(elements),
                None => return,
            },
        }
        for (id, descriptor, input) in harness.complete() {
            match harness.run(&id, &descriptor, &input) {
                Err(error) => sdk.error(&id, &error.to_string()),
                Ok((elements, response)) => {
                    elements.into_iter().for_each(|(sink, rows, is_last)| data.send(&id, &sink, rows, is_last));
                    sdk.finish(&id, response);
                }
            }
        }
    }
}

impl Harness {
    async fn learn(&mut self, sdk: &Sdk, descriptor: &str) {
        if !self.stages.contains_key(descriptor) {
            let stage = Arc::new(stage_of(&sdk.descriptor(descriptor).await.unwrap()));
            let slot = self.worker.open(stage.clone(), ShardId(0)).unwrap();
            self.stages.insert(descriptor.to_owned(), Known { stage, slot });
        }
    }

    fn take(&mut self, elements: Elements) {
        for data in elements.data {
            let bundle = self.awaited.entry(data.instruction_id).or_default();
            bundle.input.extend_from_slice(&data.data);
            bundle.ended |= data.is_last;
        }
    }

    /// Takes the bundles that can run: id, descriptor and input.
    fn complete(&mut self) -> Vec<(String, String, Vec<u8>)> {
        let complete = self.awaited.extract_if(.., |_, bundle| bundle.ended && bundle.descriptor.is_some());
        complete.filter_map(|(id, bundle)| Some((id, bundle.descriptor?, bundle.input))).collect()
    }

    /// Whether there was such a bundle.
    fn finalize(&mut self, instruction: &str) -> bool {
        let Some((descriptor, bundle)) = self.finalizable.remove(instruction) else { return false };
        self.stages.get_mut(&descriptor).unwrap().slot.finalize(bundle);
        true
    }

    /// Runs a bundle: what it sends, and its response.
    fn run(&mut self, id: &str, descriptor: &str, input: &[u8]) -> Result<(Vec<Sent>, ProcessBundleResponse), worker::Error> {
        let Known { stage, slot } = self.stages.get_mut(descriptor).unwrap();
        let stager = Arc::new(|batch: Batch| Ok(Box::new(batch) as worker::outputs::Payload));
        let outputs = Outputs::new(stage, OutputOptions { shards: 1, shard: ShardId(0), first: 0, stager });
        let (sender, receiver) = mpsc::channel();
        self.bundles += 1;
        slot.start(Bundle {
            id: BundleId(self.bundles),
            shard: ShardId(0),
            input: vec![rows(input, stage.source.window_coder)],
            timers: Vec::new(),
            state: Arc::new(Bag::default()),
            now_ms: 0,
            outputs,
            done: Box::new(move |_, result| sender.send(result).unwrap()),
        });
        let outcome: Outcome = receiver.recv().unwrap()?;
        let sink = |index: u32| stage.sinks[index as usize].port.transform.as_str().to_owned();
        let rows = outcome.outputs.iter().map(|output| (sink(output.input), wire(output.payload.downcast_ref().unwrap()), false));
        let ends = (0..stage.sinks.len() as u32).map(|index| (sink(index), Bytes::new(), true));
        if outcome.finalize {
            self.finalizable.insert(id.to_owned(), (descriptor.to_owned(), BundleId(self.bundles)));
        }
        let monitoring_infos = outcome.metrics.iter().map(monitoring_info).collect();
        let response = ProcessBundleResponse { monitoring_infos, requires_finalization: outcome.finalize, ..Default::default() };
        Ok((rows.chain(ends).collect(), response))
    }
}

/// The stage that a descriptor describes, with its transforms in topological order.
fn stage_of(descriptor: &ProcessBundleDescriptor) -> StageSpec {
    let coder = |id: &str| descriptor.coders[id].spec.as_ref().unwrap().urn.as_str();
    let port = |id: &str, collection: &str| {
        let spec = descriptor.transforms[id].spec.as_ref().unwrap();
        let port = RemoteGrpcPort::decode(spec.payload.clone()).unwrap();
        let [value, window] = descriptor.coders[&port.coder_id].component_coder_ids.as_slice() else { panic!("a wire coder") };
        assert_eq!((coder(&port.coder_id), coder(value)), (WINDOWED_VALUE, BYTES));
        let window_coder = if coder(window) == GLOBAL_WINDOW { WindowCoder::Global } else { WindowCoder::Interval };
        PortSpec { transform: TransformId::from(id), collection: collection.to_owned(), coder: Coder::Bytes, window_coder }
    };
    let (mut source, mut sinks, mut waiting) = (None, Vec::new(), Vec::new());
    for (id, transform) in &descriptor.transforms {
        let spec = transform.spec.as_ref().unwrap();
        match spec.urn.as_str() {
            urn::RUNNER_SOURCE => source = transform.outputs.values().next().map(|collection| port(id, collection)),
            urn::RUNNER_SINK => sinks.extend(transform.inputs.values().map(|collection| port(id, collection))),
            _ => waiting.extend(transform.inputs.values().map(|input| transform_of(id, transform, spec, input))),
        }
    }
    let source = source.unwrap();
    let sinks = sinks.into_iter().zip(0..).map(|(port, input)| {
        let delivery = Delivery { stage: StageId(1), input, routing: Routing::Local, per_window: false };
        SinkSpec { port, deliveries: vec![delivery] }
    });
    StageSpec {
        stage: StageId(0),
        name: descriptor.id.clone(),
        environment: EnvironmentId(0),
        transforms: in_order(&source.collection, waiting),
        descriptor: Bytes::new(),
        sinks: sinks.collect(),
        source,
        timer_families: Vec::new(),
        splittable: false,
    }
}

fn transform_of(id: &str, transform: &pb::PTransform, spec: &pb::FunctionSpec, input: &str) -> TransformSpec {
    let dofn = match spec.urn.as_str() {
        urn::PAR_DO => pb::ParDoPayload::decode(spec.payload.clone()).unwrap().do_fn.unwrap(),
        _ => pb::FunctionSpec::default(),
    };
    TransformSpec {
        id: TransformId::from(id),
        name: transform.unique_name.clone(),
        urn: spec.urn.clone(),
        dofn_urn: dofn.urn,
        dofn_payload: dofn.payload,
        environment: EnvironmentId(0),
        input: input.to_owned(),
        outputs: transform.outputs.clone().into_iter().collect(),
    }
}

/// Every transform after those that make its input; all inputs of a Flatten before what reads it.
fn in_order(source: &str, mut waiting: Vec<TransformSpec>) -> Vec<TransformSpec> {
    let mut ordered: Vec<TransformSpec> = Vec::new();
    while !waiting.is_empty() {
        let unmade = |collection: &String| waiting.iter().any(|it| it.outputs.iter().any(|(_, made)| made == collection));
        let next = waiting.iter().position(|it| it.input == source || !unmade(&it.input)).expect("no cycle");
        ordered.push(waiting.remove(next));
    }
    ordered
}

/// The rows of a data stream.
fn rows(data: &[u8], window_coder: WindowCoder) -> Batch {
    let mut builder = BatchBuilder::new();
    let mut reader = Reader::new(data);
    while !reader.is_empty() {
        let timestamp = Timestamp::decode(&mut reader).unwrap();
        let windows = reader.position();
        (0..reader.be_i32().unwrap()).for_each(|_| window_coder.skip(&mut reader).unwrap());
        let pane = reader.position();
        pane::skip(&mut reader).unwrap();
        let value = reader.position();
        reader.length_prefixed().unwrap();
        let [windows, pane, value] =
            [(windows, pane), (pane, value), (value, reader.position())].map(|(a, b)| reader.between(a, b));
        builder.push(Row { value, timestamp, windows, pane });
    }
    builder.finish()
}

fn wire(batch: &Batch) -> Bytes {
    let mut out = Vec::new();
    for row in batch.iter() {
        out.extend_from_slice(&row.timestamp.encode());
        [row.windows, row.pane, row.value].iter().for_each(|part| out.extend_from_slice(part));
    }
    out.into()
}

fn monitoring_info((name, value): &(MetricName, MetricValue)) -> pb::MonitoringInfo {
    let (kind, numbers) = match value {
        MetricValue::SumInt(sum) => ("beam:metrics:sum_int64:v1", vec![*sum]),
        MetricValue::DistributionInt(it) => ("beam:metrics:distribution_int64:v1", vec![it.count, it.sum, it.min, it.max]),
        other => panic!("no metric of the suite: {other:?}"),
    };
    let mut payload = Vec::new();
    numbers.iter().for_each(|number| put_varint(&mut payload, *number as u64));
    pb::MonitoringInfo {
        urn: name.urn.clone(),
        r#type: kind.to_owned(),
        payload: payload.into(),
        labels: name.labels.clone(),
        ..Default::default()
    }
}
