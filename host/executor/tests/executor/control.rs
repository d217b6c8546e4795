//! Jobs that are stopped, go on later, get stuck; and what happens only after a commit.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use executor::Failure;
use ledger::memory::{Fault, MemoryLedger};
use ledger::{Arrival, Commit, CommitError, JobLedger, Position, Recovered, ShardLedger, Staged, StateReader, WatermarkReport};
use model::{Batch, BundleId, ShardId, StageId};
use plan::WindowMapping;

use crate::dofns::{Access, Answer, Faultless, Manner, TestWorker};
use crate::rig::{Rig, create, results};
use crate::rows::Draft;

/// Two stages: numbers, and their sum.
fn two_stages() -> Draft {
    let mut draft = Draft::default();
    draft.numbers("numbers", 10);
    draft.sum("sum", "numbers");
    draft
}

fn rig(draft: Draft, manner: Arc<dyn Manner>, shards: u32) -> Rig {
    Rig::new(draft.plans.build(), TestWorker::new(Arc::new(draft.dofns), manner), shards)
}

/// Never answers for one stage.
#[derive(Default)]
struct Silent {
    asked: AtomicUsize,
    aborted: AtomicUsize,
    /// Completions that are dropped would say something, too.
    kept: Mutex<Vec<Answer>>,
}

impl Manner for Silent {
    fn answer(&self, _: ShardId, answer: Answer) {
        if answer.stage.name == "sum" {
            self.kept.lock().unwrap().push(answer);
            self.asked.fetch_add(1, Ordering::SeqCst);
        } else {
            answer.send();
        }
    }

