//! Stages with state and timers, from their head to the commit.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use bytes::Bytes;
use executor::Failure;
use model::batch::Row;
use model::windowing::WindowingStrategy;
use model::{Coder, FiredTimer, Keyed, RawTime, ShardId, TimeDomain, TimerChange, Timestamp};
use plan::StateKind;
use worker::Error;

use crate::dofns::{Answer, Context, Faultless, Manner, TestWorker, TimerId, global_row};
use crate::plans::kv;
use crate::rig::{Rig, results};
use crate::rows::{Draft, decode, encode};

/// A keyed head in the global window.
pub(crate) fn head(timer_families: &[TimeDomain]) -> Keyed {
    let windowing = WindowingStrategy::global();
    Keyed { windowing, timer_families: timer_families.to_vec(), expiration_family: None, time_sorted: false }
}

/// The encoded key of a row.
pub(crate) fn key_of(row: Row<'_>) -> Bytes {
    Bytes::copy_from_slice(&row.value[..kv().key_len(row.value).unwrap()])
}

fn rig(draft: Draft, manner: impl Manner + 'static, shards: u32) -> Rig {
    Rig::new(draft.plans.build(), TestWorker::new(Arc::new(draft.dofns), Arc::new(manner)), shards)
}

fn no_timer(_: &FiredTimer, _: &mut Context<'_>) -> Result<(), Error> {
    Err(Error::Protocol("there are no timers here".to_owned()))
}

/// Numbers 0 to 99 with keys 0 to 9: a running sum per key. Fails so often at number 77 after it has written.
fn running_sums(failures: u32) -> Draft {
    let failed = AtomicU32::new(0);
    let mut draft = Draft::default();
    draft.numbers("numbers", 100);
    let states = [("sum", StateKind::Bag { element: Some(Coder::VarInt) })];
    let add = move |row: Row<'_>, context: &mut Context<'_>| {
        let (key, number) = decode(row.value);
        let cell = context.bag("sum", &key_of(row), &Bytes::new());
        let before = context.read_all(&cell)?;
        let before = if before.is_empty() { 0 } else { model::Reader::new(&before).varint().unwrap() };
        context.clear(&cell)?;
        context.append(&cell, encode(b"", before + number)[1..].to_vec())?;
        context.count(&format!("of {}", String::from_utf8_lossy(key)), number as i64);
        context.count("steps", (before > 0) as i64);
        context.emit(Row { value: &encode(key, before + number), ..row });
        let fails = number == 77 && failed.fetch_add(1, Ordering::SeqCst) < failures;
        if fails { Err(Error::User { transform: None, message: "not yet".to_owned() }) } else { Ok(()) }
    };
    draft.by_key("sum", "numbers", head(&[]), &states, add, no_timer);
    draft.stage("largest", "sum output", None, |row, context| {
        let (key, sum) = decode(row.value);
        // The last of a key is its whole sum: 10 numbers, each 10 more than the one before.
        let whole: u64 = (0..10).map(|ten| ten * 10 + u64::from(key[0] - b'0')).sum();
        context.count("whole", (sum == whole) as i64);
        Ok(())
    });
    draft
}

#[test]
fn state_goes_from_bundle_to_bundle_and_failed_ones_leave_nothing() {
    for (shards, rows_max, failures) in [(1, 1_000, 0), (1, 3, 2), (3, 1, 2), (2, 1_000, 1)] {
        let mut rig = rig(running_sums(failures), Faultless, shards);
        rig.options.retries = 2;
        rig.options.bundle_rows_max = rows_max;
        let shared = rig.by_hand().unwrap();
        let results = results(&shared);
        for line in ["largest whole: 10", "sum steps: 89", "sum of 7: 520"] {
            assert!(results.iter().any(|result| result == line), "{line} is not in {results:?}");
        }
    }
}

#[test]
fn state_leaves_the_ledger_when_its_windows_expire() {
    let rig = rig(running_sums(0), Faultless, 2);
    rig.by_hand().unwrap();
    for shard in 0..2 {
        let mut ledger = rig.ledger.shard(ShardId(shard), Arc::new(|| {})).unwrap();
        ledger.recover().unwrap();
        assert_eq!(ledger.state().scan(b"u", b"v", usize::MAX, usize::MAX).unwrap(), []);
    }
}

/// Every number adds so many bytes to its key's state; in the end the longest is known.
fn writing(bytes: usize) -> Draft {
    let mut draft = Draft::default();
    draft.numbers("numbers", 100);
    let states = [("all", StateKind::Bag { element: Some(Coder::Bytes) })];
    let add = move |row: Row<'_>, context: &mut Context<'_>| {
        let cell = context.bag("all", &key_of(row), &Bytes::new());
        // What the state answers is for the state to remember: some SDKs do not wait for it.
        let _ = context.append(&cell, vec![0; bytes]);
        context.count("rows", 1);
        context.count("full", (context.read_all(&cell)?.len() == 10 * bytes) as i64);
        Ok(())
    };
    draft.by_key("write", "numbers", head(&[]), &states, add, no_timer);
    draft
}

