//! Runs jobs on the executor: makes a worker for every environment of a plan and carries results back to the Job API.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use executor::job::{Clock, Shared};
use executor::report::{JobReport, StageReport};
use executor::{Failure, Job, JobSpec};
use model::{EnvironmentId, ShardId, StageId, Timestamp, urn};
use server::logging;
use server::run::{End, Error, Hold, Importance, JobRunner, Metrics, Observer, RunningJob, StageStatus, Submission};
use worker::Worker;
use worker_harness::{EnvironmentOptions, HarnessHost, LogEntry, LogSink, ResolvedArtifact, Severity, Timeouts};
use worker_wasm::WasmEngine;

use crate::times::Spelled;

/// The runner of a server: everything that its jobs share.
pub(crate) struct Runner {
    pub(crate) harnesses: HarnessHost,
    pub(crate) wasm: WasmEngine,
    /// Variables of every harness that is started as a process.
    pub(crate) process_env: BTreeMap<String, String>,
    pub(crate) clock: Arc<dyn Clock>,
    /// Whether jobs survive the process.
    pub(crate) durable: bool,
}

impl JobRunner for Runner {
    fn start(&self, submission: Submission, observer: Arc<dyn Observer>) -> Result<Box<dyn RunningJob>, Error> {
        let workers = self.workers(&submission, &observer)?;
        let settings = &submission.settings;
        let options = executor::Options {
            retries: settings.retries,
            streaming: settings.streaming,
            keep_metrics: self.durable,
            ..executor::Options::local()
        };
        let plan = Arc::new(submission.plan);
        let ending = Ending { job: submission.job.to_string(), observer: observer.clone(), workers: workers.clone() };
        let spec = JobSpec {
            name: submission.job.to_string(),
            plan,
            shards: submission.settings.shards,
            ledger: submission.ledger,
            workers,
            clock: self.clock.clone(),
            options,
        };
        observer.running();
        let job = Job::start(spec, Arc::new(ending)).map_err(|error| Error(format!("start the job's threads: {error}")))?;
        Ok(Box::new(Running(job)))
    }
}

impl Runner {
    /// One worker per environment; all components of a job share one.
    fn workers(&self, submission: &Submission, observer: &Arc<dyn Observer>) -> Result<Vec<Arc<dyn Worker>>, Error> {
        let components = self.components(submission)?;
        let wasm = (!components.is_empty()).then(|| self.wasm.worker(components));
        let environments = submission.plan.environments.iter().zip(&submission.artifacts);
        environments
            .map(|(environment, artifacts)| match &wasm {
                Some(wasm) if environment.urn == urn::ENV_WASM => Ok(wasm.clone()),
                _ => self.harness(submission, environment, artifacts, observer),
            })
            .collect()
    }

    fn components(&self, submission: &Submission) -> Result<BTreeMap<EnvironmentId, Arc<worker_wasm::Component>>, Error> {
        let mut components = BTreeMap::new();
        for (number, environment) in submission.plan.environments.iter().enumerate().filter(|(_, it)| it.urn == urn::ENV_WASM) {
            let refused = |what: String| Error(format!("environment {}: {what}", environment.id));
            let payload = worker_wasm::payload::EnvironmentPayload::decode(&environment.payload).map_err(refused)?;
            let digest: String = payload.digest.iter().map(|byte| format!("{byte:02x}")).collect();
            let artifact = submission.artifacts[number].iter().find(|artifact| artifact.sha256 == digest);
            let artifact = artifact.ok_or_else(|| refused("its component was not staged".into()))?;
            let bytes = std::fs::read(&artifact.path).map_err(|error| refused(format!("read the component: {error}")))?;
            let component = self.wasm.component(&bytes).map_err(|error| refused(error.to_string()))?;
            components.insert(EnvironmentId(number as u32), component);
        }
        Ok(components)
    }

    fn harness(
        &self,
        submission: &Submission,
        environment: &plan::Environment,
        artifacts: &[server::run::Artifact],
        observer: &Arc<dyn Observer>,
    ) -> Result<Arc<dyn Worker>, Error> {
        let artifact = |artifact: &server::run::Artifact| ResolvedArtifact {
            info: artifact.information.clone(),
            path: artifact.path.clone(),
        };
        let options = EnvironmentOptions {
            job: submission.job.clone(),
            job_name: submission.name.clone(),
            environment: environment.serialized.clone(),
            pipeline_options: submission.options.clone(),
            artifacts: artifacts.iter().map(artifact).collect(),
            process_env: self.process_env.clone(),
            harnesses: submission.settings.harnesses,
            log: Arc::new(JobLog { job: submission.job.to_string(), observer: observer.clone() }),
            timeouts: Timeouts::default(),
        };
        let made = self.harnesses.environment(options);
        made.map(|worker| worker as Arc<dyn Worker>).map_err(|error| Error(format!("environment {}: {error}", environment.id)))
    }
}

