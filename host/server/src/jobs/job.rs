//! One job: its state machine, and the place where what a runner reports meets what clients ask.
//!
//! ```text
//!  STOPPED ─► STARTING ─► RUNNING ─┬─► DONE | FAILED
//!                │           │     ├─► CANCELLING ─► CANCELLED
//!                └── FAILED  │     └─► DRAINING ─► DRAINED
//!                            └─ (suspended: no state of the Job API; the server goes away and the job does not)
//! ```
//!
//! States only move forward, and an ERROR message always comes before FAILED. A runner that panics fails this job only.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use model::JobId;
use plan::Origins;
use prost::Message;
use proto::job::MetricResults;
use proto::job::job_message::MessageImportance;
use tokio::sync::watch;

use super::log::{EventLog, JobState, is_terminal};
use super::rates::{Rate, Rates};
use crate::environments::Staged;
use crate::options::StepNames;
use crate::run::{End, Importance, Metrics, Observer, RunningJob, Settings, StageStatus};
use crate::{metrics, panics};

/// A job that was run, as long as it is remembered.
pub struct Job {
    /// Its id.
    pub id: JobId,
    /// What does not change.
    pub facts: Facts,
    /// What happened.
    pub log: Arc<EventLog>,
    /// Held for short, never across an await or a call of the runner.
    inner: Mutex<Inner>,
    /// Where the job's task learns that something is to be done about it.
    signal: watch::Sender<Signal>,
    /// Held while its record in the ledger is written, so that an end is not overwritten by what came before.
    pub recording: tokio::sync::Mutex<()>,
}

/// What is known of a job when it is submitted.
pub struct Facts {
    /// The user's name for it.
    pub name: String,
    /// The pipeline as submitted, serialized.
    pub pipeline: Bytes,
    /// Pipeline options as submitted.
    pub options: prost_types::Struct,
    /// What the runner was asked for.
    pub settings: Settings,
    /// How its metrics name steps.
    pub step_names: StepNames,
    /// How ids of the plan map to those of the pipeline.
    pub origins: Origins,
    /// Files that it uses, kept while it is remembered.
    pub staged: Staged,
    /// Milliseconds since the epoch.
    pub submitted_ms: i64,
}

/// What the job's task waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Signal {
    /// Somebody asked for the job to be cancelled.
    pub cancelling: bool,
    /// It is over, or suspended.
    pub ended: bool,
}

struct Inner {
    state: JobState,
    running: Option<Arc<dyn RunningJob>>,
    /// What it was asked for.
    asked: Asked,
    suspended: bool,
    ended_ms: Option<i64>,
    /// Last figures, once ended; serialized, since as messages they would take ten times the room.
    results: Bytes,
    stages: Vec<StageStatus>,
    rates: Rates,
}

/// Perhaps before the runner had started.
#[derive(Clone, Copy, Default)]
struct Asked {
    cancel: bool,
    drain: bool,
    suspend: bool,
}

impl Job {
    /// A job that is about to be started.
    pub fn starting(id: JobId, facts: Facts) -> Arc<Job> {
        let job = Job::new(id, facts);
        job.log.state(JobState::Stopped);
        job.enter(&mut job.lock(), JobState::Starting);
        Arc::new(job)
    }

    /// A job that ended in an earlier life of the server.
    pub fn ended(id: JobId, facts: Facts, state: JobState, errors: &[String], results: MetricResults, ended_ms: i64) -> Arc<Job> {
        let job = Job::new(id, facts);
        errors.iter().for_each(|text| job.log.message(MessageImportance::JobMessageError, text));
        {
            let mut inner = job.lock();
            job.enter(&mut inner, state);
            (inner.results, inner.ended_ms) = (results.encode_to_vec().into(), Some(ended_ms));
        }
        Arc::new(job)
    }

