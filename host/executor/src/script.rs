//! TestStreams: what happens next when nothing else can happen, and the made-up clock of a job that has one (`beam-model` 6.9).
//!
//! ```text
//!  several scripts   take turns: whoever has done the least is next
//!  elements          a commit: an entry for the output's stage, and how far the scripts are
//!  watermarks, time  are not written down: after a recovery those that had passed are told again
//! ```
//!
//! The clock starts at 0 and moves by events only. When all scripts are over it jumps to whatever is due next.

use std::sync::Arc;

use engine::Engine;
use ledger::{Append, Commit, Destination, JobLedger, StateReader, StateWrite};
use model::reader::put_varint;
use model::{Batch, Duration, Reader, ShardId, StageId, Timestamp};
use plan::{Input, Plan, ScriptEvent};

use crate::job::Failure;
use crate::overlay::CellSpace;

/// The scripts of a job, all on its one shard.
pub(crate) struct Scripts {
    plan: Arc<Plan>,
    /// Events that have happened, per script. One more than there are: the script's outputs are complete.
    passed: Vec<usize>,
    now_ms: i64,
}

/// What came of an event.
pub(crate) enum Happened {
    /// Elements, to be committed.
    Elements(Box<Commit>),
    /// Something that the engine has been told.
    Told,
    /// All scripts are over.
    Nothing,
}

impl Scripts {
    /// None for a plan without scripts.
    pub(crate) fn of(plan: &Arc<Plan>, shards: u32) -> Result<Option<Scripts>, Failure> {
        match (plan.scripts.len(), shards) {
            (0, _) => Ok(None),
            (scripts, 1) => Ok(Some(Scripts { plan: plan.clone(), passed: vec![0; scripts], now_ms: 0 })),
            _ => Err(Failure::internal(format!("a job with a TestStream runs on one shard, not on {shards}"))),
        }
    }

    /// The job's time.
    pub(crate) fn now_ms(&self) -> i64 {
        self.now_ms
    }

    /// Goes on from what is committed.
    pub(crate) fn restore(&mut self, state: &dyn StateReader, engine: &mut Engine) -> Result<(), Failure> {
        let Some(cell) = state.get(&CellSpace::Executor.cell(PASSED)).map_err(Failure::storage)? else { return Ok(()) };
        let mut reader = Reader::new(&cell);
        for script in 0..self.passed.len() {
            let passed = reader.varint().map_err(|error| Failure::internal(format!("committed script: {error}")))?;
            for _ in 0..passed {
                self.tell(script, engine);
                self.passed[script] += 1;
            }
        }
        Ok(())
    }

    /// The next event happens.
    pub(crate) fn step(&mut self, engine: &mut Engine, ledger: &dyn JobLedger) -> Result<Happened, Failure> {
        let is_open = |script: &usize| self.passed[*script] <= self.plan.scripts[*script].events.len();
        let Some(script) = (0..self.passed.len()).filter(is_open).min_by_key(|script| self.passed[*script]) else {
            return Ok(Happened::Nothing);
        };
        self.tell(script, engine);
        let event = self.passed[script];
        self.passed[script] += 1;
        match self.plan.clone().scripts[script].events.get(event) {
            Some(ScriptEvent::Elements { output, batch }) if !batch.is_empty() => {
                let commit = self.elements(self.stage(script, *output), batch, ledger)?;
                Ok(Happened::Elements(Box::new(commit)))
            }
            _ => Ok(Happened::Told),
        }
    }

    /// Nothing more happens: all outputs are complete.
    pub(crate) fn end(&mut self, engine: &mut Engine) {
        for script in 0..self.passed.len() {
            self.passed[script] = self.plan.scripts[script].events.len();
            self.tell(script, engine);
            self.passed[script] += 1;
        }
    }

    /// When all scripts are over: the time is now what the engine waits for. Returns whether it has moved.
    pub(crate) fn jump(&mut self, to_ms: Option<i64>) -> bool {
        let later = to_ms.filter(|to_ms| *to_ms > self.now_ms);
        self.now_ms = later.unwrap_or(self.now_ms);
        later.is_some()
    }

    /// The next event of a script, as far as engine and clock are concerned.
    fn tell(&mut self, script: usize, engine: &mut Engine) {
        match self.plan.scripts[script].events.get(self.passed[script]) {
            Some(ScriptEvent::Elements { .. }) => {}
            Some(ScriptEvent::Watermark { output, watermark }) => {
                engine.script_watermark(self.stage(script, *output), *watermark);
            }
            Some(ScriptEvent::ProcessingTime(Duration(millis))) => self.now_ms = self.now_ms.saturating_add(*millis),
            None => {
                let outputs = 0..self.plan.scripts[script].outputs.len() as u32;
                outputs.for_each(|output| engine.script_watermark(self.stage(script, output), Timestamp::MAX));
            }
        }
    }

    fn stage(&self, script: usize, output: u32) -> StageId {
        let input = [Input::Script { script: script as u32, output }];
        let stage = self.plan.stages.iter().find(|stage| stage.inputs == input);
        stage.expect("planning makes a stage of every output of a script").id
    }

    fn elements(&self, stage: StageId, batch: &Batch, ledger: &dyn JobLedger) -> Result<Commit, Failure> {
        let windows = self.plan.stages[stage.0 as usize].input_windows;
        let window_end = worker::outputs::window_end(batch, windows);
        let mut passed = Vec::new();
        self.passed.iter().for_each(|events| put_varint(&mut passed, *events as u64));
        Ok(Commit {
            appends: vec![Append {
                to: Destination::Shard(ShardId(0)),
                stage,
                input: 0,
                producer: stage,
                payload: ledger.stage(batch.clone()).map_err(Failure::storage)?,
                hold: batch.min_timestamp(),
                window_end: window_end.map_err(|error| Failure::internal(format!("malformed element of a script: {error}")))?,
                not_before_ms: None,
            }],
            state: vec![StateWrite { cell: CellSpace::Executor.cell(PASSED), value: Some(passed.into()) }],
            ..Commit::default()
        })
    }
}

/// The executor's cell with the events that have happened, one number per script.
const PASSED: &[u8] = b"script";
