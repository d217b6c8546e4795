//! Runs a plan by hand, step by step in made-up time, or on real threads.

use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use executor::job::{Clock, Shared};
use executor::shard::{Shard, Step};
use executor::{Failure, Job, JobSpec, Observer, Options};
use ledger::memory::MemoryLedger;
use ledger::{JobLedger, JobRecord, Ledger};
use model::{JobId, ShardId};
use plan::Plan;
use worker::Worker;

use crate::simulator::life::counters;

/// Longer than any test takes, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// A job that is not started yet.
#[derive(Clone)]
pub(crate) struct Rig {
    pub(crate) plan: Arc<Plan>,
    pub(crate) worker: Arc<dyn Worker>,
    pub(crate) ledger: Arc<dyn JobLedger>,
    pub(crate) shards: u32,
    pub(crate) options: Options,
    /// The wall clock when a run by hand begins.
    pub(crate) begins_ms: i64,
}

/// Milliseconds since the test began.
struct Watch(Instant);

impl Clock for Watch {
    fn now_ms(&self) -> i64 {
        self.0.elapsed().as_millis() as i64
    }
}

/// Time that passes when a test says so.
#[derive(Default)]
struct Hand(AtomicI64);

impl Clock for Hand {
    fn now_ms(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// An empty job of a ledger.
pub(crate) fn create(ledger: &MemoryLedger, shards: u32) -> Arc<dyn JobLedger> {
    static JOBS: AtomicU32 = AtomicU32::new(0);
    let job = JobId::from(format!("job {}", JOBS.fetch_add(1, Ordering::Relaxed)));
    ledger.create(JobRecord { job, shards, description: Bytes::new() }).unwrap()
}

impl Rig {
    pub(crate) fn new(plan: Plan, worker: impl Worker + 'static, shards: u32) -> Self {
        let ledger = create(&MemoryLedger::new(), shards);
        Rig { plan: Arc::new(plan), worker: Arc::new(worker), ledger, shards, options: Options::local(), begins_ms: 0 }
    }

    fn spec(&self, clock: Arc<dyn Clock>) -> JobSpec {
        JobSpec {
            name: "test".to_owned(),
            plan: self.plan.clone(),
            shards: self.shards,
            ledger: self.ledger.clone(),
            workers: vec![self.worker.clone()],
            clock,
            options: self.options,
        }
    }

    /// Runs all shards in turns on this thread; time passes only when there is nothing else to do.
    pub(crate) fn by_hand(&self) -> Result<Arc<Shared>, Failure> {
        let hand = Arc::new(Hand(AtomicI64::new(self.begins_ms)));
        let (shared, receivers) = Shared::new(self.spec(hand.clone()));
        let result = step_all(&shared, receivers, &hand);
        match (shared.result(), result) {
            (Err(first), _) => Err(first),
            (Ok(()), Err(failure)) => Err(failure),
            (Ok(()), Ok(())) => Ok(shared),
        }
    }

    /// Runs by hand for so long, or until the job has ended, and says how it stands then. Whatever goes round without time
    /// passing is left at it.
    pub(crate) fn after(&self, span_ms: i64) -> (Arc<Shared>, Result<(), Failure>) {
        let hand = Arc::new(Hand(AtomicI64::new(self.begins_ms)));
        let (shared, receivers) = Shared::new(self.spec(hand.clone()));
        let result = step_for(&shared, receivers, &hand, self.begins_ms + span_ms);
        let result = shared.result().and(result);
        (shared, result)
    }

    /// Starts threads.
    pub(crate) fn start(&self) -> Run {
        let (sender, ended) = channel();
        let unsettled = Arc::default();
        let observer = Ended(Mutex::new(sender), Arc::clone(&unsettled));
        Run { job: Job::start(self.spec(Arc::new(Watch(Instant::now()))), Arc::new(observer)).unwrap(), ended, unsettled }
    }
}

fn step_all(shared: &Arc<Shared>, receivers: Vec<Receiver<executor::shard::Event>>, hand: &Hand) -> Result<(), Failure> {
    let mut shards = Vec::new();
    for (number, events) in receivers.into_iter().enumerate() {
        shards.push(Shard::open(shared.clone(), ShardId(number as u32), events)?);
    }
    while !shards.is_empty() {
        let (mut progressed, mut until, mut open) = (false, None, Vec::new());
        for mut shard in shards {
            match shard.step(hand.now_ms())? {
                Step::Progressed => progressed = true,
                Step::Idle { until_ms } => until = until.into_iter().chain(until_ms).min(),
                Step::Finished => {
                    progressed = true;
                    continue;
                }
            }
            open.push(shard);
        }
        shards = open;
        if !progressed && let Some(until_ms) = until {
            hand.0.fetch_max(until_ms, Ordering::Relaxed);
        }
    }
    Ok(())
}

/// Steps that may be taken while time stands still.
const ROUNDS_MAX: usize = 1_000;

fn step_for(
    shared: &Arc<Shared>,
    receivers: Vec<Receiver<executor::shard::Event>>,
    hand: &Hand,
    end_ms: i64,
) -> Result<(), Failure> {
    let open = |(number, events)| Shard::open(shared.clone(), ShardId(number as u32), events);
    let mut shards = receivers.into_iter().enumerate().map(open).collect::<Result<Vec<_>, _>>()?;
    let mut rounds = 0;
    loop {
        rounds += 1;
        let (mut progressed, mut until_ms) = (false, end_ms);
        for shard in &mut shards {
            match shard.step(hand.now_ms())? {
                Step::Progressed => progressed = true,
                Step::Idle { until_ms: Some(ms) } => until_ms = until_ms.min(ms),
                Step::Idle { until_ms: None } | Step::Finished => {}
            }
        }
        match (progressed && rounds < ROUNDS_MAX, hand.now_ms() < end_ms) {
            (true, _) => {}
            (false, true) => {
                rounds = 0;
                hand.0.fetch_max(until_ms, Ordering::Relaxed);
            }
            (false, false) => return Ok(()),
        }
    }
}

/// A job on threads.
pub(crate) struct Run {
    pub(crate) job: Job,
    ended: Receiver<Result<(), Failure>>,
    /// What the observer was told before the end.
    pub(crate) unsettled: Arc<Mutex<Vec<String>>>,
}

struct Ended(Mutex<std::sync::mpsc::Sender<Result<(), Failure>>>, Arc<Mutex<Vec<String>>>);

impl Observer for Ended {
    fn unsettled(&self, names: &[String]) {
        self.1.lock().unwrap().extend_from_slice(names);
    }

    fn ended(&self, _: &Shared, result: Result<(), Failure>) {
        self.0.lock().unwrap().send(result).unwrap();
    }
}

impl Run {
    /// Waits for the end; the observer must hear of it exactly once.
    pub(crate) fn end(self) -> (Arc<Shared>, Result<(), Failure>) {
        let result = self.ended.recv_timeout(PATIENCE).expect("the job ends");
        assert!(self.ended.recv_timeout(Duration::from_millis(1)).is_err(), "a job ends once");
        (self.job.shared().clone(), result)
    }

    /// Whether the end has not come yet.
    pub(crate) fn goes_on(&self) -> bool {
        self.ended.try_recv().is_err()
    }

    /// Waits until something has become true.
    pub(crate) fn wait(&self, what: &str, done: impl Fn(&Shared) -> bool) {
        let started = Instant::now();
        while !done(self.job.shared()) {
            assert!(started.elapsed() < PATIENCE, "{what} does not happen");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Committed user counters as `transform name: value`.
pub(crate) fn results(shared: &Shared) -> Vec<String> {
    counters(shared).into_iter().map(|((transform, name), value)| format!("{transform} {name}: {value}")).collect()
}
