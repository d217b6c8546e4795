//! How an engine's stages stand, and what holds them: see [`crate::stuck`].

use model::{ShardId, StageId, Timestamp};

use super::{Engine, Stage};
use crate::gate;
use crate::pending::{Position, Wait};
use crate::stuck::{HeldBy, HeldRows, Origin, Producer, RowsWait, StageStatus};
use crate::topology::Head;

impl Engine {
    /// How every stage stood when the last decision was made.
    pub fn status(&self) -> Vec<StageStatus> {
        self.stages.iter().map(|stage| self.stage_status(stage)).collect()
    }

    fn stage_status(&self, stage: &Stage) -> StageStatus {
        let Stage { id, shape, pending, kept, dropped_rows, .. } = stage;
        StageStatus {
            stage: *id,
            name: shape.name.clone(),
            pending_entries: pending.entries(),
            pending_rows: pending.rows(),
            pending_bytes: pending.open_bytes() + pending.gated_bytes(),
            // Without side inputs, what is gated has not been looked at yet.
            gated_entries: if shape.gates.is_empty() { 0 } else { pending.gated_entries() },
            delayed_entries: pending.delayed_entries(),
            in_flight: self.in_flight.of(*id).map(|bundle| (bundle, self.in_flight.rows_of(*id))),
            groups: kept.summary(),
            input_watermark: self.watermarks.input(*id),
            output_watermark: self.watermarks.output(*id),
            dropped_rows: *dropped_rows,
            held_by: self.held_by(stage),
            input_held_by: self.input_held_by(stage).map_or(HeldBy::Nothing, |(_, held_by)| held_by),
        }
    }

    /// The least of what enters the output watermark; of equals the one nearest to its cause.
    fn held_by(&self, stage: &Stage) -> HeldBy {
        if self.watermarks.output(stage.id) == Timestamp::MAX {
            return HeldBy::Nothing;
        }
        let kept = stage.kept.hold();
        match self.input_held_by(stage) {
            Some((at, held_by)) if at < kept || (at == kept && matches!(held_by, HeldBy::Rows(_))) => held_by,
            _ => stage.kept.held_by(&stage.shape.timer_names),
        }
    }

    /// The least of what enters the input watermark, and its time; none if nothing holds that.
    fn input_held_by(&self, stage: &Stage) -> Option<(Timestamp, HeldBy)> {
        let upstream = self.upstream_of(stage).filter(|(at, _)| *at < Timestamp::MAX);
        match stage.pending.min_hold() {
            Some((hold, entry)) if upstream.as_ref().is_none_or(|(at, _)| hold <= *at) => {
                Some((hold, HeldBy::Rows(self.held_rows(stage, entry, hold))))
            }
            _ => upstream,
        }
    }

    /// What comes before a stage, and how far it has come.
    fn upstream_of(&self, stage: &Stage) -> Option<(Timestamp, HeldBy)> {
        if let Some(watermark) = self.watermarks.script_of(stage.id) {
            return Some((watermark, HeldBy::Script { watermark }));
        }
        let (id, shard, watermark) = self.watermarks.slowest_input(&stage.shape.inputs)?;
        Some((watermark, HeldBy::Upstream(self.producer(id, shard, watermark))))
    }

    fn held_rows(&self, stage: &Stage, entry: Position, hold: Timestamp) -> HeldRows {
        let closed = |window_end| stage.shape.gates.iter().find(|gate| !gate::is_open(gate, &self.watermarks, window_end));
        let wait = match stage.pending.wait(entry).expect("an entry that holds is pending") {
            Wait::SideInputs { window_end } if let Some(gate) = closed(window_end) => RowsWait::SideInput {
                name: gate.name.clone(),
                window_end,
                required: gate.mapping.required(window_end),
                producer: self.watermarks.slowest_producer(&gate.producers).map(|(id, shard, at)| self.producer(id, shard, at)),
            },
            Wait::Commit if let Some(bundle) = self.in_flight.of(stage.id) => match self.in_flight.is_finished(stage.id) {
                true => RowsWait::Commit(bundle),
                false => RowsWait::Bundle(bundle),
            },
            Wait::Until { not_before_ms } => RowsWait::Until { not_before_ms },
            Wait::Turn if stage.gathers && !self.is_gathered(stage) => RowsWait::More,
            Wait::Turn if self.schedule.stops(&self.loads(true), stage.id) => RowsWait::Backlog,
            Wait::SideInputs { .. } | Wait::Commit | Wait::Turn => RowsWait::Turn,
        };
        HeldRows { entry, origin: self.origin(stage, entry), hold, wait }
    }

    fn origin(&self, stage: &Stage, entry: Position) -> Origin {
        match stage.pending.producer(entry).expect("an entry that holds is pending") {
            (producer, _) if producer == stage.id && matches!(stage.shape.head, Head::Restrictions { .. }) => Origin::Residual,
            (producer, _) if producer == stage.id => Origin::Outside,
            (producer, shard) => {
                let name = self.stages[producer.0 as usize].shape.name.clone();
                Origin::Stage { stage: producer, name, shard }
            }
        }
    }

    fn producer(&self, stage: StageId, shard: ShardId, watermark: Timestamp) -> Producer {
        let name = self.stages[stage.0 as usize].shape.name.clone();
        Producer { stage, name, shard, watermark }
    }
}
