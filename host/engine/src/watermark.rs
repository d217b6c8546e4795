//! Watermarks of one shard: the only file that moves one, and never backwards.
//!
//! ```text
//!  upstream(s) = least report of every (producer, shard) that feeds s        MAX without producers
//!                what its script says, if one feeds s
//!  input(s)    = max(input(s),  min(upstream(s), least hold of rows that are pending or in flight))
//!  output(s)   = max(output(s), min(input(s), least hold of what s keeps))
//! ```
//!
//! These are the equations of Beam's runners. Reports of this very shard arrive like those of others: what they allow
//! downstream is allowed when they are durable, not when they are computed.

use std::collections::BTreeMap;

use bytes::Bytes;
use model::{Reader, ShardId, StageId, Timestamp};

use crate::error::Error;
use crate::state::KeyedState;
use crate::topology::{Head, StageShape, Topology, Upstream};

/// The reports of one stage by all shards, with their minimum at hand.
#[derive(Debug)]
struct Reports {
    by_shard: Vec<Timestamp>,
    counts: BTreeMap<Timestamp, u32>,
}

impl Reports {
    fn new(shards: u32) -> Self {
        Reports { by_shard: vec![Timestamp::MIN; shards as usize], counts: BTreeMap::from([(Timestamp::MIN, shards)]) }
    }

    fn set(&mut self, shard: ShardId, watermark: Timestamp) {
        let before = std::mem::replace(&mut self.by_shard[shard.0 as usize], watermark);
        let count = self.counts.get_mut(&before).expect("every shard's report is counted");
        *count -= 1;
        if *count == 0 {
            self.counts.remove(&before);
        }
        *self.counts.entry(watermark).or_insert(0) += 1;
    }

    fn min(&self) -> Timestamp {
        *self.counts.first_key_value().expect("a job has at least one shard").0
    }
}

/// The watermarks of one stage on this shard.
#[derive(Clone, Copy, Debug)]
struct Stage {
    input: Timestamp,
    output: Timestamp,
    reported: Timestamp,
    /// Of the script that feeds it, if one does.
    script: Option<Timestamp>,
}

/// See the file's head.
#[derive(Debug)]
pub(crate) struct Watermarks {
    shard: ShardId,
    reports: Vec<Reports>,
    stages: Vec<Stage>,
}

impl Watermarks {
    pub(crate) fn new(topology: &Topology) -> Self {
        assert!(topology.shard.0 < topology.shards, "{} of {}", topology.shard, topology.shards);
        let stage = |shape: &StageShape| Stage {
            input: Timestamp::MIN,
            output: Timestamp::MIN,
            reported: Timestamp::MIN,
            script: (shape.head == Head::Script).then_some(Timestamp::MIN),
        };
        Watermarks {
            shard: topology.shard,
            reports: topology.stages.iter().map(|_| Reports::new(topology.shards)).collect(),
            stages: topology.stages.iter().map(stage).collect(),
        }
    }

    /// Takes a report. Returns whether it says something new.
    ///
    /// This shard's own report is what it has durably promised: after a recovery its watermarks start from there.
    pub(crate) fn report(&mut self, stage: StageId, shard: ShardId, watermark: Timestamp) -> bool {
        let reports = &mut self.reports[stage.0 as usize];
        let before = reports.by_shard[shard.0 as usize];
        assert!(before <= watermark, "{stage} on {shard} reports {watermark} after {before}");
        if shard == self.shard {
            let own = &mut self.stages[stage.0 as usize];
            own.reported = own.reported.max(watermark);
            own.output = own.output.max(watermark);
            own.input = own.input.max(own.output);
        }
        if before == watermark {
            return false;
        }
        reports.set(shard, watermark);
        true
    }

    /// A script has come so far.
    pub(crate) fn script(&mut self, stage: StageId, watermark: Timestamp) {
        let script = &mut self.stages[stage.0 as usize].script;
        let before = script.unwrap_or_else(|| panic!("no script feeds {stage}"));
        assert!(before <= watermark, "the script of {stage} goes back from {before} to {watermark}");
        *script = Some(watermark);
    }

    /// How far the script of a stage has come, if one feeds it.
    pub(crate) fn script_of(&self, stage: StageId) -> Option<Timestamp> {
        self.stages[stage.0 as usize].script
    }

