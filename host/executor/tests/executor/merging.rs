//! A window function that only a worker knows: intervals that merge when they have enough in common.

use bytes::Bytes;
use model::batch::Row;
use model::reader::put_length_prefixed;
use model::window::IntervalWindow;
use model::windowing::{Merging, Trigger, WindowFn, WindowingStrategy};
use model::{Coder, Duration, Reader, Timestamp, WindowCoder, window};
use plan::{Head, Routing};

use crate::dofns::Context;
use crate::plans::kv;
use crate::rows::{Draft, decode};

/// Answers which of the windows in `row` merge: those that have more than `loose` milliseconds in common.
pub(crate) fn merge_windows(row: Row<'_>, loose: i64, context: &mut Context<'_>) {
    let mut reader = Reader::new(row.value);
    let nonce = reader.length_prefixed().unwrap();
    let mut windows: Vec<_> = (0..reader.be_i32().unwrap()).map(|_| IntervalWindow::decode(&mut reader).unwrap()).collect();
    windows.sort();
    let mut merged: Vec<(IntervalWindow, Vec<IntervalWindow>)> = Vec::new();
    for window in windows {
        match merged.last_mut() {
            Some((whole, parts)) if window.start.millis() + loose < whole.end.millis() => {
                whole.end = whole.end.max(window.end);
                parts.push(window);
            }
            _ => merged.push((window, vec![window])),
        }
    }
    let mut answer = Vec::new();
    put_length_prefixed(&mut answer, nonce);
    let list = |answer: &mut Vec<u8>, length: usize| answer.extend_from_slice(&(length as i32).to_be_bytes());
    list(&mut answer, 0);
    list(&mut answer, merged.len());
    for (whole, parts) in merged {
        whole.encode(&mut answer);
        list(&mut answer, parts.len());
        parts.iter().for_each(|part| part.encode(&mut answer));
    }
    context.emit(Row { value: &answer, ..row });
}

/// Gives every element of `numbers` the ten milliseconds from its number on as its window, and groups by key in these windows.
/// What to do with a group is left to the DoFn `group`, which of its windows merge to the DoFn `merge`.
pub(crate) fn group_in_merging_windows(draft: &mut Draft) {
    let stage = draft.plans.stage("assign", Head::Plain, &[("numbers", Routing::RoundRobin)], "unassigned");
    draft.plans.transform(stage, "assign", "unassigned", Some(("assigned", kv(), WindowCoder::Interval)));
    draft.dofn("assign", |row, context| {
        let start = Timestamp::from_millis(decode(row.value).1 as i64);
        let mut bytes = Vec::new();
        IntervalWindow { start, end: start.plus(Duration(10)) }.encode(&mut bytes);
        context.emit(Row { windows: &window::single(&bytes), ..row });
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
    draft.plans.merging(stage, "merge", Coder::IntervalWindow);
}
