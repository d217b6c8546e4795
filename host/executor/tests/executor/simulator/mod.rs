//! Random pipelines on random shards with random trouble must come to what a naive interpreter says, each result once.
//!
//! Everything is one thread and follows from the seed: which shard steps next, when time passes, in which order bundles
//! complete, which commits are refused, where the process dies. `PURLIN_SEED=n` runs one seed again, `PURLIN_SEEDS=n`
//! chooses how many are run.

mod compile;
mod expectation;
mod firing;
mod generate;
mod grouping;
mod keyed;
pub(crate) mod life;
mod panes;
mod pipeline;
mod place;
mod splittable;
mod steps;
mod trouble;
mod windows;

use std::sync::Arc;
use std::time::Instant;

use compile::compile;
use expectation::compare;
use generate::Pipeline;
use life::{Simulation, counters};
use model::ShardId;
use panes::Circumstances;
use trouble::Figures;

use crate::dice::Dice;
use crate::dofns::{Answer, Manner, TestWorker};
use crate::rig::Rig;

/// Seeds that a test run takes unless told otherwise.
const SEEDS: u64 = if cfg!(debug_assertions) { 500 } else { 5_000 };

/// Seeds that fail before the others are left alone.
const FAILURES_MAX: usize = 20;

/// Says which seed it was when a check panics.
struct Seed(u64);

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("seed {0}; PURLIN_SEED={0} runs it again", self.0);
        }
    }
}

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable} is not a number: {text}")))
}

fn check(seed: u64) -> Figures {
    let named = Seed(seed);
    let figures = Simulation::new(seed).run();
    drop(named);
    figures
}

#[test]
fn random_jobs_come_to_what_they_mean() {
    if let Some(seed) = number("PURLIN_SEED") {
        println!("{:?}", check(seed));
        return;
    }
    let started = Instant::now();
    let seeds = number("PURLIN_SEEDS").unwrap_or(SEEDS);
    let (mut all, mut failed) = (Figures::default(), Vec::new());
    for seed in 0..seeds {
        match std::panic::catch_unwind(|| check(seed)) {
            Ok(figures) => all.add(figures),
            Err(_) => failed.push((Pipeline::generate(&mut Dice::new(seed)).ops.len(), seed)),
        }
        if failed.len() >= FAILURES_MAX {
            break;
        }
    }
    println!("{seeds} seeds in {:?}: {all:?}", started.elapsed());
    failed.sort_unstable();
    assert!(failed.is_empty(), "steps and seeds of those that fail, the smallest first: {failed:?}");
    if seeds >= 50 {
        all.check();
    }
}

/// Answers from a thread of the moment.
struct Elsewhere;

impl Manner for Elsewhere {
    fn answer(&self, _: ShardId, answer: Answer) {
        std::thread::spawn(move || answer.send());
    }
}

#[test]
fn random_jobs_come_to_the_same_on_real_threads() {
    for seed in 0..SEEDS / 20 {
        let named = Seed(seed);
        let mut dice = Dice::new(seed);
        let pipeline = Pipeline::generate(&mut dice);
        let compiled = compile(&pipeline, &mut dice);
        let worker = TestWorker::new(Arc::new(compiled.dofns), Arc::new(Elsewhere));
        let shards = if compiled.plan.scripts.is_empty() { 4 } else { 1 };
        let mut rig = Rig::new(compiled.plan, worker, shards);
        rig.options.bundle_rows_max = 7;
        let (shared, result) = rig.start().end();
        result.unwrap();
        let circumstances = Circumstances { crashed: false, drained: false };
        let compared = compare(&pipeline, &compiled.looked_at, &counters(&shared), circumstances);
        compared.unwrap_or_else(|what| panic!("{what}\n{pipeline:#?}"));
        drop(named);
    }
}
