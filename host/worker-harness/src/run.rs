//! The life of one bundle, as one task: request, input, progress, splits, outcome.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use model::BundleId;
use proto::fnapi::instruction_request::Request;
use proto::fnapi::instruction_response::Response;
use proto::fnapi::process_bundle_split_request::DesiredSplit;
use proto::fnapi::{ProcessBundleProgressRequest, ProcessBundleRequest, ProcessBundleSplitRequest, ProcessBundleSplitResponse};
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior, interval_at};
use worker::finalization::Finalizable;
use worker::{Bundle, Completion, Error, Outcome, Progress};

use crate::active::{ActiveBundle, Collected, Settled};
use crate::cache_token::{Remembered, of_user_state};
use crate::descriptor::PreparedStage;
use crate::environment::Environment;
use crate::feed::{Feed, Route};
use crate::harness::{Harness, locked};
use crate::metrics;
use crate::slot::Ran;
use crate::split::Remainder;

/// What a slot can ask of its running bundle. The slot's end asks for an abort.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Command {
    Split(f64),
    Abort,
}

/// What a bundle's task shares with its slot.
pub(crate) struct Run {
    pub(crate) environment: Arc<Environment>,
    /// Which of the environment's harnesses.
    pub(crate) position: usize,
    pub(crate) stage: Arc<PreparedStage>,
    pub(crate) heard: Arc<Mutex<Heard>>,
    pub(crate) finalizable: Arc<Mutex<Finalizable<Ran>>>,
    pub(crate) remembered: Arc<Mutex<Remembered>>,
    pub(crate) commands: mpsc::UnboundedReceiver<Command>,
    /// The fraction of a split that was asked for and not passed on yet.
    pub(crate) wanted: Option<f64>,
}

/// What was last heard of a bundle.
pub(crate) struct Heard {
    progress: Progress,
    /// None while there is nobody to be heard.
    at: Option<Instant>,
}

impl Heard {
    /// Nothing: it waits for its harness.
    pub(crate) fn nothing() -> Self {
        let worker = Some("a harness that has not started".to_owned());
        Heard { progress: Progress { worker, ..Progress::default() }, at: None }
    }

    /// With how long ago it was heard.
    pub(crate) fn progress(&self) -> Progress {
        let silent = self.at.map(|at| at.elapsed()).unwrap_or_default();
        let silent_ms = u64::try_from(silent.as_millis()).unwrap_or(u64::MAX);
        Progress { silent_ms, ..self.progress.clone() }
    }

    fn begins_in(&mut self, harness: &Harness) {
        self.progress.worker = Some(format!("harness {}", harness.id));
        self.at = Some(Instant::now());
    }

    /// The harness has answered; an answer without metrics says nothing new.
    fn answered(&mut self, progress: Progress) {
        self.at = Some(Instant::now());
        if !progress.metrics.is_empty() {
            let worker = self.progress.worker.take();
            self.progress = Progress { worker, ..progress };
        }
    }
}

/// Calls a completion exactly once, even when the runtime drops the task that owns it.
pub(crate) struct Done {
    bundle: BundleId,
    completion: Option<Completion>,
}

impl Done {
    pub(crate) fn new(bundle: BundleId, completion: Completion) -> Self {
        Done { bundle, completion: Some(completion) }
    }

    pub(crate) fn complete(mut self, result: Result<Outcome, Error>) {
        if let Some(completion) = self.completion.take() {
            completion(self.bundle, result);
        }
    }
}

impl Drop for Done {
    fn drop(&mut self) {
        if let Some(completion) = self.completion.take() {
            completion(self.bundle, Err(Error::Infrastructure("the host ended while a bundle was running".to_owned())));
        }
    }
}

type Asked<T> = Option<Pin<Box<dyn Future<Output = T> + Send>>>;

/// Waits for a question that was asked, or for ever.
async fn answer<T>(asked: &mut Asked<T>) -> T {
    match asked {
        Some(future) => {
            let answer = future.await;
            *asked = None;
            answer
        }
        None => std::future::pending().await,
    }
}

impl Run {
    pub(crate) async fn run(mut self, bundle: Bundle) {
        let Bundle { id, input, timers, state, outputs, done, .. } = bundle;
        let done = Done::new(id, done);
        let work = Work { id, input, timers, state, outputs };
        let result = match self.harness().await {
            Ok(harness) => self.run_on(harness, work).await,
            Err(error) => Err(error),
        };
        done.complete(result);
    }

    /// Waits for the harness, unless the bundle is given up before.
    async fn harness(&mut self) -> Result<Arc<Harness>, Error> {
        let environment = self.environment.clone();
        let harness = environment.harness(self.position);
        tokio::pin!(harness);
        loop {
            tokio::select! {
                harness = &mut harness => return harness,
                () = environment.closed() => return Err(Error::Aborted),
                command = self.commands.recv() => match command {
                    Some(Command::Split(fraction)) => self.want_split(fraction),
                    Some(Command::Abort) | None => return Err(Error::Aborted),
                },
            }
        }
    }