    fn new(id: JobId, facts: Facts) -> Job {
        let inner = Inner {
            state: JobState::Stopped,
            running: None,
            asked: Asked::default(),
            suspended: false,
            ended_ms: None,
            results: Bytes::new(),
            stages: Vec::new(),
            rates: Rates::default(),
        };
        let (log, signal) = (Arc::default(), watch::Sender::default());
        Job { id, facts, log, inner: Mutex::new(inner), signal, recording: tokio::sync::Mutex::new(()) }
    }

    /// Whether it was suspended: not over, and nothing works on it.
    pub fn is_suspended(&self) -> bool {
        self.lock().suspended
    }

    /// The current state.
    pub fn state(&self) -> JobState {
        self.lock().state
    }

    /// When it ended, in milliseconds since the epoch.
    pub fn ended_ms(&self) -> Option<i64> {
        self.lock().ended_ms
    }

    /// Bytes that it takes while it is remembered. Does not change after the end.
    pub fn bytes(&self) -> usize {
        self.facts.pipeline.len() + self.log.bytes() + self.lock().results.len()
    }

    /// Whether a runner works on it or is about to.
    pub fn is_active(&self) -> bool {
        let inner = self.lock();
        !is_terminal(inner.state) && !inner.suspended
    }

    /// Changes of what its task waits for.
    pub fn signals(&self) -> watch::Receiver<Signal> {
        self.signal.subscribe()
    }

    /// The runner has started it. Passes on what was asked for in the meantime.
    pub fn started(&self, running: Box<dyn RunningJob>) {
        let running: Arc<dyn RunningJob> = Arc::from(running);
        let asked = {
            let mut inner = self.lock();
            if is_terminal(inner.state) || inner.suspended {
                // Ended already, or given up while it started: then nobody else can tell it so.
                Asked { cancel: true, ..Asked::default() }
            } else {
                inner.running = Some(running.clone());
                inner.asked
            }
        };
        if asked.cancel {
            return self.guarded((), || running.cancel());
        }
        if asked.drain {
            self.guarded((), || running.drain());
        }
        if asked.suspend {
            self.guarded((), || running.suspend());
        }
    }

    /// Cancels it; answers the state after that. A job that ended stays as it is.
    pub fn cancel(&self) -> JobState {
        let running = {
            let mut inner = self.lock();
            if is_terminal(inner.state) {
                return inner.state;
            }
            self.enter(&mut inner, JobState::Cancelling);
            inner.asked.cancel = true;
            inner.running.clone()
        };
        self.signal.send_modify(|signal| signal.cancelling = true);
        if let Some(running) = running {
            self.guarded((), || running.cancel());
        }
        self.state()
    }

    /// Drains it; answers the state after that. One that ended or is being cancelled goes on with that.
    pub fn drain(&self) -> JobState {
        let running = {
            let mut inner = self.lock();
            if is_terminal(inner.state) || matches!(inner.state, JobState::Draining | JobState::Cancelling) {
                return inner.state;
            }
            self.enter(&mut inner, JobState::Draining);
            inner.asked.drain = true;
            inner.running.clone()
        };
        if let Some(running) = running {
            self.guarded((), || running.drain());
        }
        self.state()
    }

    /// Has its open work committed and stopped, to be resumed later.
    pub fn suspend(&self) {
        let running = {
            let mut inner = self.lock();
            inner.asked.suspend = true;
            inner.running.clone()
        };
        if let Some(running) = running {
            self.guarded((), || running.suspend());
        }
    }

    /// Metrics so far, or the last ones, by names of the submitted pipeline.
    pub fn metrics(&self) -> MetricResults {
        let running = self.lock().running.clone();
        let live = running.map(|running| self.guarded(Metrics::default(), || running.metrics()));
        let inner = self.lock();
        match live {
            // It may have ended meanwhile; then the last figures are the better ones.
            Some(live) if inner.running.is_some() => self.results(&live),
            _ => MetricResults::decode(inner.results.clone()).expect("it was encoded by this process"),
        }
    }

