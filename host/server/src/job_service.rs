//! Beam's `JobService`: each call as a few lines over [`Jobs`].
//!
//! Everything that a client relies on in the streams is in [`crate::jobs::log`]. An id of a preparation is never the id of a job,
//! so streams opened by one answer NOT_FOUND, which is what makes Python's jobs survive its deadline (`beam-model` 1.3).

use std::pin::Pin;
use std::sync::Arc;

use futures_util::stream::unfold;
use prost::Message;
use prost_types::Timestamp;
use proto::job::job_messages_response::Response as StreamItem;
use proto::job::job_service_server::JobService;
use proto::job::*;
use proto::pipeline::{ApiServiceDescriptor, Pipeline};
use tokio::sync::watch;
use tokio_stream::Stream;
use tonic::{Request, Response, Status};

use crate::jobs::Jobs;
use crate::jobs::job::Job;
use crate::jobs::log::{Event, EventLog, Reader};
use crate::{options, refusal};

/// The service.
pub struct JobApi {
    /// What it is about.
    pub jobs: Arc<Jobs>,
    /// `host:port` under which clients reach this server.
    pub advertised: String,
}

type Answer<T> = Result<Response<T>, Status>;
type Items<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

#[tonic::async_trait]
impl JobService for JobApi {
    type GetStateStreamStream = Items<JobStateEvent>;
    type GetMessageStreamStream = Items<JobMessagesResponse>;

    async fn prepare(&self, request: Request<PrepareJobRequest>) -> Answer<PrepareJobResponse> {
        let preparation = self.jobs.prepare(request.into_inner()).await?;
        tracing::info!(preparation = preparation.id, name = preparation.name, "prepared");
        Ok(Response::new(PrepareJobResponse {
            preparation_id: preparation.id.clone(),
            artifact_staging_endpoint: Some(ApiServiceDescriptor { url: self.advertised.clone(), authentication: None }),
            staging_session_token: preparation.token.clone(),
        }))
    }

    async fn run(&self, request: Request<RunJobRequest>) -> Answer<RunJobResponse> {
        let job = self.jobs.run(&request.into_inner().preparation_id).await?;
        Ok(Response::new(RunJobResponse { job_id: job.id.to_string() }))
    }

    async fn get_jobs(&self, _: Request<GetJobsRequest>) -> Answer<GetJobsResponse> {
        let info = |job: &Arc<Job>| JobInfo {
            job_id: job.id.to_string(),
            job_name: job.facts.name.clone(),
            pipeline_options: Some(job.facts.options.clone()),
            state: job.state() as i32,
        };
        Ok(Response::new(GetJobsResponse { job_info: self.jobs.list().iter().map(info).collect() }))
    }

    async fn get_state(&self, request: Request<GetJobStateRequest>) -> Answer<JobStateEvent> {
        let job = self.jobs.job(&request.into_inner().job_id)?;
        Ok(Response::new(current_state(&job.log)))
    }

    async fn get_pipeline(&self, request: Request<GetJobPipelineRequest>) -> Answer<GetJobPipelineResponse> {
        let job = self.jobs.job(&request.into_inner().job_id)?;
        let pipeline = Pipeline::decode(job.facts.pipeline.clone());
        let pipeline = pipeline.map_err(|error| refusal::internal(format!("the recorded pipeline is malformed: {error}")))?;
        Ok(Response::new(GetJobPipelineResponse { pipeline: Some(pipeline) }))
    }

    async fn cancel(&self, request: Request<CancelJobRequest>) -> Answer<CancelJobResponse> {
        let job = self.jobs.job(&request.into_inner().job_id)?;
        Ok(Response::new(CancelJobResponse { state: job.cancel() as i32 }))
    }

    async fn drain(&self, request: Request<DrainJobRequest>) -> Answer<DrainJobResponse> {
        let job = self.jobs.job(&request.into_inner().job_id)?;
        Ok(Response::new(DrainJobResponse { state: self.jobs.drain(&job).await? as i32 }))
    }

    async fn get_state_stream(&self, request: Request<GetJobStateRequest>) -> Answer<Self::GetStateStreamStream> {
        let job = self.jobs.job(&request.into_inner().job_id)?;
        Ok(Response::new(self.items(&job, |event| match event {
            Event::State { state, at_us } => Some(state_event(*state as i32, *at_us)),
            Event::Message(_) => None,
        })))
    }

    async fn get_message_stream(&self, request: Request<JobMessagesRequest>) -> Answer<Self::GetMessageStreamStream> {
        let job = self.jobs.job(&request.into_inner().job_id)?;
        Ok(Response::new(self.items(&job, |event| {
            let item = match event {
                Event::State { state, at_us } => StreamItem::StateResponse(state_event(*state as i32, *at_us)),
                Event::Message(message) => StreamItem::MessageResponse(message.clone()),
            };
            Some(JobMessagesResponse { response: Some(item) })
        })))
    }

    async fn get_job_metrics(&self, request: Request<GetJobMetricsRequest>) -> Answer<GetJobMetricsResponse> {
        let job = self.jobs.job(&request.into_inner().job_id)?;
        Ok(Response::new(GetJobMetricsResponse { metrics: Some(job.metrics()) }))
    }

    async fn describe_pipeline_options(
        &self,
        _: Request<DescribePipelineOptionsRequest>,
    ) -> Answer<DescribePipelineOptionsResponse> {
        Ok(Response::new(DescribePipelineOptionsResponse { options: options::descriptors(&self.jobs.config) }))
    }
}

impl JobApi {
    /// What a reader of a job's log gets, each event through `item`, until the job or the server ends.
    fn items<T: Send + 'static>(&self, job: &Job, item: fn(&Event) -> Option<T>) -> Items<T> {
        struct Place {
            reader: Reader,
            stopping: watch::Receiver<bool>,
            over: bool,
        }
        let place = Place { reader: job.log.reader(), stopping: self.jobs.stopping(), over: false };
        Box::pin(unfold(place, move |mut place| async move {
            if place.over {
                return None;
            }
            loop {
                let event = tokio::select! {
                    biased;
                    event = place.reader.next() => Some(event?),
                    _ = place.stopping.wait_for(|stopping| *stopping) => None,
                };
                let Some(event) = event else {
                    place.over = true;
                    return Some((Err(Status::unavailable("the server is shutting down")), place));
                };
                if let Some(item) = item(&event) {
                    return Some((Ok(item), place));
                }
            }
        }))
    }
}

fn current_state(log: &EventLog) -> JobStateEvent {
    let (state, at_us) = log.current().unwrap_or((job_state::Enum::Unspecified, 0));
    state_event(state as i32, at_us)
}

fn state_event(state: i32, at_us: i64) -> JobStateEvent {
    let timestamp = Timestamp { seconds: at_us.div_euclid(1_000_000), nanos: (at_us.rem_euclid(1_000_000) * 1_000) as i32 };
    JobStateEvent { state, timestamp: Some(timestamp) }
}
