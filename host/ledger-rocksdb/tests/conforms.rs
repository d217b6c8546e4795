//! The embedded ledger passes the suite, temporary and durable; what it leaves on disk is what it should.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use ledger::conformance::{self, Adapter};
use ledger::*;
use ledger_rocksdb::{Location, Options, RocksLedger, Sync};
use model::batch::{BatchBuilder, Row};
use model::{Batch, JobId, ShardId, StageId, Timestamp, pane, window};
use tempfile::TempDir;

struct Temporary(RocksLedger, #[allow(dead_code, reason = "removed when the ledger is closed")] TempDir);

impl Temporary {
    fn new(change: impl FnOnce(&mut Options)) -> Self {
        let parent = TempDir::new().unwrap();
        let mut options = Options::temporary(parent.path());
        change(&mut options);
        Temporary(RocksLedger::open(&options).unwrap(), parent)
    }
}

impl Adapter for Temporary {
    fn ledger(&self) -> Arc<dyn Ledger> {
        Arc::new(self.0.clone())
    }

    fn crash(&mut self) -> bool {
        false
    }

    fn payload_bytes(&self) -> Option<u64> {
        Some(payload_bytes(&self.0))
    }
}

fn payload_bytes(ledger: &RocksLedger) -> u64 {
    let usage = ledger.usage().unwrap();
    usage.payload_memory_bytes + usage.payload_table_bytes
}

/// Crashes by opening a copy of the folder as the operating system has it, while the ledger is still open on the original.
struct Durable {
    ledger: RocksLedger,
    options: Options,
    folder: TempDir,
    crashes: u32,
}

impl Durable {
    fn new(sync: Sync) -> Self {
        let folder = TempDir::new().unwrap();
        let options = Options { sync, ..Options::durable(folder.path().join("0")) };
        Durable { ledger: RocksLedger::open(&options).unwrap(), options, folder, crashes: 0 }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join(self.crashes.to_string())
    }
}

impl Adapter for Durable {
    fn ledger(&self) -> Arc<dyn Ledger> {
        Arc::new(self.ledger.clone())
    }

    fn crash(&mut self) -> bool {
        let before = self.path();
        self.crashes += 1;
        copy_at_rest(&before, &self.path());
        self.options.location = Location::Durable(self.path());
        self.ledger = RocksLedger::open(&self.options).unwrap();
        true
    }

    fn payload_bytes(&self) -> Option<u64> {
        Some(payload_bytes(&self.ledger))
    }
}

/// Copies a folder between two moments of background work.
fn copy_at_rest(from: &Path, to: &Path) {
    for _ in 0..200 {
        let before = listing(from);
        let _ = fs::remove_dir_all(to);
        if copy(from, to).is_ok() && listing(from) == before {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    panic!("{} does not come to rest", from.display());
}

fn copy(from: &Path, to: &Path) -> std::io::Result<()> {
    fs::create_dir_all(to)?;
    for file in fs::read_dir(from)? {
        let file = file?;
        let target = to.join(file.file_name());
        if file.file_type()?.is_dir() { copy(&file.path(), &target)? } else { fs::copy(file.path(), target).map(|_| ())? }
    }
    Ok(())
}

fn listing(folder: &Path) -> Vec<(PathBuf, u64)> {
    let mut files = Vec::new();
    for file in fs::read_dir(folder).unwrap().flatten() {
        match file.metadata() {
            Ok(metadata) if metadata.is_dir() => files.extend(listing(&file.path())),
            Ok(metadata) => files.push((file.path(), metadata.len())),
            Err(_) => {}
        }
    }
    files.sort();
    files
}

#[test]
fn temporary_conforms() {
    conformance::run(|| Box::new(Temporary::new(|_| {})));
}

#[test]
fn temporary_without_memory_conforms() {
    conformance::run(|| Box::new(Temporary::new(|options| options.memory_bytes_max = 0)));
}

#[test]
fn durable_conforms() {
    conformance::run(|| Box::new(Durable::new(Sync::Commit)));
}

#[test]
fn durable_conforms_with_other_policies() {
    for sync in [Sync::Interval(1), Sync::Off] {
        conformance::check_histories(&mut Durable::new(sync), 20..24);
    }
}

#[test]
fn many_histories_match_the_model() {
    conformance::check_histories(&mut Temporary::new(|options| options.memory_bytes_max = 1_000), 100..120);
    conformance::check_histories(&mut Durable::new(Sync::Off), 120..126);
}

fn rows(value: &[u8], count: usize) -> Batch {
    let mut rows = BatchBuilder::new();
    for _ in 0..count {
        rows.push(Row { value, timestamp: Timestamp::MIN, windows: window::GLOBAL_SET, pane: pane::NO_FIRING });
    }
    rows.finish()
}

fn append(payload: Staged) -> Append {
    Append {
        to: Destination::Shard(ShardId(0)),
        stage: StageId(0),
        input: 0,
        producer: StageId(0),
        payload,
        hold: Timestamp::MAX,
        window_end: Timestamp::MAX,
        not_before_ms: None,
    }
}

fn owner(ledger: &RocksLedger, job: &str) -> (Arc<dyn JobLedger>, Box<dyn ShardLedger>, Recovered) {
    let id = JobId::from(job);
    let job = ledger.open(&id).or_else(|_| ledger.create(JobRecord { job: id, shards: 1, description: Bytes::new() })).unwrap();
    let mut owner = job.shard(ShardId(0), Arc::new(|| {})).unwrap();
    let recovered = owner.recover().unwrap();
    (job, owner, recovered)
}

#[test]
fn a_log_cut_anywhere_is_a_prefix_of_commits() {
    const COMMITS: u64 = 60;
    let seed = 11u64;
    println!("seed {seed}");
    let folder = TempDir::new().unwrap();
    let original = folder.path().join("original");
    let ledger = RocksLedger::open(&Options { sync: Sync::Off, ..Options::durable(&original) }).unwrap();
    let (job, mut shard, _) = owner(&ledger, "job");
    let mut position = None;
    // Commit n leaves the cell at n, entry n in the log and takes entry n - 1 away.
    for number in 0..COMMITS {
        let value = vec![number as u8; 1 + 997 * (number as usize % 7)];
        let staged = if number % 2 == 0 { job.stage(rows(&value, 3)).unwrap() } else { Staged::in_memory(rows(&value, 3)) };
        let write = StateWrite { cell: Bytes::from_static(b"n"), value: Some(Bytes::from(number.to_string())) };
        let consumed = position.map(|position| Consumed { position, rows: std::iter::once(0..3).collect() });
        let commit = Commit {
            appends: vec![append(staged)],
            state: vec![write],
            consumed: consumed.into_iter().collect(),
            ..Commit::default()
        };
        shard.commit(&commit).unwrap();
        let Arrival::Entry(header) = shard.poll(1).unwrap().remove(0) else { panic!("expected an entry") };
        position = Some(header.position);
    }
    let log = listing(&original).into_iter().filter(|(path, _)| path.extension().is_some_and(|extension| extension == "log"));
    let (log, length) = log.max().unwrap();
    let mut random = seed;
    let mut found = std::collections::BTreeSet::new();
    for round in 0..40 {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let cut = folder.path().join(format!("cut-{round}"));
        copy(&original, &cut).unwrap();
        let file = fs::OpenOptions::new().write(true).open(cut.join(log.strip_prefix(&original).unwrap())).unwrap();
        let kept = random % (length + 1);
        file.set_len(kept).unwrap();
        let ledger = RocksLedger::open(&Options::durable(&cut)).unwrap();
        if ledger.jobs().unwrap().is_empty() {
            found.insert(None);
            continue;
        }
        let (_, shard, recovered) = owner(&ledger, "job");
        let number = shard.state().get(b"n").unwrap().map(|number| std::str::from_utf8(&number).unwrap().parse::<u64>().unwrap());
        let entries: Vec<_> = recovered.entries.iter().map(|header| shard.fetch(header.position).unwrap().value(0)[0]).collect();
        assert_eq!(entries, number.map(|number| number as u8).into_iter().collect::<Vec<_>>(), "cut to {kept} of {length} bytes");
        found.insert(number);
    }
    assert!(found.len() > 20, "the cuts hit only {found:?}");
}

#[test]
fn a_temporary_folder_goes_away() {
    let parent = TempDir::new().unwrap();
    // As if a process had died: a folder whose lock is free. Others are not ours to remove.
    let abandoned = parent.path().join("purlin-1-0");
    fs::create_dir(&abandoned).unwrap();
    fs::write(abandoned.join("in-use"), "").unwrap();
    fs::create_dir(parent.path().join("purlin-of-somebody-else")).unwrap();
    let first = RocksLedger::open(&Options::temporary(parent.path())).unwrap();
    let second = RocksLedger::open(&Options::temporary(parent.path())).unwrap();
    let (job, ..) = owner(&first, "job");
    let count = || fs::read_dir(parent.path()).unwrap().count();
    assert!(!abandoned.exists());
    assert_eq!(count(), 3);
    drop(second);
    assert_eq!(count(), 2);
    drop(first);
    assert_eq!(count(), 2, "a job of it is still open");
    drop(job);
    assert_eq!(count(), 1);
}

#[test]
fn a_folder_in_use_or_of_another_format_is_refused() {
    let refused = |path: &Path, expected: &[&str]| {
        let Err(error) = RocksLedger::open(&Options::durable(path)) else { panic!("{} was opened", path.display()) };
        let text = error.to_string();
        assert!(expected.iter().all(|part| text.contains(part)), "{text}");
        assert!(text.contains(&path.display().to_string()), "{text}");
    };
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("data");
    let ledger = RocksLedger::open(&Options::durable(&path)).unwrap();
    refused(&path, &["in use"]);
    drop(ledger);
    RocksLedger::open(&Options::durable(&path)).unwrap();
    fs::write(path.join("format"), "purlin ledger 999\n").unwrap();
    refused(&path, &["purlin ledger 999", "purlin ledger 1"]);
    let other = folder.path().join("photos");
    fs::create_dir(&other).unwrap();
    fs::write(other.join("cat.jpg"), "meow").unwrap();
    refused(&other, &["neither empty nor a data folder"]);
}

#[test]
fn a_payload_of_another_job_is_refused() {
    let parent = TempDir::new().unwrap();
    let ledger = RocksLedger::open(&Options::temporary(parent.path())).unwrap();
    let (one, ..) = owner(&ledger, "one");
    let (_, mut shard, _) = owner(&ledger, "two");
    let staged = one.stage(rows(b"a", 1)).unwrap();
    let answer = shard.commit(&Commit { appends: vec![append(staged)], ..Commit::default() });
    assert!(matches!(answer, Err(CommitError::Fatal(_))), "{answer:?}");
}

#[test]
fn payloads_stay_within_the_memory_budget() {
    const BUDGET: u64 = 4 << 20;
    let parent = TempDir::new().unwrap();
    let ledger = RocksLedger::open(&Options { memory_bytes_max: BUDGET, ..Options::temporary(parent.path()) }).unwrap();
    let (job, mut shard, _) = owner(&ledger, "job");
    let mut commit = Commit::default();
    for number in 0..200u8 {
        commit.appends.push(append(job.stage(rows(&[number; 1_000], 200)).unwrap()));
        assert!(ledger.usage().unwrap().payload_memory_bytes <= BUDGET);
    }
    shard.commit(&commit).unwrap();
    drop(commit);
    for number in 0..200u8 {
        let Arrival::Entry(header) = shard.poll(1).unwrap().remove(0) else { panic!("expected an entry") };
        assert_eq!(shard.fetch(header.position).unwrap(), rows(&[number; 1_000], 200));
        let consumed = Consumed { position: header.position, rows: std::iter::once(0..200).collect() };
        shard.commit(&Commit { consumed: vec![consumed], ..Commit::default() }).unwrap();
        assert!(ledger.usage().unwrap().payload_memory_bytes <= BUDGET);
    }
    assert_eq!(ledger.usage().unwrap().payload_memory_bytes, 0);
}
