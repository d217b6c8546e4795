//! Windows that only a worker can merge.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use executor::Failure;
use model::batch::Row;
use model::window::IntervalWindow;
use model::{Reader, Timestamp};
use worker::Error;

use crate::dofns::{Context, Faultless, TestWorker};
use crate::merging::{group_in_merging_windows, merge_windows};
use crate::rig::{Rig, results};
use crate::rows::Draft;

/// Numbers in windows of ten milliseconds from their value on, grouped by the merging of `answer`.
fn run(
    numbers: &[u64],
    answer: impl Fn(Row<'_>, &mut Context<'_>) -> Result<(), Error> + Send + Sync + 'static,
) -> Result<Vec<String>, Failure> {
    let mut draft = Draft::default();
    draft.source("numbers", numbers.iter().map(|number| (b"key".to_vec(), *number)).collect::<Vec<_>>());
    group_in_merging_windows(&mut draft);
    draft.dofn("group", |row, context| {
        let mut reader = Reader::new(row.value);
        reader.length_prefixed().unwrap();
        context.count(&format!("of {}", reader.be_i32().unwrap()), 1);
        Ok(())
    });
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
