//! One shard's loop: arrivals to the engine, work to workers, outcomes to the ledger.
//!
//! ```text
//!   step:  events ─▶ poll ledger ─▶ engine.next ─▶ worker ─▶ outcomes ─▶ one commit ─▶ engine.committed ─▶ reports
//! ```
//!
//! The engine hears of effects only after they are durable, and of the entries that a commit appended to this shard before
//! it hears that the bundle is committed: so no watermark can pass between the two.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;
use std::time::Duration;

use engine::{Engine, Entry, Work};
use ledger::{Append, Arrival, Commit, CommitError, Destination, EntryHeader, Partition, ShardLedger, Staged, StateWrite};
use model::batch::Row;
use model::{Batch, BatchBuilder, BundleId, ShardId, StageId, Timestamp, pane, window};
use plan::{Head, Input};
use worker::outputs::OutputOptions;
use worker::{Bundle, Outcome, Outputs, Slot};

use crate::commit::{self, Counts};
use crate::job::{Failure, Shared};
use crate::overlay::{CellSpace, Overlay};
use crate::quiescence::Standing;
use crate::running::{Finished, Running};

/// Arrivals taken from the ledger at a time.
const POLL_ENTRIES_MAX: usize = 4_096;
/// Commits are tried this often when the storage is away, ...
const COMMIT_TRIES_MAX: u32 = 60;
/// ... with this pause between tries.
const COMMIT_PAUSE_MS: i64 = 500;
/// A bundle that a worker lost is run again this often before the job fails.
const LOST_TRIES_MAX: u32 = 2;
/// Running bundles are looked at this often, for progress and checkpoints.
const LOOK_INTERVAL_MS: i64 = 250;

/// What can happen to a shard from outside its thread.
pub enum Event {
    /// The ledger may have arrivals.
    Wake,
    /// A worker is done with a bundle.
    Done(BundleId, Result<Outcome, worker::Error>),
    /// The job stops.
    Stop,
}

/// What a step came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Something changed; step again.
    Progressed,
    /// Nothing to do until an event or this time.
    Idle {
        /// Processing time in milliseconds.
        until_ms: Option<i64>,
    },
    /// The shard's part of the job is done and durable.
    Finished,
}

/// See the file's head.
pub struct Shard {
    shared: Arc<Shared>,
    id: ShardId,
    engine: Engine,
    ledger: Box<dyn ShardLedger>,
    slots: BTreeMap<StageId, Box<dyn Slot>>,
    events: Receiver<Event>,
    awake: Arc<AtomicBool>,
    running: BTreeMap<BundleId, Running>,
    finished: Vec<Finished>,
    reports: Vec<ledger::WatermarkReport>,
    pending: Option<PendingCommit>,
    /// Whether the job's first commit of this shard is durable; nothing may run or be reported before.
    begun: bool,
    tries: BTreeMap<StageId, u32>,
    looked_ms: i64,
}

/// A commit that has not succeeded yet.
struct PendingCommit {
    commit: Commit,
    bundles: Vec<(Finished, Counts)>,
    tries: u32,
    not_before_ms: i64,
}

impl Shard {
    /// Takes the shard over and rebuilds the engine from what the ledger holds.
    pub fn open(shared: Arc<Shared>, id: ShardId, events: Receiver<Event>) -> Result<Self, Failure> {
        let spec = &shared.spec;
        let awake = Arc::new(AtomicBool::new(false));
        let (flag, sender) = (awake.clone(), shared.sender(id));
        let wake = Arc::new(move || {
            if !flag.swap(true, Ordering::SeqCst) {
                // A shard that has ended does not listen any more.
                let _ = sender.send(Event::Wake);
            }
        });
        let ledger = spec.ledger.shard(id, wake).map_err(Failure::storage)?;
        let topology = crate::assembly::topology(&spec.plan, spec.shards, id);
        let mut engine = Engine::new(topology, spec.options.engine());
        if !spec.options.streaming {
            crate::assembly::gathering(&spec.plan).into_iter().for_each(|stage| engine.gather(stage));
        }
        let mut shard = Shard {
            shared,
            id,
            engine,
            ledger,
            slots: BTreeMap::new(),
            events,
            awake,
            running: BTreeMap::new(),
            finished: Vec::new(),
            reports: Vec::new(),
            pending: None,
            begun: true,
            tries: BTreeMap::new(),
            looked_ms: 0,
        };
        shard.recover()?;
        Ok(shard)
    }

