//! The engine's face: events in, decisions out. The deciding is done by the modules below it.
//!
//! Events only note what happened. Watermarks move, and entries become ready, when a decision is asked for: so
//! everything that belongs together (all initial entries, all entries of a commit and the reports behind them) must be
//! fed before the next call of [`Engine::next`], [`Engine::group`] or [`Engine::reports`].

mod status;

use std::collections::BTreeSet;
use std::ops::Range;

use model::{Batch, BundleId, Duration, ShardId, StageId, TimerChange, Timestamp};

use crate::error::Error;
use crate::gate;
use crate::grouping::{Clocks, Limits, WindowMerger};
use crate::inflight::{InFlight, Work};
use crate::kept::{Delta, Kept};
use crate::keyed::{self, Readied};
use crate::pending::{Entry, EntryRows, Pending};
use crate::policy::{InputLimits, Options};
use crate::schedule::{Load, PASSED_OVER_MAX, Schedule};
use crate::state::KeyedState;
use crate::topology::{StageShape, Topology};
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
///     timer_names: vec![],
///     gates: vec![],
///     input_coder: Coder::Bytes,
///     window_coder: WindowCoder::Global,
/// };
/// let topology = Topology { shards: 1, shard: ShardId(0), stages: vec![source] };
/// let mut engine = Engine::new(topology, Options::default());
/// engine.entry(Entry {
///     position: Position { broadcast: false, offset: 0 },
///     stage: StageId(0),
///     producer: (StageId(0), ShardId(0)),
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
    /// See [`Engine::drain`].
    draining: bool,
}

#[derive(Debug)]
struct Stage {
    id: StageId,
    shape: StageShape,
    pending: Pending,
    kept: Kept,
    /// See [`Engine::gather`].
    gathers: bool,
    /// Bundles of rows since the last one without, while something else was due.
    passed_over: u32,
    /// See [`Engine::limit`].
    items_max: usize,
    dropped_rows: u64,
}

