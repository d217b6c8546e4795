//! Jobs that stand still, and what they say of it: the whole report, in `tests/stalls/*.txt`.
//!
//! `PURLIN_REWRITE=1` writes what was seen into the files; read the difference.

use std::path::Path;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use executor::Failure;
use ledger::memory::{Fault, MemoryLedger};
use model::batch::Row;
use model::window::IntervalWindow;
use model::windowing::{WindowFn, WindowingStrategy};
use model::{Duration, FiredTimer, ShardId, StageId, TimeDomain, Timestamp, WindowCoder, window};
use plan::{Head, Routing, ScriptEvent, WindowMapping};
use worker::{Error, Progress};

use crate::control::Forgetful;
use crate::dofns::{Access, Answer, Context, Faultless, Manner, TestWorker, TimerId, global_row};
use crate::keyed::{head, key_of};
use crate::merging::group_in_merging_windows;
use crate::plans::kv;
use crate::rig::{Rig, create};
use crate::rows::{Draft, decode, encode};
use crate::scripts::events;

/// Never answers for a stage, and says what a harness would say meanwhile.
struct Hangs {
    stage: &'static str,
    progress: Option<Progress>,
    kept: Mutex<Vec<Answer>>,
}

impl Hangs {
    fn at(stage: &'static str) -> Self {
        Hangs { stage, progress: None, kept: Mutex::default() }
    }
}

impl Manner for Hangs {
    fn answer(&self, _: ShardId, answer: Answer) {
        if answer.stage.name == self.stage { self.kept.lock().unwrap().push(answer) } else { answer.send() }
    }

    fn progress(&self) -> Option<Progress> {
        self.progress.clone()
    }
}

fn rig(draft: Draft, manner: impl Manner + 'static, shards: u32) -> Rig {
    Rig::new(draft.plans.build(), TestWorker::new(Arc::new(draft.dofns), Arc::new(manner)), shards)
}

/// How a job stands after twelve seconds.
fn check(name: &str, rig: &Rig) {
    let (shared, result) = rig.after(12_000);
    match result {
        Ok(()) => compare(name, &shared.report().to_string()),
        Err(failure @ Failure::Stuck(_)) => compare(name, &failure.to_string()),
        Err(failure) => panic!("{name}: {failure:?}"),
    }
}

fn compare(name: &str, seen: &str) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/stalls").join(format!("{name}.txt"));
    if std::env::var_os("PURLIN_REWRITE").is_some() {
        std::fs::write(&file, seen).unwrap();
    }
    let expected = std::fs::read_to_string(&file).unwrap_or_default();
    assert_eq!(seen, expected, "{}", file.display());
}

/// A source `read` of restrictions without end: each round gives a row at its time and leaves itself for `delay_ms`, where it
/// promises `promise`.
fn endless(draft: &mut Draft, keys: &[&str], output: &str, promise: Timestamp, delay_ms: i64) {
    draft.source(&format!("{output} splits"), keys.iter().map(|key| (key.as_bytes().to_vec(), 0)).collect::<Vec<_>>());
    let name = format!("read {output}");
    let (splits, source) = (format!("{output} splits"), format!("{output} source"));
    let head = Head::Restrictions { unbounded: true };
    let stage = draft.plans.stage(&name, head, &[(&splits, Routing::ByKey)], &source);
    draft.plans.transform(stage, &name, &source, Some((output, kv(), WindowCoder::Global)));
    draft.dofn(&name, move |row, context| {
        let (key, round) = decode(row.value);
        if round == 0 {
            context.emit(global_row(&encode(key, 7), Timestamp::from_millis(7)));
        }
        context.leave(Row { value: &encode(key, round + 1), timestamp: promise, ..row }, delay_ms);
        Ok(())
    });
}

#[test]
fn a_source_without_a_watermark() {
    for (name, delay_ms) in [("source_without_watermark", 100), ("source_that_never_rests", 0)] {
        let mut draft = Draft::default();
        endless(&mut draft, &["a"], "clicks", Timestamp::MIN, delay_ms);
        draft.group("count", "clicks", Some("counts"), |_, _| Ok(()));
        draft.sum("write", "counts");
        check(name, &rig(draft, Faultless, 1));
    }
}

