//! What every test here needs: a server on a port of its own, a runner that does as the test says, and small pipelines.

// Beam has a message of that name.
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::option::Option;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ledger::Ledger;
use ledger::memory::MemoryLedger;
use model::{ShardId, StageId, Timestamp, urn};
use plan::Capabilities;
use prost::Message;
use proto::job::artifact_staging_service_client::ArtifactStagingServiceClient;
use proto::job::job_service_client::JobServiceClient;
use proto::job::job_state::Enum as JobState;
use proto::job::*;
use proto::pipeline::*;
use server::config::{Config, LogKind};
use server::jobs::Parts;
use server::run::{End, Error, JobRunner, Metrics, Observer, RunningJob, StageStatus, Submission};
use server::serve::Bound;
use server::store::Store;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tonic::transport::Channel;

/// Longest wait for something that must happen.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// How the fake behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Behaviour {
    /// Starts jobs; cancels, drains and suspends them as asked.
    Obedient,
    /// Starts jobs and then does not listen.
    Deaf,
    /// Does not start jobs.
    Refuses,
    /// Panics instead of starting.
    PanicsAtStart,
    /// Panics when asked for anything.
    PanicsLater,
}

/// A runner for tests.
pub(crate) struct FakeRunner {
    behaviour: Behaviour,
    started: mpsc::UnboundedSender<Started>,
}

/// A job that the fake was given.
pub(crate) struct Started {
    pub(crate) submission: Submission,
    pub(crate) observer: Arc<dyn Observer>,
    pub(crate) figures: Arc<Mutex<Figures>>,
}

/// What the fake answers about a job.
#[derive(Clone, Default)]
pub(crate) struct Figures {
    pub(crate) metrics: Metrics,
    pub(crate) stages: Vec<StageStatus>,
}

struct FakeJob {
    behaviour: Behaviour,
    observer: Arc<dyn Observer>,
    figures: Arc<Mutex<Figures>>,
    ended: Mutex<bool>,
}

impl JobRunner for FakeRunner {
    fn start(&self, submission: Submission, observer: Arc<dyn Observer>) -> Result<Box<dyn RunningJob>, Error> {
        match self.behaviour {
            Behaviour::Refuses => return Err(Error("the runner does not feel like it".into())),
            Behaviour::PanicsAtStart => panic!("deliberate panic at start"),
            _ => {}
        }
        let figures = Arc::<Mutex<Figures>>::default();
        let job =
            FakeJob { behaviour: self.behaviour, observer: observer.clone(), figures: figures.clone(), ended: Mutex::new(false) };
        let _ = self.started.send(Started { submission, observer, figures });
        Ok(Box::new(job))
    }
}

impl FakeJob {
    fn end(&self, end: End) {
        match self.behaviour {
            Behaviour::Deaf => return,
            Behaviour::PanicsLater => panic!("deliberate panic later"),
            _ => {}
        }
        if !std::mem::replace(&mut *self.ended.lock().unwrap(), true) {
            let figures = self.figures.lock().unwrap().clone();
            self.observer.finished(end, figures.metrics, figures.stages);
        }
    }
}

impl RunningJob for FakeJob {
    fn cancel(&self) {
        self.end(End::Cancelled);
    }

    fn drain(&self) {
        self.end(End::Done);
    }

    fn suspend(&self) {
        self.end(End::Suspended);
    }

    fn metrics(&self) -> Metrics {
        assert!(self.behaviour != Behaviour::PanicsLater, "deliberate panic in metrics");
        self.figures.lock().unwrap().metrics.clone()
    }

    fn status(&self) -> Vec<StageStatus> {
        self.figures.lock().unwrap().stages.clone()
    }
}

impl Started {
    pub(crate) fn finish(&self, end: End) {
        let figures = self.figures.lock().unwrap().clone();
        self.observer.finished(end, figures.metrics, figures.stages);
    }
}

/// A server and everything to talk to it with.
pub(crate) struct Rig {
    pub(crate) address: SocketAddr,
    pub(crate) folder: Arc<tempfile::TempDir>,
    pub(crate) ledger: MemoryLedger,
    started: mpsc::UnboundedReceiver<Started>,
    stop: Option<oneshot::Sender<()>>,
    pub(crate) served: JoinHandle<anyhow::Result<()>>,
}

