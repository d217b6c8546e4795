//! A job ends when user code has heard of its commits, or patience is over.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use executor::{Failure, Options};
use model::{BundleId, ShardId};

use crate::dofns::{Answer, Manner, TestWorker};
use crate::rig::{Rig, results};
use crate::rows::Draft;

/// Longer than any test takes.
const FOR_EVER_MS: i64 = 1_000_000;

/// Bundles want to hear of their commit, and user code answers when the test says so.
#[derive(Default)]
struct Slow {
    /// Bundles that it was told of.
    told: AtomicUsize,
    /// How often somebody has waited for its answers, since it was told of all.
    waited_for: AtomicUsize,
    answers: AtomicBool,
}

impl Manner for Slow {
    fn answer(&self, _: ShardId, mut answer: Answer) {
        answer.result.as_mut().unwrap().finalize = true;
        answer.send();
    }

    fn finalized(&self, _: ShardId, _: BundleId) {
        self.told.fetch_add(1, Ordering::SeqCst);
    }

    fn settle(&self, patience: Duration) -> Vec<String> {
        if self.answers.load(Ordering::SeqCst) {
            return Vec::new();
        }
        std::thread::sleep(patience.min(Duration::from_millis(1)));
        self.waited_for.fetch_add(1, Ordering::SeqCst);
        vec!["slow worker".to_owned()]
    }
}

fn rig(slow: &Arc<Slow>, settle_ms: i64, settle_stopped_ms: i64) -> Rig {
    let mut draft = Draft::default();
    draft.numbers("numbers", 10);
    draft.sum("sum", "numbers");
    let rig = Rig::new(draft.plans.build(), TestWorker::new(Arc::new(draft.dofns), slow.clone()), 2);
    Rig { options: Options { settle_ms, settle_stopped_ms, ..rig.options }, ..rig }
}

#[test]
fn a_job_has_not_ended_before_user_code_has_heard_of_its_commits() {
    let slow = Arc::new(Slow::default());
    let run = rig(&slow, FOR_EVER_MS, 0).start();
    run.wait("waiting for user code", |_| slow.waited_for.load(Ordering::SeqCst) > 10);
    assert!(run.goes_on());
    assert!(slow.told.load(Ordering::SeqCst) >= 2, "both stages had a bundle, and no more can come");
    slow.answers.store(true, Ordering::SeqCst);
    let unsettled = run.unsettled.clone();
    let (shared, result) = run.end();
    result.unwrap();
    assert_eq!(results(&shared), ["make numbers made: 10", "sum rows: 10", "sum sum: 45"]);
    assert!(unsettled.lock().unwrap().is_empty());
}

#[test]
fn user_code_that_never_answers_is_named_and_fails_nothing() {
    let slow = Arc::new(Slow::default());
    let run = rig(&slow, 20, FOR_EVER_MS).start();
    let unsettled = run.unsettled.clone();
    run.end().1.unwrap();
    assert_eq!(*unsettled.lock().unwrap(), ["slow worker"]);
}

#[test]
fn a_job_that_is_stopped_has_less_patience() {
    let slow = Arc::new(Slow::default());
    let run = rig(&slow, FOR_EVER_MS, 20).start();
    run.wait("waiting for user code", |_| slow.waited_for.load(Ordering::SeqCst) > 0);
    run.job.cancel();
    let unsettled = run.unsettled.clone();
    assert!(matches!(run.end().1, Err(Failure::Cancelled)));
    assert_eq!(*unsettled.lock().unwrap(), ["slow worker"]);
}