#[test]
fn a_residual_that_waits_for_a_day() {
    let mut draft = Draft::default();
    endless(&mut draft, &["a"], "clicks", Timestamp::from_millis(5_000), 86_400_000);
    draft.sum("write", "clicks");
    check("residual_far_ahead", &rig(draft, Faultless, 1));
}

#[test]
fn one_shard_of_a_source_that_promises_nothing() {
    let mut draft = Draft::default();
    draft.source("parts", [(b"a".to_vec(), 0), (b"b".to_vec(), 0), (b"c".to_vec(), 0), (b"d".to_vec(), 0)]);
    let stage = draft.plans.stage("read", Head::Restrictions { unbounded: true }, &[("parts", Routing::ByKey)], "source");
    draft.plans.transform(stage, "read", "source", Some(("clicks", kv(), WindowCoder::Global)));
    draft.dofn("read", |row, context| {
        context.emit(row);
        let promise = if decode(row.value).0 == b"c" { Timestamp::MIN } else { Timestamp::from_millis(9_000) };
        context.leave(Row { timestamp: promise, ..row }, 100_000);
        Ok(())
    });
    draft.group("count", "clicks", None, |_, _| Ok(()));
    check("one_shard_at_the_beginning", &rig(draft, Faultless, 2));
}

/// A keyed stage `name` that sets for each row a timer; `again_ms`: and whenever it fires, so much later.
fn waits(draft: &mut Draft, name: &str, input: &str, domain: TimeDomain, after_ms: i64, again_ms: Option<i64>) {
    let id = |key: Bytes| TimerId { family: 0, tag: Vec::new(), key, window: Bytes::new() };
    let set = move |row: Row<'_>, context: &mut Context<'_>| {
        context.set_timer(id(key_of(row)), row.timestamp.plus(Duration(after_ms)), row.timestamp);
        Ok(())
    };
    let fire = move |timer: &FiredTimer, context: &mut Context<'_>| {
        if let Some(again_ms) = again_ms {
            context.set_timer(id(timer.key.clone()), timer.fire.timestamp().plus(Duration(again_ms)), timer.hold);
        }
        Ok(())
    };
    draft.by_key(name, input, head(&[domain]), &[], set, fire);
}

#[test]
fn timers_far_ahead_and_timers_that_go_round() {
    let mut draft = Draft::default();
    endless(&mut draft, &["a"], "clicks", Timestamp::from_millis(5_000), 100_000);
    waits(&mut draft, "wait", "clicks", TimeDomain::Event, 90_000, None);
    draft.sum("write", "wait output");
    check("timer_far_ahead", &rig(draft, Faultless, 1));

    let mut draft = Draft::default();
    draft.numbers("numbers", 2);
    waits(&mut draft, "poll", "numbers", TimeDomain::Processing, 1_000, Some(1_000));
    draft.sum("write", "poll output");
    check("timer_that_goes_round", &rig(draft, Faultless, 1));
}

#[test]
fn a_side_input_that_does_not_end() {
    let mut draft = Draft::default();
    draft.numbers("numbers", 10);
    endless(&mut draft, &["a"], "names", Timestamp::from_millis(5_000), 100_000);
    let join = draft.stage("join", "numbers", Some("joined"), |_, context| context.side(Access::Elements, &[], &[]).map(drop));
    draft.plans.side(join, "join", "names", WindowingStrategy::global(), WindowMapping::ToGlobal);
    draft.sum("write", "joined");
    check("side_input_without_end", &rig(draft, Faultless, 1));
}

#[test]
fn bundles_that_do_not_end() {
    let numbers = || {
        let mut draft = Draft::default();
        draft.numbers("numbers", 10);
        draft.stage("work", "numbers", Some("worked"), |_, _| Ok(()));
        draft.sum("write", "worked");
        draft
    };
    check("bundle_that_hangs", &rig(numbers(), Hangs::at("work"), 2));
    let progress =
        |silent_ms| Some(Progress { row: Some(3), worker: Some("harness fake-1".to_owned()), silent_ms, ..Progress::default() });
    for (name, silent_ms) in [("bundle_in_a_harness", 900), ("harness_that_does_not_answer", 11_000)] {
        check(name, &rig(numbers(), Hangs { progress: progress(silent_ms), ..Hangs::at("work") }, 1));
    }
}

