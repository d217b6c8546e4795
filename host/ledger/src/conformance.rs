//! The suite that every ledger passes: one check per sentence of the contract that can be tested.
//!
//! An adapter calls [`run`] from a test. A check panics with what it found; which one it was is printed before it starts.
//! Waiting for what was committed elsewhere is bounded by [`PATIENCE`], so that adapters may be as slow as a network.
//!
//! ```text
//!  log.rs       order, visibility, consumption     state.rs    cells
//!  owners.rs    taking over, waking, crashes       jobs.rs     many jobs in one ledger
//!  payloads.rs  large, staged, shared              history.rs  random histories against a naive model
//! ```

mod history;
mod jobs;
mod log;
mod owners;
mod payloads;
mod state;

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use model::batch::{BatchBuilder, Row};
use model::{Batch, JobId, ShardId, StageId, Timestamp, pane, window};

use crate::contract::*;

pub use history::check_histories;

/// How long something that was committed may take to arrive.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// One storage under test, empty at first.
pub trait Adapter {
    /// The ledger that is open on it now.
    fn ledger(&self) -> Arc<dyn Ledger>;

    /// The process dies without a farewell and another one opens the storage. False, and nothing happens, when the storage
    /// does not outlive its process. Whatever was opened before must not be used again.
    fn crash(&mut self) -> bool;

    /// Bytes of payloads that take room anywhere, when the adapter can tell. What the next commit will free does not count.
    fn payload_bytes(&self) -> Option<u64>;
}

type Check = fn(&mut dyn Adapter);

/// All checks, each on a storage of its own.
pub fn run(mut make: impl FnMut() -> Box<dyn Adapter>) {
    let groups = [log::CHECKS, state::CHECKS, owners::CHECKS, payloads::CHECKS, jobs::CHECKS, history::CHECKS];
    for (name, check) in groups.into_iter().flatten() {
        println!("ledger conformance: {name}");
        check(make().as_mut());
    }
}

/// Names of checks beside them.
macro_rules! checks {
    ($($name:ident),* $(,)?) => {
        pub(super) const CHECKS: &[(&str, super::Check)] = &[$((stringify!($name), $name)),*];
    };
}
use checks;

/// The stages that checks write with.
const STAGE: StageId = StageId(5);

fn create(adapter: &dyn Adapter, shards: u32) -> Arc<dyn JobLedger> {
    let record = JobRecord { job: JobId::from("job"), shards, description: Bytes::from_static(b"a job") };
    adapter.ledger().create(record).expect("a new job is created")
}

fn reopen(adapter: &dyn Adapter) -> Arc<dyn JobLedger> {
    adapter.ledger().open(&JobId::from("job")).expect("a job that was created is opened")
}

/// A new owner that has recovered, and what from.
fn recovered(job: &dyn JobLedger, shard: u32) -> (Box<dyn ShardLedger>, Recovered) {
    let mut owner = job.shard(ShardId(shard), Arc::new(|| {})).expect("a shard is taken over");
    let recovered = owner.recover().expect("a new owner recovers");
    (owner, recovered)
}

/// A new owner of every shard.
fn owners(job: &dyn JobLedger, shards: u32) -> Vec<Box<dyn ShardLedger>> {
    (0..shards).map(|shard| recovered(job, shard).0).collect()
}

/// A batch with one row per word.
fn batch(words: &str) -> Batch {
    let mut rows = BatchBuilder::new();
    for (row, word) in words.split_whitespace().enumerate() {
        let timestamp = Timestamp::from_millis(row as i64);
        rows.push(Row { value: word.as_bytes(), timestamp, windows: window::GLOBAL_SET, pane: pane::NO_FIRING });
    }
    rows.finish()
}

fn words(batch: &Batch) -> String {
    let words: Vec<_> = batch.iter().map(|row| String::from_utf8_lossy(row.value).into_owned()).collect();
    words.join(" ")
}

fn append(to: Destination, payload: Staged) -> Append {
    Append {
        to,
        stage: STAGE,
        input: 0,
        producer: StageId(1),
        payload,
        hold: Timestamp::MAX,
        window_end: Timestamp::GLOBAL_WINDOW_END,
        not_before_ms: None,
    }
}

