//! A durable ledger survives kill -9: exactly the committed prefix is there, and every effect once.
//!
//! This binary runs itself as the child. The child passes numbers from shard 0 to shard 1 and back, on two threads:
//!
//! ```text
//!  shard 0: next = n + 1, entry n to shard 1, report n          one commit per n
//!  shard 1: takes entry n, seen/n += 1, entry n back            one commit per n
//!  shard 0: takes entry n, back/n += 1                          one commit per n
//! ```
//!
//! It is killed at random moments, twenty times in a row on the same folder. After each, everything that the child said it
//! had committed must be there, and every number must be in one place.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use ledger::*;
use ledger_rocksdb::{Options, RocksLedger, Sync};
use model::batch::{BatchBuilder, Row};
use model::{Batch, JobId, ShardId, StageId, Timestamp, pane, window};

const ROUNDS: u64 = 20;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    match arguments.get(1).map(String::as_str) {
        Some("child") => child(Path::new(&arguments[2]), policy(&arguments[3])),
        // Asked by test runners what there is.
        Some("--list") => println!("killed: test"),
        _ => parent(),
    }
}

fn policy(name: &str) -> Sync {
    match name {
        "commit" => Sync::Commit,
        "interval" => Sync::Interval(3),
        _ => Sync::Off,
    }
}

fn parent() {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    let seed = now.as_nanos() as u64;
    println!("killed: seed {seed}");
    let mut random = seed | 1;
    let mut below = |bound: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random % bound
    };
    let folder = tempfile::TempDir::new().unwrap();
    let data = folder.path().join("data");
    let mut sent = 0;
    for round in 0..ROUNDS {
        let policy = ["commit", "interval", "off"][below(3) as usize];
        let executable = std::env::current_exe().unwrap();
        let mut child = Command::new(executable).arg("child").arg(&data).arg(policy).stdout(Stdio::piped()).spawn().unwrap();
        let mut said = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        // Every fifth is killed while it opens the folder, the others when they have committed something.
        let mut lines = Vec::new();
        if round % 5 < 4 {
            lines.extend(said.by_ref().take(1 + below(100) as usize));
        }
        std::thread::sleep(Duration::from_micros(below(20_000)));
        child.kill().unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(9), "the child has ended by itself");
        lines.extend(said);
        let last = |kind: &str| lines.iter().rev().find_map(|line| line.strip_prefix(kind)?.parse::<u64>().ok());
        let found = check(&data);
        println!("killed: round {round}, policy {policy}: {found:?}");
        assert!(found.sent >= sent, "numbers of an earlier round are lost");
        for (kind, count) in [("sent ", found.sent), ("seen ", found.seen), ("back ", found.back)] {
            assert!(last(kind).is_none_or(|number| number < count), "{kind}{:?} was committed, but {found:?}", last(kind));
        }
        sent = found.sent;
    }
    assert!(sent >= ROUNDS, "the children have committed too little");
    drain(&data);
    println!("killed: ok, {sent} numbers");
}

/// How many numbers have come how far.
#[derive(Debug, PartialEq, Eq)]
struct Found {
    sent: u64,
    seen: u64,
    back: u64,
}

/// Opens what the child has left and says how far it came, if every number is in exactly one place.
fn check(data: &Path) -> Found {
    let ledger = RocksLedger::open(&Options::durable(data)).unwrap();
    let [zero, one] = shards(&ledger, false);
    let (mut zero, mut one) = (zero.shard, one.shard);
    let (of_zero, of_one) = (zero.recover().unwrap(), one.recover().unwrap());
    let sent = number(&*zero, b"next").unwrap_or(0);
    let seen = counted(&*one, "seen/");
    let back = counted(&*zero, "back/");
    let to_one = numbers(&*one, &of_one);
    let to_zero = numbers(&*zero, &of_zero);
    let all = |first: u64, last: u64| (first..last).collect::<Vec<_>>();
    assert_eq!(to_one, all(seen, sent), "what shard 1 has not seen is on its way to it");
    assert_eq!(to_zero, all(back, seen), "what has not come back is on its way to shard 0");
    for recovered in [&of_zero, &of_one] {
        let reports: Vec<_> = recovered.reports.iter().map(|report| report.watermark.millis()).collect();
        assert_eq!(reports, (sent > 0).then(|| sent as i64 - 1).into_iter().collect::<Vec<_>>());
    }
    Found { sent, seen, back }
}

/// Lets the rest happen without a kill.
fn drain(data: &Path) {
    let before = check(data);
    let ledger = RocksLedger::open(&Options::durable(data)).unwrap();
    let [mut zero, mut one] = shards(&ledger, false);
    let (recovered_zero, recovered_one) = (zero.shard.recover().unwrap(), one.shard.recover().unwrap());
    one.take_all(recovered_one.entries, "seen/", Some(0));
    zero.take_all(recovered_zero.entries, "back/", None);
    let rest = entries(zero.shard.poll(usize::MAX).unwrap());
    zero.take_all(rest, "back/", None);
    drop((zero, one, ledger));
    let Found { sent, .. } = before;
    assert_eq!(check(data), Found { sent, seen: sent, back: sent });
}

