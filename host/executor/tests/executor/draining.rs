//! A job that would never end comes to its end.

use std::sync::Arc;

use model::batch::Row;
use plan::{Head, Routing};

use crate::dofns::{Faultless, TestWorker};
use crate::rig::{Rig, results};
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