    /// What all producers, and its script, have promised for a stage's main input.
    pub(crate) fn upstream(&self, stage: StageId, inputs: &[Upstream]) -> Timestamp {
        let promised = inputs.iter().map(|input| self.promised(input));
        promised.chain(self.script_of(stage)).min().unwrap_or(Timestamp::MAX)
    }

    fn promised(&self, input: &Upstream) -> Timestamp {
        match input.local {
            true => self.reports[input.stage.0 as usize].by_shard[self.shard.0 as usize],
            false => self.reports[input.stage.0 as usize].min(),
        }
    }

    /// What all producers have promised for a collection on all shards.
    pub(crate) fn everywhere(&self, producers: &[StageId]) -> Timestamp {
        producers.iter().map(|stage| self.reports[stage.0 as usize].min()).min().unwrap_or(Timestamp::MAX)
    }

    /// The producer that has promised least for a main input, and on which shard.
    pub(crate) fn slowest_input(&self, inputs: &[Upstream]) -> Option<(StageId, ShardId, Timestamp)> {
        let slowest = inputs.iter().min_by_key(|input| self.promised(input))?;
        match slowest.local {
            true => Some((slowest.stage, self.shard, self.promised(slowest))),
            false => self.slowest_producer(&[slowest.stage]),
        }
    }

    /// The producer that has promised least on any shard.
    pub(crate) fn slowest_producer(&self, producers: &[StageId]) -> Option<(StageId, ShardId, Timestamp)> {
        let &stage = producers.iter().min_by_key(|stage| self.reports[stage.0 as usize].min())?;
        let reports = &self.reports[stage.0 as usize];
        let shard = reports.by_shard.iter().position(|watermark| *watermark == reports.min())?;
        Some((stage, ShardId(shard as u32), reports.min()))
    }

    /// Moves a stage's watermarks as far as `upstream`, the holds of its rows and of what it keeps allow.
    pub(crate) fn advance(&mut self, stage: StageId, upstream: Timestamp, rows: Timestamp, kept: Timestamp) {
        let watermarks = &mut self.stages[stage.0 as usize];
        let before = *watermarks;
        watermarks.input = before.input.max(upstream.min(rows));
        watermarks.output = before.output.max(watermarks.input.min(kept));
        assert!(watermarks.output <= watermarks.input, "{stage} would report more than it has read");
        let moved = before.output < watermarks.output;
        assert!(!moved || watermarks.output <= kept, "{stage} would report beyond what it keeps");
        let moved = before.input < watermarks.input;
        assert!(!moved || watermarks.input <= rows, "{stage} would move beyond its rows");
    }

    pub(crate) fn input(&self, stage: StageId) -> Timestamp {
        self.stages[stage.0 as usize].input
    }

    pub(crate) fn output(&self, stage: StageId) -> Timestamp {
        self.stages[stage.0 as usize].output
    }

    /// Output watermarks that moved since the last call.
    pub(crate) fn reports(&mut self) -> Vec<(StageId, Timestamp)> {
        let mut moved = Vec::new();
        for (index, stage) in self.stages.iter_mut().enumerate() {
            if stage.reported < stage.output {
                stage.reported = stage.output;
                moved.push((StageId(index as u32), stage.output));
            }
        }
        moved
    }

    /// Notes a stage's input watermark beside what was grouped or fired by it: with late rows pending it could not be
    /// computed again, and what was late once must not become on time.
    pub(crate) fn save_input(&self, stage: StageId, state: &mut dyn KeyedState) {
        state.put(input_cell(stage), Some(Bytes::copy_from_slice(&self.input(stage).encode())));
    }

    /// Starts from what [`Watermarks::save_input`] noted last.
    pub(crate) fn restore_input(&mut self, stage: StageId, state: &dyn KeyedState) -> Result<(), Error> {
        if let Some(bytes) = state.get(&input_cell(stage))? {
            let input = Timestamp::decode(&mut Reader::new(&bytes))?;
            let watermarks = &mut self.stages[stage.0 as usize];
            watermarks.input = watermarks.input.max(input);
        }
        Ok(())
    }

    /// Whether all stages are complete and have said so.
    pub(crate) fn complete(&self) -> bool {
        self.stages.iter().all(|stage| stage.reported == Timestamp::MAX)
    }
}

/// Begins like the names of what the stage keeps, with a byte of its own behind the stage.
fn input_cell(stage: StageId) -> Bytes {
    let mut name = stage.0.to_be_bytes().to_vec();
    name.push(b'i');
    name.into()
}