    fn recover(&mut self) -> Result<(), Failure> {
        let recovered = self.ledger.recover().map_err(Failure::storage)?;
        let state = self.ledger.state();
        let grouping = Overlay::new(state.clone(), CellSpace::Grouping);
        self.engine.restore(&grouping).map_err(|error| Failure::internal(error.to_string()))?;
        for stage in 0..self.shared.stages.len() as u32 {
            let cell = state.get(&commit::metrics_cell(StageId(stage))).map_err(Failure::storage)?;
            let Some(bytes) = cell else { continue };
            let values = model::metric_codec::decode(&mut model::Reader::new(&bytes));
            let values = values.map_err(|error| Failure::internal(format!("committed metrics: {error}")))?;
            self.shared.metrics.restore(self.id, StageId(stage), values);
        }
        for entry in recovered.entries {
            self.arrived(entry);
        }
        for report in recovered.reports {
            self.engine.watermark(report.stage, report.shard, report.watermark);
        }
        let started = CellSpace::Executor.cell(b"started");
        if state.get(&started).map_err(Failure::storage)?.is_none() {
            self.begun = false;
            self.pending =
                Some(PendingCommit { commit: self.beginning(started), bundles: Vec::new(), tries: 0, not_before_ms: i64::MIN });
        }
        self.intake()?;
        Ok(())
    }

    /// The first commit of a job: one empty element for every impulse, on the first shard.
    fn beginning(&self, started: bytes::Bytes) -> Commit {
        let mut commit =
            Commit { state: vec![StateWrite { cell: started, value: Some(bytes::Bytes::new()) }], ..Commit::default() };
        let plan = &self.shared.spec.plan;
        for stage in plan.stages.iter().filter(|_| self.id == ShardId(0)) {
            for (input, _) in stage.inputs.iter().enumerate().filter(|(_, input)| **input == Input::Impulse) {
                commit.appends.push(Append {
                    to: Destination::Shard(self.id),
                    stage: stage.id,
                    input: input as u32,
                    producer: stage.id,
                    payload: Staged::in_memory(impulse()),
                    hold: Timestamp::MIN,
                    window_end: Timestamp::GLOBAL_WINDOW_END,
                    not_before_ms: None,
                });
            }
        }
        commit
    }

    /// Does what can be done now. Never blocks on a worker.
    pub fn step(&mut self, now_ms: i64) -> Result<Step, Failure> {
        let version = self.shared.quiescence.version();
        let mut progressed = self.take_events()?;
        progressed |= self.intake()?;
        if self.begun {
            progressed |= self.start_all(now_ms)?;
            progressed |= self.take_events()?;
            self.collect_reports();
        }
        progressed |= self.commit(now_ms)?;
        self.look_at_running(now_ms);
        if progressed {
            self.shared.quiescence.busy(self.id);
            return Ok(Step::Progressed);
        }
        if self.settled() && self.engine.finished() {
            self.shared.progress.set_status(self.id, self.engine.status());
            self.shared.wake(&self.shared.quiescence.finished(self.id));
            return Ok(Step::Finished);
        }
        self.rest(version, now_ms)
    }

    fn start_all(&mut self, now_ms: i64) -> Result<bool, Failure> {
        let mut any = false;
        while let Some(work) = self.engine.next(now_ms) {
            self.start(work, now_ms)?;
            any = true;
        }
        Ok(any)
    }

    fn settled(&self) -> bool {
        self.running.is_empty() && self.finished.is_empty() && self.pending.is_none() && self.reports.is_empty()
    }

    /// Nothing to do for now: for how long, or for ever?
    fn rest(&mut self, version: u64, now_ms: i64) -> Result<Step, Failure> {
        let look = (!self.running.is_empty()).then_some(now_ms + LOOK_INTERVAL_MS);
        let retry = self.pending.as_ref().map(|pending| pending.not_before_ms);
        let until_ms = [self.engine.wake_at_ms(), look, retry].into_iter().flatten().min();
        if until_ms.is_none() {
            self.shared.progress.set_status(self.id, self.engine.status());
            match self.shared.quiescence.idle(self.id, version) {
                Standing::Busy => {}
                Standing::Behind(shards) => self.shared.wake(&shards),
                Standing::Stuck => return Err(Failure::Stuck(self.shared.stuck_report())),
            }
        }
        Ok(Step::Idle { until_ms })
    }

    /// Blocks until an event or `until_ms`.
    pub fn wait(&mut self, until_ms: Option<i64>) {
        let now_ms = self.shared.spec.clock.now_ms();
        let event = match until_ms {
            Some(until_ms) => {
                let pause = Duration::from_millis(until_ms.saturating_sub(now_ms).max(0) as u64);
                self.events.recv_timeout(pause).ok()
            }
            None => self.events.recv().ok(),
        };
        if let Some(event) = event {
            // Failures show in the next step.
            self.take(event);
        }
    }

