//! How jobs fail, and when they do not.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use executor::Failure;
use model::{BatchBuilder, ShardId, Timestamp};
use worker::{Error, Residual};

use crate::dofns::{Answer, Faultless, Manner, TestWorker, global_row};
use crate::rig::{Rig, results};
use crate::rows::{Draft, decode};

fn rig(draft: Draft, manner: impl Manner + 'static, shards: u32) -> Rig {
    Rig::new(draft.plans.build(), TestWorker::new(Arc::new(draft.dofns), Arc::new(manner)), shards)
}

#[test]
fn user_code_fails_the_job_with_its_own_words() {
    let words = "ValueError: no\n  File \"pipeline.py\", line 3 \u{fffd}";
    let mut draft = Draft::default();
    draft.numbers("numbers", 100);
    draft.stage("bad", "numbers", None, move |row, context| {
        context.count("rows", 1);
        match decode(row.value).1 {
            77 => Err(Error::User { transform: Some("bad".into()), message: words.to_owned() }),
            _ => Ok(()),
        }
    });
    for shards in [1, 3] {
        let mut again = Draft::default();
        std::mem::swap(&mut again.plans, &mut draft.plans);
        again.dofns = draft.dofns.clone();
        let (shared, result) = rig(again, Faultless, shards).start().end();
        match result {
            Err(Failure::User { transform, message }) => {
                assert_eq!((transform, &*message), (Some("bad".into()), words));
                assert_eq!(Failure::User { transform: None, message }.to_string(), words);
            }
            other => panic!("{other:?}"),
        }
        if shards == 1 {
            assert_eq!(results(&shared), ["make numbers made: 100"], "a bundle that failed has counted nothing");
        }
        draft = Draft::default();
        draft.numbers("numbers", 100);
        draft.stage("bad", "numbers", None, move |_, _| {
            Err(Error::User { transform: Some("bad".into()), message: words.to_owned() })
        });
    }
}

/// A job whose second stage fails so often before it succeeds; retried so often.
fn retried(failures: u32, error: Error, retries: u32) -> Result<Vec<String>, Failure> {
    let failed = AtomicU32::new(0);
    let mut draft = Draft::default();
    draft.numbers("numbers", 10);
    draft.stage("sometimes", "numbers", Some("same"), move |row, context| {
        context.count("rows", 1);
        context.emit(row);
        let last = decode(row.value).1 == 9;
        if last && failed.fetch_add(1, Ordering::SeqCst) < failures { Err(error.clone()) } else { Ok(()) }
    });
    draft.sum("sum", "same");
    let mut rig = rig(draft, Faultless, 1);
    rig.options.retries = retries;
    rig.by_hand().map(|shared| results(&shared))
}

#[test]
fn a_bundle_is_tried_again_as_often_as_asked_and_has_one_effect() {
    let user = || Error::User { transform: None, message: "not yet".to_owned() };
    let lost = || Error::Infrastructure("gone".to_owned());
    let good = ["make numbers made: 10", "sometimes rows: 10", "sum rows: 10", "sum sum: 45"];
    assert_eq!(retried(0, user(), 0).unwrap(), good);
    assert_eq!(retried(3, user(), 3).unwrap(), good);
    assert!(matches!(retried(1, user(), 0), Err(Failure::User { message, .. }) if message == "not yet"));
    assert!(matches!(retried(4, user(), 3), Err(Failure::User { .. })));
    assert_eq!(retried(2, lost(), 9).unwrap(), good);
    assert!(matches!(retried(3, lost(), 9), Err(Failure::Infrastructure(message)) if message == "gone"), "lost twice is enough");
    assert!(matches!(retried(1, lost(), 0), Err(Failure::Infrastructure(_))));
    let wrong = Error::Protocol("nonsense".to_owned());
    assert!(matches!(retried(1, wrong, 9), Err(Failure::Internal(message)) if message == "nonsense"), "bugs are not retried");
}

/// Changes what a stage answers.
struct Liar<F>(&'static str, F);

impl<F: Fn(&mut worker::Outcome) + Send + Sync> Manner for Liar<F> {
    fn answer(&self, _: ShardId, mut answer: Answer) {
        if answer.stage.name == self.0
            && let Ok(outcome) = &mut answer.result
        {
            (self.1)(outcome);
        }
        answer.send();
    }
}

fn lies(stage: &'static str, lie: impl Fn(&mut worker::Outcome) + Send + Sync + 'static) -> String {
    let mut draft = Draft::default();
    draft.numbers("numbers", 10);
    draft.stage("plain", "numbers", Some("same"), |row, context| {
        context.emit(row);
        Ok(())
    });
    draft.group("grouping", "same", None, |_, _| Ok(()));
    match rig(draft, Liar(stage, lie), 1).by_hand() {
        Err(Failure::Internal(message)) => message,
        Err(other) => panic!("{other:?}"),
        Ok(_) => "believed".to_owned(),
    }
}

#[test]
#[allow(clippy::reversed_empty_ranges, reason = "a range that no honest worker returns")]
fn impossible_splits_are_a_fault_of_the_worker() {
    let expected = "the worker of \"plain\" returned impossible splits";
    for unprocessed in [vec![5..11], vec![3..3], vec![4..6, 5..7], vec![6..7, 2..3], vec![7..6]] {
        let text = format!("{unprocessed:?}");
        assert_eq!(lies("plain", move |outcome| outcome.unprocessed = unprocessed.clone()), expected, "{text}");
    }
    let grouped = lies("grouping", |outcome| outcome.unprocessed = vec![0..1; usize::from(!outcome.metrics.is_empty())]);
    assert_eq!(grouped, "the worker of \"grouping\" returned impossible splits");
    let residual = lies("plain", |outcome| {
        let mut builder = BatchBuilder::new();
        builder.push(global_row(b"\x01a\x01", Timestamp::MIN));
        let batch = builder.finish();
        outcome.residuals.push(Residual { batch, hold: Timestamp::MIN, delay_ms: 0, unbounded: false });
    });
    assert_eq!(residual, expected);
    assert_eq!(lies("plain", |_| ()), "believed");
}

#[test]
fn a_panic_ends_its_job_and_says_so() {
    let mut draft = Draft::default();
    draft.numbers("numbers", 10);
    draft.stage("bad", "numbers", None, |_, _| panic!("at the worst of times"));
    let (_, result) = rig(draft, Faultless, 2).start().end();
    let message = result.unwrap_err().to_string();
    assert!(message.contains("panicked: at the worst of times"), "{message}");
}