impl Rig {
    pub(crate) async fn start(behaviour: Behaviour) -> Rig {
        Rig::with(behaviour, Config::default()).await
    }

    pub(crate) async fn with(behaviour: Behaviour, config: Config) -> Rig {
        Rig::on(behaviour, config, MemoryLedger::new(), Arc::new(tempfile::tempdir().unwrap())).await
    }

    /// On what an earlier server left behind.
    pub(crate) async fn on(behaviour: Behaviour, config: Config, ledger: MemoryLedger, folder: Arc<tempfile::TempDir>) -> Rig {
        let config = Config { job_port: 0, log_kind: LogKind::Text, shutdown_grace_ms: 2_000, ..config };
        let bound = Bound::bind(config).await.unwrap();
        let address = bound.address();
        let (sender, started) = mpsc::unbounded_channel();
        let parts = Parts {
            runner: Arc::new(FakeRunner { behaviour, started: sender }),
            ledger: Arc::new(ledger.clone()) as Arc<dyn Ledger>,
            capabilities: Capabilities::default(),
            store: Store::open(folder.path().join("artifacts")).unwrap(),
        };
        let (stop, stopped) = oneshot::channel();
        let served = tokio::spawn(bound.serve(parts, async {
            // Dropping the rig does not stop the server in the middle of a test's last call.
            if stopped.await.is_err() {
                std::future::pending::<()>().await;
            }
        }));
        Rig { address, folder, ledger, started, stop: Some(stop), served }
    }

    pub(crate) fn tell_to_stop(&mut self) {
        let _ = self.stop.take().expect("stopped once").send(());
    }

    /// Stops the server and waits for it.
    pub(crate) async fn stop(mut self) -> (MemoryLedger, Arc<tempfile::TempDir>) {
        self.tell_to_stop();
        within(self.served).await.unwrap().unwrap();
        (self.ledger, self.folder)
    }

    pub(crate) fn endpoint(&self) -> String {
        self.address.to_string()
    }

    pub(crate) async fn channel(&self) -> Channel {
        Channel::from_shared(format!("http://{}", self.address)).unwrap().connect().await.unwrap()
    }

    pub(crate) async fn jobs(&self) -> JobServiceClient<Channel> {
        JobServiceClient::new(self.channel().await)
    }

    pub(crate) async fn staging(&self) -> ArtifactStagingServiceClient<Channel> {
        ArtifactStagingServiceClient::new(self.channel().await)
    }

    /// The next job that the runner is given.
    pub(crate) async fn started(&mut self) -> Started {
        within(self.started.recv()).await.expect("the runner lives as long as the server")
    }

    /// Prepares and runs a pipeline without artifacts.
    pub(crate) async fn submit(&mut self, name: &str) -> (String, Started) {
        let mut jobs = self.jobs().await;
        let prepared = jobs.prepare(request(name, pipeline(vec![]))).await.unwrap().into_inner();
        let job = jobs.run(run_request(&prepared)).await.unwrap().into_inner().job_id;
        (job, self.started().await)
    }

    pub(crate) async fn state(&self, job: &str) -> JobState {
        let event = self.jobs().await.get_state(GetJobStateRequest { job_id: job.into() }).await.unwrap().into_inner();
        assert!(event.timestamp.unwrap().seconds > 1_700_000_000, "states have a time");
        JobState::try_from(event.state).unwrap()
    }

    /// All that the message stream of a job has to say until it ends: messages as `IMPORTANCE text`, states as their names.
    pub(crate) async fn story(&self, job: &str) -> Vec<String> {
        let stream = self.jobs().await.get_message_stream(JobMessagesRequest { job_id: job.into() }).await.unwrap();
        within(read_story(stream.into_inner())).await
    }
}

pub(crate) async fn read_story(mut stream: tonic::Streaming<JobMessagesResponse>) -> Vec<String> {
    let mut story = Vec::new();
    while let Some(item) = stream.message().await.unwrap() {
        story.push(match item.response.unwrap() {
            job_messages_response::Response::MessageResponse(message) => {
                assert!(message.time.starts_with("20"), "messages have a time");
                format!("{} {}", message.importance, message.message_text)
            }
            job_messages_response::Response::StateResponse(event) => {
                JobState::try_from(event.state).unwrap().as_str_name().into()
            }
        });
    }
    story
}

