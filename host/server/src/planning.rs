//! Planning a submission off the threads that serve calls, and what the client is told when it is refused.
//!
//! A pipeline is untrusted: its graph may be as deep as it is long. Planning gets a thread of its own with a large stack, and a
//! panic there is an error of this one call.

use std::sync::Arc;

use plan::{Capabilities, Plan, Problems};
use proto::pipeline::Pipeline;
use tokio::sync::{Semaphore, oneshot};
use tonic::Status;

use crate::refusal;

/// Pipelines that are planned at a time.
const PLANNERS_MAX: usize = 4;
/// Stack of a planning thread; it takes memory only where it is touched.
const STACK_BYTES: usize = 256 << 20;

/// Plans pipelines.
pub struct Planning {
    capabilities: Capabilities,
    turns: Semaphore,
}

impl Planning {
    /// For what a build can run.
    pub fn new(capabilities: Capabilities) -> Planning {
        Planning { capabilities, turns: Semaphore::new(PLANNERS_MAX) }
    }

    /// A plan, or the reasons against it. The status is for failures of planning itself.
    pub async fn plan(&self, pipeline: Arc<Pipeline>) -> Result<Result<Plan, Problems>, Status> {
        let _turn = self.turns.acquire().await.expect("the semaphore is never closed");
        let (answer, answered) = oneshot::channel();
        let capabilities = self.capabilities.clone();
        let work = move || {
            // The caller may have given up.
            let _ = answer.send(plan::plan(&pipeline, &capabilities));
        };
        let thread = std::thread::Builder::new().name("plan".into()).stack_size(STACK_BYTES).spawn(work);
        thread.map_err(|error| refusal::internal(format!("a thread for planning could not be started: {error}")))?;
        answered.await.map_err(|_| refusal::internal("planning this pipeline panicked, please report it"))
    }
}

/// The refusal of a submission: all reasons, one a line.
pub fn refused(problems: Option<Problems>, options: &[String]) -> Status {
    let mut text = String::from("this job cannot run here:");
    let problems = problems.unwrap_or_default();
    for line in problems.list.iter().map(ToString::to_string).chain(options.iter().cloned()) {
        text.push_str("\n  ");
        text.push_str(&line);
    }
    if problems.omitted > 0 {
        text.push_str(&format!("\n  and {} more", problems.omitted));
    }
    tracing::warn!("{text}");
    refusal::invalid_argument(text)
}
