//! One simulated job: lives of a process, one after another, on a ledger that outlives them.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use engine::BundlePolicy;
use executor::job::{Clock, Shared};
use executor::shard::{Event, Shard, Step};
use executor::{Failure, JobSpec, Options};
use ledger::memory::MemoryLedger;
use ledger::{JobRecord, Ledger};
use model::metrics::MetricValue;
use model::{JobId, ShardId};

use super::compile::{Compiled, compile};
use super::expectation::{Counters, compare};
use super::generate::Pipeline;
use super::panes::Circumstances;
use super::pipeline::Op;
use super::trouble::{Figures, Trouble, faults};
use crate::dice::Dice;
use crate::dofns::{Chance, DoFns, TestWorker};

/// Decisions of one life, at most: a job that has not ended by then does not end.
const TURNS_MAX: usize = 200_000;
/// Failures of one bundle in a row.
const RETRIES: u32 = 2;

/// The simulated time.
struct Watch(Arc<AtomicI64>);

impl Clock for Watch {
    fn now_ms(&self) -> i64 {
        self.0.load(Ordering::SeqCst)
    }
}

/// A shard of one life.
enum Seat {
    Waiting(Receiver<Event>),
    Open { shard: Box<Shard>, idle: Option<Step> },
    Finished,
}

enum End {
    Crashed,
    Done(Arc<Shared>),
}

/// See the file's head.
pub(crate) struct Simulation {
    dice: Dice,
    pipeline: Pipeline,
    plan: Arc<plan::Plan>,
    dofns: Arc<DoFns>,
    looked_at: Vec<usize>,
    options: Options,
    shards: u32,
    job: JobId,
    ledger: MemoryLedger,
    trouble: Arc<Mutex<Trouble>>,
    now_ms: Arc<AtomicI64>,
    /// Decisions until the job is drained, if it is to be.
    drains_in: Option<usize>,
    drained: bool,
}

impl Simulation {
    pub(crate) fn new(seed: u64) -> Self {
        let mut dice = Dice::new(seed);
        let pipeline = Pipeline::generate(&mut dice);
        let Compiled { plan, dofns, looked_at } = compile(&pipeline, &mut dice);
        let options = options(&mut dice, BundlePolicy::ALL[seed as usize % BundlePolicy::ALL.len()]);
        let trouble = Trouble {
            dice: Dice::new(dice.next()),
            crashes_left: dice.below(6) as u32,
            crash_percent: dice.one_of(&[2, 20, 100]),
            figures: Figures {
                stages: plan.stages.len(),
                keyed: plan.stages.iter().filter(|stage| matches!(stage.head, plan::Head::Keyed(_))).count(),
                scripts: plan.scripts.len(),
                panes: pipeline.ops.iter().filter(|op| matches!(op, Op::Panes { .. })).count(),
                steps: pipeline.ops.iter().filter(|op| matches!(op, Op::Steps { .. })).count(),
                late: pipeline.made.iter().flatten().filter(|element| !element.certain).count(),
                ..Figures::default()
            },
        };
        let trouble = Arc::new(Mutex::new(trouble));
        let (shards, job) = (if plan.scripts.is_empty() { dice.between(1, 4) as u32 } else { 1 }, JobId::from("simulated"));
        let ledger = MemoryLedger::with_faults(faults(&trouble));
        ledger.create(JobRecord { job: job.clone(), shards, description: Bytes::new() }).unwrap();
        let (plan, dofns) = (Arc::new(plan), Arc::new(dofns));
        let drains_in = dice.chance(20).then(|| dice.below(300));
        let now_ms = Arc::default();
        Simulation {
            dice,
            pipeline,
            plan,
            dofns,
            looked_at,
            options,
            shards,
            job,
            ledger,
            trouble,
            now_ms,
            drains_in,
            drained: false,
        }
    }

    pub(crate) fn run(mut self) -> Figures {
        let shared = loop {
            match self.live() {
                End::Done(shared) => break shared,
                End::Crashed => self.ledger = self.ledger.crash(),
            }
        };
        let committed = counters(&shared);
        self.compare(&committed, "the job");
        self.reopen(&committed);
        let mut figures = self.trouble.lock().unwrap().figures;
        figures.results = committed.len();
        figures.drained = usize::from(self.drained);
        figures
    }

