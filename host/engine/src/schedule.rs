//! Which stage runs next: the deepest one that is ready, so that work in the middle of a pipeline is finished before
//! more of it is made. Sources come last, and only while what waits below them is within a bound.
//!
//! What waits for a side input cannot be worked off until that side input is complete. Stopping the sources that it needs
//! would make it wait for ever: those are stopped only by what can be worked off without any side input's help.

use std::collections::BTreeSet;

use model::StageId;

use crate::topology::{Head, Topology};

/// Starts of other stages that a ready stage lets pass before it comes first.
pub(crate) const PASSED_OVER_MAX: u32 = 32;

/// What the choice depends on, per stage.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Load {
    /// Whether it could run now.
    pub(crate) ready: bool,
    /// Bytes that it can work off.
    pub(crate) open_bytes: u64,
    /// Bytes that wait for its side inputs.
    pub(crate) gated_bytes: u64,
}

#[derive(Debug)]
struct Stage {
    id: StageId,
    source: bool,
    /// Whether its input counts as backlog. Restrictions that never end always wait.
    backlog: bool,
    /// Whether a side input depends on it.
    feeds_gate: bool,
    passed_over: u32,
}

/// See the file's head.
#[derive(Debug)]
pub(crate) struct Schedule {
    deepest_first: Vec<Stage>,
    backlog_bytes_max: u64,
}

impl Schedule {
    pub(crate) fn new(topology: &Topology, backlog_bytes_max: u64) -> Self {
        let depths = depths(topology);
        let gate_feeders = gate_feeders(topology);
        let stage = |(index, shape): (usize, &crate::StageShape)| {
            let unbounded = matches!(shape.head, Head::Restrictions { unbounded: true });
            // A script asks nobody: what it has given has to go.
            let source = match shape.head {
                Head::Restrictions { .. } => true,
                Head::Script => false,
                Head::Plain | Head::Grouping(_) | Head::Keyed(_) => shape.inputs.is_empty(),
            };
            let id = StageId(index as u32);
            Stage { id, source, backlog: !unbounded, feeds_gate: gate_feeders.contains(&id), passed_over: 0 }
        };
        let mut deepest_first: Vec<_> = topology.stages.iter().enumerate().map(stage).collect();
        deepest_first.sort_by_key(|stage| (std::cmp::Reverse(depths[stage.id.0 as usize]), stage.id));
        Schedule { deepest_first, backlog_bytes_max }
    }

    /// The stage to start, which counts as started.
    pub(crate) fn pick(&mut self, loads: &[Load]) -> Option<StageId> {
        let eligible = self.eligible(loads);
        let chosen = *eligible.iter().rev().max_by_key(|index| {
            let passed_over = self.deepest_first[**index].passed_over;
            if passed_over < PASSED_OVER_MAX { 0 } else { passed_over }
        })?;
        for index in eligible {
            let stage = &mut self.deepest_first[index];
            stage.passed_over = if index == chosen { 0 } else { stage.passed_over + 1 };
        }
        Some(self.deepest_first[chosen].id)
    }

    /// Whether a stage is a source that could run but for what waits below it.
    pub(crate) fn stops(&self, loads: &[Load], stage: StageId) -> bool {
        let eligible = self.eligible(loads);
        loads[stage.0 as usize].ready && !eligible.iter().any(|index| self.deepest_first[*index].id == stage)
    }

    /// Indexes of the stages that may start, in order of preference.
    fn eligible(&self, loads: &[Load]) -> Vec<usize> {
        let (mut stages, mut sources) = (Vec::new(), Vec::new());
        let (mut all_bytes, mut workable_bytes) = (0u64, 0u64);
        for (index, stage) in self.deepest_first.iter().enumerate() {
            let load = loads[stage.id.0 as usize];
            let backlog_bytes = if stage.feeds_gate { workable_bytes } else { all_bytes };
            match stage.source {
                _ if !load.ready => {}
                false => stages.push(index),
                true if backlog_bytes <= self.backlog_bytes_max => sources.push(index),
                true => {}
            }
            if stage.backlog {
                all_bytes = all_bytes.saturating_add(load.open_bytes).saturating_add(load.gated_bytes);
                if !stage.source || stage.feeds_gate {
                    workable_bytes = workable_bytes.saturating_add(load.open_bytes);
                }
            }
        }
        stages.append(&mut sources);
        stages
    }
}

/// Stages on the longest way from a source, through main and side inputs.
fn depths(topology: &Topology) -> Vec<usize> {
    let mut depths: Vec<usize> = Vec::with_capacity(topology.stages.len());
    for index in 0..topology.stages.len() {
        let above = producers(topology, index).map(|stage| depths[stage.0 as usize] + 1).max();
        depths.push(above.unwrap_or(0));
    }
    depths
}

/// All stages above side inputs.
fn gate_feeders(topology: &Topology) -> BTreeSet<StageId> {
    let gates = topology.stages.iter().flat_map(|shape| &shape.gates);
    let mut feeders: BTreeSet<_> = gates.flat_map(|gate| gate.producers.iter().copied()).collect();
    for index in (0..topology.stages.len()).rev() {
        if feeders.contains(&StageId(index as u32)) {
            feeders.extend(producers(topology, index));
        }
    }
    feeders
}

fn producers(topology: &Topology, index: usize) -> impl Iterator<Item = StageId> {
    let shape = &topology.stages[index];
    let sides = shape.gates.iter().flat_map(|gate| gate.producers.iter().copied());
    shape.inputs.iter().map(|input| input.stage).chain(sides).inspect(move |stage| {
        assert!((stage.0 as usize) < index, "stage {index} reads {stage}, which does not come before it");
    })
}
