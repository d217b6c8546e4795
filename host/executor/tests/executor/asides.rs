//! Windows that only a worker can merge.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use bytes::Bytes;
use executor::Failure;
use model::batch::Row;
use model::window::IntervalWindow;
use model::windowing::{Merging, Trigger, WindowFn, WindowingStrategy};
use model::{Coder, Duration, Reader, Timestamp, WindowCoder, window};
use plan::{Head, Routing};
use worker::Error;

use crate::dofns::{Context, Faultless, TestWorker};
use crate::merging::merge_windows;
use crate::plans::kv;
use crate::rig::{Rig, results};
use crate::rows::{Draft, decode};

/// Numbers in windows of ten milliseconds from their value on, grouped by the merging of `answer`.
fn run(
    numbers: &[u64],
    answer: impl Fn(Row<'_>, &mut Context<'_>) -> Result<(), Error> + Send + Sync + 'static,
) -> Result<Vec<String>, Failure> {
    let mut draft = Draft::default();
    draft.source("numbers", numbers.iter().map(|number| (b"key".to_vec(), *number)).collect::<Vec<_>>());
    let stage = draft.plans.stage("assign", Head::Plain, &[("numbers", Routing::RoundRobin)], "unassigned");
    draft.plans.transform(stage, "assign", "unassigned", Some(("assigned", kv(), WindowCoder::Interval)));
    draft.dofn("assign", |row, context| {
        let start = Timestamp::from_millis(decode(row.value).1 as i64);
        let mut bytes = Vec::new();
        IntervalWindow { start, end: start.plus(Duration(10)) }.encode(&mut bytes);
        context.emit(Row { windows: &window::single(&bytes), timestamp: start, ..row });
        Ok(())
    });
    let strategy = WindowingStrategy {
        window_fn: WindowFn::Custom { urn: "test".to_owned(), spec: Bytes::new(), environment: None },
        window_coder: WindowCoder::Interval,
        merging: Merging::NeedsMerge,
        trigger: Trigger::Default,
        ..WindowingStrategy::global()
    };
    let stage = draft.plans.stage("group", Head::Grouping(Box::new(strategy)), &[("assigned", Routing::ByKey)], "groups");
    draft.plans.transform(stage, "group", "groups", None);
    draft.dofn("group", |row, context| {
        let mut reader = Reader::new(row.value);
        reader.length_prefixed().unwrap();
        context.count(&format!("of {}", reader.be_i32().unwrap()), 1);
        Ok(())
    });
    draft.plans.merging(stage, "merge", Coder::IntervalWindow);
    draft.dofn("merge", answer);
    let mut rig = Rig::new(draft.plans.build(), TestWorker::new(Arc::new(draft.dofns), Arc::new(Faultless)), 2);
    rig.options.retries = 1;
    let (shared, result) = rig.start().end();
    result.map(|()| results(&shared).into_iter().filter(|result| result.starts_with("group")).collect())
}

/// Sessions: what meets merges.
fn sessions(row: Row<'_>, context: &mut Context<'_>) -> Result<(), Error> {
    merge_windows(row, 0, context);
    Ok(())
}

#[test]
fn a_worker_is_asked_which_windows_merge() {
    assert_eq!(run(&[1, 30, 5, 12, 41, 39, 70], sessions).unwrap(), ["group of 1: 1", "group of 3: 2"]);
}

#[test]
fn a_worker_that_is_lost_is_asked_again() {
    for error in [Error::Infrastructure("gone".to_owned()), Error::User { transform: None, message: "this time only".to_owned() }]
    {
        let asked = AtomicU32::new(0);
        let once = move |row: Row<'_>, context: &mut Context<'_>| match asked.fetch_add(1, Ordering::SeqCst) {
            0 => Err(error.clone()),
            _ => sessions(row, context),
        };
        assert_eq!(run(&[1, 30, 5, 12, 41, 39, 70], once).unwrap(), ["group of 1: 1", "group of 3: 2"]);
    }
}

#[test]
fn a_worker_that_cannot_answer_fails_the_job() {
    let words = "ValueError: no such windows";
    let raised = run(&[1, 5], move |_, _| Err(Error::User { transform: None, message: words.to_owned() }));
    assert!(matches!(raised, Err(Failure::User { message, .. }) if message == words));
    let strange = run(&[1, 5], |row, context| {
        let mut answer = vec![0, 0, 0, 0, 0, 0, 0, 0, 1];
        let window = IntervalWindow { start: Timestamp::from_millis(7), end: Timestamp::from_millis(8) };
        window.encode(&mut answer);
        answer.extend_from_slice(&[0, 0, 0, 1]);
        window.encode(&mut answer);
        context.emit(Row { value: &answer, ..row });
        Ok(())
    });
    assert!(matches!(strange, Err(Failure::Internal(message)) if message.contains("one that it was not asked about")));
    let silent = run(&[1, 5], |_, _| Ok(()));
    assert!(matches!(silent, Err(Failure::Internal(message)) if message.contains("not exactly one element")));
}
