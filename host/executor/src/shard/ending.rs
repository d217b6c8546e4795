//! A bundle has ended: it waits for the next commit, or is tried again, or fails the job.

use model::{BundleId, Duration, StageId, TimerChange};
use plan::Head;
use worker::Outcome;

use super::Shard;
use crate::commit;
use crate::job::Failure;
use crate::running::{Finished, Running};

/// A bundle that a worker lost is run again this often before the job fails.
const LOST_TRIES_MAX: u32 = 2;

impl Shard {
    pub(super) fn done(
        &mut self,
        bundle: BundleId,
        running: Running,
        result: Result<Outcome, worker::Error>,
    ) -> Result<(), Failure> {
        let stage = running.stage;
        if running.state.is_full() && running.items > 1 {
            self.halve(bundle, &running);
            return Ok(());
        }
        let ended = match result {
            Ok(outcome) => self.succeeded(bundle, running, outcome),
            Err(error) => self.try_again(bundle, stage, error),
        };
        if ended.is_err() {
            self.shared.metrics.forget(self.id, bundle);
        }
        ended
    }

    fn succeeded(&mut self, bundle: BundleId, mut running: Running, mut outcome: Outcome) -> Result<(), Failure> {
        let stage = running.stage;
        let splittable = self.shared.stages[stage.0 as usize].splittable;
        if !commit::plausible(&outcome, self.splittable_rows(&running), splittable) {
            return Err(Failure::internal(format!("the worker of \"{}\" returned impossible splits", self.name(stage))));
        }
        let mut of_user = match running.state.finish(&running.expired) {
            Ok(writes) => writes,
            Err(error) => {
                // The worker believes that its writes will be durable, and must not go by them.
                self.slots.remove(&stage);
                return self.try_again(bundle, stage, error);
            }
        };
        self.change_timers(bundle, &mut running, std::mem::take(&mut outcome.timers))?;
        let mut writes = running.head.into_writes();
        writes.append(&mut of_user);
        self.tries.remove(&stage);
        self.finished.push(Finished { bundle, stage, rows: running.rows, writes, outcome });
        Ok(())
    }

    /// Rows of input that a worker may leave: what a head has absorbed cannot be left.
    fn splittable_rows(&self, running: &Running) -> usize {
        match self.shared.spec.plan.stages[running.stage.0 as usize].head {
            Head::Grouping(_) | Head::Keyed(_) => 0,
            _ if running.truncated => 0,
            Head::Plain | Head::Script | Head::Restrictions { .. } => running.rows,
        }
    }

    /// Tells the engine of timers that the bundle set and cleared.
    fn change_timers(&mut self, bundle: BundleId, running: &mut Running, changes: Vec<TimerChange>) -> Result<(), Failure> {
        let stage = running.stage;
        let Head::Keyed(keyed) = &self.shared.spec.plan.stages[stage.0 as usize].head else {
            let text = || Failure::internal(format!("the worker of \"{}\", which has no timers, set some", self.name(stage)));
            return if changes.is_empty() { Ok(()) } else { Err(text()) };
        };
        let families = &keyed.timer_families;
        if let Some(unknown) = changes.iter().find(|change| change.family >= families.len()) {
            let text = format!("the worker of \"{}\" set a timer of its family {}", self.name(stage), unknown.family);
            return Err(Failure::internal(format!("{text}, but it has only {}", families.len())));
        }
        // SDKs set timers by the wall clock, also where the job's time passes by a script (`beam-model` 6.9).
        let wall_ms = self.shared.spec.clock.now_ms();
        let ahead = self.scripts.as_ref().map_or(0, |scripts| wall_ms.saturating_sub(scripts.now_ms()));
        let changed = self.engine.timers(bundle, changes, Duration(ahead), &mut running.head);
        changed.map_err(|error| Failure::internal(format!("{}: {error}", self.name(stage))))
    }

    /// A bundle wrote more state than can be kept until its commit, whatever its worker says of it: its stage has smaller ones.
    fn halve(&mut self, bundle: BundleId, running: &Running) {
        self.shared.metrics.forget(self.id, bundle);
        // The worker may believe that its writes will be durable, and must not go by them.
        self.slots.remove(&running.stage);
        self.engine.failed(bundle);
        self.engine.limit(running.stage, running.items / 2);
    }

    /// After a bundle without effect.
    pub(super) fn try_again(&mut self, bundle: BundleId, stage: StageId, error: worker::Error) -> Result<(), Failure> {
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
        self.shared.metrics.forget(self.id, bundle);
        self.engine.failed(bundle);
        Ok(())
    }
}
