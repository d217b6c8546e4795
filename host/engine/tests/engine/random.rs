//! Random jobs: random topologies, limits and orders of events, each step checked against the naive model.

use std::panic::AssertUnwindSafe;

use engine::{BundlePolicy, GateMapping, Head, Options, SideGate, StageShape, Topology, Upstream};
use model::{Duration, ShardId, StageId, WindowCoder};

use crate::dice::Dice;
use crate::job::{Job, WINDOW_MS};
use crate::rows;

/// Steps in any order before the job is brought to its end.
const STEPS: usize = 150;

#[test]
fn random_jobs_decide_as_the_naive_model_does() {
    seeds(0, 1000).for_each(|seed| drop(run(seed, false)));
}

#[test]
fn random_jobs_with_late_rows_decide_as_the_naive_model_does() {
    seeds(1_000_000, 400).for_each(|seed| drop(run(seed, true)));
}

#[test]
fn the_same_events_lead_to_the_same_decisions() {
    for seed in seeds(2_000_000, 50) {
        assert_eq!(run(seed, false), run(seed, false), "seed {seed}");
    }
}

/// As many seeds as asked for, or as `PURLIN_SEEDS` says.
fn seeds(first: u64, count: u64) -> std::ops::Range<u64> {
    let count = std::env::var("PURLIN_SEEDS").map_or(count, |count| count.parse::<u64>().unwrap());
    first..first + count
}

/// Runs one job and returns its decisions in words.
fn run(seed: u64, late_rows: bool) -> String {
    let mut dice = Dice::new(seed);
    let topology = topology(&mut dice);
    let options = Options {
        rows_max: dice.between(1, 6) as usize,
        bytes_max: dice.between(0, 80) as u64,
        keys_max: dice.between(1, 3) as usize,
        restrictions_max: dice.between(1, 3) as usize,
        backlog_bytes_max: dice.between(0, 150) as u64,
        policy: *dice.one_of(&BundlePolicy::ALL),
    };
    let mut job = Job::new(topology.clone(), options.clone(), dice, late_rows);
    let outcome = std::panic::catch_unwind(AssertUnwindSafe(|| {
        job.begin();
        (0..STEPS).for_each(|_| job.step());
        job.complete();
    }));
    if let Err(panic) = outcome {
        let trace = &job.trace;
        println!("seed {seed}, late rows {late_rows}\n{topology:#?}\n{options:#?}\n{trace}\n{}", job.status());
        std::panic::resume_unwind(panic);
    }
    job.trace
}

fn topology(dice: &mut Dice) -> Topology {
    let stages = dice.between(1, 7) as u32;
    let stages = (0..stages).map(|index| {
        let inputs = inputs(dice, index);
        StageShape {
            name: format!("s{index}"),
            head: match dice.below(10) {
                0..4 if inputs.is_empty() => Head::Script,
                0..5 => Head::Plain,
                5 => Head::Restrictions { unbounded: true },
                6..8 => Head::Restrictions { unbounded: false },
                _ => Head::Grouping(Box::new(rows::fixed_windows(WINDOW_MS, 0))),
            },
            gates: gates(dice, index),
            timer_names: Vec::new(),
            inputs,
            input_coder: rows::coder(),
            window_coder: WindowCoder::Interval,
        }
    });
    let stages = stages.collect();
    Topology { shards: dice.between(1, 3) as u32, shard: ShardId(0), stages }
}

fn inputs(dice: &mut Dice, stage: u32) -> Vec<Upstream> {
    if stage == 0 || dice.chance(15) {
        return Vec::new();
    }
    let count = dice.between(1, 2);
    (0..count).map(|_| Upstream { stage: StageId(dice.below(stage as usize) as u32), local: dice.chance(30) }).collect()
}

fn gates(dice: &mut Dice, stage: u32) -> Vec<SideGate> {
    if stage == 0 || !dice.chance(30) {
        return Vec::new();
    }
    let (size, offset) = (Duration(dice.between(1, 25)), Duration(dice.between(-5, 5)));
    let mapping = match dice.below(4) {
        0 => GateMapping::Global,
        1 => GateMapping::Same,
        2 => GateMapping::Fixed { size, offset },
        _ => GateMapping::Sliding { size, period: Duration(dice.between(1, 25)), offset },
    };
    let count = dice.between(1, 2);
    let producers = (0..count).map(|_| StageId(dice.below(stage as usize) as u32)).collect();
    vec![SideGate { name: "side".to_string(), producers, mapping }]
}