/// Waits for what must happen.
pub(crate) async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.expect("it happens in time")
}

/// Waits until something is so.
pub(crate) async fn until<F: Future<Output = bool>>(condition: impl Fn() -> F) {
    within(async {
        while !condition().await {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
}

pub(crate) fn request(name: &str, pipeline: Pipeline) -> PrepareJobRequest {
    PrepareJobRequest { pipeline: Some(pipeline), pipeline_options: None, job_name: name.into() }
}

pub(crate) fn run_request(prepared: &PrepareJobResponse) -> RunJobRequest {
    RunJobRequest { preparation_id: prepared.preparation_id.clone(), retrieval_token: String::new() }
}

/// Options by plain name.
pub(crate) fn options(options: &[(&str, &str)]) -> prost_types::Struct {
    let value = |text: &str| prost_types::Value { kind: Some(prost_types::value::Kind::StringValue(text.into())) };
    prost_types::Struct { fields: options.iter().map(|(name, text)| (format!("beam:option:{name}:v1"), value(text))).collect() }
}

pub(crate) fn file_artifact(path: &str, sha256: &str) -> ArtifactInformation {
    ArtifactInformation {
        type_urn: "beam:artifact:type:file:v1".into(),
        type_payload: ArtifactFilePayload { path: path.into(), sha256: sha256.into() }.encode_to_vec().into(),
        role_urn: "beam:artifact:role:staging_to:v1".into(),
        role_payload: ArtifactStagingToRolePayload { staged_name: path.into() }.encode_to_vec().into(),
    }
}

pub(crate) fn external(dependencies: Vec<ArtifactInformation>) -> Environment {
    let endpoint = ApiServiceDescriptor { url: "localhost:1".into(), authentication: None };
    let payload = ExternalPayload { endpoint: Some(endpoint), params: Default::default() };
    Environment { urn: urn::ENV_EXTERNAL.into(), payload: payload.encode_to_vec().into(), dependencies, ..Default::default() }
}

/// Impulse and one DoFn.
pub(crate) fn pipeline(dependencies: Vec<ArtifactInformation>) -> Pipeline {
    pipeline_in(external(dependencies))
}

pub(crate) fn pipeline_in(environment: Environment) -> Pipeline {
    let spec = |urn: &str, payload: Vec<u8>| Some(FunctionSpec { urn: urn.into(), payload: payload.into() });
    let work = ParDoPayload { do_fn: spec("test:dofn", vec![]), ..Default::default() };
    let one = |key: &str, value: &str| [(key.to_string(), value.to_string())].into();
    let transforms = [
        (
            "t0",
            PTransform {
                unique_name: "Begin".into(),
                spec: spec(urn::IMPULSE, vec![]),
                outputs: one("out", "c0"),
                ..Default::default()
            },
        ),
        (
            "t1",
            PTransform {
                unique_name: "Work".into(),
                spec: spec(urn::PAR_DO, work.encode_to_vec()),
                inputs: one("in", "c0"),
                outputs: one("out", "c1"),
                environment_id: "env".into(),
                ..Default::default()
            },
        ),
    ];
    let collection = |id: &str| {
        let collection = PCollection {
            unique_name: id.into(),
            coder_id: "bytes".into(),
            is_bounded: is_bounded::Enum::Bounded as i32,
            windowing_strategy_id: "global".into(),
            ..Default::default()
        };
        (id.to_string(), collection)
    };
    let coder = |urn: &str| Coder { spec: spec(urn, vec![]), component_coder_ids: vec![] };
    let global = WindowingStrategy {
        window_fn: spec("beam:window_fn:global_windows:v1", vec![]),
        merge_status: merge_status::Enum::NonMerging as i32,
        window_coder_id: "window".into(),
        trigger: Some(Trigger { trigger: Some(trigger::Trigger::Default(trigger::Default {})) }),
        accumulation_mode: accumulation_mode::Enum::Discarding as i32,
        output_time: output_time::Enum::EndOfWindow as i32,
        closing_behavior: closing_behavior::Enum::EmitIfNonempty as i32,
        on_time_behavior: on_time_behavior::Enum::FireAlways as i32,
        environment_id: "env".into(),
        ..Default::default()
    };
    let components = Components {
        transforms: transforms.into_iter().map(|(id, transform)| (id.to_string(), transform)).collect(),
        pcollections: [collection("c0"), collection("c1")].into(),
        windowing_strategies: [("global".to_string(), global)].into(),
        coders: [
            ("bytes".to_string(), coder("beam:coder:bytes:v1")),
            ("window".to_string(), coder("beam:coder:global_window:v1")),
        ]
        .into(),
        environments: [("env".to_string(), environment)].into(),
    };
    Pipeline { components: Some(components), root_transform_ids: vec!["t0".into(), "t1".into()], ..Default::default() }
}

/// A row of figures.
pub(crate) fn stage(id: u32, name: &str, rows_in: u64, backlog: u64, held_by: &str) -> StageStatus {
    StageStatus {
        stage: StageId(id),
        name: name.into(),
        rows_in,
        rows_out: 2 * rows_in,
        backlog,
        input_watermark: Timestamp::MAX,
        output_watermark: Timestamp::from_millis(0),
        held_by: held_by.into(),
        slowest: ShardId(0),
        since_ms: server::clock::now_ms() - 12_000,
        holds: Vec::new(),
    }
}

/// Numbers that look random and are the same for the same seed (xorshift).
pub(crate) struct Random(pub u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub(crate) fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }
}

/// A staging client that answers from a script of its own.
pub(crate) struct StagingClient {
    pub(crate) answers: mpsc::Sender<ArtifactResponseWrapper>,
    pub(crate) asked: tonic::Streaming<ArtifactRequestWrapper>,
    /// Requests so far, `resolve N` or `get PATH`.
    pub(crate) log: VecDeque<String>,
}

impl StagingClient {
    pub(crate) async fn open(rig: &Rig, token: &str) -> StagingClient {
        let (answers, receiver) = mpsc::channel(16);
        answers.send(ArtifactResponseWrapper { staging_token: token.into(), ..Default::default() }).await.unwrap();
        let stream = tokio_stream::wrappers::ReceiverStream::new(receiver);
        let asked =
            within(async { rig.staging().await.reverse_artifact_retrieval_service(stream).await }).await.unwrap().into_inner();
        StagingClient { answers, asked, log: VecDeque::new() }
    }

    pub(crate) async fn ask(&mut self) -> Result<Option<artifact_request_wrapper::Request>, tonic::Status> {
        let request = within(self.asked.message()).await?;
        Ok(request.map(|wrapper| wrapper.request.expect("the server asks for something")))
    }

    pub(crate) async fn answer(&self, response: Option<artifact_response_wrapper::Response>, is_last: bool) {
        // The server may have hung up, which the test sees elsewhere.
        let _ = self.answers.send(ArtifactResponseWrapper { staging_token: String::new(), is_last, response }).await;
    }

    pub(crate) async fn piece(&self, data: &[u8], is_last: bool) {
        let data = bytes::Bytes::copy_from_slice(data);
        self.answer(Some(artifact_response_wrapper::Response::GetArtifactResponse(GetArtifactResponse { data })), is_last).await;
    }

    pub(crate) async fn resolved(&self, replacements: Vec<ArtifactInformation>) {
        let response = ResolveArtifactsResponse { replacements };
        self.answer(Some(artifact_response_wrapper::Response::ResolveArtifactResponse(response)), false).await;
    }

    /// Answers everything: dependencies stay as they are, and the contents of a file are what `contents` says, in one message
    /// that is also the last.
    pub(crate) async fn serve(mut self, contents: impl Fn(&str) -> Vec<u8>) -> Result<Vec<String>, tonic::Status> {
        while let Some(request) = self.ask().await? {
            match request {
                artifact_request_wrapper::Request::ResolveArtifact(resolve) => {
                    self.log.push_back(format!("resolve {}", resolve.artifacts.len()));
                    self.resolved(resolve.artifacts).await;
                }
                artifact_request_wrapper::Request::GetArtifact(get) => {
                    let payload = ArtifactFilePayload::decode(get.artifact.unwrap().type_payload).unwrap();
                    self.log.push_back(format!("get {}", payload.path));
                    self.piece(&contents(&payload.path), true).await;
                }
            }
        }
        Ok(self.log.into())
    }
}
