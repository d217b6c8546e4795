//! One simulated job: lives of a process, one after another, on a ledger that outlives them.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use engine::BundlePolicy;
use executor::job::{Clock, Shared};
use executor::shard::{Event, Shard, Step};
use executor::{Failure, JobSpec, Options};
use ledger::memory::{Attempt, Fault, Faults, MemoryLedger};
use ledger::{JobRecord, Ledger};
use model::metrics::MetricValue;
use model::{JobId, ShardId};

use super::compile::{Compiled, Counters, compile};
use super::generate::Pipeline;
use crate::dice::Dice;
use crate::dofns::{Chance, DoFns, TestWorker};

/// Decisions of one life, at most: a job that has not ended by then does not end.
const TURNS_MAX: usize = 200_000;
/// Failures of one bundle in a row.
const RETRIES: u32 = 2;

/// How often what happened, so that a test can say that it has tested something.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Figures {
    pub(crate) turns: usize,
    pub(crate) commits: u64,
    pub(crate) refused_commits: u64,
    pub(crate) crashes_before: u64,
    pub(crate) crashes_after: u64,
    pub(crate) crashes_between: u64,
    pub(crate) results: i64,
    pub(crate) stages: usize,
    pub(crate) keyed: usize,
    pub(crate) scripts: usize,
}

impl Figures {
    pub(crate) fn add(&mut self, other: Figures) {
        self.turns += other.turns;
        self.commits += other.commits;
        self.refused_commits += other.refused_commits;
        self.crashes_before += other.crashes_before;
        self.crashes_after += other.crashes_after;
        self.crashes_between += other.crashes_between;
        self.results += other.results;
        self.stages += other.stages;
        self.keyed += other.keyed;
        self.scripts += other.scripts;
    }

    /// All kinds of trouble occurred.
    pub(crate) fn check(&self) {
        assert!(
            self.refused_commits > 0 && self.crashes_before > 0 && self.crashes_after > 0 && self.crashes_between > 0,
            "{self:?}"
        );
        assert!(self.results > 0 && self.keyed > 0 && self.scripts > 0, "{self:?}");
    }
}

/// What decides about commits, and what it has done.
#[derive(Debug)]
struct Trouble {
    dice: Dice,
    crashes_left: u32,
    crash_percent: usize,
    figures: Figures,
}

impl Trouble {
    fn judge(&mut self, _attempt: &Attempt<'_>) -> Option<Fault> {
        if self.crashes_left > 0 && self.dice.below(1_000) < self.crash_percent {
            self.crashes_left -= 1;
            let before = self.dice.chance(50);
            *(if before { &mut self.figures.crashes_before } else { &mut self.figures.crashes_after }) += 1;
            return Some(if before { Fault::CrashBefore } else { Fault::CrashAfter });
        }
        if self.dice.chance(4) {
            self.figures.refused_commits += 1;
            return Some(Fault::Retry);
        }
        self.figures.commits += 1;
        None
    }
}

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
    expected: Counters,
    options: Options,
    shards: u32,
    job: JobId,
    ledger: MemoryLedger,
    trouble: Arc<Mutex<Trouble>>,
    now_ms: Arc<AtomicI64>,
}

impl Simulation {
    pub(crate) fn new(seed: u64) -> Self {
        let mut dice = Dice::new(seed);
        let pipeline = Pipeline::generate(&mut dice);
        let Compiled { plan, dofns, expected } = compile(&pipeline, &mut dice);
        let options = options(&mut dice, BundlePolicy::ALL[seed as usize % BundlePolicy::ALL.len()]);
        let trouble = Trouble {
            dice: Dice::new(dice.next()),
            crashes_left: dice.below(6) as u32,
            crash_percent: dice.one_of(&[2, 20, 100]),
            figures: Figures {
                stages: plan.stages.len(),
                keyed: plan.stages.iter().filter(|stage| matches!(stage.head, plan::Head::Keyed(_))).count(),
                scripts: plan.scripts.len(),
                ..Figures::default()
            },
        };
        let trouble = Arc::new(Mutex::new(trouble));
        let (shards, job) = (if plan.scripts.is_empty() { dice.between(1, 4) as u32 } else { 1 }, JobId::from("simulated"));
        let ledger = MemoryLedger::with_faults(faults(&trouble));
        ledger.create(JobRecord { job: job.clone(), shards, description: Bytes::new() }).unwrap();
        let (plan, dofns) = (Arc::new(plan), Arc::new(dofns));
        Simulation { dice, pipeline, plan, dofns, expected, options, shards, job, ledger, trouble, now_ms: Arc::default() }
    }

    pub(crate) fn run(mut self) -> Figures {
        let shared = loop {
            match self.live() {
                End::Done(shared) => break shared,
                End::Crashed => self.ledger = self.ledger.crash(),
            }
        };
        self.compare(&shared, "the job");
        self.reopen();
        let mut figures = self.trouble.lock().unwrap().figures;
        figures.results = self.expected.values().sum();
        figures
    }

    /// A process from its start to its crash or to the end of the job.
    fn live(&mut self) -> End {
        let manner = Arc::new(Chance::new(self.dice.next(), RETRIES, self.now_ms.clone()));
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

    fn process(&self, manner: Arc<Chance>) -> (Arc<Shared>, Vec<Receiver<Event>>) {
        Shared::new(JobSpec {
            name: "simulated".to_owned(),
            plan: self.plan.clone(),
            shards: self.shards,
            ledger: self.ledger.open(&self.job).unwrap(),
            workers: vec![Arc::new(TestWorker::new(self.dofns.clone(), manner))],
            clock: Arc::new(Watch(self.now_ms.clone())),
            options: self.options,
        })
    }

    /// A process that comes after the end finds the job finished, with its metrics and without rows.
    fn reopen(&mut self) {
        self.ledger = self.ledger.crash_with_faults(Arc::new(|_| None));
        let (shared, receivers) = self.process(Arc::new(Chance::new(0, 0, self.now_ms.clone())));
        for (number, events) in receivers.into_iter().enumerate() {
            let mut shard = Shard::open(shared.clone(), ShardId(number as u32), events).unwrap();
            let mut step = || shard.step(self.now_ms.load(Ordering::SeqCst)).unwrap();
            // A script's last watermarks are told again.
            while !self.plan.scripts.is_empty() && step() == Step::Progressed {}
            assert_eq!(step(), Step::Finished, "{self:#?}");
        }
        self.compare(&shared, "a later process");
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

    fn compare(&self, shared: &Shared, who: &str) {
        let committed = counters(shared);
        // A counter that nobody has raised may be absent or zero.
        let value = |counters: &Counters, name: &(String, String)| counters.get(name).copied().unwrap_or(0);
        let names = self.expected.keys().chain(committed.keys());
        let differ = names
            .filter(|name| value(&self.expected, name) != value(&committed, name))
            .collect::<std::collections::BTreeSet<_>>();
        let say = |name: &&(String, String)| {
            format!("  {} {}: {} instead of {}\n", name.0, name.1, value(&committed, name), value(&self.expected, name))
        };
        assert!(differ.is_empty(), "{who} has other results:\n{}{self:#?}", differ.iter().map(say).collect::<String>());
    }
}

impl std::fmt::Debug for Simulation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "{} shards, {:?}", self.shards, self.options)?;
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

fn faults(trouble: &Arc<Mutex<Trouble>>) -> Faults {
    let trouble = trouble.clone();
    Arc::new(move |attempt| trouble.lock().unwrap().judge(attempt))
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
