//! One SDK harness: its streams, the instructions it was given, and its end.
//!
//! ```text
//!  Starting -> Connected (control stream) -> Dead (why)      a dead harness is never used again, nor is its id
//! ```

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use model::metrics::{MetricName, MetricValue};
use proto::fnapi::instruction_request::Request;
use proto::fnapi::instruction_response::Response;
use proto::fnapi::{
    Elements, InstructionRequest, InstructionResponse, MonitoringInfosMetadataRequest, ProvisionInfo, WorkerStatusRequest,
    WorkerStatusResponse,
};
use proto::pipeline::MonitoringInfo;
use tokio::sync::{Semaphore, mpsc, oneshot, watch};
use tonic::Status;
use worker::{Error, Outputs, StateAccess};

use crate::active::{ActiveBundle, Settled};
use crate::descriptor::PreparedStage;
use crate::metrics::{self, MetricKind};
use crate::{LogSink, ResolvedArtifact};

/// Messages that wait for one data stream: at most this many times [`crate::rows::MESSAGE_BYTES`], or one large element each.
const DATA_MESSAGES_QUEUED_MAX: usize = 2;
/// State requests of one harness that are unanswered; further ones are not read.
const STATE_REQUESTS_MAX: usize = 1024;
/// Data streams of one harness. Purlin asks for [`LARGE_STREAMS_MAX`] at most beside the unnamed one.
const DATA_STREAMS_MAX: usize = 64;
/// Bundles of one harness that get a data stream to themselves.
const LARGE_STREAMS_MAX: u32 = 16;
/// Metrics of one harness whose short ids are remembered; beyond that they are asked for anew.
const SHORT_IDS_MAX: usize = 100_000;

pub(crate) struct Harness {
    /// Its `worker_id`.
    pub(crate) id: String,
    /// For messages: where it came from.
    pub(crate) origin: String,
    pub(crate) provision: ProvisionInfo,
    pub(crate) artifacts: Arc<[ResolvedArtifact]>,
    pub(crate) log: Arc<dyn LogSink>,
    /// How long to wait for an exit status when a stream breaks; zero when there is no process to exit.
    pub(crate) exit_grace: Duration,
    pub(crate) state_requests: Arc<Semaphore>,
    life: watch::Sender<Life>,
    closing: AtomicBool,
    next_instruction: AtomicU64,
    // Each of these is held for short sections only, never across an await, and no two at a time.
    control: Mutex<Control>,
    streams: Mutex<HashMap<String, DataStream>>,
    large_streams: Mutex<HashSet<u32>>,
    bundles: Mutex<Option<HashMap<String, Arc<ActiveBundle>>>>,
    pending: Mutex<Option<HashMap<String, oneshot::Sender<InstructionResponse>>>>,
    short_ids: Mutex<HashMap<String, Arc<MetricKind>>>,
    status: Mutex<Option<StatusSender>>,
    status_pending: Mutex<HashMap<String, oneshot::Sender<WorkerStatusResponse>>>,
}

/// Where a harness is in its life.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Life {
    Starting,
    Connected,
    Dead(Arc<str>),
}

/// Both ends of the queue of instructions; the receiver goes to the control stream, the sender ends it.
struct Control {
    sender: Option<mpsc::UnboundedSender<Result<InstructionRequest, Status>>>,
    receiver: Option<mpsc::UnboundedReceiver<Result<InstructionRequest, Status>>>,
}

type StatusSender = mpsc::Sender<Result<WorkerStatusRequest, Status>>;
type ElementsSender = mpsc::Sender<Result<Elements, Status>>;
type ElementsReceiver = mpsc::Receiver<Result<Elements, Status>>;

struct DataStream {
    sender: ElementsSender,
    receiver: Option<ElementsReceiver>,
}

