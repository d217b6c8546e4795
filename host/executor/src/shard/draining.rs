//! The job is to end with what it has begun: sources stop, the rest of restrictions is cut short, everything else ends by itself.

use model::{Batch, StageId};
use plan::Head;

use super::Shard;
use crate::aside::Aside;
use crate::assembly;
use crate::job::Failure;

impl Shard {
    /// Begins once the job has been told to drain. Returns whether that was now.
    pub(super) fn begin_draining(&mut self) -> bool {
        // A commit that is tried again may hold elements of a script, whose end comes after them.
        let is_told_first = self.scripts.is_some() && self.pending.is_some();
        if self.draining || is_told_first || !self.shared.draining() {
            return false;
        }
        self.draining = true;
        self.engine.drain();
        if let Some(scripts) = &mut self.scripts {
            scripts.end(&mut self.engine);
        }
        for (bundle, running) in &mut self.running {
            let head = &self.shared.spec.plan.stages[running.stage.0 as usize].head;
            if let (Head::Restrictions { .. }, Some(slot)) = (head, self.slots.get_mut(&running.stage)) {
                slot.split(*bundle, 0.0);
            }
        }
        true
    }

    /// Whether the rows of a stage's bundles go through its truncation first.
    pub(super) fn truncates(&self, stage: StageId) -> bool {
        let stage = &self.shared.spec.plan.stages[stage.0 as usize];
        let unbounded = matches!(stage.head, Head::Restrictions { unbounded: true });
        self.draining && (stage.truncation.is_some() || unbounded)
    }

    /// What is left of restrictions. Where the SDK cannot say, nothing: only what never ends comes here then.
    pub(super) fn truncate(&mut self, stage: StageId, rows: Vec<Batch>) -> Result<Vec<Batch>, Failure> {
        let shared = self.shared.clone();
        let plan = &shared.spec.plan;
        let Some(truncation) = &plan.stages[stage.0 as usize].truncation else { return Ok(Vec::new()) };
        if !self.truncations.contains_key(&stage) {
            let aside = Aside::open(shared.clone(), self.id, stage, assembly::aside_spec(plan, stage, truncation))?;
            self.truncations.insert(stage, aside);
        }
        self.truncations.get_mut(&stage).expect("it was opened above").run(rows)
    }
}