    async fn run_on(&mut self, harness: Arc<Harness>, work: Work) -> Result<Outcome, Error> {
        locked(&self.heard).begins_in(&harness);
        let (active, settled) = harness.begin(&self.stage, work.outputs, work.state)?;
        let _forget = Forget { harness: &harness, instruction: &active.instruction };
        let capabilities = self.environment.capabilities();
        let route = Route::of(&work.input, &work.timers, capabilities);
        let mut remainder = Remainder::new(work.input.iter().map(|batch| batch.rows() as u64).sum());
        let splits = work.timers.is_empty();
        let feed = Feed::new(&self.stage.spec, &active.instruction, work.input, work.timers, capabilities);

        let large = if route == Route::Alone { harness.large_stream() } else { None };
        let stream = large.as_ref().map(|large| large.name()).unwrap_or_default();
        let token = locked(&self.remembered).begin(&harness.id);
        let mut request = ProcessBundleRequest {
            cache_tokens: vec![of_user_state(token.clone())],
            process_bundle_descriptor_id: self.stage.descriptor_id.clone(),
            data_stream_id: stream.clone(),
            ..Default::default()
        };
        let mut feeding: Asked<Result<(), Error>> = None;
        if route == Route::Embedded {
            request.elements = Some(feed.embed()?);
        } else {
            feeding = Some(Box::pin(feed.send(harness.data_sender(&stream))));
        }
        harness.send(active.instruction.clone(), Request::ProcessBundle(request))?;

        let result = self.attend(&harness, &active, settled, &mut feeding, &mut remainder, splits).await;
        let answered = matches!(result, Ok(_) | Err(Error::User { .. }));
        if let Some(rest) = feeding.filter(|_| !answered && !harness.is_dead()) {
            // The SDK still waits for input. It cannot be stopped, so it gets what it needs to come to an end.
            tokio::spawn(async move {
                let _ = rest.await;
                drop(large);
            });
        }
        let outcome = self.outcome(&harness, &active, result?, remainder, work.id).await?;
        locked(&self.remembered).succeeded(&harness.id, token);
        Ok(outcome)
    }

