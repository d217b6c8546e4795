//! Takes a shard over: the engine is rebuilt from what the ledger holds, and a job that is new gets its first commit.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;

use engine::Engine;
use ledger::{Append, Commit, Destination, Staged, StateReader, StateWrite};
use model::batch::Row;
use model::{Batch, BatchBuilder, ShardId, StageId, Timestamp, pane, window};
use plan::Input;

use super::{Event, PendingCommit, Shard};
use crate::commit;
use crate::job::{Failure, Shared};
use crate::overlay::{CellSpace, Overlay};
use crate::script::Scripts;

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
        let scripts = Scripts::of(&spec.plan, spec.shards)?;
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
            scripts,
            slots: BTreeMap::new(),
            mergers: BTreeMap::new(),
            truncations: BTreeMap::new(),
            draining: false,
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
        shard.note_status(shard.shared.spec.clock.now_ms());
        Ok(shard)
    }

    fn recover(&mut self) -> Result<(), Failure> {
        let recovered = self.ledger.recover().map_err(Failure::storage)?;
        let state = self.ledger.state();
        let heads = Overlay::new(state.clone(), CellSpace::Heads);
        self.engine.restore(&heads).map_err(|error| Failure::internal(error.to_string()))?;
        for stage in 0..self.shared.stages.len() as u32 {
            self.recover_metrics(&*state, StageId(stage))?;
        }
        for entry in recovered.entries {
            self.arrived(entry);
        }
        for report in recovered.reports {
            self.engine.watermark(report.stage, report.shard, report.watermark);
        }
        if let Some(scripts) = &mut self.scripts {
            scripts.restore(&*state, &mut self.engine)?;
        }
        let started = CellSpace::Executor.cell(b"started");
        if state.get(&started).map_err(Failure::storage)?.is_none() {
            self.begun = false;
            self.pending = Some(PendingCommit::new(self.beginning(started)));
        }
        self.intake()?;
        Ok(())
    }

    fn recover_metrics(&self, state: &dyn StateReader, stage: StageId) -> Result<(), Failure> {
        let cells = [commit::metric_names_cell(stage), commit::metric_values_cell(stage)];
        let [names, values] = cells.map(|cell| state.get(&cell).map_err(Failure::storage));
        let (Some(names), Some(values)) = (names?, values?) else { return Ok(()) };
        let values = model::metric_codec::decode(&names, &values);
        let values = values.map_err(|error| Failure::internal(format!("committed metrics: {error}")))?;
        self.shared.metrics.restore(self.id, stage, values);
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
}

/// One empty byte string in the global window at the beginning of time.
fn impulse() -> Batch {
    let mut builder = BatchBuilder::new();
    builder.push(Row { value: &[0], timestamp: Timestamp::MIN, windows: window::GLOBAL_SET, pane: pane::NO_FIRING });
    builder.finish()
}
