//! A job that would never end comes to its end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ledger::memory::{Attempt, Fault, MemoryLedger};
use model::batch::Row;
use model::window::IntervalWindow;
use model::windowing::{WindowFn, WindowingStrategy};
use model::{BatchBuilder, Duration, Timestamp, WindowCoder, window};
use plan::{Head, Routing, ScriptEvent};

use crate::dofns::{Faultless, TestWorker, global_row};
use crate::plans::kv;
use crate::rig::{Rig, create, results};
use crate::rows::{Draft, decode, encode};

/// Where a restriction that nobody cuts would end.
const END: u64 = 1 << 40;

/// Counts up, a step each millisecond, from as many numbers as there are in `starts`; drained after some steps. What comes out
/// is how often steps of the last three were made, and whether others were.
fn drained(starts: &[u64], truncated: bool, shards: u32) -> (Vec<String>, bool) {
    let mut draft = Draft::default();
    draft.source("starts", starts.iter().map(|start| (start.to_string().into_bytes(), *start)).collect::<Vec<_>>());
    let head = Head::Restrictions { unbounded: true };
    let stage = draft.plans.stage("steps", head, &[("starts", Routing::RoundRobin)], "restrictions");
    draft.plans.transform(stage, "steps", "restrictions", None);
    draft.dofn("steps", |row, context| {
        let (key, step) = decode(row.value);
        context.count(if step >= END - 3 { "last" } else { "steps" }, 1);
        if step + 1 < END {
            context.leave(Row { value: &encode(key, step + 1), ..row }, 1);
        }
        Ok(())
    });
    if truncated {
        draft.plans.truncation(stage, "truncate");
        draft.dofn("truncate", |row, context| {
            let (key, step) = decode(row.value);
            context.emit(Row { value: &encode(key, step.max(END - 3)), ..row });
            Ok(())
        });
    }
    let run = Rig::new(draft.plans.build(), TestWorker::new(Arc::new(draft.dofns), Arc::new(Faultless)), shards).start();
    run.wait("steps", |shared| results(shared).iter().any(|result| result.starts_with("steps steps")));
    run.job.drain();
    run.job.drain();
    let (shared, result) = run.end();
    result.unwrap();
    let all = results(&shared).into_iter().filter(|result| result.starts_with("steps"));
    let (last, others): (Vec<_>, Vec<_>) = all.partition(|result| result.contains("last"));
    (last, !others.is_empty())
}

#[test]
fn restrictions_are_truncated_and_what_is_left_is_processed() {
    for shards in [1, 3] {
        assert_eq!(drained(&[0, 5, 7], true, shards), (vec!["steps last: 9".to_owned()], true));
    }
}

#[test]
fn what_never_ends_and_cannot_be_truncated_is_dropped() {
    for shards in [1, 3] {
        assert_eq!(drained(&[0, 5, 7], false, shards), (vec![], true));
    }
}

#[test]
fn elements_of_a_script_whose_commit_is_tried_again_come_before_its_end() {
    let refused = Arc::new(AtomicBool::new(false));
    let once = refused.clone();
    let faults = move |attempt: &Attempt<'_>| {
        let has_elements = !attempt.commit.appends.is_empty();
        (has_elements && !once.swap(true, Ordering::SeqCst)).then_some(Fault::Retry)
    };
    let mut draft = Draft::default();
    let mut elements = BatchBuilder::new();
    for time in [95, 5, 15] {
        elements.push(global_row(&encode(b"key", 7), Timestamp::from_millis(time)));
    }
    let elements = ScriptEvent::Elements { output: 0, batch: elements.finish() };
    draft.plans.script("script", vec![elements], "elements", kv());
    let stage = draft.plans.stage("assign", Head::Plain, &[("elements", Routing::Local)], "unassigned");
    draft.plans.transform(stage, "assign", "unassigned", Some(("assigned", kv(), WindowCoder::Interval)));
    draft.dofn("assign", |row, context| {
        let start = Timestamp::from_millis(row.timestamp.millis() / 10 * 10);
        let mut bytes = Vec::new();
        IntervalWindow { start, end: start.plus(Duration(10)) }.encode(&mut bytes);
        context.emit(Row { windows: &window::single(&bytes), ..row });
        Ok(())
    });
    let window_fn = WindowFn::Fixed { size: Duration(10), offset: Duration(0) };
    let fixed = WindowingStrategy { window_fn, window_coder: WindowCoder::Interval, ..WindowingStrategy::global() };
    let stage = draft.plans.stage("group", Head::Grouping(Box::new(fixed)), &[("assigned", Routing::ByKey)], "groups");
    draft.plans.transform(stage, "group", "groups", None);
    draft.dofn("group", |_, context| {
        context.count("groups", 1);
        Ok(())
    });
    let mut rig = Rig::new(draft.plans.build(), TestWorker::new(Arc::new(draft.dofns), Arc::new(Faultless)), 1);
    rig.ledger = create(&MemoryLedger::with_faults(Arc::new(faults)), 1);
    rig.options.bundle_rows_max = 1;
    let run = rig.start();
    run.wait("the script's elements", |_| refused.load(Ordering::SeqCst));
    run.job.drain();
    let (shared, result) = run.end();
    result.unwrap();
    assert_eq!(results(&shared), ["group groups: 3"]);
}