fn child(data: &Path, sync: Sync) {
    // A thread that fails must not leave the other one running.
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        print(panic);
        std::process::abort();
    }));
    let ledger = RocksLedger::open(&Options { sync, memory_bytes_max: 1 << 20, ..Options::durable(data) }).unwrap();
    let [mut zero, mut one] = shards(&ledger, true);
    let job = zero.job.clone();
    let (backlog_zero, backlog_one) = (zero.shard.recover().unwrap().entries, one.shard.recover().unwrap().entries);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            one.take_all(backlog_one, "seen/", Some(0));
            loop {
                let arrived = entries(one.shard.poll(16).unwrap());
                one.take_all(arrived, "seen/", Some(0));
            }
        });
        zero.take_all(backlog_zero, "back/", None);
        for next in number(&*zero.shard, b"next").unwrap_or(0).. {
            // Staged and never committed: garbage for the next process.
            let garbage = (next % 7 == 0).then(|| job.stage(batch(next, 2 << 20)).unwrap());
            let mut commit = Commit { appends: vec![append(1, zero.payload(next))], ..Commit::default() };
            commit.state.push(StateWrite { cell: Bytes::from_static(b"next"), value: Some(text(next + 1)) });
            let watermark = Timestamp::from_millis(next as i64);
            commit.reports.push(WatermarkReport { stage: StageId(0), shard: ShardId(0), watermark });
            zero.shard.commit(&commit).unwrap();
            say(format!("sent {next}"));
            let arrived = entries(zero.shard.poll(16).unwrap());
            zero.take_all(arrived, "back/", None);
            drop(garbage);
        }
    });
}

struct Side {
    job: Arc<dyn JobLedger>,
    shard: Box<dyn ShardLedger>,
    /// Whether it says what it has committed.
    speaks: bool,
}

impl Side {
    /// Takes entries one by one: counts each in a cell and passes it on.
    fn take_all(&mut self, headers: Vec<EntryHeader>, cells: &str, pass_to: Option<u32>) {
        for header in headers {
            let value = value(&self.shard.fetch(header.position).unwrap());
            let cell = Bytes::from(format!("{cells}{value:012}"));
            let count = number(&*self.shard, &cell).unwrap_or(0);
            let commit = Commit {
                consumed: vec![Consumed { position: header.position, rows: std::iter::once(0..header.rows).collect() }],
                appends: pass_to.map(|to| append(to, self.payload(value))).into_iter().collect(),
                state: vec![StateWrite { cell, value: Some(text(count + 1)) }],
                reports: Vec::new(),
            };
            self.shard.commit(&commit).unwrap();
            if self.speaks {
                say(format!("{} {value}", cells.trim_end_matches('/')));
            }
        }
    }

    /// Some payloads are large, some are staged.
    fn payload(&self, number: u64) -> Staged {
        let rows = batch(number, if number % 11 == 3 { 3 << 20 } else { 100 });
        if number.is_multiple_of(2) { self.job.stage(rows).unwrap() } else { Staged::in_memory(rows) }
    }
}

fn shards(ledger: &RocksLedger, speaks: bool) -> [Side; 2] {
    let id = JobId::from("job");
    let job = ledger.open(&id).or_else(|_| ledger.create(JobRecord { job: id, shards: 2, description: Bytes::new() })).unwrap();
    [0, 1].map(|shard| Side { job: job.clone(), shard: job.shard(ShardId(shard), Arc::new(|| {})).unwrap(), speaks })
}

fn say(line: String) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}").unwrap();
    out.flush().unwrap();
}

fn text(number: u64) -> Bytes {
    Bytes::from(number.to_string())
}

fn number(shard: &dyn ShardLedger, cell: &[u8]) -> Option<u64> {
    let value = shard.state().get(cell).unwrap()?;
    Some(std::str::from_utf8(&value).unwrap().parse().unwrap())
}

/// How many cells there are; they must be numbered from zero without holes, and each must say 1.
fn counted(shard: &dyn ShardLedger, cells: &str) -> u64 {
    let found = shard.state().scan(cells.as_bytes(), format!("{cells}~").as_bytes(), usize::MAX, usize::MAX).unwrap();
    for (expected, (cell, count)) in found.iter().enumerate() {
        assert_eq!(*cell, format!("{cells}{expected:012}"));
        assert_eq!(*count, "1", "number {expected} was counted more than once");
    }
    found.len() as u64
}

fn numbers(shard: &dyn ShardLedger, recovered: &Recovered) -> Vec<u64> {
    let numbers: Vec<_> = recovered.entries.iter().map(|header| value(&shard.fetch(header.position).unwrap())).collect();
    assert_eq!(numbers.iter().collect::<BTreeSet<_>>().len(), numbers.len());
    numbers
}

fn entries(arrivals: Vec<Arrival>) -> Vec<EntryHeader> {
    let entry = |arrival| match arrival {
        Arrival::Entry(header) => Some(header),
        Arrival::Watermark(_) => None,
    };
    arrivals.into_iter().filter_map(entry).collect()
}

/// A row with the number and a row to make it as large as asked.
fn batch(number: u64, bytes: usize) -> Batch {
    let mut rows = BatchBuilder::new();
    for value in [number.to_be_bytes().to_vec(), vec![number as u8; bytes]] {
        rows.push(Row { value: &value, timestamp: Timestamp::MIN, windows: window::GLOBAL_SET, pane: pane::NO_FIRING });
    }
    rows.finish()
}

fn value(batch: &Batch) -> u64 {
    let number = u64::from_be_bytes(batch.value(0).try_into().unwrap());
    assert!(batch.value(1).iter().all(|byte| *byte == number as u8), "the payload of {number} was changed");
    number
}

fn append(to: u32, payload: Staged) -> Append {
    Append {
        to: Destination::Shard(ShardId(to)),
        stage: StageId(1),
        input: 0,
        producer: StageId(0),
        payload,
        hold: Timestamp::MAX,
        window_end: Timestamp::MAX,
        not_before_ms: None,
    }
}
