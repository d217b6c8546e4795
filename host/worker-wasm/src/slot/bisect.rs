//! Finds the row that stops a guest, by running ever smaller beginnings of the batch in new instances.
//!
//! Costs about log2(rows) instances of some 50 µs each. It finds what depends on the rows of this batch; what depends on
//! earlier batches of the bundle does not show here, and then there is no row to name.

use model::Batch;

use super::Guests;
use super::plan::Node;
use crate::instance::Instance;
use crate::trouble::{Kind, Trouble};

/// What a beginning of the batch does to a new instance.
enum Tried {
    Passes,
    Fails,
    /// It takes so long that nothing more is to be tried.
    Slow,
}

/// The first row without which the batch would pass, if that can be found.
pub(super) fn failing_row(guests: &Guests, node: &Node, trouble: &Trouble, input: &Batch) -> Option<usize> {
    // Every attempt would take as long as the deadline allows.
    if trouble.kind == Kind::Deadline || !matches!(attempt(guests, node, input), Tried::Fails) {
        return None;
    }
    // The first `passes` rows pass, the first `fails` rows fail.
    let (mut passes, mut fails) = (0, input.rows());
    while fails - passes > 1 {
        let middle = passes + (fails - passes) / 2;
        match attempt(guests, node, &input.slice(0..middle)) {
            Tried::Passes => passes = middle,
            Tried::Fails => fails = middle,
            Tried::Slow => return None,
        }
    }
    Some(passes)
}

fn attempt(guests: &Guests, node: &Node, input: &Batch) -> Tried {
    match run(guests, node, input) {
        Ok(()) => Tried::Passes,
        Err(Some(Kind::Deadline)) => Tried::Slow,
        Err(_) => Tried::Fails,
    }
}

fn run(guests: &Guests, node: &Node, input: &Batch) -> Result<(), Option<Kind>> {
    let stopped = |trouble: Trouble| Some(trouble.kind);
    let component = &guests.plan.components[node.component];
    let mut instance = Instance::new(component, guests.options.clone(), guests.logs.clone()).map_err(stopped)?;
    instance.hush();
    let handle = instance.open(&node.id, &node.name, &node.config).map_err(stopped)?.map_err(|_| None)?;
    instance.start(&node.id, handle).map_err(stopped)?.map_err(|_| None)?;
    instance.process(&node.id, handle, input, node.reads).map_err(stopped)?.map_err(|_| None)?;
    Ok(())
}
