//! Our own `Inspect` service: figures of jobs and stages, for the command line and the page.

use std::sync::Arc;

use model::Timestamp;
use proto::inspect::inspect_server::Inspect;
use proto::inspect::*;
use proto::job::JobMessage;
use proto::job::job_message::MessageImportance;
use tonic::{Request, Response, Status};

use crate::clock;
use crate::jobs::Jobs;
use crate::jobs::job::Job;
use crate::jobs::log::Event;
use crate::jobs::rates::Rate;
use crate::run;

/// Latest warnings and errors in a description.
const PROBLEMS_MAX: usize = 20;

/// The service.
pub struct InspectApi(pub Arc<Jobs>);

#[tonic::async_trait]
impl Inspect for InspectApi {
    async fn jobs(&self, _: Request<JobsRequest>) -> Result<Response<JobsResponse>, Status> {
        let now_ms = clock::now_ms();
        let jobs = self.0.list().iter().map(|job| summary(job, &job.stages(), now_ms)).collect();
        Ok(Response::new(JobsResponse { jobs, now_ms }))
    }

    async fn describe(&self, request: Request<DescribeRequest>) -> Result<Response<Description>, Status> {
        let job = self.0.find(&request.into_inner().job_id)?;
        let (now_ms, stages) = (clock::now_ms(), job.stages());
        let mut problems = messages(&job);
        problems.retain(|message| message.importance >= MessageImportance::JobMessageWarning as i32);
        problems.drain(..problems.len().saturating_sub(PROBLEMS_MAX));
        Ok(Response::new(Description {
            job: Some(summary(&job, &stages, now_ms)),
            stages: stages.into_iter().map(stage_status).collect(),
            shards: job.facts.settings.shards,
            problems,
            now_ms,
        }))
    }

    async fn messages(&self, request: Request<MessagesRequest>) -> Result<Response<MessagesResponse>, Status> {
        let job = self.0.find(&request.into_inner().job_id)?;
        Ok(Response::new(MessagesResponse { job_id: job.id.to_string(), messages: messages(&job) }))
    }
}

fn messages(job: &Job) -> Vec<JobMessage> {
    let events = job.log.retained();
    let message = |event: &Arc<Event>| match &**event {
        Event::Message(message) => Some(message.clone()),
        Event::State { .. } => None,
    };
    events.iter().filter_map(message).collect()
}

/// One line about a job.
pub fn summary(job: &Job, stages: &[(run::StageStatus, Rate)], now_ms: i64) -> JobSummary {
    let watermarks = stages.iter().map(|(stage, _)| stage.output_watermark);
    let behind = watermarks.min().filter(|least| *least > Timestamp::MIN && *least < Timestamp::MAX);
    JobSummary {
        job_id: job.id.to_string(),
        job_name: job.facts.name.clone(),
        state: job.state() as i32,
        submitted_ms: job.facts.submitted_ms,
        ended_ms: job.ended_ms(),
        elements_per_second: stages.iter().map(|(_, rate)| rate.rows_in).fold(0.0, f64::max),
        watermark_delay_ms: behind.filter(|_| job.is_active()).map(|least| now_ms.saturating_sub(least.millis()).max(0)),
        backlog: stages.iter().map(|(stage, _)| stage.backlog).sum(),
    }
}

fn stage_status((stage, rate): (run::StageStatus, Rate)) -> StageStatus {
    StageStatus {
        stage: stage.stage.0,
        name: stage.name,
        rows_in: stage.rows_in,
        rows_out: stage.rows_out,
        rows_in_per_second: rate.rows_in,
        rows_out_per_second: rate.rows_out,
        backlog: stage.backlog,
        input_watermark_ms: stage.input_watermark.millis(),
        output_watermark_ms: stage.output_watermark.millis(),
        held_by: stage.held_by,
        slowest_shard: stage.slowest.0,
        since_ms: stage.since_ms,
        holds: stage.holds.into_iter().map(hold).collect(),
    }
}

fn hold(hold: run::Hold) -> Hold {
    Hold {
        shard: hold.shard.0,
        output_watermark_ms: hold.output_watermark.millis(),
        since_ms: hold.since_ms,
        held_by: hold.held_by,
    }
}
