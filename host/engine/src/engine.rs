//! The engine's face: events in, decisions out. The deciding is done by the modules below it.
//!
//! Events only note what happened. Watermarks move, and entries become ready, when a decision is asked for: so
//! everything that belongs together (all initial entries, all entries of a commit and the reports behind them) must be
//! fed before the next call of [`Engine::next`], [`Engine::group`] or [`Engine::reports`].

use std::collections::BTreeSet;
use std::ops::Range;

use model::{Batch, BundleId, ShardId, StageId, Timestamp};

use crate::gate;
use crate::grouping::{Clocks, Delta, Error, Grouping, Limits, WindowMerger};
use crate::inflight::{InFlight, Work};
use crate::pending::{Entry, EntryRows, Pending, Position, Wait};
use crate::policy::Options;
use crate::schedule::{Load, Schedule};
use crate::state::KeyedState;
use crate::stuck::{HeldBy, Producer, StageStatus};
use crate::topology::{Head, StageShape, Topology};
use crate::watermark::Watermarks;

/// One shard of one job. See the crate's documentation.
///
/// It panics when its caller breaks a rule that is written at a method; what workers and ledgers deliver must have been
/// checked before.
///
/// ```
/// use engine::{Engine, Entry, Head, Options, Position, StageShape, Topology};
/// use model::{Coder, ShardId, StageId, Timestamp, WindowCoder};
///
/// let source = StageShape {
///     name: "impulse".into(),
///     head: Head::Plain,
///     inputs: vec![],
///     gates: vec![],
///     input_coder: Coder::Bytes,
///     window_coder: WindowCoder::Global,
/// };
/// let topology = Topology { shards: 1, shard: ShardId(0), stages: vec![source] };
/// let mut engine = Engine::new(topology, Options::default());
/// engine.entry(Entry {
///     position: Position { broadcast: false, offset: 0 },
///     stage: StageId(0),
///     remaining: vec![0..1],
///     bytes: 1,
///     rows: 1,
///     hold: Timestamp::from_millis(5),
///     window_end: Timestamp::GLOBAL_WINDOW_END,
///     not_before_ms: None,
/// });
/// let work = engine.next(0).expect("a row is pending");
/// assert_eq!(engine.reports(), [(StageId(0), Timestamp::from_millis(5))], "rows in flight hold the watermark");
/// engine.finish(work.bundle, &[]);
/// // Here the bundle's effects are made durable.
/// engine.committed(work.bundle);
/// assert_eq!(engine.reports(), [(StageId(0), Timestamp::MAX)]);
/// assert!(engine.finished());
/// ```
#[derive(Debug)]
pub struct Engine {
    options: Options,
    stages: Vec<Stage>,
    /// Stages that must look again when a stage reports: its readers, through main and side inputs.
    readers: Vec<Vec<StageId>>,
    watermarks: Watermarks,
    in_flight: InFlight<Applied>,
    schedule: Schedule,
    /// Stages of which something was heard since the last decision.
    touched: BTreeSet<StageId>,
    /// The latest processing time that a caller has given.
    now_ms: i64,
}

/// What a bundle of a keyed stage is to run: rows or timers of any number of keys, but never both for one key.
#[derive(Debug, Default)]
pub struct Readied {
    /// Rows, in order.
    pub input: Vec<Batch>,
    /// Timers, in order of their time per key.
    pub timers: Vec<model::FiredTimer>,
    /// Encoded keys and windows that expire with this bundle: after it has run their state is to be cleared, and what it did
    /// to it is of no account. Perhaps nothing else is to be run.
    pub expired: Vec<(bytes::Bytes, bytes::Bytes)>,
    /// Copies of rows (one per window) that came after their window had expired, or too late to be sorted.
    pub dropped_rows: u64,
}

#[derive(Debug)]
struct Stage {
    id: StageId,
    shape: StageShape,
    pending: Pending,
    grouping: Option<Grouping>,
    /// See [`Engine::gather`].
    gathers: bool,
    dropped_rows: u64,
}

