//! All jobs of a server: prepared ones, active ones, and as many finished ones as are remembered.
//!
//! ```text
//!  prepare ─► Preparation ─► run ─► Job ─ oversee ─► recorded, purged, remembered ─► forgotten
//!                              └─ (again, while it is kept) ─► another Job
//!  restore: what the ledger holds of an earlier life; active jobs are planned again and resumed
//! ```
//!
//! Nothing here knows gRPC streams or how a job is executed.

pub mod job;
pub mod log;
pub mod preparation;
pub mod prepared;
pub mod rates;
pub mod record;

use std::collections::hash_map::RandomState;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::{BuildHasher, Hasher};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use ledger::{JobRecord, Ledger};
use model::JobId;
use plan::Capabilities;
use prost::Message;
use proto::job::PrepareJobRequest;
use proto::pipeline::Pipeline;
use tokio::sync::watch;
use tonic::{Code, Status};

use self::job::{Facts, Job};
use self::log::{JobState, is_terminal};
use self::preparation::Preparation;
use self::prepared::Prepared;
use self::record::Record;
use crate::config::Config;
use crate::environments::{self, Staged};
use crate::options::{self, Options};
use crate::planning::{self, Planning};
use crate::run::{JobRunner, Observer, Submission};
use crate::store::Store;
use crate::{clock, panics, refusal};

/// Finished jobs that are remembered however large their pipelines are (`beam-model` trap 50).
const FINISHED_JOBS_MIN: usize = 10;
/// Most characters of a job's name in its id.
const NAME_IN_ID_MAX: usize = 40;

/// What a server is put together from.
pub struct Parts {
    /// Executes jobs.
    pub runner: Arc<dyn JobRunner>,
    /// Keeps their state.
    pub ledger: Arc<dyn Ledger>,
    /// What the runner can run.
    pub capabilities: Capabilities,
    /// Keeps their artifacts.
    pub store: Arc<Store>,
}

/// All jobs of a server.
pub struct Jobs {
    /// The server's configuration.
    pub config: Config,
    /// Where artifacts are.
    pub store: Arc<Store>,
    runner: Arc<dyn JobRunner>,
    ledger: Arc<dyn Ledger>,
    planning: Planning,
    /// Held for short, never across an await.
    known: Mutex<Known>,
    last_call_ms: AtomicI64,
    /// Becomes true when the server ends, so that open streams do.
    stopping: watch::Sender<bool>,
}

#[derive(Default)]
struct Known {
    prepared: Prepared,
    jobs: BTreeMap<JobId, Arc<Job>>,
    /// In the order in which they ended.
    finished: VecDeque<JobId>,
    finished_bytes: usize,
}

impl Jobs {
    /// No jobs so far.
    pub fn new(config: Config, parts: Parts) -> Arc<Jobs> {
        Arc::new(Jobs {
            config,
            store: parts.store,
            runner: parts.runner,
            ledger: parts.ledger,
            planning: Planning::new(parts.capabilities),
            known: Mutex::default(),
            last_call_ms: AtomicI64::new(clock::now_ms()),
            stopping: watch::Sender::new(false),
        })
    }

    /// Validates and plans a submission; the refusal lists everything that is wrong with it.
    pub async fn prepare(&self, request: PrepareJobRequest) -> Result<Arc<Preparation>, Status> {
        self.touch();
        let pipeline = request.pipeline.ok_or_else(|| refusal::invalid_argument("the request has no pipeline"))?;
        let pipeline = Arc::new(pipeline);
        let options = request.pipeline_options.unwrap_or_default();
        let planned = self.planning.plan(pipeline.clone()).await?;
        let settings = options::settings(&options, &self.config);
        let (plan, (settings, step_names)) = match (planned, settings) {
            (Ok(plan), Ok(settings)) => (plan, settings),
            (Ok(_), Err(options)) => return Err(planning::refused(None, &options)),
            (Err(problems), settings) => return Err(planning::refused(Some(problems), &settings.err().unwrap_or_default())),
        };
        let name = Options(&options).text("job_name").or(Some(request.job_name.as_str()).filter(|name| !name.is_empty()));
        let name = name.unwrap_or("job").chars().take(1_000).collect();
        let (id, token) = (format!("prepared-{:016x}", random()), format!("{:016x}{:016x}", random(), random()));
        let preparation = Arc::new(Preparation::new(id, token, name, pipeline, options, settings, step_names, plan));
        self.lock().prepared.add(preparation.clone(), &self.config);
        Ok(preparation)
    }

