//! The reference ledger passes the suite, and its faults do what they say.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use ledger::conformance::{self, Adapter};
use ledger::memory::{Fault, MemoryLedger};
use ledger::*;
use model::{JobId, ShardId};

struct Memory(MemoryLedger);

impl Adapter for Memory {
    fn ledger(&self) -> Arc<dyn Ledger> {
        Arc::new(self.0.clone())
    }

    fn crash(&mut self) -> bool {
        self.0 = self.0.crash();
        true
    }

    fn payload_bytes(&self) -> Option<u64> {
        None
    }
}

#[test]
fn the_reference_conforms() {
    conformance::run(|| Box::new(Memory(MemoryLedger::new())));
}

#[test]
fn many_histories_match_the_model() {
    conformance::check_histories(&mut Memory(MemoryLedger::new()), 100..160);
}

fn cell(value: &'static str) -> Commit {
    let write = StateWrite { cell: Bytes::from_static(b"cell"), value: Some(Bytes::from_static(value.as_bytes())) };
    Commit { state: vec![write], ..Commit::default() }
}

/// Commits `1`, lets `fault` happen to `2`, and says what the answer was and what is there after a crash.
fn check(fault: Fault, answer: &str, cell_after: &'static str, alive: bool) {
    let attempts = Arc::new(Mutex::new(Vec::new()));
    let seen = attempts.clone();
    let faults = Arc::new(move |attempt: &memory::Attempt<'_>| {
        seen.lock().unwrap().push((attempt.job.clone(), attempt.shard, attempt.number));
        (attempt.number == 1).then_some(fault)
    });
    let ledger = MemoryLedger::with_faults(faults);
    let id = JobId::from("job");
    let job = ledger.create(JobRecord { job: id.clone(), shards: 1, description: Bytes::new() }).unwrap();
    let mut owner = job.shard(ShardId(0), Arc::new(|| {})).unwrap();
    owner.recover().unwrap();
    owner.commit(&cell("1")).unwrap();
    let found = owner.commit(&cell("2")).unwrap_err().to_string();
    assert!(found.contains(answer), "{fault:?}: {found}");
    assert_eq!(*attempts.lock().unwrap(), [(id.clone(), ShardId(0), 0), (id.clone(), ShardId(0), 1)]);
    assert_eq!(owner.commit(&Commit::default()).is_ok(), alive, "{fault:?}");
    assert_eq!((ledger.has_crashed(), ledger.open(&id).is_ok()), (!alive, alive));
    let after = ledger.crash_with_faults(Arc::new(|_| None));
    assert!(owner.commit(&cell("3")).is_err() && ledger.open(&id).is_err());
    let job = after.open(&id).unwrap();
    let mut owner = job.shard(ShardId(0), Arc::new(|| {})).unwrap();
    owner.recover().unwrap();
    assert_eq!(owner.state().get(b"cell").unwrap(), Some(Bytes::from_static(cell_after.as_bytes())), "{fault:?}");
    owner.commit(&cell("4")).unwrap();
}

#[test]
fn faults_happen_to_the_chosen_commit() {
    check(Fault::Retry, "not available for now", "1", true);
    check(Fault::Fatal, "storage failed", "1", true);
    check(Fault::CrashBefore, "has crashed", "1", false);
    check(Fault::CrashAfter, "has crashed", "2", false);
}
