//! An SDK harness that speaks the client's side of the Fn API and does what a test says, behind a worker pool.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use proto::fnapi::beam_fn_control_client::BeamFnControlClient;
use proto::fnapi::beam_fn_data_client::BeamFnDataClient;
use proto::fnapi::beam_fn_external_worker_pool_server::{BeamFnExternalWorkerPool, BeamFnExternalWorkerPoolServer};
use proto::fnapi::beam_fn_state_client::BeamFnStateClient;
use proto::fnapi::instruction_request::Request as Ask;
use proto::fnapi::instruction_response::Response as Answer;
use proto::fnapi::*;
use tokio::sync::mpsc;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::transport::Channel;
use tonic::{Request, Response, Status, Streaming};

type Script = Arc<dyn Fn(Sdk) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync>;

/// A worker pool whose workers run a script.
pub(crate) struct Pool {
    pub(crate) address: SocketAddr,
    pub(crate) stopped: Arc<Mutex<Vec<String>>>,
    pub(crate) started: Arc<Mutex<Vec<String>>>,
}

#[derive(Clone)]
struct Service {
    script: Script,
    stopped: Arc<Mutex<Vec<String>>>,
    started: Arc<Mutex<Vec<String>>>,
}

impl Pool {
    pub(crate) fn start<F>(script: impl Fn(Sdk) -> F + Send + Sync + 'static) -> Pool
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let (stopped, started) = (Arc::default(), Arc::default());
        let script: Script = Arc::new(move |sdk| Box::pin(script(sdk)));
        let service = Service { script, stopped: Arc::clone(&stopped), started: Arc::clone(&started) };
        tokio::spawn(async move {
            let incoming = tokio_stream::wrappers::TcpListenerStream::new(tokio::net::TcpListener::from_std(listener).unwrap());
            let server = tonic::transport::Server::builder().add_service(BeamFnExternalWorkerPoolServer::new(service));
            server.serve_with_incoming(incoming).await.unwrap();
        });
        Pool { address, stopped, started }
    }
}

#[tonic::async_trait]
impl BeamFnExternalWorkerPool for Service {
    async fn start_worker(&self, request: Request<StartWorkerRequest>) -> Result<Response<StartWorkerResponse>, Status> {
        let request = request.into_inner();
        let endpoint = request.control_endpoint.unwrap().url;
        self.started.lock().unwrap().push(request.worker_id.clone());
        let script = self.script.clone();
        tokio::spawn(async move { script(Sdk::connect(&endpoint, &request.worker_id).await).await });
        Ok(Response::new(StartWorkerResponse::default()))
    }

    async fn stop_worker(&self, request: Request<StopWorkerRequest>) -> Result<Response<StopWorkerResponse>, Status> {
        self.stopped.lock().unwrap().push(request.into_inner().worker_id);
        Ok(Response::new(StopWorkerResponse::default()))
    }
}

/// One connected harness.
pub(crate) struct Sdk {
    pub(crate) worker_id: String,
    pub(crate) channel: Channel,
    pub(crate) responses: mpsc::UnboundedSender<InstructionResponse>,
    control: Streaming<InstructionRequest>,
}

/// One open data stream.
pub(crate) struct Data {
    pub(crate) sender: mpsc::UnboundedSender<Elements>,
    receiver: Streaming<Elements>,
}

/// One open state stream.
pub(crate) struct State {
    sender: mpsc::UnboundedSender<StateRequest>,
    receiver: Streaming<StateResponse>,
    next: u64,
}

/// All that a bundle was sent.
#[derive(Debug, Default)]
pub(crate) struct Input {
    pub(crate) data: Vec<Bytes>,
    pub(crate) timers: Vec<elements::Timers>,
}

pub(crate) fn with_id<T>(message: T, worker_id: &str) -> Request<T> {
    let mut request = Request::new(message);
    request.metadata_mut().insert("worker_id", worker_id.parse().unwrap());
    request
}

impl Sdk {
    pub(crate) async fn connect(endpoint: &str, worker_id: &str) -> Sdk {
        let channel = Channel::from_shared(format!("http://{endpoint}")).unwrap().connect().await.unwrap();
        let (responses, receiver) = mpsc::unbounded_channel();
        let request = with_id(UnboundedReceiverStream::new(receiver), worker_id);
        let control = BeamFnControlClient::new(channel.clone()).control(request).await.unwrap().into_inner();
        Sdk { worker_id: worker_id.to_owned(), channel, responses, control }
    }

    /// The next instruction; none when the host has closed the stream.
    pub(crate) async fn next(&mut self) -> Option<(String, Ask)> {
        let request = self.control.message().await.ok()??;
        Some((request.instruction_id, request.request.unwrap()))
    }