    /// The preparation for which a token was given out.
    pub fn by_token(&self, token: &str) -> Option<Arc<Preparation>> {
        self.touch();
        self.lock().prepared.iter().find(|preparation| preparation.token == token).cloned()
    }

    /// Starts a prepared job; returns when it is recorded, which is before it runs.
    pub async fn run(self: &Arc<Self>, preparation_id: &str) -> Result<Arc<Job>, Status> {
        self.touch();
        if *self.stopping.borrow() {
            return Err(Status::unavailable("the server is shutting down"));
        }
        let active = self.active().len();
        if active >= self.config.active_jobs_max {
            let text = format!("{active} jobs are running, which is as many as this server takes; try again when one has ended");
            return Err(refusal::status(Code::ResourceExhausted, text));
        }
        let preparation = self.lock().prepared.iter().find(|preparation| preparation.id == preparation_id).cloned();
        let preparation = preparation.ok_or_else(|| refusal::not_found("prepared job", preparation_id))?;
        let staged = preparation.staged()?;
        let artifacts =
            environments::artifacts(&preparation.plan, &preparation.pipeline, &staged).map_err(refusal::failed_precondition)?;
        let facts = Facts {
            name: preparation.name.clone(),
            pipeline: Bytes::from(preparation.pipeline.encode_to_vec()),
            options: preparation.options.clone(),
            settings: preparation.settings.clone(),
            step_names: preparation.step_names,
            origins: preparation.plan.origins.clone(),
            files: files(&staged),
            submitted_ms: clock::now_ms(),
        };
        let id = self.new_id(&preparation.name);
        let description = self.description(|| Record::of(&facts, &staged, JobState::Running));
        let record = JobRecord { job: id.clone(), shards: facts.settings.shards, description };
        let ledger = self.in_ledger(move |ledger| ledger.create(record)).await;
        let ledger = ledger.map_err(|error| refusal::internal(format!("the job could not be recorded: {error}")))?;
        let submission = Submission {
            job: id.clone(),
            name: preparation.name.clone(),
            plan: preparation.plan.clone(),
            pipeline: preparation.pipeline.clone(),
            options: preparation.options.clone(),
            settings: preparation.settings.clone(),
            artifacts,
            ledger,
            resumed: false,
        };
        let job = Job::starting(id, facts);
        self.launch(job.clone(), submission);
        self.lock().prepared.ran(preparation_id, &self.config);
        Ok(job)
    }

    /// A job by its id.
    pub fn job(&self, id: &str) -> Result<Arc<Job>, Status> {
        self.touch();
        self.lock().jobs.get(&JobId::from(id)).cloned().ok_or_else(|| refusal::not_found("job", id))
    }

    /// A job by its id or by a beginning that no other job has.
    pub fn find(&self, beginning: &str) -> Result<Arc<Job>, Status> {
        if let Ok(job) = self.job(beginning) {
            return Ok(job);
        }
        let known = self.lock();
        let mut matching = known.jobs.values().filter(|job| job.id.as_str().starts_with(beginning));
        match (matching.next(), matching.next()) {
            (Some(job), None) => Ok(job.clone()),
            (Some(one), Some(other)) => Err(refusal::invalid_argument(format!(
                "several jobs begin with {beginning:?}, among them {} and {}; write more of the id",
                one.id, other.id
            ))),
            (None, _) => Err(refusal::not_found("job", beginning)),
        }
    }

    /// All jobs, those submitted last first.
    pub fn list(&self) -> Vec<Arc<Job>> {
        self.touch();
        let mut jobs: Vec<_> = self.lock().jobs.values().cloned().collect();
        jobs.sort_by_key(|job| std::cmp::Reverse(job.facts.submitted_ms));
        jobs
    }

    /// Jobs that a runner works on.
    pub fn active(&self) -> Vec<Arc<Job>> {
        self.lock().jobs.values().filter(|job| job.is_active()).cloned().collect()
    }

    /// How long there was neither an active job nor a call.
    pub fn idle_ms(&self) -> i64 {
        if !self.active().is_empty() {
            self.touch();
        }
        clock::now_ms() - self.last_call_ms.load(Ordering::Relaxed)
    }

    /// Turns true when the server ends.
    pub fn stopping(&self) -> watch::Receiver<bool> {
        self.stopping.subscribe()
    }

