//! How fast the embedded ledger is: entries through the log, cells into state and out of it, temporary and durable.
//!
//! `cargo bench -p ledger-rocksdb`, with `-- --quick` for a smoke run, `--only=WORD` for one kind of ledger, `--memory-mb=N`
//! and `--buffers-mb=N` for other bounds. One shard appends, polls, fetches and consumes; two
//! shards do it side by side. Memory is that of the process after each part.

#![allow(clippy::unwrap_used, reason = "a bench that cannot go on fails")]

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use ledger::*;
use ledger_rocksdb::{Options, RocksLedger, Sync};
use model::batch::BatchBuilder;
use model::{Batch, JobId, ShardId, StageId, Timestamp, pane, window};

const ROW_BYTES: usize = 100;

fn main() {
    let argument = |name: &str| std::env::args().find_map(|argument| Some(argument.strip_prefix(name)?.to_owned()));
    let scale = if argument("--quick").is_some() { 1 } else { 50 };
    let only = argument("--only=").unwrap_or_default();
    let megabytes = |name| argument(name).map(|number| number.parse::<usize>().unwrap() << 20);
    let folder = tempfile::TempDir::new().unwrap();
    println!("{:<34}{:>14}{:>12}{:>12}{:>12}", "", "per second", "MB/s", "CPU us each", "memory MB");
    let kinds = ["temporary", "durable, sync off", "durable, sync 10 ms", "durable, sync commit"];
    for name in kinds.into_iter().filter(|name| name.contains(&only)) {
        let mut options = match name {
            "temporary" => Options::temporary(folder.path()),
            _ => Options::durable(folder.path().join(name)),
        };
        options.sync = match name {
            "durable, sync off" => Sync::Off,
            "durable, sync 10 ms" => Sync::Interval(10),
            _ => Sync::Commit,
        };
        options.memory_bytes_max = megabytes("--memory-mb=").map_or(options.memory_bytes_max, |bytes| bytes as u64);
        options.write_buffer_bytes_max = megabytes("--buffers-mb=").unwrap_or(options.write_buffer_bytes_max);
        let ledger = RocksLedger::open(&options).unwrap();
        println!("{name}");
        let commits = if options.sync == Sync::Commit && name != "temporary" { 10 * scale } else { 160 * scale };
        for (rows, shards) in [(1_280, 1), (1_280, 2), (10, 1), (10, 2)] {
            log(&ledger, commits, rows, shards);
        }
        backlog(&ledger, commits, 1_280);
        state(&ledger, commits);
    }
}

/// Time of the clock, and of the processors in all threads, which says more on a machine that has other things to do.
struct Watch {
    started: Instant,
    cpu_ticks: f64,
}

impl Watch {
    fn start() -> Self {
        Watch { started: Instant::now(), cpu_ticks: cpu_ticks() }
    }

    fn report(self, what: &str, count: usize, bytes: usize) {
        let seconds = self.started.elapsed().as_secs_f64();
        let (rate, megabytes) = (count as f64 / seconds, bytes as f64 / seconds / 1e6);
        let cpu = (cpu_ticks() - self.cpu_ticks) * 1e4 / count as f64;
        println!("  {what:<32}{rate:>14.0}{megabytes:>12.1}{cpu:>12.2}{:>12.0}", resident_megabytes());
    }
}

/// Hundredths of a second of processor time that this process has used.
fn cpu_ticks() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    fields.skip(11).take(2).filter_map(|ticks| ticks.parse::<f64>().ok()).sum()
}

fn resident_megabytes() -> f64 {
    let pages = std::fs::read_to_string("/proc/self/statm").ok();
    let resident = pages.and_then(|pages| pages.split_whitespace().nth(1)?.parse::<f64>().ok());
    resident.map_or(f64::NAN, |pages| pages * 4096.0 / 1e6)
}

fn job(ledger: &RocksLedger, shards: u32) -> (JobId, Arc<dyn JobLedger>, Vec<Box<dyn ShardLedger>>) {
    let id = JobId::from("job");
    let job = ledger.create(JobRecord { job: id.clone(), shards, description: Bytes::new() }).unwrap();
    let shard = |shard| {
        let mut shard = job.shard(ShardId(shard), Arc::new(|| {})).unwrap();
        shard.recover().unwrap();
        shard
    };
    let owners = (0..shards).map(shard).collect();
    (id, job, owners)
}

/// Rows whose bytes differ, as real ones do.
fn batch(rows: usize, seed: usize) -> Batch {
    let mut batch = BatchBuilder::new();
    let mut bits = seed as u64 | 1;
    for _ in 0..rows {
        batch.push_with(Timestamp::MIN, window::GLOBAL_SET, pane::NO_FIRING, |out| {
            for _ in 0..ROW_BYTES / 10 {
                bits ^= bits << 13;
                bits ^= bits >> 7;
                bits ^= bits << 17;
                out.extend_from_slice(&bits.to_le_bytes());
                out.extend_from_slice(b"aa");
            }
        });
    }
    batch.finish()
}

