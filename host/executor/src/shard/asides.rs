//! What a shard asks workers on the side while it puts a bundle together: which windows merge.

use engine::Work;
use engine::grouping::{NoMerger, WindowMerger};
use model::{Batch, StageId};

use super::Shard;
use crate::aside::Aside;
use crate::assembly;
use crate::job::Failure;
use crate::merging::Merger;
use crate::overlay::Overlay;

impl Shard {
    /// The panes that a grouping stage makes of its rows; `now_ms` is the job's time.
    pub(super) fn group(&mut self, work: &Work, rows: &[Batch], now_ms: i64, state: &mut Overlay) -> Result<Vec<Batch>, Failure> {
        self.open_merger(work.stage)?;
        let mut nobody = NoMerger;
        let mut merger = self.mergers.get_mut(&work.stage);
        let asked: &mut dyn WindowMerger = match &mut merger {
            Some(merger) => *merger,
            None => &mut nobody,
        };
        let panes = self.engine.group(work, rows, now_ms, state, asked);
        if let Some(failure) = merger.and_then(Merger::take_failure) {
            return Err(failure);
        }
        panes.map_err(|error| self.head_failure(work.stage, &error))
    }

    fn open_merger(&mut self, stage: StageId) -> Result<(), Failure> {
        let shared = self.shared.clone();
        let plan = &shared.spec.plan;
        let Some(merging) = &plan.stages[stage.0 as usize].merging else { return Ok(()) };
        if !self.mergers.contains_key(&stage) {
            let aside = Aside::open(shared.clone(), self.id, stage, assembly::aside_spec(plan, stage, &merging.aside))?;
            self.mergers.insert(stage, Merger::new(aside, merging.window.clone()));
        }
        Ok(())
    }
}