/// The mutex's content. A panic while it was held has ended the bundle or job that caused it; nothing here spans two steps.
pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Harness {
    pub(crate) fn new(
        provision: ProvisionInfo,
        id: String,
        origin: String,
        artifacts: Arc<[ResolvedArtifact]>,
        log: Arc<dyn LogSink>,
        exit_grace: Duration,
    ) -> Arc<Self> {
        let (sender, receiver) = mpsc::unbounded_channel();
        Arc::new(Harness {
            id,
            origin,
            provision,
            artifacts,
            log,
            exit_grace,
            state_requests: Arc::new(Semaphore::new(STATE_REQUESTS_MAX)),
            life: watch::Sender::new(Life::Starting),
            closing: AtomicBool::new(false),
            next_instruction: AtomicU64::new(0),
            control: Mutex::new(Control { sender: Some(sender), receiver: Some(receiver) }),
            streams: Mutex::default(),
            large_streams: Mutex::default(),
            bundles: Mutex::new(Some(HashMap::new())),
            pending: Mutex::new(Some(HashMap::new())),
            short_ids: Mutex::default(),
            status: Mutex::default(),
            status_pending: Mutex::default(),
        })
    }

    /// How its life goes on.
    pub(crate) fn life(&self) -> watch::Receiver<Life> {
        self.life.subscribe()
    }

    pub(crate) fn is_dead(&self) -> bool {
        matches!(*self.life.borrow(), Life::Dead(_))
    }

    /// Ends the harness for good: all its bundles fail, all its streams end. The first reason counts.
    pub(crate) fn fail(&self, reason: String) {
        let reason: Arc<str> = format!("{} {reason}", self.origin).into();
        let first = self.life.send_if_modified(|life| {
            let first = !matches!(life, Life::Dead(_));
            if first {
                *life = Life::Dead(reason.clone());
            }
            first
        });
        if !first {
            return;
        }
        self.half_close();
        let pending = locked(&self.pending).take();
        let bundles = locked(&self.bundles).take();
        locked(&self.streams).clear();
        *locked(&self.status) = None;
        locked(&self.status_pending).clear();
        drop(pending);
        for bundle in bundles.into_iter().flat_map(HashMap::into_values) {
            bundle.fail(Error::Infrastructure(reason.to_string()));
        }
    }

    /// Tells the harness that there is no more work: it ends by itself, and that is no failure any more.
    pub(crate) fn close(&self) {
        self.closing.store(true, Ordering::Relaxed);
        self.half_close();
    }

    fn half_close(&self) {
        locked(&self.control).sender = None;
    }

    /// A stream of the harness has ended by itself. The exit status of a process says more, if it comes soon.
    pub(crate) async fn stream_ended(&self, stream: &str, status: Option<Status>) {
        if !self.closing.load(Ordering::Relaxed) && !self.exit_grace.is_zero() {
            tokio::time::sleep(self.exit_grace).await;
        }
        self.fail(match status {
            None => format!("disconnected: its {stream} stream ended"),
            Some(status) => format!("disconnected: its {stream} stream broke: {}", status.message()),
        });
    }

    /// The error of whatever needs a harness that is dead.
    pub(crate) fn gone(&self) -> Error {
        match &*self.life.borrow() {
            Life::Dead(reason) => Error::Infrastructure(reason.to_string()),
            _ => Error::Infrastructure(format!("{} is not available", self.origin)),
        }
    }
}

/// Instructions.
impl Harness {
    /// The harness has connected: the instructions for its control stream.
    pub(crate) fn connect(&self) -> Result<mpsc::UnboundedReceiver<Result<InstructionRequest, Status>>, Status> {
        let receiver = locked(&self.control).receiver.take();
        let receiver = receiver.ok_or_else(|| Status::already_exists(format!("worker {} is connected", self.id)))?;
        self.life.send_if_modified(|life| {
            let connects = *life == Life::Starting;
            if connects {
                *life = Life::Connected;
            }
            connects
        });
        Ok(receiver)
    }

    /// An id that no instruction of this harness ever had.
    fn fresh(&self, kind: &str) -> String {
        format!("{kind}{}", self.next_instruction.fetch_add(1, Ordering::Relaxed))
    }