/// What a grouping bundle changes once it is durable.
#[derive(Debug)]
struct Applied {
    delta: Delta,
    dropped_rows: u64,
}

impl Engine {
    /// The engine of `topology.shard`, with nothing pending and all watermarks at MIN.
    pub fn new(topology: Topology, options: Options) -> Self {
        let schedule = Schedule::new(&topology, options.backlog_bytes_max);
        let watermarks = Watermarks::new(&topology);
        let readers = readers(&topology);
        let stages: Vec<_> = (0u32..).zip(topology.stages).map(|(index, shape)| Stage::new(StageId(index), shape)).collect();
        Engine {
            options,
            readers,
            watermarks,
            in_flight: InFlight::new(stages.len()),
            schedule,
            touched: (0..stages.len() as u32).map(StageId).collect(),
            now_ms: i64::MIN,
            stages,
        }
    }

    /// Lets a stage wait with its rows until a bundle is full, nothing more can arrive or its rows stop a source: what a
    /// trigger sees at once is a bundle, and for bounded input early firings are of no use. To be called before the first
    /// event.
    pub fn gather(&mut self, stage: StageId) {
        self.stages[stage.0 as usize].gathers = true;
    }

    /// Recovery, before the first event: rebuilds the indexes of all grouping stages from state, which has only cells that
    /// [`Engine::group`] wrote.
    pub fn restore(&mut self, state: &dyn KeyedState) -> Result<(), Error> {
        for stage in &mut self.stages {
            if let Some(grouping) = &mut stage.grouping {
                grouping.restore(state)?;
                self.watermarks.restore_input(stage.id, state)?;
            }
        }
        Ok(())
    }

    /// An entry that was committed for this shard, or that recovery found.
    pub fn entry(&mut self, entry: Entry) {
        self.touched.insert(entry.stage);
        self.stages[entry.stage.0 as usize].pending.insert(entry);
    }

    /// A report that was committed by any shard, this one included: after all entries that were committed before it.
    /// Reports of one (stage, shard) never go backwards. In a recovery all that this shard has ever reported must be fed
    /// before the first call of [`Engine::reports`], or the engine would promise less than was promised already.
    pub fn watermark(&mut self, stage: StageId, shard: ShardId, watermark: Timestamp) {
        if self.watermarks.report(stage, shard, watermark) {
            self.touched.insert(stage);
            self.touched.extend(&self.readers[stage.0 as usize]);
        }
    }

    /// What to run next, or none for now. At most one bundle per stage is in flight.
    pub fn next(&mut self, now_ms: i64) -> Option<Work> {
        self.now_ms = self.now_ms.max(now_ms);
        self.settle();
        let stage = self.pick()?;
        let Stage { shape, pending, .. } = &mut self.stages[stage.0 as usize];
        let entries = pending.take(self.options.input_limits(&shape.head));
        Some(self.in_flight.start(stage, entries))
    }

    /// For work of a grouping stage: absorbs its rows and fires what is due, within the limits. `rows` are the batches
    /// of `work.entries` in order, cut to their rows. State writes go to `state`; changes of the index and of holds are
    /// kept until [`Engine::committed`]. After an error the bundle is still in flight; it can only fail.
    /// `merger` is asked about windows of a function that only an SDK knows.
    pub fn group(
        &mut self,
        work: &Work,
        rows: &[Batch],
        now_ms: i64,
        state: &mut dyn KeyedState,
        merger: &mut dyn WindowMerger,
    ) -> Result<Vec<Batch>, Error> {
        self.now_ms = self.now_ms.max(now_ms);
        self.settle();
        let clocks = self.clocks(work.stage);
        let limits = Limits { bytes_max: self.options.bytes_max, keys_max: self.options.firing_keys_max() };
        let running = self.in_flight.get_mut(work.bundle);
        assert_eq!(running.stage, work.stage, "{} is of another stage", work.bundle);
        assert!(running.delta.is_none() && running.finished.is_none(), "{} is grouped twice", work.bundle);
        let grouping = self.stages[work.stage.0 as usize].grouping.as_ref();
        let grouping = grouping.unwrap_or_else(|| panic!("{} does not group", work.stage));
        let grouped = grouping.run(rows, clocks, limits, state, merger)?;
        self.watermarks.save_input(work.stage, state);
        running.delta = Some(Applied { delta: grouped.delta, dropped_rows: grouped.dropped_rows });
        Ok(grouped.panes)
    }

