//! Looks at the shard and its running bundles from time to time: how they stand, and which restrictions have run long enough.

use std::sync::atomic::Ordering;

use plan::Head;

use super::Shard;

/// Running bundles are looked at this often.
pub(super) const LOOK_INTERVAL_MS: i64 = 250;

impl Shard {
    /// Writes down how all stages stand.
    pub(super) fn note_status(&self, now_ms: i64) {
        self.shared.progress.set_status(self.id, self.engine.status(), now_ms);
    }

    /// Progress of running bundles, and checkpoints of restrictions that have run long enough.
    pub(super) fn look_at_running(&mut self, now_ms: i64) {
        if now_ms - self.looked_ms < LOOK_INTERVAL_MS {
            return;
        }
        self.looked_ms = now_ms;
        self.note_status(now_ms);
        for (bundle, running) in &mut self.running {
            let Some(slot) = self.slots.get_mut(&running.stage) else { continue };
            if let Some(progress) = slot.progress(*bundle) {
                self.shared.progress.at_work(self.id, running.stage, running.work(*bundle, Some(&progress)));
                self.shared.metrics.progress(self.id, *bundle, progress.metrics);
            }
            let Head::Restrictions { unbounded } = self.shared.spec.plan.stages[running.stage.0 as usize].head else { continue };
            if !running.truncated && running.wants_checkpoint(unbounded, &self.shared.spec.options, now_ms) {
                running.split_asked_ms = Some(now_ms);
                running.split_asked_bytes = running.output_bytes.load(Ordering::Relaxed);
                slot.split(*bundle, 0.0);
            }
        }
    }
}