    fn take_events(&mut self) -> Result<bool, Failure> {
        let mut any = false;
        while let Ok(event) = self.events.try_recv() {
            // A wake counts, too: whoever takes it must look at the ledger before it rests, as no other comes until then.
            any = true;
            self.take(event);
        }
        if self.shared.stopping() {
            let running: Vec<_> = self.running.iter().map(|(bundle, running)| (*bundle, running.stage)).collect();
            for (bundle, stage) in running {
                if let Some(slot) = self.slots.get_mut(&stage) {
                    slot.abort(bundle);
                }
            }
            return Err(Failure::Cancelled);
        }
        Ok(any)
    }

    fn take(&mut self, event: Event) {
        if let Event::Done(bundle, result) = event {
            // A bundle that is not running was aborted.
            let Some(running) = self.running.remove(&bundle) else { return };
            if let Err(failure) = self.done(bundle, running, result) {
                self.shared.stop(failure);
            }
        }
    }

    fn done(&mut self, bundle: BundleId, running: Running, result: Result<Outcome, worker::Error>) -> Result<(), Failure> {
        let stage = running.stage;
        match result {
            Ok(outcome) if !commit::plausible(&outcome, self.splittable_rows(&running), self.is_splittable(stage)) => {
                self.shared.metrics.forget(self.id, bundle);
                Err(Failure::internal(format!("the worker of \"{}\" returned impossible splits", self.name(stage))))
            }
            Ok(outcome) => {
                self.tries.remove(&stage);
                self.finished.push(Finished { bundle, stage, rows: running.rows, writes: running.writes, outcome });
                Ok(())
            }
            Err(error) => {
                self.shared.metrics.forget(self.id, bundle);
                let tries = self.tries.entry(stage).or_default();
                *tries += 1;
                let allowed = match error {
                    worker::Error::User { .. } => self.shared.spec.options.retries,
                    worker::Error::Infrastructure(_) => LOST_TRIES_MAX.min(self.shared.spec.options.retries),
                    worker::Error::Protocol(_) | worker::Error::Aborted => 0,
                };
                if *tries > allowed {
                    return Err(error.into());
                }
                self.engine.failed(bundle);
                Ok(())
            }
        }
    }

    fn name(&self, stage: StageId) -> &str {
        &self.shared.stages[stage.0 as usize].name
    }

    fn is_splittable(&self, stage: StageId) -> bool {
        self.shared.stages[stage.0 as usize].splittable
    }

    /// Rows of input that a worker may leave: what a grouping stage has absorbed cannot be left.
    fn splittable_rows(&self, running: &Running) -> usize {
        match self.shared.spec.plan.stages[running.stage.0 as usize].head {
            Head::Grouping(_) | Head::Keyed(_) => 0,
            Head::Plain | Head::Script | Head::Restrictions { .. } => running.rows,
        }
    }

    /// Takes in everything that the ledger has for this shard.
    fn intake(&mut self) -> Result<bool, Failure> {
        self.awake.store(false, Ordering::SeqCst);
        let mut any = false;
        loop {
            let arrivals = self.ledger.poll(POLL_ENTRIES_MAX).map_err(Failure::storage)?;
            if arrivals.is_empty() {
                return Ok(any);
            }
            any = true;
            for arrival in arrivals {
                match arrival {
                    Arrival::Entry(header) => self.arrived(header),
                    Arrival::Watermark(report) => self.engine.watermark(report.stage, report.shard, report.watermark),
                }
            }
        }
    }

    fn arrived(&mut self, header: EntryHeader) {
        if header.position.partition == Partition::Broadcast {
            return self.shared.side_inputs.add(&header);
        }
        self.engine.entry(Entry {
            position: engine::Position { broadcast: false, offset: header.position.offset },
            stage: header.stage,
            remaining: header.remaining,
            bytes: header.bytes,
            rows: header.rows,
            hold: header.hold,
            window_end: header.window_end,
            not_before_ms: header.not_before_ms,
        });
    }

