//! What committed counters must say of a pipeline.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

use super::compile::text;
use super::generate::Pipeline;
use super::panes::{self, Circumstances, Pane};
use super::pipeline::{Element, Op};
use super::steps::{self, Positions};

/// Values of user counters by transform and name.
pub(crate) type Counters = BTreeMap<(String, String), i64>;

/// Compares counters with what a pipeline means. `looked_at` are the steps whose elements are counted.
pub(crate) fn compare(
    pipeline: &Pipeline,
    looked_at: &[usize],
    committed: &Counters,
    circumstances: Circumstances,
) -> Result<(), String> {
    let is_leaf =
        |transform: &str| pipeline.ops.iter().enumerate().any(|(index, op)| op.is_leaf() && transform == format!("t{index}"));
    let committed_elsewhere = committed.iter().filter(|((transform, _), _)| !is_leaf(transform));
    compare_elements(
        &bounds(pipeline, looked_at, circumstances),
        &committed_elsewhere.map(|(name, value)| (name.clone(), *value)).collect(),
    )?;
    for (index, op) in pipeline.ops.iter().enumerate() {
        let transform = format!("t{index}");
        let of_step = committed.iter().filter(|((of, _), _)| *of == transform).map(|((_, name), value)| (&**name, *value));
        let result = match op {
            Op::Panes { input, firing, .. } => {
                let panes = of_step.flat_map(|(name, times)| std::iter::repeat_n(Pane::parse(name), times as usize));
                panes::check(firing, &pipeline.made[*input], &panes.collect::<Vec<_>>(), circumstances)
            }
            Op::Steps { input, steps } => {
                let mut positions = Positions::new();
                for (name, times) in of_step {
                    let (whose, position) = steps::parse(name);
                    positions.entry(whose).or_default().insert(position, times);
                }
                steps.check(&pipeline.made[*input], &positions, circumstances)
            }
            _ => Ok(()),
        };
        result.map_err(|what| format!("step {index}: {what}"))?;
    }
    Ok(())
}

/// How often what is counted must at least and may at most have been.
fn bounds(
    pipeline: &Pipeline,
    looked_at: &[usize],
    circumstances: Circumstances,
) -> BTreeMap<(String, String), RangeInclusive<i64>> {
    let mut bounds: BTreeMap<(String, String), RangeInclusive<i64>> = BTreeMap::new();
    let mut count = |counter: (String, String), element: &Element| {
        let (must, may) = bounds.remove(&counter).unwrap_or(0..=0).into_inner();
        let (certain, possible) = (i64::from(element.certain), i64::from(element.certain || circumstances.crashed));
        bounds.insert(counter, must + certain..=may + possible);
    };
    for (index, op) in pipeline.ops.iter().enumerate() {
        if let Op::Map { input, .. } = op {
            pipeline.made[*input].iter().for_each(|element| count((format!("t{index}"), "seen".to_owned()), element));
        }
        if looked_at.contains(&index) {
            for element in &pipeline.made[index] {
                let name = text(element.key, element.value, element.time, element.window);
                count((format!("look {index}"), name), element);
            }
        }
    }
    bounds
}

/// A counter that nobody has raised is absent, or zero where an element in no window at all has raised it by as many windows.
fn compare_elements(bounds: &BTreeMap<(String, String), RangeInclusive<i64>>, committed: &Counters) -> Result<(), String> {
    let names: BTreeSet<_> = bounds.keys().chain(committed.keys()).collect();
    let mut differences = String::new();
    for name in names {
        let value = committed.get(name).copied().unwrap_or(0);
        let expected = bounds.get(name).cloned().unwrap_or(0..=0);
        if !expected.contains(&value) {
            differences.push_str(&format!("  {} {}: {value} instead of {expected:?}\n", name.0, name.1));
        }
    }
    if differences.is_empty() { Ok(()) } else { Err(differences) }
}
