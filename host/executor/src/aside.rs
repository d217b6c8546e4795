//! Runs a bundle of a stage that lies beside the path, while the shard waits for what comes out.
//!
//! Such a bundle has no effect of its own: what comes out becomes part of the bundle that it is asked for.

use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::Duration;

use model::{Batch, BundleId, ShardId, StageId};
use worker::outputs::{OutputOptions, Payload};
use worker::{Bundle, Outcome, Outputs, Slot, StageSpec};

use crate::job::{Failure, Shared};
use crate::report::{Activity, Work};

/// A shard that waits looks this often whether the job stops.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// See the file's head. For one stage of one shard.
pub struct Aside {
    shared: Arc<Shared>,
    shard: ShardId,
    /// The stage that asks.
    stage: StageId,
    spec: Arc<StageSpec>,
    slot: Box<dyn Slot>,
    run: u64,
}

impl Aside {
    /// Opens what `stage` asks.
    pub fn open(shared: Arc<Shared>, shard: ShardId, stage: StageId, spec: Arc<StageSpec>) -> Result<Self, Failure> {
        let slot = shared.spec.workers[spec.environment.0 as usize].open(spec.clone(), shard)?;
        Ok(Aside { shared, shard, stage, spec, slot, run: 0 })
    }

    /// For messages.
    pub fn name(&self) -> &str {
        &self.spec.name
    }

    /// What comes out of the stage for `input`. Ends early when the job stops.
    pub fn run(&mut self, input: Vec<Batch>) -> Result<Vec<Batch>, Failure> {
        let activity = Activity::Aside { name: format!("\"{}\"", self.spec.name) };
        let since_ms = self.shared.spec.clock.now_ms();
        self.shared.progress.at_work(self.shard, self.stage, Work { since_ms, activity });
        let answer = self.ask(input);
        self.shared.progress.at_rest(self.shard, self.stage);
        answer
    }

    fn ask(&mut self, input: Vec<Batch>) -> Result<Vec<Batch>, Failure> {
        let id = BundleId(self.run);
        self.run += 1;
        let (sender, answer) = mpsc::channel();
        let stager = Arc::new(|batch: Batch| Ok(Box::new(batch) as Payload));
        let options = OutputOptions { shards: self.shared.spec.shards, shard: self.shard, first: 0, stager };
        self.slot.start(Bundle {
            id,
            shard: self.shard,
            input,
            timers: Vec::new(),
            state: self.shared.side_inputs.clone(),
            now_ms: self.shared.spec.clock.now_ms(),
            outputs: Outputs::new(&self.spec, options),
            done: Box::new(move |_, result| {
                // Whoever asked may have stopped waiting.
                let _ = sender.send(result);
            }),
        });
        let outcome = self.wait(id, &answer)?;
        let batch = |output: worker::Output| output.payload.downcast::<Batch>().ok().map(|batch| *batch);
        let batches: Option<_> = outcome.outputs.into_iter().map(batch).collect();
        batches.ok_or_else(|| Failure::internal("an output was staged by a stranger"))
    }

    fn wait(&mut self, id: BundleId, answer: &Receiver<Result<Outcome, worker::Error>>) -> Result<Outcome, Failure> {
        loop {
            match answer.recv_timeout(LOOK_INTERVAL) {
                Ok(result) => return Ok(result?),
                Err(RecvTimeoutError::Timeout) if !self.shared.stopping() => {}
                Err(RecvTimeoutError::Timeout) => {
                    self.slot.abort(id);
                    return Err(Failure::Cancelled);
                }
                Err(RecvTimeoutError::Disconnected) => return Err(Failure::internal("a worker dropped a bundle")),
            }
        }
    }
}
