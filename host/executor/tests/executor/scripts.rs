//! TestStreams: what happens in which order, and in whose time.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use engine::BundlePolicy;
use executor::Failure;
use ledger::Ledger;
use ledger::memory::{Fault, MemoryLedger};
use model::batch::Row;
use model::{BatchBuilder, Duration, FiredTimer, TimeDomain, Timestamp};
use plan::ScriptEvent;

use crate::dofns::{Context, Faultless, Manner, TestWorker, TimerId, global_row};
use crate::keyed::{head, key_of};
use crate::plans::kv;
use crate::rig::{Rig, create, results};
use crate::rows::{Draft, decode, encode};

/// What happened, in order.
type Diary = Arc<Mutex<Vec<String>>>;

/// A script in short: `a@5 b@6` are elements with their times, `w10` a watermark, `p100` time that passes.
pub(crate) fn events(script: &str) -> Vec<ScriptEvent> {
    script.split(", ").map(event).collect()
}

fn event(text: &str) -> ScriptEvent {
    let number = |text: &str| text.parse::<i64>().unwrap();
    match text.split_at(1) {
        ("w", millis) => ScriptEvent::Watermark { output: 0, watermark: Timestamp::from_millis(number(millis)) },
        ("p", millis) => ScriptEvent::ProcessingTime(Duration(number(millis))),
        _ => {
            let mut builder = BatchBuilder::new();
            for element in text.split(' ') {
                let (key, time) = element.split_once('@').unwrap();
                let value = encode(key.as_bytes(), number(time) as u64);
                builder.push(global_row(&value, Timestamp::from_millis(number(time))));
            }
            ScriptEvent::Elements { output: 0, batch: builder.finish() }
        }
    }
}

/// The wall clock of SDKs, far from the scripts' own.
const WALL_MS: i64 = 1_700_000_000_000;

struct InWallTime;

impl Manner for InWallTime {
    fn now_ms(&self) -> i64 {
        WALL_MS
    }
}

/// Notes elements. Sets for each a timer at its time + 10 in event time, or `wait_ms` later in processing time by its own clock,
/// which notes itself.
fn noted(draft: &mut Draft, name: &str, input: &str, domain: TimeDomain, wait_ms: i64, diary: &Diary) {
    let (elements, timers) = (diary.clone(), diary.clone());
    let set = move |row: Row<'_>, context: &mut Context<'_>| {
        let (key, time) = decode(row.value);
        elements.lock().unwrap().push(format!("{}@{time}", String::from_utf8_lossy(key)));
        let id = TimerId { family: 0, tag: Vec::new(), key: key_of(row), window: Bytes::new() };
        let fire = match domain {
            TimeDomain::Event => row.timestamp.millis() + 10,
            TimeDomain::Processing => context.now_ms() + wait_ms,
        };
        context.set_timer(id, Timestamp::from_millis(fire), row.timestamp);
        Ok(())
    };
    let fire = move |timer: &FiredTimer, context: &mut Context<'_>| {
        let key = String::from_utf8_lossy(&timer.key[1..]).into_owned();
        let from_ms = if domain == TimeDomain::Processing { context.now_ms() } else { 0 };
        timers.lock().unwrap().push(format!("{key} fires at {}", timer.fire.0 - from_ms));
        context.count("fired", 1);
        Ok(())
    };
    draft.by_key(name, input, head(&[domain]), &[], set, fire);
}

fn run(draft: Draft, policy: BundlePolicy) -> Result<(), Failure> {
    let mut rig = Rig::new(draft.plans.build(), TestWorker::new(Arc::new(draft.dofns), Arc::new(InWallTime)), 1);
    rig.options.policy = policy;
    rig.begins_ms = WALL_MS;
    rig.by_hand().map(drop)
}

fn check(scripts: &[&str], domain: TimeDomain, expected: &[&str]) {
    for policy in BundlePolicy::ALL {
        let (mut draft, diary) = (Draft::default(), Diary::default());
        for (index, script) in scripts.iter().enumerate() {
            let (name, output) = (format!("script {index}"), format!("elements {index}"));
            draft.plans.script(&name, events(script), &output, kv());
            noted(&mut draft, &format!("noted {index}"), &output, domain, 100, &diary);
        }
        run(draft, policy).unwrap();
        assert_eq!(*diary.lock().unwrap(), expected, "{policy:?}");
    }
}

