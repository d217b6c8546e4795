//! The streams between host and harnesses: control, data, state, logging, status. Each is one task that reads.
//!
//! Control and data end a harness when they end; the others may come and go.

use std::sync::Arc;

use proto::fnapi::beam_fn_control_server::BeamFnControl;
use proto::fnapi::beam_fn_data_server::BeamFnData;
use proto::fnapi::beam_fn_logging_server::BeamFnLogging;
use proto::fnapi::beam_fn_state_server::BeamFnState;
use proto::fnapi::beam_fn_worker_status_server::BeamFnWorkerStatus;
use proto::fnapi::{
    Elements, GetProcessBundleDescriptorRequest, InstructionRequest, InstructionResponse, LogControl, ProcessBundleDescriptor,
    StateRequest, StateResponse, WorkerStatusRequest, WorkerStatusResponse, log_entry,
};
use tokio::sync::mpsc;
use tokio_stream::wrappers::{ReceiverStream, UnboundedReceiverStream};
use tonic::{Request, Response, Status, Streaming};

use crate::LogEntry;
use crate::active::StateReply;
use crate::harness::Harness;
use crate::host::Shared;

/// Answers to state requests that wait for their stream.
const STATE_RESPONSES_QUEUED_MAX: usize = 16;

pub(crate) struct Services(pub(crate) Arc<Shared>);

/// Reads a stream that a harness cannot live without. However this ends, even by a panic of what `take` calls, the harness
/// ends too.
async fn read<M>(harness: Arc<Harness>, name: &'static str, mut stream: Streaming<M>, take: impl Fn(&Harness, M)) {
    let fuse = Fuse(harness.clone());
    let status = loop {
        match stream.message().await {
            Ok(Some(message)) => take(&harness, message),
            Ok(None) => break None,
            Err(status) => break Some(status),
        }
    };
    harness.stream_ended(name, status).await;
    drop(fuse);
}

struct Fuse(Arc<Harness>);

impl Drop for Fuse {
    fn drop(&mut self) {
        self.0.fail("lost a stream that the host failed to serve".to_owned());
    }
}

#[tonic::async_trait]
impl BeamFnControl for Services {
    type ControlStream = UnboundedReceiverStream<Result<InstructionRequest, Status>>;

    async fn control(&self, request: Request<Streaming<InstructionResponse>>) -> Result<Response<Self::ControlStream>, Status> {
        let harness = self.0.harness(request.metadata())?;
        let instructions = harness.connect()?;
        tokio::spawn(read(harness, "control", request.into_inner(), |harness, response| harness.answered(response)));
        Ok(Response::new(UnboundedReceiverStream::new(instructions)))
    }

    /// Descriptors have names that are unique for ever, so the worker does not matter; some SDKs do not say who they are.
    async fn get_process_bundle_descriptor(
        &self,
        request: Request<GetProcessBundleDescriptorRequest>,
    ) -> Result<Response<ProcessBundleDescriptor>, Status> {
        let id = request.into_inner().process_bundle_descriptor_id;
        let descriptor = self.0.descriptor(&id).ok_or_else(|| Status::not_found(format!("no descriptor {id:?}")))?;
        Ok(Response::new(ProcessBundleDescriptor::clone(&descriptor)))
    }
}

#[tonic::async_trait]
impl BeamFnData for Services {
    type DataStream = ReceiverStream<Result<Elements, Status>>;

    async fn data(&self, request: Request<Streaming<Elements>>) -> Result<Response<Self::DataStream>, Status> {
        let harness = self.0.harness(request.metadata())?;
        let stream = request.metadata().get("data_stream_id").and_then(|id| id.to_str().ok()).unwrap_or_default();
        let elements = harness.attach(stream)?;
        tokio::spawn(read(harness, "data", request.into_inner(), |harness, elements| harness.elements(&elements)));
        Ok(Response::new(ReceiverStream::new(elements)))
    }
}

#[tonic::async_trait]
impl BeamFnState for Services {
    type StateStream = ReceiverStream<Result<StateResponse, Status>>;

    async fn state(&self, request: Request<Streaming<StateRequest>>) -> Result<Response<Self::StateStream>, Status> {
        let harness = self.0.harness(request.metadata())?;
        let (responses, receiver) = mpsc::channel(STATE_RESPONSES_QUEUED_MAX);
        tokio::spawn(serve_state(harness, request.into_inner(), responses));
        Ok(Response::new(ReceiverStream::new(receiver)))
    }
}

async fn serve_state(
    harness: Arc<Harness>,
    mut requests: Streaming<StateRequest>,
    responses: mpsc::Sender<Result<StateResponse, Status>>,
) {
    let mut life = harness.life();
    loop {
        let request = tokio::select! {
            request = requests.message() => request,
            _ = life.wait_for(|life| matches!(life, crate::harness::Life::Dead(_))) => return,
        };
        let Ok(Some(request)) = request else { return };
        // The semaphore is never closed.
        let Ok(permit) = harness.state_requests.clone().acquire_owned().await else { return };
        let reply = StateReply { stream: responses.clone(), permit };
        match harness.bundle(&request.instruction_id) {
            Some(bundle) => bundle.state_request(request, reply),
            None => {
                // Unanswered, the SDK's thread would wait for ever.
                let error = format!("bundle {} is not running", request.instruction_id);
                let _ = responses.send(Ok(StateResponse { id: request.id, error, response: None })).await;
            }
        }
    }
}

#[tonic::async_trait]
impl BeamFnLogging for Services {
    type LoggingStream = ReceiverStream<Result<LogControl, Status>>;

    async fn logging(&self, request: Request<Streaming<log_entry::List>>) -> Result<Response<Self::LoggingStream>, Status> {
        let harness = self.0.harness(request.metadata())?;
        let mut entries = request.into_inner();
        // Nothing is ever sent; the stream ends when the harness has closed its side.
        let (open, receiver) = mpsc::channel(1);
        tokio::spawn(async move {
            while let Ok(Some(list)) = entries.message().await {
                list.log_entries.into_iter().for_each(|entry| harness.log.log(LogEntry::from_sdk(&harness.id, entry)));
            }
            drop(open);
        });
        Ok(Response::new(ReceiverStream::new(receiver)))
    }
}

#[tonic::async_trait]
impl BeamFnWorkerStatus for Services {
    type WorkerStatusStream = ReceiverStream<Result<WorkerStatusRequest, Status>>;

    async fn worker_status(
        &self,
        request: Request<Streaming<WorkerStatusResponse>>,
    ) -> Result<Response<Self::WorkerStatusStream>, Status> {
        let harness = self.0.harness(request.metadata())?;
        let (open, requests) = harness.attach_status();
        let mut responses = request.into_inner();
        tokio::spawn(async move {
            while let Ok(Some(response)) = responses.message().await {
                harness.status_answered(response);
            }
            // Not before: Python opens another stream when this one ends first, also while it shuts down.
            drop(open);
        });
        Ok(Response::new(ReceiverStream::new(requests)))
    }
}
