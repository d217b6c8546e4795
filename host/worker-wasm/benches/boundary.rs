//! What crossing the boundary costs: nanoseconds per element of 100 bytes, for bundles of one batch of 1,000 rows down to one.
//!
//! The same DoFn as a closure of the host is there for comparison: what it costs is the price of a bundle anywhere. A plain
//! program. Rounds are short and the best of many counts, so that a busy machine disturbs little. `--smoke` runs one round of
//! each.

#[path = "../tests/it/guests.rs"]
mod guests;
#[path = "../tests/it/memory.rs"]
mod memory;
#[path = "../tests/it/running.rs"]
#[allow(dead_code, reason = "the tests use more of it")]
mod running;

use std::sync::Arc;
use std::time::Instant;

use memory::Memory;
use model::batch::Row;
use model::{Coder, ShardId};
use running::{Fixture, Transform, batch, int, text};
use worker::reference::{DOFN_NATIVE, Emitter, NativeWorker};
use worker::{StateAccess, Worker};

fn main() {
    let smoke = std::env::args().any(|argument| argument == "--smoke");
    let rounds = if smoke { 1 } else { 500 };
    let component = |name| Transform { name, config: b"", input: Coder::Bytes, outputs: &[("output", Coder::Bytes)] }.open();
    // The elements' first byte is odd: `Even` drops them all, so that only the way in is measured.
    let cases = [
        ("native identity", native_identity()),
        ("component, identity", component("Identity")),
        ("component, drops everything", component("Even")),
        ("component, identity with metrics", component("Measure")),
    ];
    for (what, mut fixture) in cases {
        for rows in [1_000, 100, 10, 1] {
            let bundles = if smoke { 1 } else { 2_000 / rows.max(10) };
            let best = nanoseconds(&mut fixture, rows, bundles, rounds);
            println!("{what}, {rows} rows of 100 B per bundle: {best:.1} ns per element");
        }
    }
    for keys in [1_000, 100] {
        stateful(keys, bundles_of(smoke), rounds);
    }
}

fn bundles_of(smoke: bool) -> usize {
    if smoke { 1 } else { 2 }
}

/// A counter for each key, 1,000 rows a bundle over so many keys: the component against the same as a closure of the host, on the
/// same state in memory.
fn stateful(keys: usize, bundles: usize, rounds: usize) {
    let transform = Transform { name: "tally", config: b"", input: pair_coder(), outputs: &[("output", Coder::VarInt)] };
    let (native, component) = (native_tally(&transform), transform.open());
    let rows = (0..1_000).map(|row| [text(&format!("key {}", row % keys)), text("click")].concat());
    let input = batch(rows);
    let [native, component] = [native, component].map(|mut fixture| {
        let state: Arc<dyn StateAccess> = Arc::new(Memory::default());
        let best = (0..rounds).map(|_| {
            let began = Instant::now();
            for _ in 0..bundles {
                fixture.run_keyed(vec![input.clone()], Vec::new(), state.clone()).expect("the bundle succeeds");
            }
            began.elapsed().as_nanos() as f64 / (bundles * 1_000) as f64
        });
        best.fold(f64::INFINITY, f64::min)
    });
    println!(
        "stateful counter, 1000 rows of {keys} keys per bundle: {component:.1} ns per element, {:.0} a second; native {native:.1} ns, \
         ratio {:.2}",
        1e9 / component,
        component / native
    );
}

fn pair_coder() -> Coder {
    Coder::Kv(Box::new(Coder::Bytes), Box::new(Coder::Bytes))
}

/// Reads, adds one and writes, as a native DoFn does it.
fn native_tally(transform: &Transform<'_>) -> Fixture {
    let mut stage = transform.stage();
    stage.transforms[0].dofn_urn = DOFN_NATIVE.to_owned();
    stage.transforms[0].dofn_payload = "tally".into();
    let coder = pair_coder();
    let tally = move |row: Row<'_>, out: &mut Emitter| {
        let key = &row.value[..coder.key_len(row.value).map_err(|error| error.to_string())?];
        let cell = out.bag("count", key, b"")?;
        let stored = cell.read()?;
        let mut reader = model::Reader::new(&stored);
        let count = if reader.is_empty() { 0 } else { reader.varint().map_err(|error| error.to_string())? };
        let counted = int(count as i64 + 1);
        cell.clear()?;
        cell.append(&counted)?;
        out.emit("output", Row { value: &counted, ..row });
        Ok(())
    };
    let stage = Arc::new(stage);
    let slot = NativeWorker::new().with("tally", move || tally.clone()).open(stage.clone(), ShardId(0)).expect("the stage opens");
    Fixture { slot, stage, logs: Arc::default() }
}

fn native_identity() -> Fixture {
    let transform = Transform { name: "Identity", config: b"", input: Coder::Bytes, outputs: &[("output", Coder::Bytes)] };
    let mut stage = transform.stage();
    stage.transforms[0].dofn_urn = DOFN_NATIVE.to_owned();
    stage.transforms[0].dofn_payload = "Identity".into();
    let identity = |row: Row<'_>, out: &mut Emitter| {
        out.emit("output", row);
        Ok(())
    };
    let stage = Arc::new(stage);
    let slot = NativeWorker::new().with("Identity", move || identity).open(stage.clone(), ShardId(0)).expect("the stage opens");
    Fixture { slot, stage, logs: Arc::default() }
}

/// Per element, with everything that a bundle of one batch costs: start, process, finish, collecting the output.
fn nanoseconds(fixture: &mut Fixture, rows: usize, bundles: usize, rounds: usize) -> f64 {
    let mut value = vec![99];
    value.resize(100, 3);
    let input = batch(vec![value; rows]);
    let best = (0..rounds).map(|_| {
        let began = Instant::now();
        for _ in 0..bundles {
            fixture.ok(input.clone());
        }
        began.elapsed().as_nanos() as f64 / (bundles * rows) as f64
    });
    best.fold(f64::INFINITY, f64::min)
}
