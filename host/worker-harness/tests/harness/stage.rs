//! Stages, input, state and output for tests.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use bytes::Bytes;
use model::batch::Row;
use model::{Batch, BatchBuilder, BundleId, Coder, EnvironmentId, JobId, ShardId, StageId, Timestamp, WindowCoder, pane, window};
use prost::Message;
use proto::fnapi::{ProcessBundleDescriptor, RemoteGrpcPort};
use proto::pipeline as pb;
use worker::outputs::OutputOptions;
use worker::*;
use worker_harness::{EnvironmentOptions, LogEntry, LogSink, Timeouts};

/// A stage with a source, some sinks and some timer families; elements are bytes in the global window.
pub(crate) fn stage(sinks: &[&str], families: &[&str]) -> StageSpec {
    let port = |transform: &str| PortSpec {
        transform: transform.into(),
        collection: format!("collection of {transform}"),
        coder: Coder::Bytes,
        window_coder: WindowCoder::Global,
    };
    let deliveries = vec![Delivery { stage: StageId(9), input: 0, routing: Routing::Local, per_window: false }];
    let sink = |name: &&str| SinkSpec { port: port(name), deliveries: deliveries.clone() };
    let family = |name: &&str| TimerFamily {
        transform: "dofn".into(),
        family: name.to_string(),
        event_time: true,
        key_coder: Coder::Bytes,
        window_coder: WindowCoder::Global,
    };
    StageSpec {
        stage: StageId(1),
        name: "Test/Stage".to_owned(),
        environment: EnvironmentId(0),
        transforms: Vec::new(),
        descriptor: descriptor(sinks),
        source: port("source"),
        sinks: sinks.iter().map(sink).collect(),
        timer_families: families.iter().map(family).collect(),
        splittable: true,
    }
}

fn descriptor(sinks: &[&str]) -> Bytes {
    let function = |urn: &str, payload: Vec<u8>| Some(pb::FunctionSpec { urn: urn.to_owned(), payload: payload.into() });
    let port = RemoteGrpcPort { api_service_descriptor: None, coder_id: "wire".to_owned() }.encode_to_vec();
    let transform = |urn: &str| pb::PTransform { spec: function(urn, port.clone()), ..Default::default() };
    let mut transforms = BTreeMap::from([("source".to_owned(), transform("beam:runner:source:v1"))]);
    transforms.extend(sinks.iter().map(|sink| (sink.to_string(), transform("beam:runner:sink:v1"))));
    let coder = pb::Coder { spec: function("beam:coder:windowed_value:v1", Vec::new()), ..Default::default() };
    let coders = BTreeMap::from([("wire".to_owned(), coder)]);
    ProcessBundleDescriptor { transforms, coders, ..Default::default() }.encode_to_vec().into()
}

/// Rows of the given byte strings at times 0, 1, 2, ...
pub(crate) fn batch(values: &[&[u8]]) -> Batch {
    let mut builder = BatchBuilder::new();
    for (index, value) in values.iter().enumerate() {
        let mut encoded = Vec::new();
        model::reader::put_length_prefixed(&mut encoded, value);
        let timestamp = Timestamp::from_millis(index as i64);
        builder.push(Row { value: &encoded, timestamp, windows: window::GLOBAL_SET, pane: pane::NO_FIRING });
    }
    builder.finish()
}

/// The same rows as they travel.
pub(crate) fn wire(values: &[&[u8]]) -> Bytes {
    let mut out = Vec::new();
    for row in batch(values).iter() {
        out.extend_from_slice(&row.timestamp.encode());
        [row.windows, row.pane, row.value].iter().for_each(|part| out.extend_from_slice(part));
    }
    out.into()
}

/// What came out of a bundle: values by stage order of sinks.
pub(crate) fn values(outcome: Outcome) -> Vec<Vec<u8>> {
    let batches = outcome.outputs.into_iter().map(|output| *output.payload.downcast::<Batch>().unwrap());
    batches.flat_map(|batch| batch.iter().map(|row| row.value.to_vec()).collect::<Vec<_>>()).collect()
}