#[test]
fn a_bundle_that_writes_too_much_runs_again_in_halves() {
    let run = |bytes, bytes_max| {
        let mut rig = rig(writing(bytes), Faultless, 1);
        rig.options.bundle_state_bytes_max = bytes_max;
        rig.by_hand().map(|shared| results(&shared))
    };
    for bytes_max in [200_000, 50_000, 25_000] {
        assert_eq!(run(10_000, bytes_max).unwrap(), ["make numbers made: 100", "write full: 10", "write rows: 100"]);
    }
    match run(30_000, 20_000) {
        Err(Failure::User { message, .. }) => assert!(message.contains("more than 20000 bytes of user state"), "{message}"),
        other => panic!("{other:?}"),
    }
}

/// Changes what a stage answers about timers.
struct Sets(&'static str, Vec<TimerChange>);

impl Manner for Sets {
    fn answer(&self, _: ShardId, mut answer: Answer) {
        if answer.stage.name == self.0
            && let Ok(outcome) = &mut answer.result
        {
            outcome.timers.extend(self.1.iter().cloned());
        }
        answer.send();
    }
}

#[test]
fn timers_of_no_family_are_a_fault_of_the_worker() {
    let change = |family| {
        let set = Some((Timestamp::MIN.into(), Timestamp::MAX.into(), Bytes::from_static(model::pane::NO_FIRING)));
        vec![TimerChange { family, tag: Bytes::new(), key: Bytes::from_static(b"\x011"), window: Bytes::new(), set }]
    };
    let check = |stage, family, expected: &str| match rig(running_sums(0), Sets(stage, change(family)), 1).by_hand() {
        Err(Failure::Internal(message)) => assert_eq!(message, expected),
        Err(other) => panic!("{other:?}"),
        Ok(_) => panic!("believed"),
    };
    check("largest", 0, "the worker of \"largest\", which has no timers, set some");
    check("sum", 0, "the worker of \"sum\" set a timer of its family 0, but it has only 0");
}

#[test]
fn state_of_another_stage_fails_the_job_by_name() {
    let mut draft = Draft::default();
    draft.numbers("numbers", 10);
    draft.stage("plain", "numbers", None, |row, context| {
        let cell = context.bag("sum", &key_of(row), &Bytes::new());
        context.read_all(&cell).map(drop)
    });
    match rig(draft, Faultless, 1).by_hand() {
        Err(Failure::Internal(message)) => assert_eq!(message, "plain has no user state \"sum\" in stage 1"),
        other => panic!("{:?}", other.err()),
    }
}

/// Per key a timer in event time, which sets one in processing time.
fn timers_that_set_timers() -> Draft {
    let mut draft = Draft::default();
    draft.numbers("numbers", 100);
    let set = |row: Row<'_>, context: &mut Context<'_>| {
        let id = TimerId { family: 0, tag: Vec::new(), key: key_of(row), window: Bytes::new() };
        context.set_timer(id, Timestamp::from_millis(1_000), RawTime::NO_HOLD);
        Ok(())
    };
    let fire = |timer: &FiredTimer, context: &mut Context<'_>| {
        context.count(&format!("family {}", timer.family), 1);
        if timer.family == 0 {
            assert_eq!(timer.hold, RawTime::NO_HOLD, "it comes back as set");
            let id = TimerId { family: 1, tag: b"later".to_vec(), key: timer.key.clone(), window: timer.window.clone() };
            context.set_timer(id, Timestamp::from_millis(60_000), timer.fire);
            return Ok(());
        }
        assert_eq!((&timer.tag[..], timer.fire.0), (&b"later"[..], 60_000));
        context.emit(global_row(&encode(&timer.key[1..], 1), timer.hold.timestamp()));
        Ok(())
    };
    draft.by_key("timers", "numbers", head(&[TimeDomain::Event, TimeDomain::Processing]), &[], set, fire);
    draft.sum("sum", "timers output");
    draft
}

#[test]
fn timers_set_by_timers_fire_before_the_job_ends() {
    for shards in [1, 3] {
        let mut rig = rig(timers_that_set_timers(), Faultless, shards);
        rig.options.bundle_groups_max = 3;
        let shared = rig.by_hand().unwrap();
        let expected = ["make numbers made: 100", "sum rows: 10", "sum sum: 10", "timers family 0: 10", "timers family 1: 10"];
        assert_eq!(results(&shared), expected);
    }
}
