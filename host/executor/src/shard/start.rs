//! Starts what the engine wants to run: its rows are fetched, its head decides what the body is given, a worker gets it.

use std::sync::Arc;

use engine::{Readied, Work};
use model::{Batch, BundleId, StageId};
use plan::Head;
use worker::outputs::OutputOptions;
use worker::{Bundle, Outcome, Outputs};

use super::{Event, Shard};
use crate::commit;
use crate::job::Failure;
use crate::overlay::{CellSpace, Overlay};
use crate::running::Running;
use crate::user_state::BundleState;

impl Shard {
    /// Starts all that can run now. Returns whether there was anything.
    pub(super) fn start_all(&mut self, now_ms: i64) -> Result<bool, Failure> {
        let mut any = false;
        while let Some(work) = self.engine.next(self.job_time(now_ms)) {
            self.start(work, now_ms)?;
            any = true;
        }
        Ok(any)
    }

    fn start(&mut self, work: Work, now_ms: i64) -> Result<(), Failure> {
        let shared = self.shared.clone();
        let input = self.fetch(&work)?;
        let rows = input.iter().map(Batch::rows).sum();
        let truncated = self.truncates(work.stage);
        if truncated || shared.spec.plan.stages[work.stage.0 as usize].merging.is_some() {
            // Nobody looks while the shard waits for an answer.
            self.note_status(now_ms);
        }
        let mut head = Overlay::new(self.ledger.state(), CellSpace::Heads);
        let Readied { input, timers, expired, .. } = match self.ready(&work, input, now_ms, &mut head) {
            Ok(readied) => readied,
            Err(failure) => return self.not_readied(&work, failure),
        };
        let outputs = Outputs::new(&shared.stages[work.stage.0 as usize], self.output_options(work.bundle));
        let state = Arc::new(self.bundle_state(work.stage));
        let running = Running {
            stage: work.stage,
            rows,
            items: input.iter().map(Batch::rows).sum::<usize>() + timers.len(),
            head,
            state: state.clone(),
            expired,
            started_ms: now_ms,
            output_bytes: outputs.bytes(),
            truncated,
            split_asked_ms: None,
            split_asked_bytes: 0,
        };
        let has_body = shared.spec.plan.stages[work.stage.0 as usize].body.is_some();
        if !has_body || (input.is_empty() && timers.is_empty()) {
            let outcome = pass_through(outputs, &input)?;
            return self.done(work.bundle, running, Ok(outcome));
        }
        self.open_slot(work.stage)?;
        self.shared.progress.at_work(self.id, work.stage, running.work(work.bundle, None));
        self.running.insert(work.bundle, running);
        let sender = shared.sender(self.id);
        let bundle = Bundle {
            id: work.bundle,
            shard: self.id,
            input,
            timers,
            state,
            now_ms: self.job_time(now_ms),
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

    /// What a stage's head makes of its rows. It writes to `state`.
    fn ready(&mut self, work: &Work, input: Vec<Batch>, now_ms: i64, state: &mut Overlay) -> Result<Readied, Failure> {
        let now_ms = self.job_time(now_ms);
        let input = match self.shared.spec.plan.stages[work.stage.0 as usize].head {
            Head::Keyed(_) => {
                let readied = self.engine.key(work, &input, now_ms, state);
                return readied.map_err(|error| self.head_failure(work.stage, &error));
            }
            Head::Grouping(_) => self.group(work, &input, now_ms, state)?,
            Head::Restrictions { .. } if self.truncates(work.stage) => self.truncate(work.stage, input)?,
            Head::Plain | Head::Script | Head::Restrictions { .. } => input,
        };
        Ok(Readied { input, ..Readied::default() })
    }

    /// Workers that were asked on the side may be lost or fail as others do, and then the bundle is tried again.
    fn not_readied(&mut self, work: &Work, failure: Failure) -> Result<(), Failure> {
        let error = match failure {
            Failure::User { transform, message } => worker::Error::User { transform, message },
            Failure::Infrastructure(message) => worker::Error::Infrastructure(message),
            other => return Err(other),
        };
        self.mergers.remove(&work.stage);
        self.truncations.remove(&work.stage);
        self.try_again(work.bundle, work.stage, error)
    }

    /// A stage's head has failed: a fault of ours.
    pub(super) fn head_failure(&self, stage: StageId, error: &engine::Error) -> Failure {
        Failure::internal(format!("{}: {error}", self.name(stage)))
    }

    fn bundle_state(&self, stage: StageId) -> BundleState {
        let states = self.shared.states[stage.0 as usize].clone();
        let bytes_max = self.shared.spec.options.bundle_state_bytes_max;
        BundleState::new(states, self.ledger.state(), self.shared.side_inputs.clone(), bytes_max)
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
