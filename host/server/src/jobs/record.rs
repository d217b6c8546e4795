//! What the ledger keeps of a job for the next life of the server: the opaque description in its record.
//!
//! Only ever extended, since a new version of the server reads what an old one wrote. Preparations are not recorded: a client
//! that has prepared a job is there to do so again.

use std::sync::Arc;

use bytes::Bytes;
use prost::Message;
use proto::job::{MetricResults, job_message::MessageImportance};
use proto::pipeline::{ArtifactInformation, MonitoringInfo};

use super::job::{Facts, Job};
use super::log::{Event, JobState};
use crate::environments::{Staged, StagedArtifact};
use crate::options::StepNames;
use crate::run::Settings;
use crate::store::Store;

/// A job's description.
#[derive(Clone, PartialEq, Message)]
pub struct Record {
    /// The user's name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// The serialized pipeline as submitted.
    #[prost(bytes = "bytes", tag = "2")]
    pub pipeline: Bytes,
    /// Pipeline options as submitted.
    #[prost(message, optional, tag = "3")]
    pub options: Option<prost_types::Struct>,
    /// Retries of a bundle.
    #[prost(uint32, tag = "4")]
    pub retries: u32,
    /// Harness processes per environment.
    #[prost(uint32, tag = "5")]
    pub harnesses: u32,
    /// Experiments.
    #[prost(string, repeated, tag = "6")]
    pub experiments: Vec<String>,
    /// Whether streaming was asked for.
    #[prost(bool, tag = "7")]
    pub streaming: bool,
    /// Whether metrics name steps by the user's names.
    #[prost(bool, tag = "8")]
    pub unique_names: bool,
    /// Staged artifacts.
    #[prost(message, repeated, tag = "9")]
    pub artifacts: Vec<RecordedArtifact>,
    /// A `JobState.Enum`.
    #[prost(int32, tag = "10")]
    pub state: i32,
    /// Milliseconds since the epoch.
    #[prost(int64, tag = "11")]
    pub submitted_ms: i64,
    /// Milliseconds since the epoch; set when the state is terminal.
    #[prost(int64, optional, tag = "12")]
    pub ended_ms: Option<i64>,
    /// The first and the last ERROR.
    #[prost(string, repeated, tag = "13")]
    pub errors: Vec<String>,
    /// Committed metrics of a job that ended.
    #[prost(message, repeated, tag = "14")]
    pub committed: Vec<MonitoringInfo>,
}

/// One artifact.
#[derive(Clone, PartialEq, Message)]
pub struct RecordedArtifact {
    /// Key of its environment.
    #[prost(string, tag = "1")]
    pub environment: String,
    /// As a worker is to see it.
    #[prost(message, optional, tag = "2")]
    pub information: Option<ArtifactInformation>,
    /// Where it is in the store.
    #[prost(string, tag = "3")]
    pub sha256: String,
}

impl Record {
    /// The record of a job that has not ended.
    pub fn of(facts: &Facts, state: JobState) -> Record {
        let artifacts = facts.staged.iter().flat_map(|(environment, artifacts)| {
            artifacts.iter().map(|artifact| RecordedArtifact {
                environment: environment.clone(),
                information: Some(artifact.information.clone()),
                sha256: artifact.file.sha256.clone(),
            })
        });
        Record {
            name: facts.name.clone(),
            pipeline: facts.pipeline.clone(),
            options: Some(facts.options.clone()),
            retries: facts.settings.retries,
            harnesses: facts.settings.harnesses,
            experiments: facts.settings.experiments.clone(),
            streaming: facts.settings.streaming,
            unique_names: facts.step_names == StepNames::UniqueName,
            artifacts: artifacts.collect(),
            state: state as i32,
            submitted_ms: facts.submitted_ms,
            ended_ms: None,
            errors: Vec::new(),
            committed: Vec::new(),
        }
    }

    /// The record of a job that ended.
    pub fn of_ended(job: &Job) -> Record {
        let record = Record::of(&job.facts, job.state());
        let events = job.log.retained();
        let mut errors: Vec<String> = events
            .iter()
            .filter_map(|event| match &**event {
                Event::Message(message) if message.importance == MessageImportance::JobMessageError as i32 => {
                    Some(message.message_text.clone())
                }
                _ => None,
            })
            .collect();
        if errors.len() > 2 {
            errors.drain(1..errors.len() - 1);
        }
        // Its artifacts are of no use any more.
        Record { ended_ms: job.ended_ms(), errors, committed: job.metrics().committed, artifacts: Vec::new(), ..record }
    }

    /// The job's settings.
    pub fn settings(&self, shards: u32) -> Settings {
        Settings {
            shards,
            retries: self.retries,
            harnesses: self.harnesses,
            experiments: self.experiments.clone(),
            streaming: self.streaming,
        }
    }

    /// How metrics name steps.
    pub fn step_names(&self) -> StepNames {
        if self.unique_names { StepNames::UniqueName } else { StepNames::Id }
    }

    /// The metrics of a job that ended; of attempts that failed nothing is known any more.
    pub fn results(&self) -> MetricResults {
        MetricResults { attempted: self.committed.clone(), committed: self.committed.clone() }
    }

    /// The artifacts, if the store still has all of them.
    pub fn staged(&self, store: &Arc<Store>) -> Result<Staged, String> {
        let mut staged = Staged::new();
        for artifact in &self.artifacts {
            let file = store
                .get(&artifact.sha256)
                .ok_or_else(|| format!("artifact {} is not in the store any more", artifact.sha256))?;
            let information = artifact.information.clone().unwrap_or_default();
            staged.entry(artifact.environment.clone()).or_default().push(StagedArtifact { information, file });
        }
        Ok(staged)
    }
}