    /// For work of a keyed stage: drops what is late, orders what is to be sorted, and says which timers fire. `rows` are the
    /// batches of `work.entries` in order, cut to their rows. State writes go to `state`; what becomes of the indexes is kept
    /// until [`Engine::committed`]. After an error the bundle is still in flight; it can only fail.
    pub fn key(&mut self, _work: &Work, _rows: &[Batch], _now_ms: i64, _state: &mut dyn KeyedState) -> Result<Readied, Error> {
        unimplemented!()
    }

    /// For work of a keyed stage, after [`Engine::key`] and before [`Engine::finish`]: what its bundle did to timers. `state`
    /// has the writes of [`Engine::key`].
    pub fn timers(
        &mut self,
        _bundle: BundleId,
        _changes: Vec<model::TimerChange>,
        _state: &mut dyn KeyedState,
    ) -> Result<(), Error> {
        unimplemented!()
    }

    /// A stage of a script has come so far; MAX: nothing follows. Never goes backwards. It stands at MIN before the first
    /// call, also after a recovery.
    pub fn script_watermark(&mut self, _stage: StageId, _watermark: Timestamp) {
        unimplemented!()
    }

    /// The bundle is done but not durable: which rows it consumed, given the ranges of its input, counted over all its
    /// rows in order, that it did not process. Those become pending again when it is committed. A grouping stage has
    /// absorbed all of its input; its panes cannot be left.
    pub fn finish(&mut self, bundle: BundleId, unprocessed: &[Range<usize>]) -> Vec<EntryRows> {
        let running = self.in_flight.get_mut(bundle);
        let stage = &self.stages[running.stage.0 as usize];
        assert!(stage.grouping.is_none() || running.delta.is_some(), "{bundle} finishes before it is grouped");
        assert!(stage.grouping.is_none() || unprocessed.is_empty(), "{bundle} leaves rows that are absorbed");
        running.finish(unprocessed).consumed.clone()
    }

    /// The bundle's effects are durable. Entries that it appended for this very shard must have been fed before.
    pub fn committed(&mut self, bundle: BundleId) {
        let running = self.in_flight.end(bundle);
        let finished = running.finished.unwrap_or_else(|| panic!("{bundle} is committed before it is finished"));
        let stage = &mut self.stages[running.stage.0 as usize];
        stage.pending.consume(&finished.consumed);
        stage.pending.give_back(&finished.unprocessed);
        if let (Some(grouping), Some(applied)) = (&mut stage.grouping, running.delta) {
            grouping.apply(applied.delta);
            stage.dropped_rows += applied.dropped_rows;
        }
        self.touched.insert(running.stage);
    }

    /// The bundle, finished or not, had no effect; its rows are pending again.
    pub fn failed(&mut self, bundle: BundleId) {
        let running = self.in_flight.end(bundle);
        self.stages[running.stage.0 as usize].pending.give_back(&running.entries);
        self.touched.insert(running.stage);
    }

    /// Own output watermarks that moved since the last call.
    pub fn reports(&mut self) -> Vec<(StageId, Timestamp)> {
        self.settle();
        self.watermarks.reports()
    }

