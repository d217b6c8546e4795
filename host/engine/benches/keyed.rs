//! How fast rows and timers pass a keyed stage, without a ledger and a worker: `cargo bench -p engine --bench keyed -- [ROWS]`.
//!
//! Rows of 100 bytes with 10,000 keys come in bundles of 10,000 rows, in ten fixed windows; then the watermark moves to the
//! end, timers fire and windows expire. Where the system tells, times are those that this thread had a processor.

mod measure;

use bytes::Bytes;
use engine::{Engine, Entry, Head, Options, Position, Readied, StageShape, Topology, Upstream};
use model::pane::NO_FIRING;
use model::reader::put_length_prefixed;
use model::window::{self, IntervalWindow};
use model::windowing::{WindowFn, WindowingStrategy};
use model::{Batch, BatchBuilder, Coder, Duration, Keyed, ShardId, StageId, TimeDomain, TimerChange, Timestamp, WindowCoder};

use measure::{State, Stopwatch};

const KEYS: u64 = 10_000;
const ROW_BYTES: usize = 100;
const BUNDLE_ROWS: u64 = 10_000;
/// Bundles are made once and used again: values do not matter.
const BUNDLES: u64 = 50;
const SOURCE: StageId = StageId(0);
const STAGE: StageId = StageId(1);

fn main() {
    let rows = std::env::args().skip(1).find_map(|argument| argument.parse().ok()).unwrap_or(1_000_000);
    measure("rows", rows, false, |_| Vec::new());
    measure("rows that are sorted", rows, true, |_| Vec::new());
    measure("a timer for each row", rows, false, |readied| readied.input.iter().flat_map(timers).collect());
}

fn measure(name: &str, rows: u64, time_sorted: bool, timers: impl Fn(&Readied) -> Vec<TimerChange>) {
    let bundles: Vec<Batch> = (0..BUNDLES).map(bundle).collect();
    let mut engine = engine(time_sorted);
    let mut state = State::default();
    let start = Stopwatch::start();
    for offset in 0..rows / BUNDLE_ROWS {
        engine.entry(entry(offset));
        run(&mut engine, &bundles[(offset % BUNDLES) as usize..][..1], &mut state, &timers);
    }
    let absorbed = start.elapsed();
    engine.watermark(SOURCE, ShardId(0), Timestamp::MAX);
    let mut fired = 0;
    while let Some(items) = run(&mut engine, &[], &mut state, &|_| Vec::new()) {
        fired += items;
    }
    let all = start.elapsed();
    let (into, out) = (absorbed.as_secs_f64(), (all - absorbed).as_secs_f64());
    println!(
        "{name:21} {:5.2} M rows/s in; {fired} rows, timers and ends in {out:.2} s; {} MB written",
        rows as f64 / into / 1e6,
        state.written >> 20
    );
}

/// Runs a bundle. Returns how much it fired, if there was something to run.
fn run(
    engine: &mut Engine,
    batches: &[Batch],
    state: &mut State,
    timers: &impl Fn(&Readied) -> Vec<TimerChange>,
) -> Option<usize> {
    let work = engine.next(0)?;
    let readied = engine.key(&work, batches, 0, state).expect("rows are well formed");
    let changes = timers(&readied);
    if !changes.is_empty() {
        engine.timers(work.bundle, changes, Duration(0), state).expect("timers are well formed");
    }
    engine.finish(work.bundle, &[]);
    state.commit();
    engine.committed(work.bundle);
    Some(readied.timers.len() + readied.expired.len() + readied.input.iter().map(Batch::rows).sum::<usize>())
}

fn engine(time_sorted: bool) -> Engine {
    let windowing = WindowingStrategy {
        window_fn: WindowFn::Fixed { size: Duration(1000), offset: Duration(0) },
        window_coder: WindowCoder::Interval,
        ..WindowingStrategy::global()
    };
    let keyed = Keyed { windowing, timer_families: vec![TimeDomain::Event], expiration_family: None, time_sorted };
    let stage = |name: &str, head, inputs| StageShape {
        name: name.to_string(),
        head,
        inputs,
        gates: Vec::new(),
        timer_names: Vec::new(),
        input_coder: Coder::Kv(Box::new(Coder::StringUtf8), Box::new(Coder::Bytes)),
        window_coder: WindowCoder::Interval,
    };
    let input = Upstream { stage: SOURCE, local: false };
    let stages = vec![stage("source", Head::Script, Vec::new()), stage("keyed", Head::Keyed(Box::new(keyed)), vec![input])];
    Engine::new(Topology { shards: 1, shard: ShardId(0), stages }, Options::default())
}

fn entry(offset: u64) -> Entry {
    Entry {
        position: Position { broadcast: false, offset },
        stage: STAGE,
        producer: (SOURCE, ShardId(0)),
        remaining: std::iter::once(0..BUNDLE_ROWS as u32).collect(),
        bytes: BUNDLE_ROWS * ROW_BYTES as u64,
        rows: BUNDLE_ROWS as u32,
        hold: Timestamp::from_millis(0),
        window_end: Timestamp::from_millis(9_999),
        not_before_ms: None,
    }
}

/// One timer for the key of each row, in the middle of its window.
fn timers(batch: &Batch) -> Vec<TimerChange> {
    let change = |row: model::batch::Row<'_>| {
        let key = Coder::Kv(Box::new(Coder::StringUtf8), Box::new(Coder::Bytes)).key_len(row.value).expect("a key");
        let fire = row.timestamp.plus(Duration(500));
        TimerChange {
            family: 0,
            tag: Bytes::new(),
            key: Bytes::copy_from_slice(&row.value[..key]),
            window: Bytes::copy_from_slice(&row.windows[4..]),
            set: Some((fire.into(), fire.into(), Bytes::from_static(NO_FIRING))),
        }
    };
    batch.iter().map(change).collect()
}

fn bundle(number: u64) -> Batch {
    let mut builder = BatchBuilder::new();
    let mut bits = number + 1;
    for row in 0..BUNDLE_ROWS {
        bits = bits.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let time = (row % 10) as i64 * 1000;
        let mut encoded = Vec::new();
        let (start, end) = (Timestamp::from_millis(time), Timestamp::from_millis(time + 1000));
        IntervalWindow { start, end }.encode(&mut encoded);
        let key = format!("customer-{:05}", (bits >> 33) % KEYS);
        builder.push_with(Timestamp::from_millis(time), &window::single(&encoded), NO_FIRING, |out| {
            put_length_prefixed(out, key.as_bytes());
            put_length_prefixed(out, &[7; ROW_BYTES - 16]);
        });
    }
    builder.finish()
}