    /// Takes up what the ledger holds of an earlier life: finished jobs are listed, the others resumed.
    pub async fn restore(self: &Arc<Self>) -> Result<(), ledger::Error> {
        let mut records = Vec::new();
        for record in self.in_ledger(|ledger| ledger.jobs()).await? {
            match Record::decode(record.description.clone()) {
                Ok(description) => records.push((record, description)),
                Err(error) => {
                    tracing::error!(job = %record.job, %error, "the record of a job is malformed; the job is not resumed")
                }
            }
        }
        let wanted: BTreeSet<String> =
            records.iter().flat_map(|(_, record)| &record.artifacts).map(|artifact| artifact.sha256.clone()).collect();
        if let Err(error) = self.store.sweep(&wanted) {
            tracing::warn!(%error, "artifacts of forgotten jobs could not be deleted");
        }
        records.sort_by_key(|(_, record)| record.ended_ms);
        for (known, record) in records {
            match (JobState::try_from(record.state), record.ended_ms) {
                (Ok(state), Some(ended_ms)) if is_terminal(state) => self.remember_earlier(known, record, state, ended_ms).await,
                _ => self.resume(known, record).await,
            }
        }
        Ok(())
    }

    async fn remember_earlier(&self, known: JobRecord, record: Record, state: JobState, ended_ms: i64) {
        let facts = facts(&known, &record, &Staged::new(), plan::Origins::default());
        let job = Job::ended(known.job, facts, state, &record.errors, record.results(), ended_ms);
        self.lock().jobs.insert(job.id.clone(), job.clone());
        self.remember(&job).await;
    }

    /// Plans a job again and goes on with it. If that is not possible any more the job has failed.
    async fn resume(self: &Arc<Self>, known: JobRecord, record: Record) {
        let mut staged = Staged::new();
        let submission = self.resumption(&known, &record, &mut staged).await;
        let origins = submission.as_ref().map(|submission| submission.plan.origins.clone()).unwrap_or_default();
        let job = Job::starting(known.job.clone(), facts(&known, &record, &staged, origins));
        match submission {
            Ok(submission) => {
                tracing::info!(job = %job.id, "resuming");
                self.launch(job, submission);
            }
            Err(why) => {
                self.lock().jobs.insert(job.id.clone(), job.clone());
                job.fail(&format!("the job could not be resumed after a restart of the server: {why}"));
                self.settle(&job).await;
            }
        }
    }

    async fn resumption(&self, known: &JobRecord, record: &Record, staged: &mut Staged) -> Result<Submission, String> {
        let pipeline = Pipeline::decode(record.pipeline.clone()).map_err(|error| error.to_string())?;
        let pipeline = Arc::new(pipeline);
        *staged = record.staged(&self.store)?;
        let planned = self.planning.plan(pipeline.clone()).await.map_err(|status| status.message().to_string())?;
        let plan = planned.map_err(|problems| problems.to_string())?;
        let artifacts = environments::artifacts(&plan, &pipeline, staged)?;
        let job = known.job.clone();
        let ledger = self.in_ledger(move |ledger| ledger.open(&job)).await.map_err(|error| error.to_string())?;
        Ok(Submission {
            job: known.job.clone(),
            name: record.name.clone(),
            plan,
            pipeline,
            options: record.options.clone().unwrap_or_default(),
            settings: record.settings(known.shards),
            artifacts,
            ledger,
            resumed: true,
        })
    }

    /// Starts a job on a thread of its own and sees it through.
    fn launch(self: &Arc<Self>, job: Arc<Job>, submission: Submission) {
        self.lock().jobs.insert(job.id.clone(), job.clone());
        let runner = self.runner.clone();
        let started = job.clone();
        tokio::spawn(async move {
            let observer: Arc<dyn Observer> = started.clone();
            match tokio::task::spawn_blocking(move || runner.start(submission, observer)).await {
                Ok(Ok(running)) => started.started(running),
                Ok(Err(error)) => started.fail(&error.to_string()),
                Err(panic) => {
                    let text =
                        panic.try_into_panic().map_or_else(|_| "stopped".into(), |panic| panics::text(&*panic).to_string());
                    started.fail(&format!("internal error, please report it: the runner panicked: {text}"));
                }
            }
        });
        let jobs = self.clone();
        tokio::spawn(async move {
            let mut signals = job.signals();
            // The sender lives in the job, so waiting cannot fail.
            let _ = signals.wait_for(|signal| signal.cancelling || signal.ended).await;
            let grace = Duration::from_millis(jobs.config.cancel_grace_ms);
            if tokio::time::timeout(grace, signals.wait_for(|signal| signal.ended)).await.is_err() {
                job.abandon(&format!(
                    "the job did not stop within {} s of being cancelled and was given up",
                    grace.as_secs_f64()
                ));
            }
            if !job.is_suspended() {
                jobs.settle(&job).await;
            }
        });
    }