#[test]
fn a_window_whose_input_is_idle() {
    let mut draft = Draft::default();
    endless(&mut draft, &["a"], "clicks", Timestamp::from_millis(5_000), 100_000);
    let stage = draft.plans.stage("hour", Head::Plain, &[("clicks", Routing::Local)], "unassigned");
    draft.plans.transform(stage, "hour", "unassigned", Some(("hourly", kv(), WindowCoder::Interval)));
    draft.dofn("hour", |row, context| {
        let (mut bytes, end) = (Vec::new(), Timestamp::from_millis(3_600_000));
        IntervalWindow { start: Timestamp::from_millis(0), end }.encode(&mut bytes);
        context.emit(Row { windows: &window::single(&bytes), ..row });
        Ok(())
    });
    let fixed = WindowingStrategy {
        window_fn: WindowFn::Fixed { size: Duration(3_600_000), offset: Duration(0) },
        window_coder: WindowCoder::Interval,
        output_time: model::windowing::OutputTime::Earliest,
        ..WindowingStrategy::global()
    };
    let stage = draft.plans.stage("count", Head::Grouping(Box::new(fixed)), &[("hourly", Routing::ByKey)], "groups");
    draft.plans.transform(stage, "count", "groups", None);
    draft.dofn("count", |_, _| Ok(()));
    check("window_of_idle_input", &rig(draft, Faultless, 1));
}

#[test]
fn a_test_stream_that_does_not_go_on() {
    let mut draft = Draft::default();
    let script: Vec<ScriptEvent> = events("a@5, w4, b@20, w40");
    draft.plans.script("stream", script, "elements", kv());
    draft.group("count", "elements", None, |_, _| Ok(()));
    draft.sum("slow", "elements");
    check("test_stream_that_stands", &rig(draft, Hangs::at("slow"), 1));
}

#[test]
fn storage_that_is_away() {
    let away = MemoryLedger::with_faults(Arc::new(|attempt| (!attempt.commit.consumed.is_empty()).then_some(Fault::Retry)));
    let mut draft = Draft::default();
    draft.numbers("numbers", 10);
    draft.sum("write", "numbers");
    let mut rig = rig(draft, Faultless, 1);
    rig.ledger = create(&away, 1);
    check("storage_that_is_away", &rig);
}

#[test]
fn a_report_that_never_arrives() {
    let mut draft = Draft::default();
    draft.numbers("numbers", 10);
    draft.sum("write", "numbers");
    let mut rig = rig(draft, Faultless, 2);
    rig.ledger = Arc::new(Forgetful { job: create(&MemoryLedger::new(), 2), stage: StageId(0), reader: ShardId(1) });
    check("truly_stuck", &rig);
}

/// The shard itself waits: only threads can look at it meanwhile.
#[test]
fn an_answer_about_windows_that_does_not_come() {
    let mut draft = Draft::default();
    draft.source("numbers", [(b"a".to_vec(), 0), (b"a".to_vec(), 5)]);
    group_in_merging_windows(&mut draft);
    draft.dofn("group", |_, _| Ok(()));
    draft.dofn("merge", |_, _| Err(Error::Protocol("nobody will hear this".to_owned())));
    let run = rig(draft, Hangs::at("beam:transform:merge_windows:v1 of group"), 1).start();
    run.wait("the question", |shared| shared.report().to_string().contains("waits for the answer"));
    let report = run.job.shared().report().to_string();
    run.job.cancel();
    assert!(matches!(run.end().1, Err(Failure::Cancelled)));
    let without_spans = report.split(' ').map(|word| if word.contains('.') && word.parse::<f64>().is_ok() { "_" } else { word });
    compare("windows_that_nobody_merges", &without_spans.collect::<Vec<_>>().join(" "));
}
