//! From a submitted pipeline to a [`Plan`]: validate, build the graph, lower, fuse, choose wire coders, cut stages.
//!
//! Pure: a pipeline and capabilities in, a plan or a list of problems out. No files, no clock, no engine.
//! [`explain`](Plan::explain) prints a plan as stable text, which is also how plans are tested.
//!
//! ```text
//! Pipeline ── lower ──> Graph ── facts ──> settled ── flow ──> wire coders, feeds ── fuse ──> drafts ── cut ──> Plan
//!        composites, SDF,      environments,     Flatten and Reshuffle     stages           inputs, sinks,
//!        combines, reads       keys, refusals    looked through            in the making    descriptors
//! ```

mod capabilities;
mod coders;
mod cut;
mod descriptor;
mod environments;
mod explain;
mod facts;
mod flow;
mod fuse;
mod graph;
mod lower;
mod merging;
pub mod plan;
mod problems;
mod requirements;
mod schema;
mod truncation;
mod user_states;
mod windowing;
mod wire;

pub use capabilities::Capabilities;
pub use plan::*;
pub use problems::{PROBLEMS_MAX, Problem, Problems};
use proto::pipeline::{Components, Pipeline};

/// Cuts a pipeline into stages, or says everything that speaks against running it here.
pub fn plan(pipeline: &Pipeline, capabilities: &Capabilities) -> Result<Plan, Problems> {
    let nothing = Components::default();
    let components = pipeline.components.as_ref().unwrap_or(&nothing);
    let mut lowering = lower::Lowering::new(components, capabilities);
    requirements::check(&pipeline.requirements, &mut lowering.problems);
    lowering.lower(pipeline);
    lowering.graph.sort(&mut lowering.problems);
    let nearest = lowering.settle();
    lowering.problems.check()?;

    let flow = lowering.flow(&nearest);
    lowering.problems.check()?;
    let flow = match flow {
        Ok(flow) => flow,
        Err(fault) => {
            lowering.problems.of_pipeline(fault.to_string(), "use simpler types");
            return Err(lowering.problems);
        }
    };
    lowering.graph.sort(&mut lowering.problems);
    let drafts = lowering.fuse(&flow);
    let scripts = lowering.scripts(&flow);
    lowering.problems.check()?;
    match lowering.cut(&flow, drafts) {
        Ok(stages) => Ok(Plan { stages, environments: lowering.environments.into_list(), scripts, origins: lowering.origins }),
        Err(fault) => {
            lowering.problems.of_pipeline(format!("planning failed: {fault}"), "this is a bug, please report the pipeline");
            Err(lowering.problems)
        }
    }
}