    /// Processing time in milliseconds at which `next` may have more, if nothing else happens.
    pub fn wake_at_ms(&self) -> Option<i64> {
        let idle = |stage: &&Stage| self.in_flight.of(stage.id).is_none();
        self.stages.iter().filter(idle).filter_map(Stage::wake_at_ms).min()
    }

    /// Whether all stages have reported that they are complete, and nothing is pending, in flight or due.
    pub fn finished(&self) -> bool {
        let done = |stage: &Stage| stage.pending.is_empty() && !self.is_due(stage);
        self.idle() && self.watermarks.complete() && self.stages.iter().all(done)
    }

    /// Whether no bundle is in flight.
    pub fn idle(&self) -> bool {
        self.in_flight.is_empty()
    }

    /// How every stage stood when the last decision was made.
    pub fn status(&self) -> Vec<StageStatus> {
        self.stages.iter().map(|stage| self.stage_status(stage)).collect()
    }

    /// Moves watermarks and lets entries through, for all stages of which something was heard.
    fn settle(&mut self) {
        for id in std::mem::take(&mut self.touched) {
            let Stage { shape, pending, grouping, .. } = &mut self.stages[id.0 as usize];
            pending.open(|window_end| gate::all_open(&shape.gates, &self.watermarks, window_end));
            let upstream = self.watermarks.upstream(&shape.inputs);
            let rows = pending.min_hold().map_or(Timestamp::MAX, |(hold, _)| hold);
            let groups = grouping.as_ref().map_or(Timestamp::MAX, Grouping::hold);
            self.watermarks.advance(id, upstream, rows, groups);
        }
        self.stages.iter_mut().for_each(|stage| stage.pending.wake(self.now_ms));
    }

    fn pick(&mut self) -> Option<StageId> {
        let loads = self.loads(true);
        let picked = self.schedule.pick(&loads);
        // What is ready and was not picked is a source that the backlog stops. What is gathered is part of the backlog, and
        // may itself wait for that source: then it has to go.
        if picked.is_none() && loads.iter().any(|load| load.ready) {
            let loads = self.loads(false);
            return self.schedule.pick(&loads);
        }
        picked
    }

    fn loads(&self, gathering: bool) -> Vec<Load> {
        (0..self.stages.len() as u32).map(|index| self.load(StageId(index), gathering)).collect()
    }

    fn load(&self, id: StageId, gathering: bool) -> Load {
        let stage = &self.stages[id.0 as usize];
        let has_rows = stage.pending.is_ready() && (!gathering || !stage.gathers || self.is_gathered(stage));
        let ready = self.in_flight.of(id).is_none() && (has_rows || self.is_due(stage));
        Load { ready, open_bytes: stage.pending.open_bytes(), gated_bytes: stage.pending.gated_bytes() }
    }

    fn is_gathered(&self, stage: &Stage) -> bool {
        let full = stage.pending.rows() >= self.options.rows_max as u64 || stage.pending.open_bytes() >= self.options.bytes_max;
        full || self.watermarks.upstream(&stage.shape.inputs) == Timestamp::MAX
    }

    fn is_due(&self, stage: &Stage) -> bool {
        stage.grouping.as_ref().is_some_and(|grouping| grouping.due(self.clocks(stage.id)))
    }

    fn clocks(&self, stage: StageId) -> Clocks {
        Clocks {
            input_watermark: self.watermarks.input(stage),
            output_watermark: self.watermarks.output(stage),
            now_ms: self.now_ms,
        }
    }

    fn stage_status(&self, stage: &Stage) -> StageStatus {
        let Stage { id, shape, pending, grouping, dropped_rows, .. } = stage;
        StageStatus {
            stage: *id,
            name: shape.name.clone(),
            pending_entries: pending.entries(),
            pending_rows: pending.rows(),
            pending_bytes: pending.open_bytes() + pending.gated_bytes(),
            gated_entries: pending.gated_entries(),
            delayed_entries: pending.delayed_entries(),
            in_flight: self.in_flight.of(*id).map(|bundle| (bundle, self.in_flight.rows_of(*id))),
            groups: grouping.as_ref().map(Grouping::summary),
            input_watermark: self.watermarks.input(*id),
            output_watermark: self.watermarks.output(*id),
            dropped_rows: *dropped_rows,
            held_by: self.held_by(stage),
        }
    }

