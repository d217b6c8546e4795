//! Rows per second of a map stage and of GroupByKey, on the reference ledger with the reference worker.
//!
//! `cargo bench -p executor -- [rows in thousands]`. A source makes rows of 100 bytes with 10,000 keys; what is measured
//! is the whole job: source, stage under test, and a stage that counts.

use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use bytes::Bytes;
use executor::job::{Clock, Shared};
use executor::{Failure, Job, JobSpec, Observer, Options};
use ledger::memory::MemoryLedger;
use ledger::{JobRecord, Ledger};
use model::batch::Row;
use model::windowing::WindowingStrategy;
use model::{Coder, JobId, Timestamp, WindowCoder, pane, window};
use plan::{Head, Routing};
use worker::reference::{Emitter, NativeWorker};

#[allow(dead_code, reason = "the tests need more of it")]
#[path = "../tests/executor/plans.rs"]
mod plans;

const KEYS: usize = 10_000;
const KEY_BYTES: usize = 8;
/// With both length prefixes, a row has 100 bytes.
const VALUE_BYTES: usize = 90;
const SHARDS: [u32; 2] = [1, 2];

struct Watch(Instant);

impl Clock for Watch {
    fn now_ms(&self) -> i64 {
        self.0.elapsed().as_millis() as i64
    }
}

struct Ended(Mutex<Sender<Result<(), Failure>>>);

impl Observer for Ended {
    fn unsettled(&self, names: &[String]) {
        unreachable!("nothing here wants to hear of commits: {names:?}");
    }

    fn ended(&self, _: &Shared, result: Result<(), Failure>) {
        self.0.lock().expect("nobody panics with it").send(result).expect("main waits");
    }
}

fn rows() -> Coder {
    Coder::Kv(Box::new(Coder::Bytes), Box::new(Coder::Bytes))
}

fn source(parts: u64, rows: usize) -> impl Fn(Row<'_>, &mut Emitter) -> Result<(), String> {
    move |row, out| {
        let part = row.value.first().map_or(0, |byte| u64::from(*byte));
        let mut value = vec![b'v'; 1 + KEY_BYTES + 1 + VALUE_BYTES];
        (value[0], value[1 + KEY_BYTES]) = (KEY_BYTES as u8, VALUE_BYTES as u8);
        for number in 0..rows / parts as usize {
            let key = (number * 7 + part as usize) % KEYS;
            value[1..=KEY_BYTES].copy_from_slice(&key.to_be_bytes());
            out.emit(
                "out",
                Row { value: &value, timestamp: Timestamp::from_millis(0), windows: window::GLOBAL_SET, pane: pane::NO_FIRING },
            );
        }
        Ok(())
    }
}

/// Seconds of a job with the stage under test.
fn run(grouping: bool, shards: u32, count: usize) -> f64 {
    const PARTS: u64 = 64;
    let mut plans = plans::Plans::new();
    let global = WindowCoder::Global;
    let stage = plans.impulse("parts", "impulse");
    plans.transform(stage, "parts", "impulse", Some(("parts", Coder::VarInt, global)));
    let stage = plans.stage("source", Head::Plain, &[("parts", Routing::RoundRobin)], "part");
    plans.transform(stage, "source", "part", Some(("rows", rows(), global)));
    let (head, routing) = match grouping {
        true => (Head::Grouping(Box::new(WindowingStrategy::global())), Routing::ByKey),
        false => (Head::Plain, Routing::Local),
    };
    let stage = plans.stage("tested", head, &[("rows", routing)], "input");
    let output =
        if grouping { Coder::Kv(Box::new(Coder::Bytes), Box::new(Coder::Iterable(Box::new(Coder::Bytes)))) } else { rows() };
    plans.transform(stage, "tested", "input", Some(("output", output, global)));
    let stage = plans.stage("count", Head::Plain, &[("output", Routing::Local)], "counted");
    plans.transform(stage, "count", "counted", None);
    let worker = NativeWorker::new()
        .with("parts", || {
            |row: Row<'_>, out: &mut Emitter| {
                (0..PARTS as u8).for_each(|part| out.emit("out", Row { value: &[part], ..row }));
                Ok(())
            }
        })
        .with("source", move || source(PARTS, count))
        .with("tested", || {
            |row: Row<'_>, out: &mut Emitter| {
                out.emit("out", row);
                Ok(())
            }
        })
        .with("count", || {
            |_: Row<'_>, out: &mut Emitter| {
                out.count("rows", 1);
                Ok(())
            }
        });
    let ledger = MemoryLedger::new();
    let record = JobRecord { job: JobId::from("bench"), shards, description: Bytes::new() };
    let started = Instant::now();
    let spec = JobSpec {
        name: "bench".to_owned(),
        plan: Arc::new(plans.build()),
        shards,
        ledger: ledger.create(record).expect("the ledger is empty"),
        workers: vec![Arc::new(worker)],
        clock: Arc::new(Watch(started)),
        options: Options::local(),
    };
    let (sender, ended) = channel();
    let job = Job::start(spec, Arc::new(Ended(Mutex::new(sender)))).expect("threads start");
    ended.recv().expect("the observer outlives the job").expect("the job succeeds");
    let seconds = started.elapsed().as_secs_f64();
    assert_eq!(
        job.shared().progress.stage(model::StageId(2)).rows_in.load(std::sync::atomic::Ordering::Relaxed),
        (count / PARTS as usize * PARTS as usize) as u64
    );
    seconds
}

fn main() {
    let thousands = std::env::args().skip(1).find_map(|argument| argument.parse::<usize>().ok()).unwrap_or(1_000);
    let count = thousands * 1_000;
    for (name, grouping) in [("map", false), ("group by key", true)] {
        for shards in SHARDS {
            let seconds = run(grouping, shards, count);
            println!("{name}, shards: {shards}, rows: {count}: {:.0} rows/s", count as f64 / seconds);
        }
    }
}