    fn aborted(&self, _: BundleId) {
        self.aborted.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn a_cancelled_job_ends_although_its_worker_never_answers() {
    let silent = Arc::new(Silent::default());
    let run = rig(two_stages(), silent.clone(), 2).start();
    run.wait("a bundle of the second stage", |_| silent.asked.load(Ordering::SeqCst) == 2);
    let started = Instant::now();
    run.job.cancel();
    let (_, result) = run.end();
    assert!(matches!(result, Err(Failure::Cancelled)), "{result:?}");
    assert_eq!(silent.aborted.load(Ordering::SeqCst), 2, "running bundles are aborted");
    assert!(started.elapsed() < Duration::from_secs(10));
}

#[test]
fn a_suspended_job_goes_on_with_its_metrics() {
    let silent = Arc::new(Silent::default());
    let first = rig(two_stages(), silent.clone(), 2);
    let run = first.start();
    run.wait("a bundle of the second stage", |_| silent.asked.load(Ordering::SeqCst) == 2);
    run.job.suspend();
    let (shared, result) = run.end();
    assert!(matches!(result, Err(Failure::Suspended)), "{result:?}");
    assert_eq!(results(&shared), ["make numbers made: 10"]);
    let Draft { dofns, .. } = two_stages();
    let again = Rig { worker: Arc::new(TestWorker::new(Arc::new(dofns), Arc::new(Faultless))), ..first };
    let (shared, result) = again.start().end();
    result.unwrap();
    assert_eq!(results(&shared), ["make numbers made: 10", "sum rows: 10", "sum sum: 45"]);
    for answer in silent.kept.lock().unwrap().drain(..) {
        // Whoever ran before does not listen any more.
        answer.send();
    }
    let (shared, result) = again.start().end();
    result.unwrap();
    assert_eq!(results(&shared), ["make numbers made: 10", "sum rows: 10", "sum sum: 45"], "a job that has ended stays as it is");
}

/// A ledger that forgets to deliver one stage's reports to one shard.
pub(crate) struct Forgetful {
    pub(crate) job: Arc<dyn JobLedger>,
    pub(crate) stage: StageId,
    pub(crate) reader: ShardId,
}

impl JobLedger for Forgetful {
    fn shard(&self, shard: ShardId, wake: Arc<dyn Fn() + Send + Sync>) -> Result<Box<dyn ShardLedger>, ledger::Error> {
        let forgotten = (shard == self.reader).then_some(self.stage);
        Ok(Box::new(ForgetfulShard { shard: self.job.shard(shard, wake)?, forgotten }))
    }

    fn stage(&self, batch: Batch) -> Result<Staged, ledger::Error> {
        self.job.stage(batch)
    }

    fn fetch_broadcast(&self, offset: u64) -> Result<Batch, ledger::Error> {
        self.job.fetch_broadcast(offset)
    }
}

struct ForgetfulShard {
    shard: Box<dyn ShardLedger>,
    forgotten: Option<StageId>,
}

impl ShardLedger for ForgetfulShard {
    fn recover(&mut self) -> Result<Recovered, ledger::Error> {
        self.shard.recover()
    }

    fn poll(&mut self, entries_max: usize) -> Result<Vec<Arrival>, ledger::Error> {
        let mut arrivals = self.shard.poll(entries_max)?;
        let forgotten = self.forgotten;
        arrivals
            .retain(|arrival| !matches!(arrival, Arrival::Watermark(WatermarkReport { stage, .. }) if Some(*stage) == forgotten));
        Ok(arrivals)
    }

    fn fetch(&self, position: Position) -> Result<Batch, ledger::Error> {
        self.shard.fetch(position)
    }

    fn state(&self) -> Arc<dyn StateReader> {
        self.shard.state()
    }

    fn commit(&mut self, commit: &Commit) -> Result<(), CommitError> {
        self.shard.commit(commit)
    }
}

#[test]
fn a_job_that_waits_for_ever_fails_and_says_for_what() {
    let mut draft = Draft::default();
    draft.numbers("numbers", 10);
    draft.numbers("names", 3);
    let reader = draft.stage("reads names", "numbers", None, |_, context| {
        context.side(Access::Elements, &[], &[])?;
        Ok(())
    });
    let windowing = model::windowing::WindowingStrategy::global();
    draft.plans.side(reader, "reads names", "names", windowing, WindowMapping::ToGlobal);
    let names = draft.plans.maker("names");
    let mut rig = rig(draft, Arc::new(Faultless), 2);
    let job = create(&MemoryLedger::new(), 2);
    rig.ledger = Arc::new(Forgetful { job, stage: names, reader: ShardId(1) });
    for by_hand in [true, false] {
        let failure = match by_hand {
            true => rig.by_hand().err().expect("the job cannot end"),
            false => {
                rig.ledger = Arc::new(Forgetful { job: create(&MemoryLedger::new(), 2), stage: names, reader: ShardId(1) });
                rig.start().end().1.unwrap_err()
            }
        };
        assert!(matches!(failure, Failure::Stuck(_)), "{failure:?}");
        let text = failure.to_string();
        for part in [
            "the job is stuck",
            "what holds:\n  stage 2 \"reads names\" on shard 1: ",
            "entries that wait for side inputs: 1",
            "held at 0 by rows of stage 0 \"make numbers\" on shard ",
            "wait for side input \"side\" of \"reads names\" to pass END",
            "stage 1 \"make names\" on shard ",
            ", which is at MIN; that stage itself is at MAX, which has not arrived here",
        ] {
            assert!(text.contains(part), "{part:?} is not in:\n{text}");
        }
        assert!(!text.contains("\"make numbers\" on shard 0: "), "what is complete is left out:\n{text}");
    }
}

#[test]
fn stages_that_wait_for_each_other_are_refused_and_do_not_hang() {
    let mut draft = two_stages();
    let windowing = model::windowing::WindowingStrategy::global;
    draft.stage("left", "numbers", Some("left"), |_, _| Ok(()));
    draft.stage("right", "numbers", Some("right"), |_, _| Ok(()));
    let (left, right) = (draft.plans.maker("left"), draft.plans.maker("right"));
    draft.plans.side(left, "left", "right", windowing(), WindowMapping::ToGlobal);
    draft.plans.side(right, "right", "left", windowing(), WindowMapping::ToGlobal);
    let (_, result) = rig(draft, Arc::new(Faultless), 2).start().end();
    match result {
        Err(Failure::Internal(message)) => assert!(message.contains("which does not come before it"), "{message}"),
        other => panic!("{other:?}"),
    }
}

/// Asks for finalization, and writes down when it comes.
struct Finalizing(Arc<Mutex<Vec<String>>>);

impl Manner for Finalizing {
    fn answer(&self, _: ShardId, mut answer: Answer) {
        if let Ok(outcome) = &mut answer.result {
            outcome.finalize = answer.stage.name == "sum";
        }
        self.0.lock().unwrap().push(format!("done {}", answer.stage.name));
        answer.send();
    }

    fn finalized(&self, _: ShardId, _: BundleId) {
        self.0.lock().unwrap().push("finalized".to_owned());
    }
}

#[test]
fn bundles_are_finalized_once_after_their_commit() {
    let log = Arc::new(Mutex::new(Vec::new()));
    let judged = log.clone();
    let refusals = AtomicUsize::new(3);
    let ledger = MemoryLedger::with_faults(Arc::new(move |attempt| {
        let sum_is_done = judged.lock().unwrap().iter().any(|line: &String| line == "done sum");
        let refused = sum_is_done
            && !attempt.commit.consumed.is_empty()
            && refusals.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok();
        if sum_is_done && !attempt.commit.consumed.is_empty() {
            judged.lock().unwrap().push(if refused { "refused" } else { "committed" }.to_owned());
        }
        refused.then_some(Fault::Retry)
    }));
    let mut rig = rig(two_stages(), Arc::new(Finalizing(log.clone())), 1);
    rig.ledger = create(&ledger, 1);
    let shared = rig.by_hand().unwrap();
    assert_eq!(results(&shared), ["make numbers made: 10", "sum rows: 10", "sum sum: 45"]);
    assert_eq!(
        *log.lock().unwrap(),
        ["done make numbers", "done sum", "refused", "refused", "refused", "committed", "finalized"]
    );
}

#[test]
fn names_of_metrics_are_written_when_they_are_new() {
    let (names, values) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
    let (names_seen, values_seen) = (names.clone(), values.clone());
    let sum = two_stages().plans.maker("numbers").0 + 1;
    let [names_cell, values_cell] =
        [executor::commit::metric_names_cell, executor::commit::metric_values_cell].map(|cell| cell(StageId(sum)));
    let ledger = MemoryLedger::with_faults(Arc::new(move |attempt| {
        let writes = |cell| attempt.commit.state.iter().filter(|write| write.cell == cell).count();
        names_seen.fetch_add(writes(&names_cell), Ordering::SeqCst);
        values_seen.fetch_add(writes(&values_cell), Ordering::SeqCst);
        None
    }));
    let mut rig = rig(two_stages(), Arc::new(Faultless), 1);
    rig.options.bundle_rows_max = 1;
    rig.ledger = create(&ledger, 1);
    assert_eq!(results(&rig.by_hand().unwrap()), ["make numbers made: 10", "sum rows: 10", "sum sum: 45"]);
    assert_eq!((names.load(Ordering::SeqCst), values.load(Ordering::SeqCst)), (1, 10));
}

#[test]
fn storage_that_stays_away_ends_the_job() {
    let ledger = MemoryLedger::with_faults(Arc::new(|_| Some(Fault::Retry)));
    let mut rig = rig(two_stages(), Arc::new(Faultless), 2);
    rig.ledger = create(&ledger, 2);
    assert!(matches!(rig.by_hand(), Err(Failure::Infrastructure(message)) if message.contains("not available")));
    let ledger = MemoryLedger::with_faults(Arc::new(|attempt| (attempt.number == 3).then_some(Fault::Fatal)));
    rig.ledger = create(&ledger, 2);
    assert!(matches!(rig.by_hand(), Err(Failure::Infrastructure(message)) if message.contains("storage failed")));
}

#[test]
fn impulses_and_stages_without_consumers() {
    let mut draft = two_stages();
    draft.numbers("more", 5);
    draft.sum("sum more", "more");
    draft.numbers("unread", 4);
    draft.stage("unread too", "more", Some("nowhere"), |row, context| {
        context.emit(row);
        Ok(())
    });
    draft.plans.impulse("bare", "nothing");
    let rig = rig(draft, Arc::new(Faultless), 3);
    let expected = [
        "make more made: 5",
        "make numbers made: 10",
        "make unread made: 4",
        "sum rows: 10",
        "sum sum: 45",
        "sum more rows: 5",
        "sum more sum: 10",
    ];
    assert_eq!(results(&rig.by_hand().unwrap()), expected);
}