fn append(to: u32, payload: Staged) -> Append {
    Append {
        to: Destination::Shard(ShardId(to)),
        stage: StageId(0),
        input: 0,
        producer: StageId(0),
        payload,
        hold: Timestamp::MAX,
        window_end: Timestamp::MAX,
        not_before_ms: None,
    }
}

/// Every commit consumes what has come and appends one entry to the next shard.
fn log(ledger: &RocksLedger, commits: usize, rows: usize, shards: u32) {
    let (id, job, owners) = job(ledger, shards);
    let batch = batch(rows, 7);
    let watch = Watch::start();
    std::thread::scope(|scope| {
        for (shard, mut owner) in owners.into_iter().enumerate() {
            let (job, batch) = (&job, &batch);
            scope.spawn(move || {
                for _ in 0..commits {
                    let mut commit = Commit::default();
                    for arrival in owner.poll(16).unwrap() {
                        let Arrival::Entry(header) = arrival else { continue };
                        assert_eq!(owner.fetch(header.position).unwrap().rows(), header.rows as usize);
                        let consumed = std::iter::once(0..header.rows).collect();
                        commit.consumed.push(Consumed { position: header.position, rows: consumed });
                    }
                    let staged = job.stage(batch.clone()).unwrap();
                    commit.appends.push(append((shard as u32 + 1) % shards, staged));
                    owner.commit(&commit).unwrap();
                }
            });
        }
    });
    let entries = commits * shards as usize;
    let what = format!("entries of {} KB, {shards} shards", rows * ROW_BYTES / 1_000);
    watch.report(&what, entries, entries * batch.memory_bytes());
    ledger.remove(&id).unwrap();
}

/// Everything is appended before anything is consumed: beyond the memory budget.
fn backlog(ledger: &RocksLedger, commits: usize, rows: usize) {
    let (id, job, mut owners) = job(ledger, 1);
    let owner = &mut owners[0];
    let watch = Watch::start();
    let mut bytes = 0;
    for number in 0..commits {
        let batch = batch(rows, number);
        bytes += batch.memory_bytes();
        let commit = Commit { appends: vec![append(0, job.stage(batch).unwrap())], ..Commit::default() };
        owner.commit(&commit).unwrap();
    }
    watch.report("backlog in", commits, bytes);
    let watch = Watch::start();
    for _ in 0..commits {
        let Arrival::Entry(header) = owner.poll(1).unwrap().remove(0) else { continue };
        owner.fetch(header.position).unwrap();
        let consumed = Consumed { position: header.position, rows: std::iter::once(0..header.rows).collect() };
        owner.commit(&Commit { consumed: vec![consumed], ..Commit::default() }).unwrap();
    }
    watch.report("backlog out", commits, bytes);
    ledger.remove(&id).unwrap();
}

/// Cells of 8 + 100 bytes in random order, a thousand a commit; then reads of single cells and scans of a hundred.
fn state(ledger: &RocksLedger, commits: usize) {
    const CELLS: usize = 1_000;
    let (id, _job, mut owners) = job(ledger, 1);
    let owner = &mut owners[0];
    let cell = |number: usize| Bytes::copy_from_slice(&(number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes());
    let value = Bytes::from(batch(1, 3).values().to_vec());
    let count = (commits / 4).max(1) * CELLS;
    let mut commit = Commit::default();
    let watch = Watch::start();
    for first in (0..count).step_by(CELLS) {
        let write = |number| StateWrite { cell: cell(number), value: Some(value.clone()) };
        commit.state = (first..first + CELLS).map(write).collect();
        owner.commit(&commit).unwrap();
    }
    watch.report("state writes", count, count * (8 + ROW_BYTES));
    let state = owner.state();
    let reads = count.min(200_000);
    let watch = Watch::start();
    for number in 0..reads {
        assert!(state.get(&cell(number * 7 % count)).unwrap().is_some());
    }
    watch.report("state reads", reads, reads * ROW_BYTES);
    let watch = Watch::start();
    for number in 0..reads {
        assert!(state.get(&cell(count + number)).unwrap().is_none());
    }
    watch.report("state reads of nothing", reads, 0);
    let scans = reads / 100;
    let watch = Watch::start();
    let mut found = 0;
    for number in 0..scans {
        found += state.scan(&cell(number), &[0xff; 9], 100, usize::MAX).unwrap().len();
    }
    watch.report("state scanned, 100 a scan", found, found * (8 + ROW_BYTES));
    ledger.remove(&id).unwrap();
}