/// What a bundle of a grouping or keyed stage changes once it is durable.
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
            draining: false,
            stages,
        }
    }

    /// Lets a stage wait with its rows until a bundle is full, nothing more can arrive or its rows stop a source, and its trigger
    /// see all of a key's at once: for bounded input early firings are of no use. Elsewhere a trigger that counts rows is asked
    /// after each. To be called before the first event.
    pub fn gather(&mut self, stage: StageId) {
        let stage = &mut self.stages[stage.0 as usize];
        stage.gathers = true;
        stage.kept.gather();
    }

    /// Lets the job come to its end: from now on entries are not delayed, timers of processing time that are set fire at
    /// once, in order of their time, and no further ones are set. Everything else ends when its sources do. Does nothing the
    /// second time.
    pub fn drain(&mut self) {
        self.draining = true;
    }

    /// Recovery, before the first event: rebuilds the indexes of all grouping and keyed stages from state, which has only
    /// cells that [`Engine::group`], [`Engine::key`] and [`Engine::timers`] wrote.
    pub fn restore(&mut self, state: &dyn KeyedState) -> Result<(), Error> {
        for stage in &mut self.stages {
            if stage.kept.is_something() {
                stage.kept.restore(state)?;
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
        let entries = self.take(stage);
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
        let grouping = self.stages[work.stage.0 as usize].kept.groups(work.stage);
        let grouped = grouping.run(rows, clocks, limits, state, merger)?;
        self.watermarks.save_input(work.stage, state);
        self.changes(work, Applied { delta: Delta::Groups(grouped.delta), dropped_rows: grouped.dropped_rows });
        Ok(grouped.panes)
    }

    /// For work of a keyed stage: drops what is late, puts by what is to be sorted, and says what fires. `rows` are the
    /// batches of `work.entries` in order, cut to their rows. State writes go to `state`; what becomes of the indexes is kept
    /// until [`Engine::committed`]. After an error the bundle is still in flight; it can only fail.
    pub fn key(&mut self, work: &Work, rows: &[Batch], now_ms: i64, state: &mut dyn KeyedState) -> Result<Readied, Error> {
        self.now_ms = self.now_ms.max(now_ms);
        self.settle();
        let stage = &self.stages[work.stage.0 as usize];
        let limits = self.options.key_limits();
        let limits = keyed::Limits { items_max: limits.items_max.min(stage.items_max), ..limits };
        let (readied, delta) = stage.kept.keys(work.stage).run(rows, self.key_clocks(work.stage), limits, state)?;
        self.watermarks.save_input(work.stage, state);
        self.changes(work, Applied { delta: Delta::Keys(Box::new(delta)), dropped_rows: readied.dropped_rows });
        Ok(readied)
    }

    /// For work of a keyed stage, after [`Engine::key`] and before [`Engine::finish`]: what its bundle did to timers, in the
    /// order in which it did. It need not be called for a bundle that did nothing to any. `state` has the writes of
    /// [`Engine::key`]. After an error the bundle is still in flight; it can only fail.
    ///
    /// A timer that cannot fire before its window is forgotten is not set, and changes for pairs that expire with the bundle are
    /// of no account. Timers of processing time were set by a clock that is `ahead` of the engine's; negative: behind it.
    pub fn timers(
        &mut self,
        bundle: BundleId,
        changes: Vec<TimerChange>,
        ahead: Duration,
        state: &mut dyn KeyedState,
    ) -> Result<(), Error> {
        let running = self.in_flight.get_mut(bundle);
        assert!(running.finished.is_none(), "{bundle} sets timers after it has finished");
        let stage = running.stage;
        let Some(Applied { delta: Delta::Keys(delta), dropped_rows }) = running.delta.take() else {
            panic!("{bundle} sets timers, but is not keyed");
        };
        let keys = self.stages[stage.0 as usize].kept.keys(stage);
        let clocks = keyed::Clocks { setters_ahead: ahead, ..self.key_clocks(stage) };
        let delta = keys.change(*delta, changes, clocks, state)?;
        self.in_flight.get_mut(bundle).delta = Some(Applied { delta: Delta::Keys(Box::new(delta)), dropped_rows });
        Ok(())
    }

    /// A stage of a script has come so far; MAX: nothing follows. Never goes backwards. It stands at MIN before the first
    /// call, also after a recovery. All entries that the script gave before must have been fed.
    pub fn script_watermark(&mut self, stage: StageId, watermark: Timestamp) {
        self.watermarks.script(stage, watermark);
        self.touched.insert(stage);
    }

    /// The bundle is done but not durable: which rows it consumed, given the ranges of its input, counted over all its
    /// rows in order, that it did not process. Those become pending again when it is committed. A grouping or keyed stage
    /// has absorbed all of its input; its panes, rows and timers cannot be left.
    pub fn finish(&mut self, bundle: BundleId, unprocessed: &[Range<usize>]) -> Vec<EntryRows> {
        let running = self.in_flight.get_mut(bundle);
        let stage = &self.stages[running.stage.0 as usize];
        assert!(!stage.kept.is_something() || running.delta.is_some(), "{bundle} finishes before it is grouped or keyed");
        assert!(!stage.kept.is_something() || unprocessed.is_empty(), "{bundle} leaves rows that are absorbed");
        running.finish(unprocessed).consumed.clone()
    }

    /// The bundle's effects are durable. Entries that it appended for this very shard must have been fed before.
    pub fn committed(&mut self, bundle: BundleId) {
        let running = self.in_flight.end(bundle);
        let finished = running.finished.unwrap_or_else(|| panic!("{bundle} is committed before it is finished"));
        let stage = &mut self.stages[running.stage.0 as usize];
        stage.pending.consume(&finished.consumed);
        stage.pending.give_back(&finished.unprocessed);
        if let Some(Applied { delta, dropped_rows }) = running.delta {
            stage.kept.apply(delta);
            stage.dropped_rows += dropped_rows;
        }
        self.touched.insert(running.stage);
    }

    /// The bundle, finished or not, had no effect; its rows are pending again.
    pub fn failed(&mut self, bundle: BundleId) {
        let running = self.in_flight.end(bundle);
        self.stages[running.stage.0 as usize].pending.give_back(&running.entries);
        self.touched.insert(running.stage);
    }

    /// A bundle of the stage was too large for its effects to be kept until its commit: from now on its bundles have at most so
    /// many rows or timers, and one at least.
    pub fn limit(&mut self, stage: StageId, items_max: usize) {
        self.stages[stage.0 as usize].items_max = items_max.max(1);
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

    /// Moves watermarks and lets entries through, for all stages of which something was heard.
    fn settle(&mut self) {
        for id in std::mem::take(&mut self.touched) {
            let Stage { shape, pending, kept, .. } = &mut self.stages[id.0 as usize];
            pending.open(|window_end| gate::all_open(&shape.gates, &self.watermarks, window_end));
            let upstream = self.watermarks.upstream(id, &shape.inputs);
            let rows = pending.min_hold().map_or(Timestamp::MAX, |(hold, _)| hold);
            self.watermarks.advance(id, upstream, rows, kept.hold());
        }
        let due_ms = self.due_ms();
        self.stages.iter_mut().for_each(|stage| stage.pending.wake(due_ms));
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

    /// Rows for a bundle; none where the stage has something to do that comes before them.
    fn take(&mut self, id: StageId) -> Vec<EntryRows> {
        let clocks = self.clocks(id);
        let Stage { shape, pending, kept, passed_over, items_max, .. } = &mut self.stages[id.0 as usize];
        let due = pending.is_ready() && kept.due(clocks);
        let rows = pending.min_hold().map_or(Timestamp::MAX, |(hold, _)| hold);
        if due && kept.goes_first(clocks, rows, *passed_over >= PASSED_OVER_MAX) {
            *passed_over = 0;
            return Vec::new();
        }
        *passed_over = if due { *passed_over + 1 } else { 0 };
        let limits = self.options.input_limits(&shape.head);
        pending.take(InputLimits { rows_max: limits.rows_max.min(*items_max), ..limits })
    }

    /// Keeps what a bundle changes until it is durable.
    fn changes(&mut self, work: &Work, applied: Applied) {
        let running = self.in_flight.get_mut(work.bundle);
        assert_eq!(running.stage, work.stage, "{} is of another stage", work.bundle);
        assert!(running.delta.is_none() && running.finished.is_none(), "{} is grouped or keyed twice", work.bundle);
        running.delta = Some(applied);
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
        full || self.watermarks.upstream(stage.id, &stage.shape.inputs) == Timestamp::MAX
    }

    fn is_due(&self, stage: &Stage) -> bool {
        stage.kept.due(self.clocks(stage.id))
    }

    fn clocks(&self, stage: StageId) -> Clocks {
        Clocks {
            input_watermark: self.watermarks.input(stage),
            output_watermark: self.watermarks.output(stage),
            now_ms: if self.stages[stage.0 as usize].kept.is_keyed() { self.due_ms() } else { self.now_ms },
        }
    }

    /// What is due by this processing time in milliseconds need not wait.
    fn due_ms(&self) -> i64 {
        if self.draining { i64::MAX } else { self.now_ms }
    }

    fn key_clocks(&self, stage: StageId) -> keyed::Clocks {
        let upstream = self.watermarks.upstream(stage, &self.stages[stage.0 as usize].shape.inputs);
        let input_watermark = self.watermarks.input(stage);
        let (complete, now_ms) = (upstream == Timestamp::MAX, self.due_ms());
        keyed::Clocks { input_watermark, complete, now_ms, setters_ahead: Duration(0), draining: self.draining }
    }
}

impl Stage {
    fn new(id: StageId, shape: StageShape) -> Self {
        let kept = Kept::new(id, &shape);
        Stage {
            id,
            shape,
            pending: Pending::default(),
            kept,
            gathers: false,
            passed_over: 0,
            items_max: usize::MAX,
            dropped_rows: 0,
        }
    }

    fn wake_at_ms(&self) -> Option<i64> {
        self.pending.wake_at_ms().into_iter().chain(self.kept.next_processing_ms()).min()
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
