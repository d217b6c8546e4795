//! What an engine must decide, computed from everything that ever reached it, without any index.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use engine::{BundlePolicy, GateMapping, Head, Options, Topology, Upstream};
use model::window::IntervalWindow;
use model::{Duration, ShardId, StageId, Timestamp};

/// A row that was appended for a stage.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) timestamp: Timestamp,
    pub(crate) key: String,
    pub(crate) state: RowState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RowState {
    Waiting,
    InFlight,
    Consumed,
}

/// An entry that was appended for a stage.
#[derive(Clone, Debug)]
pub(crate) struct Logged {
    pub(crate) stage: StageId,
    pub(crate) rows: Vec<Row>,
    pub(crate) hold: Timestamp,
    pub(crate) window_end: Timestamp,
    pub(crate) not_before_ms: Option<i64>,
}

/// Bytes of a row of any entry.
pub(crate) const ROW_BYTES: u64 = 10;

/// A row that a grouping stage has absorbed and not fired.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Absorbed {
    pub(crate) key: String,
    pub(crate) window: IntervalWindow,
}

/// What one engine has been told.
#[derive(Clone, Debug)]
pub(crate) struct Naive {
    pub(crate) topology: Topology,
    pub(crate) options: Options,
    /// Entries that arrived and have rows that are not consumed, by offset.
    pub(crate) entries: BTreeMap<u64, Logged>,
    pub(crate) reports: BTreeMap<(StageId, ShardId), Timestamp>,
    /// How far the scripts of stages have come.
    pub(crate) scripts: BTreeMap<StageId, Timestamp>,
    /// Per grouping stage, by row.
    pub(crate) absorbed: BTreeMap<StageId, BTreeMap<String, Absorbed>>,
    pub(crate) inputs: Vec<Timestamp>,
    pub(crate) outputs: Vec<Timestamp>,
    pub(crate) now_ms: i64,
    /// Per stage, from the topology.
    places: Vec<Place>,
}

/// Where a stage stands in its topology.
#[derive(Clone, Copy, Debug)]
struct Place {
    depth: usize,
    source: bool,
    feeds_gate: bool,
}

impl Naive {
    pub(crate) fn new(topology: Topology, options: Options) -> Self {
        let start = vec![Timestamp::MIN; topology.stages.len()];
        let stages = (0..topology.stages.len() as u32).map(StageId);
        let place = |stage: StageId| Place {
            depth: depth(&topology, stage),
            source: is_source(&topology, stage),
            feeds_gate: feeds_gate(&topology, stage),
        };
        let is_script = |stage: &StageId| topology.stages[stage.0 as usize].head == Head::Script;
        let scripted: Vec<_> = stages.clone().filter(is_script).collect();
        Naive {
            places: stages.map(place).collect(),
            topology,
            options,
            entries: BTreeMap::new(),
            reports: BTreeMap::new(),
            scripts: scripted.into_iter().map(|stage| (stage, Timestamp::MIN)).collect(),
            absorbed: BTreeMap::new(),
            inputs: start.clone(),
            outputs: start,
            now_ms: i64::MIN,
        }
    }

    pub(crate) fn stages(&self) -> impl Iterator<Item = StageId> + use<> {
        (0..self.topology.stages.len() as u32).map(StageId)
    }

    fn reported(&self, stage: StageId, shard: ShardId) -> Timestamp {
        self.reports.get(&(stage, shard)).copied().unwrap_or(Timestamp::MIN)
    }

    fn everywhere(&self, stage: StageId) -> Timestamp {
        (0..self.topology.shards).map(|shard| self.reported(stage, ShardId(shard))).min().unwrap()
    }

    fn upstream(&self, stage: StageId) -> Timestamp {
        let promised = |input: &Upstream| match input.local {
            true => self.reported(input.stage, self.topology.shard),
            false => self.everywhere(input.stage),
        };
        let inputs = &self.topology.stages[stage.0 as usize].inputs;
        inputs.iter().map(promised).chain(self.scripts.get(&stage).copied()).min().unwrap_or(Timestamp::MAX)
    }

    /// Rows of a stage that are not consumed: their holds.
    fn row_holds(&self, stage: StageId) -> Timestamp {
        let entries = self.entries.values().filter(|entry| entry.stage == stage);
        entries.map(|entry| entry.hold).min().unwrap_or(Timestamp::MAX)
    }

    fn group_holds(&self, stage: StageId) -> Timestamp {
        let rows = self.absorbed.get(&stage).into_iter().flat_map(|rows| rows.values());
        rows.map(|row| row.window.max_timestamp()).min().unwrap_or(Timestamp::MAX)
    }

    /// The equations, over all history.
    pub(crate) fn settle(&mut self) {
        for stage in self.stages() {
            let index = stage.0 as usize;
            let upstream = self.upstream(stage);
            self.inputs[index] = self.inputs[index].max(upstream.min(self.row_holds(stage)));
            self.outputs[index] = self.outputs[index].max(self.inputs[index].min(self.group_holds(stage)));
        }
    }

    fn required(mapping: GateMapping, time: Timestamp) -> Timestamp {
        let last = |size: Duration, period: Duration, offset: Duration| {
            let mut starts = (0..period.0).map(|back| time.millis() - back);
            let start = starts.find(|start| (start - offset.0) % period.0 == 0).unwrap();
            Timestamp::from_millis(start + size.0 - 1).max(time)
        };
        match mapping {
            GateMapping::Global => Timestamp::GLOBAL_WINDOW_END,
            GateMapping::Same => time,
            GateMapping::Fixed { size, offset } => last(size, size, offset),
            GateMapping::Sliding { size, period, offset } => last(size, period, offset),
        }
    }