    /// The next bundle; progress requests on the way are answered emptily.
    pub(crate) async fn next_bundle(&mut self) -> Option<(String, ProcessBundleRequest)> {
        loop {
            match self.next().await? {
                (id, Ask::ProcessBundle(request)) => return Some((id, request)),
                (id, Ask::ProcessBundleProgress(_)) => self.answer(&id, Answer::ProcessBundleProgress(Default::default())),
                (_, other) => panic!("unexpected {other:?}"),
            }
        }
    }

    pub(crate) fn answer(&self, id: &str, answer: Answer) {
        let _ = self.responses.send(InstructionResponse {
            instruction_id: id.to_owned(),
            error: String::new(),
            response: Some(answer),
        });
    }

    pub(crate) fn finish(&self, id: &str, response: ProcessBundleResponse) {
        self.answer(id, Answer::ProcessBundle(response));
    }

    pub(crate) fn error(&self, id: &str, error: &str) {
        let response = InstructionResponse { instruction_id: id.to_owned(), error: error.to_owned(), response: None };
        let _ = self.responses.send(response);
    }

    pub(crate) async fn descriptor(&self, id: &str) -> Result<ProcessBundleDescriptor, Status> {
        let request = GetProcessBundleDescriptorRequest { process_bundle_descriptor_id: id.to_owned() };
        let response = BeamFnControlClient::new(self.channel.clone()).get_process_bundle_descriptor(request).await?;
        Ok(response.into_inner())
    }

    pub(crate) async fn data(&self, stream: &str) -> Data {
        let (sender, receiver) = mpsc::unbounded_channel();
        let mut request = with_id(UnboundedReceiverStream::new(receiver), &self.worker_id);
        if !stream.is_empty() {
            request.metadata_mut().insert("data_stream_id", stream.parse().unwrap());
        }
        let mut client = BeamFnDataClient::new(self.channel.clone())
            .max_decoding_message_size(usize::MAX)
            .max_encoding_message_size(usize::MAX);
        Data { sender, receiver: client.data(request).await.unwrap().into_inner() }
    }

    pub(crate) async fn state(&self) -> State {
        let (sender, receiver) = mpsc::unbounded_channel();
        let request = with_id(UnboundedReceiverStream::new(receiver), &self.worker_id);
        let receiver = BeamFnStateClient::new(self.channel.clone()).state(request).await.unwrap().into_inner();
        State { sender, receiver, next: 0 }
    }
}

impl Data {
    /// The next message, whichever bundles it is of; none when the host has closed the stream.
    pub(crate) async fn next(&mut self) -> Option<Elements> {
        self.receiver.message().await.ok()?
    }

    /// Reads until the source and `families` timer families of a bundle have ended. Payload and end never share an entry.
    pub(crate) async fn input(&mut self, instruction: &str, families: usize) -> Input {
        let mut input = Input::default();
        let mut open = families + 1;
        while open > 0 {
            let elements = self.receiver.message().await.unwrap().expect("the stream ended inside a bundle's input");
            for data in elements.data {
                assert_eq!((data.instruction_id.as_str(), data.transform_id.as_str()), (instruction, "source"));
                assert!(data.data.is_empty() == data.is_last, "payload and end are separate, and neither is missing");
                open -= usize::from(data.is_last);
                input.data.extend(Some(data.data).filter(|data| !data.is_empty()));
            }
            for timers in elements.timers {
                assert_eq!(timers.instruction_id, instruction);
                assert!(timers.timers.is_empty() == timers.is_last, "payload and end are separate, and neither is missing");
                open -= usize::from(timers.is_last);
                input.timers.extend(Some(timers).filter(|timers| !timers.is_last));
            }
        }
        input
    }

    pub(crate) fn send(&self, instruction: &str, sink: &str, data: Bytes, is_last: bool) {
        let data = vec![elements::Data { instruction_id: instruction.to_owned(), transform_id: sink.to_owned(), data, is_last }];
        let _ = self.sender.send(Elements { data, timers: vec![] });
    }
}

impl State {
    pub(crate) async fn ask(
        &mut self,
        instruction: &str,
        key: state_key::Type,
        request: state_request::Request,
    ) -> StateResponse {
        self.next += 1;
        let id = self.next.to_string();
        let request = StateRequest {
            id: id.clone(),
            instruction_id: instruction.to_owned(),
            state_key: Some(StateKey { r#type: Some(key) }),
            request: Some(request),
        };
        self.sender.send(request).unwrap();
        let response = self.receiver.message().await.unwrap().expect("the state stream ended");
        assert_eq!(response.id, id);
        response
    }
}

/// Waits until a condition holds.
pub(crate) async fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    for _ in 0..500 {
        if condition() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("it never happened that {what}");
}