/// Encoded byte strings.
pub(crate) fn encoded(values: &[&[u8]]) -> Vec<Vec<u8>> {
    batch(values).iter().map(|row| row.value.to_vec()).collect()
}

/// State that serves one bag in pages of one element, and fails for keys called `broken`.
#[derive(Default)]
pub(crate) struct Bag(pub(crate) Mutex<Vec<Bytes>>);

impl StateAccess for Bag {
    fn get(&self, key: &StateKey, from: Option<&Bytes>) -> Result<Page, Error> {
        if matches!(key, StateKey::Bag { key, .. } if key.as_ref() == b"broken") {
            return Err(Error::Infrastructure("the disk is gone".to_owned()));
        }
        let bag = self.0.lock().unwrap();
        let index = from.map_or(0, |from| from[0] as usize);
        let next = (index + 1 < bag.len()).then(|| Bytes::from(vec![index as u8 + 1]));
        Ok(Page { data: bag.get(index).cloned().unwrap_or_default(), next })
    }

    fn append(&self, _: &StateKey, data: Bytes) -> Result<(), Error> {
        self.0.lock().unwrap().push(data);
        Ok(())
    }

    fn clear(&self, _: &StateKey) -> Result<(), Error> {
        self.0.lock().unwrap().clear();
        Ok(())
    }
}

/// Keeps every message.
#[derive(Default)]
pub(crate) struct Log(pub(crate) Mutex<Vec<LogEntry>>);

impl LogSink for Log {
    fn log(&self, entry: LogEntry) {
        self.0.lock().unwrap().push(entry);
    }
}

pub(crate) fn external(endpoint: impl ToString, capabilities: &[&str]) -> pb::Environment {
    let endpoint = pb::ApiServiceDescriptor { url: endpoint.to_string(), authentication: None };
    let payload = pb::ExternalPayload { endpoint: Some(endpoint), params: BTreeMap::new() };
    pb::Environment {
        urn: "beam:env:external:v1".to_owned(),
        payload: payload.encode_to_vec().into(),
        capabilities: capabilities.iter().map(|name| format!("beam:protocol:{name}")).collect(),
        ..Default::default()
    }
}

pub(crate) fn options(environment: pb::Environment, log: Arc<Log>) -> EnvironmentOptions {
    EnvironmentOptions {
        process_env: Default::default(),
        job: JobId::from("job"),
        job_name: "test".to_owned(),
        environment: environment.encode_to_vec().into(),
        pipeline_options: prost_types::Struct::default(),
        artifacts: Vec::new(),
        harnesses: 1,
        log,
        timeouts: Timeouts {
            connect: Duration::from_secs(10),
            progress_interval: Duration::from_millis(50),
            unresponsive: Duration::from_secs(10),
            output_after_response: Duration::from_secs(10),
            stop_grace: Duration::from_millis(300),
        },
    }
}

/// A bundle under way.
pub(crate) struct Running(pub(crate) mpsc::Receiver<Result<Outcome, Error>>);

impl Running {
    /// Its result, which must come once only.
    pub(crate) fn wait(self) -> Result<Outcome, Error> {
        let result = self.0.recv_timeout(Duration::from_secs(120)).expect("the bundle completes");
        assert!(self.0.recv_timeout(Duration::from_millis(20)).is_err(), "the bundle completes once");
        result
    }
}

pub(crate) fn start(
    slot: &mut dyn Slot,
    spec: &StageSpec,
    id: u64,
    input: Vec<Batch>,
    timers: Vec<FiredTimer>,
    state: Arc<Bag>,
) -> Running {
    let (sender, receiver) = mpsc::channel();
    let stager = Arc::new(|batch: Batch| Ok(Box::new(batch) as worker::outputs::Payload));
    let outputs = Outputs::new(spec, OutputOptions { shards: 1, shard: ShardId(0), first: 0, stager });
    slot.start(Bundle {
        id: BundleId(id),
        shard: ShardId(0),
        input,
        timers,
        state,
        now_ms: 0,
        outputs,
        done: Box::new(move |bundle, result| {
            assert_eq!(bundle, BundleId(id));
            let _ = sender.send(result);
        }),
    });
    Running(receiver)
}