    fn gated(&self, entry: &Logged) -> bool {
        self.topology.stages[entry.stage.0 as usize].gates.iter().any(|gate| {
            let watermark = gate.producers.iter().map(|producer| self.everywhere(*producer)).min().unwrap();
            watermark != Timestamp::MAX && watermark <= Self::required(gate.mapping, entry.window_end)
        })
    }

    /// Rows that could be processed now, in order.
    pub(crate) fn ready(&self, stage: StageId) -> Vec<(u64, u32)> {
        let mut ready = Vec::new();
        for (offset, entry) in self.entries.iter().filter(|(_, entry)| entry.stage == stage) {
            let rows = (0u32..).zip(&entry.rows).filter(|(_, row)| row.state == RowState::Waiting);
            if entry.not_before_ms.is_none_or(|ms| ms <= self.now_ms) && !self.gated(entry) {
                ready.extend(rows.map(|(index, _)| (*offset, index)));
            }
        }
        ready
    }

    /// How many of `ready` a bundle takes.
    pub(crate) fn bundle_rows(&self, stage: StageId, ready: &[(u64, u32)]) -> usize {
        let rows_max = match self.topology.stages[stage.0 as usize].head {
            Head::Restrictions { .. } => self.options.restrictions_max,
            _ => self.options.rows_max,
        };
        let fitting = rows_max.min((self.options.bytes_max / ROW_BYTES) as usize).max(1);
        let first_entry = ready.iter().take_while(|(offset, _)| *offset == ready[0].0).count();
        match self.options.policy {
            BundlePolicy::Greedy => fitting.min(ready.len()),
            BundlePolicy::OneKey => fitting.min(first_entry),
            BundlePolicy::OneElement => 1.min(ready.len()),
        }
    }

    /// Whether a grouping stage has panes to fire.
    pub(crate) fn due(&self, stage: StageId) -> bool {
        let input = self.inputs[stage.0 as usize];
        self.absorbed.get(&stage).is_some_and(|rows| rows.values().any(|row| row.window.max_timestamp() < input))
    }

    /// When an entry's processing time comes that does not wait for anything else.
    pub(crate) fn wake_at_ms(&self, in_flight: &[StageId]) -> Option<i64> {
        let waits =
            |entry: &&Logged| entry.rows.iter().any(|row| row.state == RowState::Waiting) && !in_flight.contains(&entry.stage);
        let entries = self.entries.values().filter(waits).filter(|entry| !self.gated(entry));
        entries.filter_map(|entry| entry.not_before_ms).filter(|ms| *ms > self.now_ms).min()
    }

    fn place(&self, stage: StageId) -> Place {
        self.places[stage.0 as usize]
    }

    /// Whether a source may not start because of what waits below it.
    fn stopped(&self, source: StageId) -> bool {
        let below = |stage: StageId| (self.place(stage).depth, source.0) > (self.place(source).depth, stage.0) && stage != source;
        let counts = |entry: &&Logged| {
            let place = self.place(entry.stage);
            let workable = (!place.source || place.feeds_gate) && !self.gated(entry);
            let endless = matches!(self.topology.stages[entry.stage.0 as usize].head, Head::Restrictions { unbounded: true });
            below(entry.stage) && !endless && (!self.place(source).feeds_gate || workable)
        };
        let rows = self.entries.values().filter(counts).flat_map(|entry| &entry.rows);
        let rows = rows.filter(|row| row.state != RowState::Consumed).count();
        rows as u64 * ROW_BYTES > self.options.backlog_bytes_max
    }

    /// Stages that may start, in the order in which they should.
    pub(crate) fn eligible(&self, in_flight: &[StageId]) -> Vec<StageId> {
        let ready = |stage: &StageId| !in_flight.contains(stage) && (!self.ready(*stage).is_empty() || self.due(*stage));
        let mut stages: Vec<_> =
            self.stages().filter(ready).filter(|stage| !self.place(*stage).source || !self.stopped(*stage)).collect();
        stages.sort_by_key(|stage| (self.place(*stage).source, Reverse(self.place(*stage).depth), *stage));
        stages
    }
}

fn producers(topology: &Topology, stage: StageId) -> Vec<StageId> {
    let shape = &topology.stages[stage.0 as usize];
    let sides = shape.gates.iter().flat_map(|gate| gate.producers.clone());
    shape.inputs.iter().map(|input| input.stage).chain(sides).collect()
}

fn depth(topology: &Topology, stage: StageId) -> usize {
    producers(topology, stage).into_iter().map(|producer| depth(topology, producer) + 1).max().unwrap_or(0)
}

fn is_source(topology: &Topology, stage: StageId) -> bool {
    let shape = &topology.stages[stage.0 as usize];
    (shape.inputs.is_empty() && shape.head != Head::Script) || matches!(shape.head, Head::Restrictions { .. })
}

fn feeds_gate(topology: &Topology, stage: StageId) -> bool {
    let gates = topology.stages.iter().flat_map(|shape| &shape.gates);
    gates.flat_map(|gate| &gate.producers).any(|producer| leads_to(topology, stage, *producer))
}

fn leads_to(topology: &Topology, from: StageId, to: StageId) -> bool {
    from == to || producers(topology, to).into_iter().any(|producer| leads_to(topology, from, producer))
}
