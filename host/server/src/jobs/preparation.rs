//! A job that was prepared: validated and planned, waiting for its artifacts and to be run, perhaps more than once.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use plan::Plan;
use prost::Message;
use proto::pipeline::{Environment, Pipeline};
use tonic::Status;

use crate::environments::{self, Staged};
use crate::options::StepNames;
use crate::refusal;
use crate::run::Settings;

/// A prepared job.
pub struct Preparation {
    /// Its id, which is never a job's id: clients that open job streams by it must be told so (`beam-model` trap 1).
    pub id: String,
    /// What the client shows when it stages artifacts.
    pub token: String,
    /// The user's name for the job.
    pub name: String,
    /// As submitted.
    pub pipeline: Arc<Pipeline>,
    /// As submitted.
    pub options: prost_types::Struct,
    /// What the runner was asked for.
    pub settings: Settings,
    /// How metrics name steps.
    pub step_names: StepNames,
    /// What is to run.
    pub plan: Plan,
    /// Length of the serialized pipeline.
    pub bytes: usize,
    /// Held for short, never across an await.
    staging: Mutex<Staging>,
}

enum Staging {
    /// Nothing was staged so far.
    Open,
    /// A client is at it. What was staged before stays in the store until it is done, so that it need not come again.
    UnderWay { _before: Staged },
    /// All artifacts are in the store.
    Complete(Staged),
    /// It went wrong.
    Failed(String),
}

impl Preparation {
    /// A preparation without artifacts so far.
    #[allow(clippy::too_many_arguments, reason = "one argument per field")]
    pub fn new(
        id: String,
        token: String,
        name: String,
        pipeline: Arc<Pipeline>,
        options: prost_types::Struct,
        settings: Settings,
        step_names: StepNames,
        plan: Plan,
    ) -> Preparation {
        let bytes = pipeline.encoded_len();
        Preparation { bytes, id, token, name, pipeline, options, settings, step_names, plan, staging: Mutex::new(Staging::Open) }
    }

    /// Environments that declare artifacts, by key.
    pub fn environments(&self) -> Vec<(String, Environment)> {
        let mut environments = environments::all(&self.pipeline);
        environments.retain(|(_, environment)| !environment.dependencies.is_empty());
        environments
    }

    /// Claims the right to stage. Only one client has it at a time; what was staged before does not count any more.
    pub fn begin_staging(&self) -> Result<(), Status> {
        let mut staging = self.lock();
        let before = match &mut *staging {
            Staging::UnderWay { .. } => {
                return Err(refusal::status(tonic::Code::Aborted, "artifacts of this job are being staged already"));
            }
            Staging::Complete(staged) => std::mem::take(staged),
            Staging::Open | Staging::Failed(_) => Staged::new(),
        };
        *staging = Staging::UnderWay { _before: before };
        Ok(())
    }

    /// Ends what `begin_staging` began.
    pub fn end_staging(&self, outcome: Result<Staged, String>) {
        *self.lock() = outcome.map_or_else(Staging::Failed, Staging::Complete);
    }

    /// The staged artifacts, if all that was declared is there.
    pub fn staged(&self) -> Result<Staged, Status> {
        match &*self.lock() {
            Staging::Complete(staged) => Ok(staged.clone()),
            Staging::Open if self.environments().is_empty() => Ok(Staged::new()),
            Staging::Open => Err(refusal::failed_precondition(
                "the pipeline declares artifacts that were never staged; stage them with the token that Prepare returned",
            )),
            Staging::UnderWay { .. } => Err(refusal::failed_precondition("the artifacts of this job are still being staged")),
            Staging::Failed(why) => Err(refusal::failed_precondition(format!("staging the artifacts of this job failed: {why}"))),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Staging> {
        self.staging.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