    fn start(&mut self, work: Work, now_ms: i64) -> Result<(), Failure> {
        let shared = self.shared.clone();
        let spec = &shared.stages[work.stage.0 as usize];
        let stage = &shared.spec.plan.stages[work.stage.0 as usize];
        let input = self.fetch(&work)?;
        let rows = input.iter().map(Batch::rows).sum();
        let (input, writes) = match stage.head {
            Head::Grouping(_) => self.group(&work, &input, now_ms)?,
            _ => (input, Vec::new()),
        };
        let outputs = Outputs::new(spec, self.output_options(work.bundle));
        let output_bytes = outputs.bytes();
        let running = Running {
            stage: work.stage,
            rows,
            writes,
            started_ms: now_ms,
            output_bytes,
            split_asked_ms: None,
            split_asked_bytes: 0,
        };
        if stage.body.is_none() || input.is_empty() {
            let outcome = pass_through(outputs, &input)?;
            return self.done(work.bundle, running, Ok(outcome));
        }
        self.open_slot(work.stage)?;
        self.running.insert(work.bundle, running);
        let sender = shared.sender(self.id);
        let bundle = Bundle {
            id: work.bundle,
            shard: self.id,
            input,
            timers: Vec::new(),
            state: shared.side_inputs.clone(),
            outputs,
            done: Box::new(move |bundle, result| {
                // A shard that has ended does not listen any more.
                let _ = sender.send(Event::Done(bundle, result));
            }),
        };
        self.slots.get_mut(&work.stage).expect("it was opened above").start(bundle);
        Ok(())
    }

    fn fetch(&self, work: &Work) -> Result<Vec<Batch>, Failure> {
        let mut input = Vec::with_capacity(work.entries.len());
        for entry in &work.entries {
            let batch = self.ledger.fetch(commit::ledger_position(entry.position)).map_err(Failure::storage)?;
            for rows in &entry.rows {
                input.push(batch.slice(rows.start as usize..rows.end as usize));
            }
        }
        Ok(input)
    }

    fn group(&mut self, work: &Work, rows: &[Batch], now_ms: i64) -> Result<(Vec<Batch>, Vec<StateWrite>), Failure> {
        let mut state = Overlay::new(self.ledger.state(), CellSpace::Grouping);
        let panes = self.engine.group(work, rows, now_ms, &mut state);
        let panes = panes.map_err(|error| Failure::internal(format!("{}: {error}", self.name(work.stage))))?;
        Ok((panes, state.into_writes()))
    }

    fn output_options(&self, bundle: BundleId) -> OutputOptions {
        let ledger = self.shared.spec.ledger.clone();
        OutputOptions {
            shards: self.shared.spec.shards,
            shard: self.id,
            first: self.id.0.wrapping_add(bundle.0 as u32),
            stager: Arc::new(move |batch| match ledger.stage(batch) {
                Ok(staged) => Ok(Box::new(staged)),
                Err(error) => Err(worker::Error::Infrastructure(error.to_string())),
            }),
        }
    }

    fn open_slot(&mut self, stage: StageId) -> Result<(), Failure> {
        if !self.slots.contains_key(&stage) {
            let spec = self.shared.stages[stage.0 as usize].clone();
            let worker = &self.shared.spec.workers[spec.environment.0 as usize];
            self.slots.insert(stage, worker.open(spec, self.id)?);
        }
        Ok(())
    }

    /// Commits what has finished, together. Returns whether anything was committed.
    fn commit(&mut self, now_ms: i64) -> Result<bool, Failure> {
        let mut pending = match self.pending.take() {
            Some(pending) => pending,
            None => match self.gather(now_ms)? {
                Some(pending) => pending,
                None => return Ok(false),
            },
        };
        if now_ms < pending.not_before_ms {
            self.pending = Some(pending);
            return Ok(false);
        }
        match self.ledger.commit(&pending.commit) {
            Ok(()) => {
                self.committed(pending.bundles)?;
                Ok(true)
            }
            Err(CommitError::Retry(_)) if pending.tries < COMMIT_TRIES_MAX => {
                pending.tries += 1;
                pending.not_before_ms = now_ms + COMMIT_PAUSE_MS;
                self.pending = Some(pending);
                Ok(false)
            }
            Err(error) => Err(Failure::Infrastructure(error.to_string())),
        }
    }

    fn gather(&mut self, now_ms: i64) -> Result<Option<PendingCommit>, Failure> {
        let mut commit = Commit::default();
        let mut bundles = Vec::new();
        for mut finished in std::mem::take(&mut self.finished) {
            let spec = &self.shared.stages[finished.stage.0 as usize];
            let ledger = &*self.shared.spec.ledger;
            let counts = commit::add(&mut commit, &mut finished, spec, self.id, &mut self.engine, ledger, now_ms)?;
            bundles.push((finished, counts));
        }
        if self.shared.spec.options.keep_metrics {
            self.add_metrics(&mut commit, &bundles);
        }
        commit.reports = std::mem::take(&mut self.reports);
        if commit.is_empty() && bundles.is_empty() {
            return Ok(None);
        }
        Ok(Some(PendingCommit { commit, bundles, tries: 0, not_before_ms: now_ms }))
    }