#[test]
fn events_happen_one_after_another_when_nothing_else_can() {
    let event = TimeDomain::Event;
    check(&["a@5, w14, b@20, w15, w40"], event, &["a@5", "b@20", "a fires at 15", "b fires at 30"]);
    check(&["a@5, b@6, w100, c@100"], event, &["a@5", "b@6", "a fires at 15", "b fires at 16", "c@100", "c fires at 110"]);
    check(&["a@5, a@7, w16, w17"], event, &["a@5", "a@7", "a fires at 17"]);
    check(&["w5"], event, &[]);
}

#[test]
fn processing_time_passes_by_the_script() {
    let processing = TimeDomain::Processing;
    let fires = ["a", "b", "c", "d", "e"].map(|key| format!("{key} fires at 100"));
    let [a, b, c, d, e] = fires.each_ref().map(String::as_str);
    let expected = ["a@5", "b@6", a, "c@7", "d@8", b, c, "e@9", d, e];
    check(&["a@5, p99, b@6, p1, c@7, p98, d@8, p2, e@9"], processing, &expected);
    check(&["a@5, p40, a@6, p60, b@7, p40"], processing, &["a@5", "a@6", "b@7", a, b]);
}

#[test]
fn several_scripts_take_turns() {
    let event = TimeDomain::Event;
    let expected = ["a@1", "x@1", "a fires at 11", "x fires at 11", "b@40", "y@40", "b fires at 50", "y fires at 50"];
    check(&["a@1, w30, b@40", "x@1, w30, y@40"], event, &expected);
    let expected = ["a@1", "x@1", "b@2", "x fires at 11", "c@3", "a fires at 11", "b fires at 12", "c fires at 13"];
    check(&["a@1, b@2, c@3", "x@1"], event, &expected);
}

#[test]
fn a_script_on_several_shards_is_refused() {
    let mut draft = Draft::default();
    draft.plans.script("script", events("a@1"), "elements", kv());
    draft.sum("sum", "elements");
    let rig = Rig::new(draft.plans.build(), TestWorker::new(Arc::new(draft.dofns), Arc::new(Faultless)), 2);
    match rig.by_hand() {
        Err(Failure::Internal(message)) => assert_eq!(message, "a job with a TestStream runs on one shard, not on 2"),
        other => panic!("{:?}", other.err()),
    }
}

/// A process that dies at any of its commits goes on where it was, and each event happens once.
#[test]
fn a_script_goes_on_after_a_crash() {
    let script = "a@5, w14, p50, b@20, w16, p60, c@30, w40, p100";
    let draft = || {
        let (mut draft, diary) = (Draft::default(), Diary::default());
        draft.plans.script("script", events(script), "elements", kv());
        noted(&mut draft, "events", "elements", TimeDomain::Event, 0, &diary);
        noted(&mut draft, "processing", "elements", TimeDomain::Processing, 100, &diary);
        draft.sum("sum", "elements");
        draft
    };
    for (crash_at, fault) in (0..60).flat_map(|commit| [(commit, Fault::CrashBefore), (commit, Fault::CrashAfter)]) {
        let commits = std::sync::atomic::AtomicU32::new(0);
        let faults = move |_: &ledger::memory::Attempt<'_>| {
            (commits.fetch_add(1, std::sync::atomic::Ordering::SeqCst) == crash_at).then_some(fault)
        };
        let ledger = MemoryLedger::with_faults(Arc::new(faults));
        let Draft { plans, dofns } = draft();
        let mut rig = Rig::new(plans.build(), TestWorker::new(Arc::new(dofns), Arc::new(InWallTime)), 1);
        rig.ledger = create(&ledger, 1);
        rig.begins_ms = WALL_MS;
        let shared = match rig.by_hand() {
            Ok(shared) => shared,
            Err(_) => {
                let again = ledger.crash_with_faults(Arc::new(|_| None));
                let job = again.jobs().unwrap()[0].job.clone();
                rig.ledger = again.open(&job).unwrap();
                rig.by_hand().unwrap()
            }
        };
        let expected = ["events fired: 3", "processing fired: 3", "sum rows: 3", "sum sum: 55"];
        assert_eq!(results(&shared), expected, "crash at commit {crash_at}");
    }
}