    /// A process from its start to its crash or to the end of the job.
    fn live(&mut self) -> End {
        let manner = Arc::new(Chance::new(self.dice.next(), RETRIES, self.now_ms.clone(), self.plan.stages.len()));
        let (shared, receivers) = self.process(manner.clone());
        let mut seats: Vec<Seat> = receivers.into_iter().map(Seat::Waiting).collect();
        for _ in 0..TURNS_MAX {
            self.trouble.lock().unwrap().figures.turns += 1;
            if seats.iter().all(|seat| matches!(seat, Seat::Finished)) {
                return End::Done(shared);
            }
            if self.dies_between() {
                return End::Crashed;
            }
            self.may_drain(&shared, &manner);
            if self.dice.chance(20) && manner.release(&mut self.dice) {
                continue;
            }
            if self.dice.chance(5) {
                self.now_ms.fetch_add(self.dice.between(0, 300), Ordering::SeqCst);
            }
            if let Some(until_ms) = all_idle(&seats)
                && !manner.release(&mut self.dice)
            {
                self.now_ms.fetch_max(until_ms.unwrap_or(0), Ordering::SeqCst);
            }
            let number = self.dice.below(seats.len());
            if let Err(failure) = self.turn(&shared, &mut seats[number], ShardId(number as u32)) {
                if self.ledger.has_crashed() {
                    return End::Crashed;
                }
                let first = shared.result().err().unwrap_or(failure);
                panic!("the job fails: {first}\n{self:#?}");
            }
        }
        panic!("the job does not end: {}\n{self:#?}", shared.report());
    }

    fn turn(&self, shared: &Arc<Shared>, seat: &mut Seat, id: ShardId) -> Result<(), Failure> {
        *seat = match std::mem::replace(seat, Seat::Finished) {
            Seat::Waiting(events) => Seat::Open { shard: Box::new(Shard::open(shared.clone(), id, events)?), idle: None },
            Seat::Open { mut shard, .. } => match shard.step(self.now_ms.load(Ordering::SeqCst))? {
                Step::Progressed => Seat::Open { shard, idle: None },
                idle @ Step::Idle { .. } => Seat::Open { shard, idle: Some(idle) },
                Step::Finished => Seat::Finished,
            },
            Seat::Finished => Seat::Finished,
        };
        Ok(())
    }

    fn dies_between(&mut self) -> bool {
        let mut trouble = self.trouble.lock().unwrap();
        let dies = trouble.crashes_left > 0 && self.dice.below(2_000) == 0;
        if dies {
            trouble.crashes_left -= 1;
            trouble.figures.crashes_between += 1;
        }
        dies
    }

    /// Tells the job to drain when it is time.
    fn may_drain(&mut self, shared: &Shared, manner: &Chance) {
        let left = self.drains_in.map(|left| left.checked_sub(1));
        if left == Some(None) {
            self.drained = true;
            manner.drain();
            shared.drain();
        }
        self.drains_in = left.flatten();
    }

    /// A process; one of a job that is drained is told so before it begins.
    fn process(&self, manner: Arc<Chance>) -> (Arc<Shared>, Vec<Receiver<Event>>) {
        let (shared, receivers) = Shared::new(JobSpec {
            name: "simulated".to_owned(),
            plan: self.plan.clone(),
            shards: self.shards,
            ledger: self.ledger.open(&self.job).unwrap(),
            workers: vec![Arc::new(TestWorker::new(self.dofns.clone(), manner.clone()))],
            clock: Arc::new(Watch(self.now_ms.clone())),
            options: self.options,
        });
        if self.drained {
            manner.drain();
            shared.drain();
        }
        (shared, receivers)
    }