/// Harness lines become lines of the server's log; warnings and worse are messages of the job too.
struct JobLog {
    job: String,
    observer: Arc<dyn Observer>,
}

impl LogSink for JobLog {
    fn log(&self, entry: LogEntry) {
        let LogEntry { severity, message, trace, transform, worker, .. } = entry;
        let text = if trace.is_empty() { message } else { format!("{message}\n{trace}") };
        logging::sdk_line(&self.job, severity, &text, Some(&*transform).filter(|id| !id.is_empty()), &worker);
        if severity >= Severity::Warn {
            // What a harness logs is not why the job failed: ERROR is kept for that.
            self.observer.message(Importance::Warning, &text);
        }
    }
}

/// Ends the workers and tells the Job API, once.
struct Ending {
    job: String,
    observer: Arc<dyn Observer>,
    workers: Vec<Arc<dyn Worker>>,
}

impl executor::Observer for Ending {
    fn unsettled(&self, names: &[String]) {
        let names = names.join(", ");
        tracing::warn!(job = self.job, workers = names, "user code has not answered in time that it heard of commits");
        let text = format!("the job ended before user code finished what it does after commits, in: {names}");
        self.observer.message(Importance::Warning, &text);
    }

    fn ended(&self, shared: &Shared, result: Result<(), Failure>) {
        self.workers.iter().for_each(|worker| worker.close());
        let end = match result {
            Ok(()) => End::Done,
            Err(Failure::Cancelled) => End::Cancelled,
            Err(Failure::Suspended) => End::Suspended,
            Err(failure) => End::Failed(failure.words(&Spelled { now_ms: shared.report().now_ms })),
        };
        self.observer.finished(end, metrics(shared), status(shared));
    }
}

/// A job on the executor's threads.
struct Running(Job);

impl RunningJob for Running {
    fn cancel(&self) {
        self.0.cancel();
    }

    fn drain(&self) {
        self.0.drain();
    }

    fn suspend(&self) {
        self.0.suspend();
    }

    fn metrics(&self) -> Metrics {
        metrics(self.0.shared())
    }

    fn status(&self) -> Vec<StageStatus> {
        status(self.0.shared())
    }
}

fn metrics(shared: &Shared) -> Metrics {
    Metrics {
        attempted: shared.metrics.attempted().into_iter().collect(),
        committed: shared.metrics.committed().into_iter().collect(),
    }
}

/// Per stage: counters over all shards, and the slowest shard's watermarks with what holds them.
fn status(shared: &Shared) -> Vec<StageStatus> {
    let report = shared.report();
    let times = Spelled { now_ms: report.now_ms };
    let plan = shared.plan();
    let stages = plan.stages.iter().zip(&shared.progress.stages);
    let line = |(stage, counters): (&plan::Stage, &executor::progress::StageCounters)| {
        let shards = (0u32..).map(ShardId).zip(&report.shards);
        let of_shards: Vec<_> = shards.filter_map(|(shard, stages)| Some((shard, stages.get(stage.id.0 as usize)?))).collect();
        let slowest = of_shards.iter().min_by_key(|(_, report)| report.status.output_watermark);
        let inputs = of_shards.iter().map(|(_, report)| report.status.input_watermark);
        StageStatus {
            stage: stage.id,
            name: stage.name.clone(),
            rows_in: counters.rows_in.load(Relaxed),
            rows_out: counters.rows_out.load(Relaxed),
            backlog: of_shards.iter().map(|(_, report)| report.status.pending_rows).sum(),
            input_watermark: inputs.min().unwrap_or(Timestamp::MIN),
            output_watermark: slowest.map_or(Timestamp::MIN, |(_, report)| report.status.output_watermark),
            held_by: slowest.map(|(_, slowest)| report.held(slowest, &times)).unwrap_or_default(),
            slowest: slowest.map_or(ShardId(0), |(shard, _)| *shard),
            since_ms: slowest.map_or(report.now_ms, |(_, report)| report.since_ms),
            holds: holds(&report, stage.id, &times),
        }
    };
    stages.map(line).collect()
}

fn holds(report: &JobReport, stage: StageId, times: &Spelled) -> Vec<Hold> {
    let holders = report.holders().into_iter().filter(|(_, holder)| holder.status.stage == stage);
    let hold = |(shard, holder): (ShardId, &StageReport)| Hold {
        shard,
        output_watermark: holder.status.output_watermark,
        since_ms: holder.since_ms,
        held_by: report.held(holder, times),
    };
    holders.map(hold).collect()
}
