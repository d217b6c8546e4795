//! Starts a job's shards, watches for the first failure and for the end, and answers questions about the job.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;

use engine::Times;
use engine::stuck::Plain;
use ledger::JobLedger;
use model::{ShardId, TransformId};
use plan::Plan;
use worker::{StageSpec, Worker};

use crate::metrics::JobMetrics;
use crate::options::Options;
use crate::progress::JobProgress;
use crate::quiescence::Quiescence;
use crate::report::JobReport;
use crate::settling;
use crate::shard::{Event, Shard, Step};
use crate::side_inputs::SideInputs;
use crate::user_state::StageStates;

/// The wall clock, in milliseconds since the epoch.
pub trait Clock: Send + Sync {
    /// Now.
    fn now_ms(&self) -> i64;
}

/// Everything that a run needs.
pub struct JobSpec {
    /// For thread names and messages.
    pub name: String,
    /// What to run.
    pub plan: Arc<Plan>,
    /// Shards; the same for the life of the job.
    pub shards: u32,
    /// The job's storage.
    pub ledger: Arc<dyn JobLedger>,
    /// One worker per environment of the plan.
    pub workers: Vec<Arc<dyn Worker>>,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// Bounds and habits.
    pub options: Options,
}

/// Told once how the job ended.
pub trait Observer: Send + Sync {
    /// The job is about to end although user code has not heard of all commits in time; `names` are those that did not answer.
    fn unsettled(&self, names: &[String]);
    /// All shards have stopped; `shared` holds the last figures. Called from a thread of the job.
    fn ended(&self, shared: &Shared, result: Result<(), Failure>);
}

/// Why a job did not succeed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Failure {
    /// User code raised. The text is the SDK's, verbatim.
    #[error("{message}")]
    User {
        /// The transform, if the worker knows.
        transform: Option<TransformId>,
        /// The SDK's text.
        message: String,
    },
    /// A worker or the storage is gone.
    #[error("{0}")]
    Infrastructure(String),
    /// A fault of ours or of an SDK.
    #[error("{0}")]
    Internal(String),
    /// Work remains but nothing can ever happen again.
    #[error("{}", stuck(.0, &Plain))]
    Stuck(JobReport),
    /// As asked.
    #[error("cancelled")]
    Cancelled,
    /// As asked: what is committed waits for a later run.
    #[error("suspended")]
    Suspended,
}

impl Failure {
    /// The failure as it is shown to the user, with times as the user reads them.
    pub fn words(&self, times: &dyn Times) -> String {
        match self {
            Failure::Stuck(report) => stuck(report, times),
            failure => failure.to_string(),
        }
    }

    pub(crate) fn internal(message: impl Into<String>) -> Self {
        Failure::Internal(message.into())
    }

    pub(crate) fn storage(error: ledger::Error) -> Self {
        Failure::Infrastructure(error.to_string())
    }
}

fn stuck(report: &JobReport, times: &dyn Times) -> String {
    format!("the job is stuck: nothing runs, nothing is on its way and work remains\n{}", report.words(times))
}

impl From<worker::Error> for Failure {
    fn from(error: worker::Error) -> Self {
        match error {
            worker::Error::User { transform, message } => Failure::User { transform, message },
            worker::Error::Infrastructure(message) => Failure::Infrastructure(message),
            worker::Error::Protocol(message) => Failure::Internal(message),
            worker::Error::Aborted => Failure::Cancelled,
        }
    }
}

/// What the shards of a job share.
pub struct Shared {
    pub(crate) spec: JobSpec,
    pub(crate) stages: Vec<Arc<StageSpec>>,
    pub(crate) states: Vec<Arc<StageStates>>,
    pub(crate) side_inputs: Arc<SideInputs>,
    pub(crate) quiescence: Quiescence,
    /// Metrics of all shards.
    pub metrics: JobMetrics,
    /// Counters and statuses of all shards.
    pub progress: JobProgress,
    senders: Vec<Sender<Event>>,
    stopping: AtomicBool,
    draining: AtomicBool,
    /// The first failure. Held for an assignment.
    failure: Mutex<Option<Failure>>,
}

impl Shared {
    /// For the shards of one run, with each shard's events.
    pub fn new(spec: JobSpec) -> (Arc<Shared>, Vec<Receiver<Event>>) {
        let (senders, receivers) = (0..spec.shards).map(|_| channel()).unzip();
        let ids = spec.plan.stages.iter().map(|stage| stage.id);
        let shared = Shared {
            states: ids.clone().map(|id| Arc::new(StageStates::of(&spec.plan, id))).collect(),
            stages: ids.map(|id| crate::assembly::stage_spec(&spec.plan, id)).collect(),
            side_inputs: Arc::new(SideInputs::new(&spec.plan, spec.ledger.clone())),
            quiescence: Quiescence::new(spec.shards),
            metrics: JobMetrics::default(),
            progress: JobProgress::new(spec.plan.stages.len(), spec.shards),
            senders,
            stopping: AtomicBool::new(false),
            draining: AtomicBool::new(false),
            failure: Mutex::new(None),
            spec,
        };
        (Arc::new(shared), receivers)
    }