    /// The least of what enters the output watermark; of equals the one nearest to the output.
    fn held_by(&self, stage: &Stage) -> HeldBy {
        if self.watermarks.output(stage.id) == Timestamp::MAX {
            return HeldBy::Nothing;
        }
        let upstream = self.watermarks.slowest_input(&stage.shape.inputs);
        let upstream_at = upstream.map_or(Timestamp::MAX, |(_, _, watermark)| watermark);
        let groups = stage.grouping.as_ref().map_or(Timestamp::MAX, Grouping::hold);
        if let Some((hold, entry)) = stage.pending.min_hold()
            && hold <= groups.min(upstream_at)
        {
            return self.held_by_entry(stage, entry, hold);
        }
        match upstream {
            Some((id, shard, watermark)) if watermark < groups => HeldBy::Upstream(self.producer(id, shard, watermark)),
            _ if groups < Timestamp::MAX => HeldBy::Group { hold: groups },
            _ => HeldBy::Nothing,
        }
    }

    fn held_by_entry(&self, stage: &Stage, entry: Position, hold: Timestamp) -> HeldBy {
        let closed = |window_end| stage.shape.gates.iter().find(|gate| !gate::is_open(gate, &self.watermarks, window_end));
        match stage.pending.wait(entry).expect("an entry that holds is pending") {
            Wait::SideInputs { window_end } if let Some(gate) = closed(window_end) => HeldBy::SideInput {
                entry,
                hold,
                side_input: gate.name.clone(),
                required: gate.mapping.required(window_end),
                producer: self.watermarks.slowest_producer(&gate.producers).map(|(id, shard, at)| self.producer(id, shard, at)),
            },
            Wait::Commit if let Some(bundle) = self.in_flight.of(stage.id) => HeldBy::InFlight { bundle, hold },
            Wait::Until { not_before_ms } => HeldBy::Delayed { entry, hold, not_before_ms },
            Wait::SideInputs { .. } | Wait::Commit | Wait::Turn => HeldBy::Pending { entry, hold },
        }
    }

    fn producer(&self, stage: StageId, shard: ShardId, watermark: Timestamp) -> Producer {
        let name = self.stages[stage.0 as usize].shape.name.clone();
        Producer { stage, name, shard, watermark }
    }
}

impl Stage {
    fn new(id: StageId, shape: StageShape) -> Self {
        let grouping = match &shape.head {
            Head::Grouping(strategy) => {
                Some(Grouping::new(id, strategy.as_ref().clone(), shape.input_coder.clone(), shape.window_coder))
            }
            Head::Plain | Head::Restrictions { .. } | Head::Keyed(_) | Head::Script => None,
        };
        Stage { id, shape, pending: Pending::default(), grouping, gathers: false, dropped_rows: 0 }
    }

    fn wake_at_ms(&self) -> Option<i64> {
        let timer = self.grouping.as_ref().and_then(Grouping::next_processing_ms);
        self.pending.wake_at_ms().into_iter().chain(timer).min()
    }
}

fn readers(topology: &Topology) -> Vec<Vec<StageId>> {
    let mut readers = vec![BTreeSet::new(); topology.stages.len()];
    for (reader, shape) in (0..).map(StageId).zip(&topology.stages) {
        let sides = shape.gates.iter().flat_map(|gate| gate.producers.iter().copied());
        for producer in shape.inputs.iter().map(|input| input.stage).chain(sides) {
            readers[producer.0 as usize].insert(reader);
        }
    }
    readers.into_iter().map(|readers| readers.into_iter().collect()).collect()
}
