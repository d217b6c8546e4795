//! What crossing the boundary costs: nanoseconds per element of 100 bytes, for calls of 1,000 rows and of one.
//!
//! A plain program; the best of several rounds counts. `--smoke` runs one round of each.

#[path = "../tests/it/guests.rs"]
mod guests;
#[path = "../tests/it/running.rs"]
#[allow(dead_code, reason = "the tests use more of it")]
mod running;

use std::time::Instant;

use model::Coder;
use running::{Transform, batch};

fn main() {
    let smoke = std::env::args().any(|argument| argument == "--smoke");
    let rounds = if smoke { 1 } else { 20 };
    for (name, what) in [("Identity", "identity"), ("Even", "filter"), ("Measure", "identity with metrics")] {
        for rows in [1_000, 100, 10, 1] {
            let bundles = if smoke { 1 } else { 200_000 / rows.max(20) };
            println!("{what}, {rows} rows of 100 B per bundle: {:.1} ns per element", nanoseconds(name, rows, bundles, rounds));
        }
    }
}

/// Per element, with everything that a bundle of one batch costs: start, process, finish, collecting the output.
fn nanoseconds(name: &str, rows: usize, bundles: usize, rounds: usize) -> f64 {
    let mut fixture = Transform { name, config: b"", input: Coder::Bytes, outputs: &[("output", Coder::Bytes)] }.open();
    let mut value = vec![99];
    value.resize(100, 2);
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