    /// What runs.
    pub fn plan(&self) -> &Plan {
        &self.spec.plan
    }

    pub(crate) fn sender(&self, shard: ShardId) -> Sender<Event> {
        self.senders[shard.0 as usize].clone()
    }

    /// Stops all shards because of `failure`, unless something stopped them before.
    pub fn stop(&self, failure: Failure) {
        let mut first = self.failure.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if first.is_none() {
            *first = Some(failure);
        }
        drop(first);
        self.stopping.store(true, Ordering::SeqCst);
        for sender in &self.senders {
            // A shard that has ended does not listen any more.
            let _ = sender.send(Event::Stop);
        }
    }

    /// Makes shards look again.
    pub(crate) fn wake(&self, shards: &[ShardId]) {
        for shard in shards {
            // A shard that has ended does not listen any more.
            let _ = self.senders[shard.0 as usize].send(Event::Wake);
        }
    }

    /// From now on sources end: see [`Job::drain`].
    pub fn drain(&self) {
        self.draining.store(true, Ordering::SeqCst);
        let shards: Vec<_> = (0..self.spec.shards).map(ShardId).collect();
        self.wake(&shards);
    }

    pub(crate) fn draining(&self) -> bool {
        self.draining.load(Ordering::SeqCst)
    }

    pub(crate) fn stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    /// How every stage of every shard stands now.
    pub fn report(&self) -> JobReport {
        self.progress.report(self.spec.clock.now_ms())
    }

    /// The first failure, if there was one.
    pub fn result(&self) -> Result<(), Failure> {
        match self.failure.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone() {
            Some(failure) => Err(failure),
            None => Ok(()),
        }
    }
}

/// A job that runs on threads of its own, one per shard.
pub struct Job {
    shared: Arc<Shared>,
}

impl Job {
    /// Starts the shards, from the thread that waits for their end: so none is left behind when another cannot be started.
    pub fn start(spec: JobSpec, observer: Arc<dyn Observer>) -> std::io::Result<Job> {
        let (shared, receivers) = Shared::new(spec);
        let watched = shared.clone();
        let name = format!("{}/end", shared.spec.name);
        thread::Builder::new().name(name).spawn(move || {
            for thread in start_shards(&watched, receivers) {
                if thread.join().is_err() {
                    watched.stop(Failure::internal("a shard's thread ended without a result"));
                }
            }
            let unsettled = settling::settle(&watched);
            if !unsettled.is_empty() {
                observer.unsettled(&unsettled);
            }
            observer.ended(&watched, watched.result());
        })?;
        Ok(Job { shared })
    }

    /// Stops the job; it ends within seconds even when a worker does not answer.
    pub fn cancel(&self) {
        self.shared.stop(Failure::Cancelled);
    }

    /// Lets the job end by itself as soon as it can, with everything that it has begun: restrictions are truncated as their
    /// DoFns say, processing-time timers fire at once, windows close. Does nothing when it is draining already. A later run of
    /// the job has to be told again.
    pub fn drain(&self) {
        self.shared.drain();
    }

    /// Stops the job so that another run can go on from what is committed.
    pub fn suspend(&self) {
        self.shared.stop(Failure::Suspended);
    }

    /// Metrics, counters, statuses.
    pub fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }
}

/// A thread per shard; when one cannot be started the job fails and the others end.
fn start_shards(shared: &Arc<Shared>, receivers: Vec<Receiver<Event>>) -> Vec<thread::JoinHandle<()>> {
    let mut threads = Vec::new();
    for (number, events) in receivers.into_iter().enumerate() {
        let (own, shard) = (shared.clone(), ShardId(number as u32));
        let thread = thread::Builder::new().name(format!("{}/{number}", shared.spec.name));
        match thread.spawn(move || run_guarded(&own, shard, events)) {
            Ok(thread) => threads.push(thread),
            Err(error) => shared.stop(Failure::Infrastructure(format!("a thread for {shard} cannot be started: {error}"))),
        }
    }
    threads
}

fn run_guarded(shared: &Arc<Shared>, shard: ShardId, events: Receiver<Event>) {
    let result = catch_unwind(AssertUnwindSafe(|| run(shared, shard, events)));
    let failure = match result {
        Ok(Ok(())) => return,
        Ok(Err(failure)) => failure,
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
            Failure::internal(format!("{shard} panicked: {}", text.unwrap_or("no message")))
        }
    };
    shared.stop(failure);
}

fn run(shared: &Arc<Shared>, shard: ShardId, events: Receiver<Event>) -> Result<(), Failure> {
    let mut shard = Shard::open(shared.clone(), shard, events)?;
    loop {
        match shard.step(shared.spec.clock.now_ms())? {
            Step::Progressed => {}
            Step::Idle { until_ms } => shard.wait(until_ms),
            Step::Finished => return Ok(()),
        }
    }
}