    /// Registers a bundle, so that what the harness sends for it finds it.
    pub(crate) fn begin(
        &self,
        stage: &PreparedStage,
        outputs: Outputs,
        state: Arc<dyn StateAccess>,
    ) -> Result<(Arc<ActiveBundle>, Settled), Error> {
        let instruction = self.fresh("bundle-");
        let (active, settled) = ActiveBundle::new(instruction, &self.id, &stage.spec, outputs, state);
        match locked(&self.bundles).as_mut() {
            Some(bundles) => bundles.insert(active.instruction.clone(), active.clone()),
            None => return Err(self.gone()),
        };
        Ok((active, settled))
    }

    /// Forgets a bundle: what still arrives for it is ignored.
    pub(crate) fn forget(&self, instruction: &str) {
        if let Some(bundles) = locked(&self.bundles).as_mut() {
            bundles.remove(instruction);
        }
    }

    /// The running bundle of an instruction.
    pub(crate) fn bundle(&self, instruction: &str) -> Option<Arc<ActiveBundle>> {
        locked(&self.bundles).as_ref()?.get(instruction).cloned()
    }

    /// Sends an instruction whose answer is looked for elsewhere.
    pub(crate) fn send(&self, instruction_id: String, request: Request) -> Result<(), Error> {
        let request = InstructionRequest { instruction_id, request: Some(request) };
        match &locked(&self.control).sender {
            Some(sender) if sender.send(Ok(request)).is_ok() => Ok(()),
            _ => Err(Error::Infrastructure(format!("{} is disconnected", self.origin))),
        }
    }

    /// Sends an instruction and waits for its answer. An answer that does not come within `timeout` ends the harness.
    pub(crate) async fn ask(&self, kind: &str, request: Request, timeout: Duration) -> Result<InstructionResponse, Error> {
        let id = self.fresh(kind);
        let (answer, receiver) = oneshot::channel();
        match locked(&self.pending).as_mut() {
            Some(pending) => pending.insert(id.clone(), answer),
            None => return Err(self.gone()),
        };
        self.send(id.clone(), request)?;
        match tokio::time::timeout(timeout, receiver).await {
            Ok(Ok(response)) => Ok(response),
            Ok(Err(_)) => Err(self.gone()),
            Err(_) => {
                let seconds = timeout.as_secs_f64();
                self.fail(format!("does not answer: nothing for {seconds} s after the request {id}"));
                Err(self.gone())
            }
        }
    }

    /// Takes an answer from the control stream. Answers that nobody waits for any more are ignored.
    pub(crate) fn answered(&self, response: InstructionResponse) {
        if let Some(bundle) = self.bundle(&response.instruction_id) {
            return bundle.respond(response);
        }
        let waiting = locked(&self.pending).as_mut().and_then(|pending| pending.remove(&response.instruction_id));
        if let Some(waiting) = waiting {
            let _ = waiting.send(response);
        }
    }

    /// Takes elements from a data stream.
    pub(crate) fn elements(&self, elements: &Elements) {
        for data in &elements.data {
            if let Some(bundle) = self.bundle(&data.instruction_id) {
                bundle.data(data);
            }
        }
        for timers in &elements.timers {
            if let Some(bundle) = self.bundle(&timers.instruction_id) {
                bundle.timers(timers);
            }
        }
    }
}

/// Data streams.
impl Harness {
    /// The harness has opened a data stream: what is to be sent on it.
    pub(crate) fn attach(&self, stream: &str) -> Result<ElementsReceiver, Status> {
        let mut streams = locked(&self.streams);
        if streams.len() >= DATA_STREAMS_MAX && !streams.contains_key(stream) {
            return Err(Status::resource_exhausted(format!("worker {} has {DATA_STREAMS_MAX} data streams", self.id)));
        }
        let receiver = streams.entry(stream.to_owned()).or_insert_with(DataStream::new).receiver.take();
        receiver.ok_or_else(|| Status::already_exists(format!("worker {} has a data stream {stream:?}", self.id)))
    }

    /// Where to send a bundle's input; the harness opens the stream when it is told of the bundle.
    pub(crate) fn data_sender(&self, stream: &str) -> ElementsSender {
        locked(&self.streams).entry(stream.to_owned()).or_insert_with(DataStream::new).sender.clone()
    }