    /// Adds each concerned stage's committed metrics as they will be.
    fn add_metrics(&self, commit: &mut Commit, bundles: &[(Finished, Counts)]) {
        let mut stages: BTreeMap<StageId, Vec<_>> = BTreeMap::new();
        for (finished, _) in bundles.iter().filter(|(finished, _)| !finished.outcome.metrics.is_empty()) {
            stages.entry(finished.stage).or_default().extend(finished.outcome.metrics.iter().cloned());
        }
        for (stage, values) in stages {
            let mut bytes = Vec::new();
            model::metric_codec::encode(&self.shared.metrics.preview(self.id, stage, &values), &mut bytes);
            commit.state.push(StateWrite { cell: commit::metrics_cell(stage), value: Some(bytes.into()) });
        }
    }

    fn committed(&mut self, bundles: Vec<(Finished, Counts)>) -> Result<(), Failure> {
        self.shared.quiescence.committed();
        self.shared.progress.commits.fetch_add(1, Ordering::Relaxed);
        self.begun = true;
        self.intake()?;
        for (finished, counts) in bundles {
            self.engine.committed(finished.bundle);
            self.shared.metrics.commit(self.id, finished.stage, finished.bundle, &finished.outcome.metrics);
            let counters = self.shared.progress.stage(finished.stage);
            counters.rows_in.fetch_add(counts.rows_in, Ordering::Relaxed);
            counters.rows_out.fetch_add(counts.rows_out, Ordering::Relaxed);
            counters.bytes_out.fetch_add(counts.bytes_out, Ordering::Relaxed);
            counters.bundles.fetch_add(1, Ordering::Relaxed);
            if finished.outcome.finalize
                && let Some(slot) = self.slots.get_mut(&finished.stage)
            {
                slot.finalize(finished.bundle);
            }
        }
        Ok(())
    }

    fn collect_reports(&mut self) {
        let shard = self.id;
        let moved = self.engine.reports();
        self.reports.extend(moved.into_iter().map(|(stage, watermark)| ledger::WatermarkReport { stage, shard, watermark }));
    }

    /// Progress of running bundles, and checkpoints of restrictions that have run long enough.
    fn look_at_running(&mut self, now_ms: i64) {
        if now_ms - self.looked_ms < LOOK_INTERVAL_MS {
            return;
        }
        self.looked_ms = now_ms;
        self.shared.progress.set_status(self.id, self.engine.status());
        for (bundle, running) in &mut self.running {
            let Some(slot) = self.slots.get_mut(&running.stage) else { continue };
            if let Some(progress) = slot.progress(*bundle) {
                self.shared.metrics.progress(self.id, *bundle, progress.metrics);
            }
            let Head::Restrictions { unbounded } = self.shared.spec.plan.stages[running.stage.0 as usize].head else { continue };
            if running.wants_checkpoint(unbounded, &self.shared.spec.options, now_ms) {
                running.split_asked_ms = Some(now_ms);
                running.split_asked_bytes = running.output_bytes.load(Ordering::Relaxed);
                slot.split(*bundle, 0.0);
            }
        }
    }
}

impl Shared {
    /// What each shard waits for.
    fn stuck_report(&self) -> String {
        let mut report = String::new();
        for (shard, stages) in self.progress.statuses().iter().enumerate() {
            for status in stages.iter().filter(|status| status.output_watermark < Timestamp::MAX) {
                report.push_str(&format!("{}: {status}\n", ShardId(shard as u32)));
            }
        }
        report
    }
}

/// What a stage without a body does: the head's rows go to the only sink.
fn pass_through(mut outputs: Outputs, input: &[Batch]) -> Result<Outcome, Failure> {
    if outputs.is_nowhere() {
        return Ok(Outcome::default());
    }
    for batch in input {
        outputs.push_batch(0, batch)?;
    }
    Ok(Outcome { outputs: outputs.finish()?, ..Outcome::default() })
}

/// One empty byte string in the global window at the beginning of time.
fn impulse() -> Batch {
    let mut builder = BatchBuilder::new();
    builder.push(Row { value: &[0], timestamp: Timestamp::MIN, windows: window::GLOBAL_SET, pane: pane::NO_FIRING });
    builder.finish()
}