    /// Sees a bundle through until it settles, or is given up.
    async fn attend(
        &mut self,
        harness: &Arc<Harness>,
        active: &Arc<ActiveBundle>,
        mut settled: Settled,
        feeding: &mut Asked<Result<(), Error>>,
        remainder: &mut Remainder,
        splits: bool,
    ) -> Result<Collected, Error> {
        let environment = self.environment.clone();
        let timeouts = environment.timeouts();
        let stage = self.stage.clone();
        let question = Question { harness: harness.clone(), stage, active: active.clone(), timeout: timeouts.unresponsive };
        let mut ticks = interval_at(Instant::now() + timeouts.progress_interval, timeouts.progress_interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut probing: Asked<Option<Progress>> = None;
        let mut splitting: Asked<Result<ProcessBundleSplitResponse, Error>> = None;
        let collected = loop {
            if splitting.is_none() {
                let wanted = self.wanted.take().filter(|_| splits);
                splitting = wanted.map(|fraction| Box::pin(question.clone().split(fraction, remainder.rows())) as _);
            }
            tokio::select! {
                biased;
                result = &mut settled => break result.map_err(|_| harness.gone())??,
                () = environment.closed() => return Err(give_up(active)),
                command = self.commands.recv() => match command {
                    Some(Command::Split(fraction)) => self.want_split(fraction),
                    Some(Command::Abort) | None => {
                        if splits {
                            tokio::spawn(question.clone().split(0.0, remainder.rows()));
                        }
                        return Err(give_up(active));
                    }
                },
                fed = answer(feeding) => fed?,
                // A harness that fails to answer has failed, and the bundle with it.
                response = answer(&mut splitting) => if let Ok(response) = response {
                    self.take_split(active, remainder, response)?;
                },
                progress = answer(&mut probing) => if let Some(progress) = progress {
                    locked(&self.heard).answered(progress);
                },
                _ = ticks.tick() => {
                    check_output(active, timeouts.output_after_response)?;
                    if probing.is_none() {
                        probing = Some(Box::pin(question.clone().probe()));
                    }
                }
            }
        };
        // The answer to a split may come after the bundle's own, and what it cut off must not be lost.
        if splitting.is_some() {
            let response = answer(&mut splitting).await?;
            self.take_split(active, remainder, response)?;
        }
        Ok(collected)
    }

    /// One split at a time: of those that have to wait, the one that keeps least counts.
    fn want_split(&mut self, fraction: f64) {
        self.wanted = Some(self.wanted.map_or(fraction, |other| other.min(fraction)));
    }

    fn take_split(
        &self,
        active: &ActiveBundle,
        remainder: &mut Remainder,
        response: ProcessBundleSplitResponse,
    ) -> Result<(), Error> {
        remainder.take(response, &self.stage.spec.source).map_err(|error| active.named(error))
    }

    async fn outcome(
        &self,
        harness: &Arc<Harness>,
        active: &ActiveBundle,
        collected: Collected,
        mut remainder: Remainder,
        id: BundleId,
    ) -> Result<Outcome, Error> {
        let Collected { outputs, timers, response } = collected;
        let spec = &self.stage.spec;
        remainder.take_roots(response.residual_roots, &spec.source).map_err(|error| active.named(error))?;
        let unresponsive = self.environment.timeouts().unresponsive;
        let metrics = harness.metrics(response.monitoring_data, response.monitoring_infos, unresponsive).await?;
        let (unprocessed, residuals) = remainder.finish();
        if !residuals.is_empty() && !spec.splittable {
            return Err(active.named(Error::Protocol("left residuals although nothing in it is splittable".to_owned())));
        }
        let outputs = outputs.finish().map_err(|error| active.named(error))?;
        if response.requires_finalization {
            let ran = Ran { harness: Arc::downgrade(harness), instruction_id: active.instruction.clone() };
            locked(&self.finalizable).add(id, ran);
        }
        Ok(Outcome { outputs, unprocessed, residuals, timers, metrics, finalize: response.requires_finalization })
    }
}

/// There is no way to stop a bundle but to let it run out: it may be asked to stop early, and it finds no state any more.
/// What it still sends is ignored.
fn give_up(active: &ActiveBundle) -> Error {
    active.fail(Error::Aborted);
    Error::Aborted
}

/// A response without its output is a harness that hangs, or one that forgot a terminator.
fn check_output(active: &ActiveBundle, timeout: Duration) -> Result<(), Error> {
    let Some((since, missing)) = active.overdue() else { return Ok(()) };
    if since.elapsed() < timeout {
        return Ok(());
    }
    let seconds = timeout.as_secs_f64();
    let what = format!("answered the bundle but did not end its output within {seconds} s; missing: {missing}");
    Err(active.named(Error::Protocol(what)))
}

/// The parts of a bundle that are used up on the way.
struct Work {
    id: BundleId,
    input: Vec<model::Batch>,
    timers: Vec<worker::FiredTimer>,
    state: Arc<dyn worker::StateAccess>,
    outputs: worker::Outputs,
}

/// However a bundle's task ends, the harness forgets the bundle.
struct Forget<'a> {
    harness: &'a Harness,
    instruction: &'a str,
}

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        self.harness.forget(self.instruction);
    }
}

/// Something to be asked of a harness about a bundle.
#[derive(Clone)]
struct Question {
    harness: Arc<Harness>,
    stage: Arc<PreparedStage>,
    active: Arc<ActiveBundle>,
    timeout: Duration,
}

impl Question {
    /// Asks for progress; without metrics, the bundle has not begun or is over. None: there was no answer.
    async fn probe(self) -> Option<Progress> {
        let instruction_id = self.active.instruction.clone();
        let request = Request::ProcessBundleProgress(ProcessBundleProgressRequest { instruction_id });
        let response = self.harness.ask("progress-", request, self.timeout).await.ok()?;
        let Some(Response::ProcessBundleProgress(progress)) = response.response.filter(|_| response.error.is_empty()) else {
            return Some(Progress::default());
        };
        let metrics = self.harness.metrics(progress.monitoring_data, progress.monitoring_infos, self.timeout).await.ok()?;
        let row = metrics::read_index(&metrics, self.stage.spec.source.transform.as_str());
        Some(Progress { row, metrics, ..Progress::default() })
    }

    /// Asks for a split. An error of the harness means that it could not.
    async fn split(self, fraction: f64, rows: u64) -> Result<ProcessBundleSplitResponse, Error> {
        let desired = DesiredSplit {
            fraction_of_remainder: fraction.clamp(0.0, 1.0),
            estimated_input_elements: rows as i64,
            allowed_split_points: Vec::new(),
        };
        let desired_splits = [(self.stage.spec.source.transform.to_string(), desired)].into();
        let request = ProcessBundleSplitRequest { instruction_id: self.active.instruction.clone(), desired_splits };
        let response = self.harness.ask("split-", Request::ProcessBundleSplit(request), self.timeout).await?;
        match response.response {
            Some(Response::ProcessBundleSplit(split)) if response.error.is_empty() => Ok(split),
            _ => Ok(ProcessBundleSplitResponse::default()),
        }
    }
}
