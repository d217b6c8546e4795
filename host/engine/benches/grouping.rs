//! How fast rows are grouped, without a ledger: `cargo bench -p engine -- [ROWS]`.
//!
//! Rows of 100 bytes with 10,000 keys come in bundles of 10,000 rows; then the watermark moves to the end and everything
//! fires. State is a map in memory, so that what is measured is the grouping. Where the system tells, times are those that
//! this thread had a processor, so that a busy machine does not matter.

mod measure;

use engine::grouping::{Clocks, Grouping, Limits, NoMerger};
use model::pane::NO_FIRING;
use model::reader::put_length_prefixed;
use model::window::{self, IntervalWindow};
use model::windowing::{Trigger, WindowFn, WindowingStrategy};
use model::{Batch, BatchBuilder, Coder, Duration, StageId, Timestamp, WindowCoder};

use measure::{State, Stopwatch};

const KEYS: u64 = 10_000;
const ROW_BYTES: usize = 100;
const BUNDLE_ROWS: u64 = 10_000;
/// Bundles are made once and used again: values do not matter.
const BUNDLES: u64 = 50;
const LIMITS: Limits = Limits { bytes_max: 4 << 20, keys_max: 10_000 };

fn main() {
    let rows = std::env::args().skip(1).find_map(|argument| argument.parse().ok()).unwrap_or(2_000_000);
    let fixed = WindowingStrategy {
        window_fn: WindowFn::Fixed { size: Duration(1000), offset: Duration(0) },
        window_coder: WindowCoder::Interval,
        ..WindowingStrategy::global()
    };
    let counted =
        WindowingStrategy { trigger: Trigger::Repeat(Box::new(Trigger::ElementCount(100))), ..WindowingStrategy::global() };
    group("runs, global window", &WindowingStrategy::global(), rows);
    group("runs, ten fixed windows", &fixed, rows);
    group("cells, every 100 elements", &counted, rows);
}

fn group(name: &str, strategy: &WindowingStrategy, rows: u64) {
    let bundles: Vec<Batch> = (0..BUNDLES).map(|number| bundle(strategy, number)).collect();
    let coder = Coder::Kv(Box::new(Coder::StringUtf8), Box::new(Coder::Bytes));
    let mut grouping = Grouping::new(StageId(0), strategy.clone(), coder, strategy.window_coder);
    let mut state = State::default();
    let mut panes = 0;
    let mut call = |input_watermark, batches: &[Batch]| {
        let clocks = Clocks { input_watermark, output_watermark: Timestamp::MIN, now_ms: 0 };
        let grouped = grouping.run(batches, clocks, LIMITS, &mut state, &mut NoMerger).expect("rows are well formed");
        state.commit();
        grouping.apply(grouped.delta);
        panes += grouped.panes.iter().map(Batch::rows).sum::<usize>();
        grouping.due(clocks)
    };
    let start = Stopwatch::start();
    for number in 0..rows / BUNDLE_ROWS {
        call(Timestamp::MIN, &bundles[(number % BUNDLES) as usize..][..1]);
    }
    let absorbed = start.elapsed();
    while call(Timestamp::MAX, &[]) {}
    let all = start.elapsed();
    let per_second = |seconds: f64| rows as f64 / seconds / 1e6;
    println!(
        "{name:27} {:5.2} M rows/s in, {:5.2} M rows/s in and out; {panes} panes, {} MB written",
        per_second(absorbed.as_secs_f64()),
        per_second(all.as_secs_f64()),
        state.written >> 20,
    );
}

fn bundle(strategy: &WindowingStrategy, number: u64) -> Batch {
    let mut builder = BatchBuilder::new();
    let mut bits = number + 1;
    for row in 0..BUNDLE_ROWS {
        bits = bits.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let time = (row % 10) as i64 * 1000;
        let window = match strategy.window_coder {
            WindowCoder::Global => window::GLOBAL_SET.to_vec(),
            _ => {
                let mut encoded = Vec::new();
                let (start, end) = (Timestamp::from_millis(time), Timestamp::from_millis(time + 1000));
                IntervalWindow { start, end }.encode(&mut encoded);
                window::single(&encoded)
            }
        };
        let key = format!("customer-{:05}", (bits >> 33) % KEYS);
        builder.push_with(Timestamp::from_millis(time), &window, NO_FIRING, |out| {
            put_length_prefixed(out, key.as_bytes());
            put_length_prefixed(out, &[7; ROW_BYTES - 16]);
        });
    }
    builder.finish()
}