    fn results(&self, metrics: &Metrics) -> MetricResults {
        metrics::results(metrics, &self.facts.origins, self.facts.step_names)
    }

    /// Figures per stage so far, or the last ones, each with its rate.
    pub fn stages(&self) -> Vec<(StageStatus, Rate)> {
        let stages = self.status();
        let inner = self.lock();
        let rates = stages.iter().map(|stage| inner.rates.of(stage.stage)).collect::<Vec<_>>();
        stages.into_iter().zip(rates).collect()
    }

    /// Takes a sample for the rates.
    pub fn sample(&self, now_ms: i64) {
        let stages = self.status();
        self.lock().rates.sample(now_ms, &stages);
    }

    fn status(&self) -> Vec<StageStatus> {
        let running = self.lock().running.clone();
        let live = running.map(|running| self.guarded(Vec::new(), || running.status()));
        let inner = self.lock();
        match live {
            Some(live) if inner.running.is_some() => live,
            _ => inner.stages.clone(),
        }
    }

    /// Ends it as failed, unless it ended before.
    pub fn fail(&self, text: &str) {
        self.end(End::Failed(text.to_string()), None);
    }

    /// Ends it as cancelled although its runner does not answer.
    pub fn abandon(&self, text: &str) {
        self.log.message(MessageImportance::JobMessageWarning, text);
        self.end(End::Cancelled, None);
    }

    fn end(&self, end: End, figures: Option<(Metrics, Vec<StageStatus>)>) {
        {
            let mut inner = self.lock();
            if is_terminal(inner.state) || inner.suspended {
                tracing::debug!(job = %self.id, ?end, "the job ended more than once");
                return;
            }
            if let Some((metrics, stages)) = figures {
                (inner.results, inner.stages) = (self.results(&metrics).encode_to_vec().into(), stages);
            }
            inner.running = None;
            inner.rates = Rates::default();
            let state = match end {
                End::Done if inner.state == JobState::Draining => JobState::Drained,
                End::Done => JobState::Done,
                End::Cancelled => JobState::Cancelled,
                End::Failed(text) => {
                    tracing::error!(job = %self.id, "{text}");
                    self.log.message(MessageImportance::JobMessageError, &text);
                    JobState::Failed
                }
                End::Suspended => {
                    inner.suspended = true;
                    inner.state
                }
            };
            if !inner.suspended {
                inner.ended_ms = Some(crate::clock::now_ms());
                self.enter(&mut inner, state);
            }
        }
        self.signal.send_modify(|signal| signal.ended = true);
    }

    /// Enters a state, if that is a change and the job has not ended.
    fn enter(&self, inner: &mut Inner, state: JobState) {
        if inner.state == state || is_terminal(inner.state) {
            return;
        }
        inner.state = state;
        tracing::info!(job = %self.id, state = state.as_str_name(), "job state");
        self.log.state(state);
    }

    /// Calls the runner; if that panics, the job fails and `otherwise` is the answer.
    fn guarded<T>(&self, otherwise: T, call: impl FnOnce() -> T) -> T {
        catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|panic| {
            self.fail(&format!("internal error, please report it: the runner panicked: {}", panics::text(&*panic)));
            otherwise
        })
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Observer for Job {
    fn running(&self) {
        let mut inner = self.lock();
        if inner.state == JobState::Starting {
            self.enter(&mut inner, JobState::Running);
        }
    }

    fn message(&self, importance: Importance, text: &str) {
        let importance = match importance {
            Importance::Debug => MessageImportance::JobMessageDebug,
            Importance::Detailed => MessageImportance::JobMessageDetailed,
            Importance::Basic => MessageImportance::JobMessageBasic,
            Importance::Warning => MessageImportance::JobMessageWarning,
            Importance::Error => MessageImportance::JobMessageError,
        };
        self.log.message(importance, text);
    }

    fn finished(&self, end: End, metrics: Metrics, stages: Vec<StageStatus>) {
        self.end(end, Some((metrics, stages)));
    }
}