    /// What the ledger keeps of a job. Nothing where no later life of the server will read it.
    fn description(&self, record: impl FnOnce() -> Record) -> Bytes {
        if self.config.data_dir.is_some() { record().encode_to_vec().into() } else { Bytes::new() }
    }

    /// Records the end of a job, frees what it held, and forgets the oldest ones.
    async fn settle(&self, job: &Arc<Job>) {
        let description = self.description(|| Record::of_ended(job));
        let id = job.id.clone();
        let recorded = self.in_ledger(move |ledger| ledger.describe(&id, description).and_then(|()| ledger.purge(&id))).await;
        if let Err(error) = recorded {
            tracing::error!(job = %job.id, %error, "the end of the job could not be recorded");
        }
        self.remember(job).await;
    }

    async fn remember(&self, job: &Arc<Job>) {
        let mut forgotten = Vec::new();
        {
            let mut known = self.lock();
            known.finished.push_back(job.id.clone());
            known.finished_bytes += job.bytes();
            loop {
                let count = known.finished.len();
                let over = count > self.config.finished_jobs_max
                    || (known.finished_bytes > self.config.finished_bytes_max && count > FINISHED_JOBS_MIN);
                if !over {
                    break;
                }
                let Some(oldest) = known.finished.pop_front().and_then(|id| known.jobs.remove(&id)) else { break };
                known.finished_bytes -= oldest.bytes();
                forgotten.push(oldest.id.clone());
            }
        }
        for id in forgotten {
            if let Err(error) = self.in_ledger(move |ledger| ledger.remove(&id)).await {
                tracing::warn!(%error, "a forgotten job could not be removed");
            }
        }
    }

    /// Ends all jobs within the grace: those of a durable server are suspended, others cancelled. Then ends all streams.
    pub async fn stop(&self) {
        let is_durable = self.config.data_dir.is_some();
        if is_durable {
            self.store.keep_files();
        }
        let active = self.active();
        active.iter().for_each(|job| if is_durable { job.suspend() } else { _ = job.cancel() });
        let ended = async {
            for job in &active {
                let _ = job.signals().wait_for(|signal| signal.ended).await;
            }
        };
        if tokio::time::timeout(Duration::from_millis(self.config.shutdown_grace_ms), ended).await.is_err() {
            tracing::warn!("some jobs did not stop in time");
        }
        self.stopping.send_replace(true);
    }

    /// Takes a sample of every active job, for rates.
    pub fn sample(&self) {
        self.active().iter().for_each(|job| job.sample(clock::now_ms()));
    }

    async fn in_ledger<T: Send + 'static>(
        &self,
        call: impl FnOnce(&dyn Ledger) -> Result<T, ledger::Error> + Send + 'static,
    ) -> Result<T, ledger::Error> {
        let ledger = self.ledger.clone();
        let called = tokio::task::spawn_blocking(move || call(&*ledger)).await;
        called.unwrap_or_else(|_| Err(ledger::Error::Storage("the ledger panicked".into())))
    }

    /// An id that begins with the name as far as that can be part of a topic's or a file's name.
    fn new_id(&self, name: &str) -> JobId {
        let safe = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
        let name: String = name.chars().take(NAME_IN_ID_MAX).map(safe).collect();
        let name = name.trim_matches('-');
        let name = if name.is_empty() { "job" } else { name };
        loop {
            let id = JobId::from(format!("{name}-{:08x}", random() as u32));
            if !self.lock().jobs.contains_key(&id) {
                return id;
            }
        }
    }

    fn touch(&self) {
        self.last_call_ms.store(clock::now_ms(), Ordering::Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn facts(known: &JobRecord, record: &Record, staged: &Staged, origins: plan::Origins) -> Facts {
    Facts {
        name: record.name.clone(),
        pipeline: record.pipeline.clone(),
        options: record.options.clone().unwrap_or_default(),
        settings: record.settings(known.shards),
        step_names: record.step_names(),
        origins,
        files: files(staged),
        submitted_ms: record.submitted_ms,
    }
}

fn files(staged: &Staged) -> Vec<Arc<crate::store::Stored>> {
    staged.values().flatten().map(|artifact| artifact.file.clone()).collect()
}

/// A number that nobody can guess: the hasher's keys come from the operating system.
fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}