/// A commit of entries: `"1: a b"` goes to shard 1, `"*: a b"` to all.
fn entries(job: &dyn JobLedger, lines: &[&str]) -> Commit {
    let append_line = |line: &&str| {
        let (to, words) = line.split_once(':').expect("a line says where it goes");
        let to = match to {
            "*" => Destination::Broadcast,
            shard => Destination::Shard(ShardId(shard.parse().expect("a shard is a number"))),
        };
        append(to, job.stage(batch(words)).expect("a batch is staged"))
    };
    Commit { appends: lines.iter().map(append_line).collect(), ..Commit::default() }
}

/// A commit of reports: `(stage, shard, milliseconds)`.
fn reports(reports: &[(u32, u32, i64)]) -> Commit {
    let report = |&(stage, shard, millis): &(u32, u32, i64)| WatermarkReport {
        stage: StageId(stage),
        shard: ShardId(shard),
        watermark: Timestamp::from_millis(millis),
    };
    Commit { reports: reports.iter().map(report).collect(), ..Commit::default() }
}

fn consume(position: Position, rows: &[std::ops::Range<u32>]) -> Commit {
    Commit { consumed: vec![Consumed { position, rows: rows.to_vec() }], ..Commit::default() }
}

/// Writes and deletes: `"a=1"`, `"a="` for an empty value, `"a"` to delete.
fn cells(writes: &[&str]) -> Commit {
    let write = |write: &&str| match write.split_once('=') {
        Some((cell, value)) => StateWrite { cell: bytes(cell), value: Some(bytes(value)) },
        None => StateWrite { cell: bytes(write), value: None },
    };
    Commit { state: writes.iter().map(write).collect(), ..Commit::default() }
}

fn bytes(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

/// Polls until that many arrivals are there.
fn arrivals(owner: &mut dyn ShardLedger, count: usize) -> Vec<Arrival> {
    let started = Instant::now();
    let mut arrivals = Vec::new();
    while arrivals.len() < count {
        let more = owner.poll(count - arrivals.len()).expect("an owner polls");
        if more.is_empty() {
            assert!(started.elapsed() < PATIENCE, "only {} of {count} arrivals: {arrivals:?}", arrivals.len());
            std::thread::sleep(Duration::from_micros(200));
        }
        arrivals.extend(more);
    }
    arrivals
}

fn entry_headers(owner: &mut dyn ShardLedger, count: usize) -> Vec<EntryHeader> {
    let header = |arrival| match arrival {
        Arrival::Entry(header) => header,
        Arrival::Watermark(report) => panic!("expected an entry, found {report:?}"),
    };
    arrivals(owner, count).into_iter().map(header).collect()
}

/// What arrives, as text: the words of entries, `stage/shard@milliseconds` of reports.
fn check_arrivals(owner: &mut dyn ShardLedger, expected: &[&str]) {
    let found = arrivals(owner, expected.len());
    let text = |arrival: &Arrival| match arrival {
        Arrival::Entry(header) => words(&owner.fetch(header.position).expect("an entry that arrived has a payload")),
        Arrival::Watermark(report) => format!("{}/{}@{}", report.stage.0, report.shard.0, report.watermark),
    };
    assert_eq!(found.iter().map(text).collect::<Vec<_>>(), expected);
    check_nothing_arrives(owner);
}

fn check_nothing_arrives(owner: &mut dyn ShardLedger) {
    assert_eq!(owner.poll(100).expect("an owner polls"), []);
}

/// All cells as `a=1 b=2`.
fn check_state(owner: &dyn ShardLedger, expected: &str) {
    let cells = owner.state().scan(b"", &[0xff; 8], usize::MAX, usize::MAX).expect("state is scanned");
    assert_eq!(state_text(&cells), expected);
}

fn state_text(cells: &[(Bytes, Bytes)]) -> String {
    let text = |(cell, value): &(Bytes, Bytes)| format!("{}={}", String::from_utf8_lossy(cell), String::from_utf8_lossy(value));
    cells.iter().map(text).collect::<Vec<_>>().join(" ")
}

/// Commits what must succeed.
fn commit(owner: &mut dyn ShardLedger, commit: &Commit) {
    owner.commit(commit).expect("the owner commits");
}