    /// A process that comes after the end finds the job finished, with its metrics and without rows.
    fn reopen(&mut self, committed: &Counters) {
        self.ledger = self.ledger.crash_with_faults(Arc::new(|_| None));
        let (shared, receivers) = self.process(Arc::new(Chance::new(0, 0, self.now_ms.clone(), self.plan.stages.len())));
        for (number, events) in receivers.into_iter().enumerate() {
            let mut shard = Shard::open(shared.clone(), ShardId(number as u32), events).unwrap();
            let mut step = || shard.step(self.now_ms.load(Ordering::SeqCst)).unwrap();
            // A script's last watermarks are told again, and that the job drains.
            let told_again = self.drained || !self.plan.scripts.is_empty();
            while told_again && step() == Step::Progressed {}
            assert_eq!(step(), Step::Finished, "{self:#?}");
        }
        assert_eq!(counters(&shared), *committed, "a later process finds other results:\n{self:#?}");
        let job = self.ledger.open(&self.job).unwrap();
        for shard in (0..self.shards).map(ShardId) {
            let mut ledger = job.shard(shard, Arc::new(|| {})).unwrap();
            let mut entries = ledger.recover().unwrap().entries;
            entries.retain(|entry| entry.position.partition == ledger::Partition::Own);
            assert!(entries.is_empty(), "{entries:#?} remain on {shard}\n{self:#?}");
            let state = ledger.state().scan(b"u", b"v", usize::MAX, usize::MAX).unwrap();
            assert!(state.is_empty(), "user state remains on {shard}: {state:?}\n{self:#?}");
        }
    }

    fn compare(&self, committed: &Counters, who: &str) {
        let figures = self.trouble.lock().unwrap().figures;
        let crashed = figures.crashes_before + figures.crashes_after + figures.crashes_between > 0;
        let circumstances = Circumstances { crashed, drained: self.drained };
        let compare = |pipeline: &Pipeline| compare(pipeline, &self.looked_at, committed, circumstances);
        let Err(what) = compare(&self.pipeline) else { return };
        // Scripts that are drained end before their end.
        let ends = if self.drained { 0..self.pipeline.events() } else { 0..0 };
        let ended = ends.map(|end| (end, compare(&self.pipeline.cut(end)))).collect::<Vec<_>>();
        if ended.iter().all(|(_, result)| result.is_err()) {
            let cut = ended.iter().map(|(end, result)| format!("after {end} events {}\n", result.clone().unwrap_err()));
            panic!("{who} has other results:\n{what}\n{}{self:#?}", cut.collect::<String>());
        }
    }
}

impl std::fmt::Debug for Simulation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let drained = if self.drained { ", drained" } else { "" };
        writeln!(f, "{} shards{drained}, {:?}", self.shards, self.options)?;
        for (index, op) in self.pipeline.ops.iter().enumerate() {
            writeln!(f, "  {index}: {op:?}")?;
        }
        for stage in &self.plan.stages {
            writeln!(
                f,
                "  {} {}: {:?}, side inputs {:?}",
                stage.id,
                stage.name,
                stage.inputs,
                stage.side_inputs.iter().map(|side| &side.producers).collect::<Vec<_>>()
            )?;
        }
        writeln!(f, "  {:?}", self.trouble.lock().unwrap().figures)
    }
}

/// When all open shards are idle: until when.
fn all_idle(seats: &[Seat]) -> Option<Option<i64>> {
    let mut until: Option<i64> = None;
    for seat in seats {
        match seat {
            Seat::Finished => {}
            Seat::Open { idle: Some(Step::Idle { until_ms }), .. } => until = until.into_iter().chain(*until_ms).min(),
            _ => return None,
        }
    }
    Some(until)
}

fn options(dice: &mut Dice, policy: BundlePolicy) -> Options {
    Options {
        retries: RETRIES,
        bundle_rows_max: dice.one_of(&[1, 3, 20, 1_000]),
        bundle_bytes_max: dice.one_of(&[1, 100, 1 << 20]),
        bundle_groups_max: dice.one_of(&[1, 4, 1_000]),
        bundle_state_bytes_max: dice.one_of(&[10_000, 1 << 20]),
        bundle_restrictions_max: dice.one_of(&[1, 3, 64]),
        backlog_bytes_max: dice.one_of(&[0, 200, 1 << 20]),
        checkpoint_interval_ms: dice.between(1, 500),
        checkpoint_output_bytes: dice.between(1, 1_000) as u64,
        settle_ms: 0,
        settle_stopped_ms: 0,
        streaming: dice.chance(50),
        keep_metrics: true,
        policy,
    }
}

/// Committed counters of user code.
pub(crate) fn counters(shared: &Shared) -> Counters {
    let mut counters = Counters::new();
    for (name, value) in shared.metrics.committed() {
        if let (Some(transform), Some(counter), MetricValue::SumInt(value)) =
            (name.labels.get("PTRANSFORM"), name.labels.get("NAME"), value)
            && name.urn == worker::reference::USER_COUNTER
        {
            counters.insert((transform.clone(), counter.clone()), value);
        }
    }
    counters
}