    /// A data stream for one large bundle alone. None when all are taken: then the unnamed one has to do.
    pub(crate) fn large_stream(self: &Arc<Self>) -> Option<LargeStream> {
        let mut taken = locked(&self.large_streams);
        let number = (0..LARGE_STREAMS_MAX).find(|number| !taken.contains(number))?;
        taken.insert(number);
        Some(LargeStream { harness: self.clone(), number })
    }
}

impl DataStream {
    fn new() -> Self {
        let (sender, receiver) = mpsc::channel(DATA_MESSAGES_QUEUED_MAX);
        DataStream { sender, receiver: Some(receiver) }
    }
}

/// A named data stream, free again when dropped.
pub(crate) struct LargeStream {
    harness: Arc<Harness>,
    number: u32,
}

impl LargeStream {
    pub(crate) fn name(&self) -> String {
        format!("large-{}", self.number)
    }
}

impl Drop for LargeStream {
    fn drop(&mut self) {
        locked(&self.harness.large_streams).remove(&self.number);
    }
}

/// Metrics and status.
impl Harness {
    /// Decodes metrics. SDKs send the same values under short ids and in full, or one of both: short ids win, never both.
    pub(crate) async fn metrics(
        &self,
        by_id: BTreeMap<String, Bytes>,
        infos: Vec<MonitoringInfo>,
        timeout: Duration,
    ) -> Result<Vec<(MetricName, MetricValue)>, Error> {
        if by_id.is_empty() {
            let named = infos.into_iter().filter_map(|mut info| {
                let kind = MetricKind::of(&mut info);
                let value = metrics::value(&kind, &info.payload)?;
                Some((kind.name, value))
            });
            return Ok(named.collect());
        }
        let unknown: Vec<String> = {
            let known = locked(&self.short_ids);
            by_id.keys().filter(|id| !known.contains_key(*id)).cloned().collect()
        };
        if !unknown.is_empty() {
            self.learn(unknown, timeout).await?;
        }
        let known = locked(&self.short_ids);
        let named = by_id.iter().filter_map(|(id, payload)| {
            let kind = known.get(id)?;
            Some((kind.name.clone(), metrics::value(kind, payload)?))
        });
        Ok(named.collect())
    }

    async fn learn(&self, ids: Vec<String>, timeout: Duration) -> Result<(), Error> {
        let request = MonitoringInfosMetadataRequest { monitoring_info_id: ids };
        let response = self.ask("metrics-", Request::MonitoringInfos(request), timeout).await?;
        let Some(Response::MonitoringInfos(response)) = response.response else {
            let what = if response.error.is_empty() { "another answer" } else { &response.error };
            return Err(Error::Protocol(format!("worker {} does not explain its metrics: {what}", self.id)));
        };
        let mut known = locked(&self.short_ids);
        if known.len() > SHORT_IDS_MAX {
            known.clear();
        }
        for (id, mut info) in response.monitoring_info {
            known.insert(id, Arc::new(MetricKind::of(&mut info)));
        }
        Ok(())
    }

    /// The harness has opened its status stream: both ends of what is to be sent on it.
    pub(crate) fn attach_status(&self) -> (StatusSender, mpsc::Receiver<Result<WorkerStatusRequest, Status>>) {
        let (sender, receiver) = mpsc::channel(1);
        *locked(&self.status) = Some(sender.clone());
        (sender, receiver)
    }

    pub(crate) fn status_answered(&self, response: WorkerStatusResponse) {
        if let Some(waiting) = locked(&self.status_pending).remove(&response.id) {
            let _ = waiting.send(response);
        }
    }

    /// The harness's account of itself, or none if it gives none in time.
    pub(crate) async fn status_text(&self, timeout: Duration) -> Option<String> {
        let sender = locked(&self.status).clone()?;
        let id = self.fresh("status-");
        let (answer, receiver) = oneshot::channel();
        locked(&self.status_pending).insert(id.clone(), answer);
        let answer = async {
            sender.send(Ok(WorkerStatusRequest { id: id.clone() })).await.ok()?;
            receiver.await.ok()
        };
        let answer = tokio::time::timeout(timeout, answer).await.ok().flatten();
        locked(&self.status_pending).remove(&id);
        answer.map(|answer| if answer.error.is_empty() { answer.status_info } else { answer.error })
    }
}
