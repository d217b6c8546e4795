//! The harnesses of one environment of one job: started when first needed, replaced when they die, ended together.

use std::collections::{BTreeMap, HashMap};
use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use model::{ShardId, StageId};
use prost::Message;
use proto::fnapi::ProvisionInfo;
use proto::pipeline as pb;
use tokio::sync::watch;
use worker::finalization::Unanswered;
use worker::{Error, Slot, StageSpec, Worker};

use crate::descriptor::PreparedStage;
use crate::external::Pool;
use crate::feed::Capabilities;
use crate::harness::{Harness, Life, locked};
use crate::host::Shared;
use crate::process::{Process, Program};
use crate::slot::HarnessSlot;
use crate::{EnvironmentOptions, Timeouts};

/// How long an ended stream waits for the exit status of its process.
const EXIT_GRACE: Duration = Duration::from_millis(500);

/// A worker whose stages run in SDK harnesses. Made by [`crate::HarnessHost::environment`].
pub struct HarnessEnvironment(Arc<Handle>);

/// What keeps an environment open: its worker and every slot have one. The environment itself lives until it is cleaned up.
pub(crate) struct Handle(Arc<Environment>);

pub(crate) struct Environment {
    host: Arc<Shared>,
    options: EnvironmentOptions,
    capabilities: Capabilities,
    launcher: Launcher,
    closed: watch::Sender<bool>,
    revisions: AtomicU64,
    positions: Vec<Mutex<Position>>,
    stages: Mutex<HashMap<StageId, Arc<PreparedStage>>>,
    /// Finalisations that were asked for.
    unanswered: Unanswered,
}

/// Tells of a harness that is being started: none until it has connected or failed.
type Start = watch::Receiver<Option<Result<Arc<Harness>, Error>>>;

/// One of an environment's harnesses, or the place for it.
enum Position {
    Vacant,
    Starting(Start),
    Taken(Arc<Harness>),
}

enum Launcher {
    External(Pool),
    Process(Program),
}

/// What was started, and so has to be ended.
enum Launched {
    External(Pool),
    Process(Process),
}

impl HarnessEnvironment {
    pub(crate) fn new(host: Arc<Shared>, options: EnvironmentOptions) -> Result<Self, crate::Error> {
        let refused = |what: String| crate::Error::Environment(format!("{what} (job {})", options.job));
        let environment = pb::Environment::decode(options.environment.clone())
            .map_err(|error| refused(format!("malformed environment: {error}")))?;
        let launcher = Launcher::of(&environment, &options.process_env).map_err(refused)?;
        let positions = (0..options.harnesses.max(1)).map(|_| Mutex::new(Position::Vacant)).collect();
        Ok(HarnessEnvironment(Arc::new(Handle(Arc::new(Environment {
            host,
            capabilities: Capabilities::of(&environment.capabilities),
            options,
            launcher,
            closed: watch::Sender::new(false),
            revisions: AtomicU64::new(0),
            positions,
            stages: Mutex::default(),
            unanswered: Unanswered::default(),
        })))))
    }
}

impl Worker for HarnessEnvironment {
    fn open(&self, stage: Arc<StageSpec>, shard: ShardId) -> Result<Box<dyn Slot>, Error> {
        let environment = self.0.environment();
        if *environment.closed.borrow() {
            return Err(Error::Aborted);
        }
        let prepared = environment.prepare(stage)?;
        let position = shard.0 as usize % environment.positions.len();
        // Booting a harness takes seconds, so it begins before there is work.
        drop(environment.start_unless_started(position));
        Ok(Box::new(HarnessSlot::new(self.0.clone(), position, prepared)))
    }

    fn settle(&self, patience: Duration) -> Vec<String> {
        let unanswered = self.0.environment().unanswered.wait(patience);
        unanswered.into_iter().map(|(harness, bundles)| format!("{harness} (bundles: {bundles})")).collect()
    }

    fn close(&self) {
        self.0.environment().close();
    }
}

impl Handle {
    pub(crate) fn environment(&self) -> &Arc<Environment> {
        &self.0
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl Launcher {
    fn of(environment: &pb::Environment, process_env: &BTreeMap<String, String>) -> Result<Self, String> {
        let payload = environment.payload.clone();
        match environment.urn.as_str() {
            model::urn::ENV_EXTERNAL => {
                let payload =
                    pb::ExternalPayload::decode(payload).map_err(|error| format!("malformed external environment: {error}"))?;
                let endpoint = payload.endpoint.map(|endpoint| endpoint.url).filter(|url| !url.is_empty());
                let endpoint = endpoint.ok_or("external environment without the endpoint of a worker pool")?;
                Ok(Launcher::External(Pool { endpoint, params: payload.params }))
            }
            model::urn::ENV_PROCESS => {
                let payload =
                    pb::ProcessPayload::decode(payload).map_err(|error| format!("malformed process environment: {error}"))?;
                if payload.command.is_empty() {
                    return Err("process environment without a command".to_owned());
                }
                let mut env = process_env.clone();
                env.extend(payload.env);
                Ok(Launcher::Process(Program { command: payload.command, env }))
            }
            model::urn::ENV_DOCKER => {
                let image = pb::DockerPayload::decode(payload).map(|payload| payload.container_image).unwrap_or_default();
                Err(format!(
                    "docker environment {image:?} cannot be run: Purlin starts no containers; use the environment type LOOPBACK, EXTERNAL or PROCESS"
                ))
            }
            urn => Err(format!("environment {urn:?} cannot be run in SDK harnesses")),
        }
    }

    fn origin(&self, worker_id: &str) -> String {
        match self {
            Launcher::External(pool) => format!("worker {worker_id} of the pool at {}", pool.endpoint),
            Launcher::Process(program) => format!("worker {worker_id} (process {:?})", program.command),
        }
    }
}

impl Environment {
    pub(crate) fn timeouts(&self) -> Timeouts {
        self.options.timeouts
    }

    pub(crate) fn unanswered(&self) -> &Unanswered {
        &self.unanswered
    }

    pub(crate) fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.host.runtime.spawn(task);
    }

    /// Waits until the environment is closed.
    pub(crate) async fn closed(&self) {
        // The sender lives as long as this.
        let _ = self.closed.subscribe().wait_for(|closed| *closed).await;
    }

    fn close(&self) {
        if self.closed.send_replace(true) {
            return;
        }
        for (_, stage) in locked(&self.stages).drain() {
            self.host.forget_descriptor(&stage.descriptor_id);
        }
    }

    /// The descriptor of a stage, shared by its shards and registered with the host.
    fn prepare(&self, spec: Arc<StageSpec>) -> Result<Arc<PreparedStage>, Error> {
        let mut stages = locked(&self.stages);
        if let Some(prepared) = stages.get(&spec.stage)
            && (Arc::ptr_eq(&prepared.spec, &spec) || prepared.spec.descriptor == spec.descriptor)
        {
            return Ok(prepared.clone());
        }
        let revision = self.revisions.fetch_add(1, Ordering::Relaxed);
        let number = spec.stage.0;
        let id = format!("{}/{}/{}/{number}/{revision}", self.host.instance, self.options.job, self.host.fresh_number());
        let prepared = Arc::new(PreparedStage::new(spec, id, &self.host.endpoint)?);
        self.host.offer_descriptor(&prepared);
        if let Some(old) = stages.insert(prepared.spec.stage, prepared.clone()) {
            self.host.forget_descriptor(&old.descriptor_id);
        }
        Ok(prepared)
    }

    /// The harness at a position, which is started if there is none that lives.
    pub(crate) async fn harness(self: &Arc<Self>, position: usize) -> Result<Arc<Harness>, Error> {
        let Some(mut starting) = self.start_unless_started(position) else { return Err(Error::Aborted) };
        let started = starting.wait_for(Option::is_some).await;
        let ended = || Error::Infrastructure("the host ended while a harness was starting".to_owned());
        started.map_err(|_| ended())?.clone().ok_or_else(ended)?
    }

    /// Where the harness of a position is told of. None when the environment is closed.
    fn start_unless_started(self: &Arc<Self>, position: usize) -> Option<Start> {
        let mut place = locked(&self.positions[position]);
        match &*place {
            Position::Taken(harness) if !harness.is_dead() => return Some(watch::channel(Some(Ok(harness.clone()))).1),
            Position::Starting(starting) => return Some(starting.clone()),
            _ if *self.closed.borrow() => return None,
            _ => {}
        }
        let (started, starting) = watch::channel(None);
        *place = Position::Starting(starting.clone());
        let environment = self.clone();
        self.host.spawn_tracked(async move {
            let result = environment.start().await;
            *locked(&environment.positions[position]) = match &result {
                Ok(harness) => Position::Taken(harness.clone()),
                Err(_) => Position::Vacant,
            };
            started.send_replace(Some(result));
        });
        Some(starting)
    }

    /// Starts a harness and waits until it has connected.
    async fn start(self: &Arc<Self>) -> Result<Arc<Harness>, Error> {
        let id = self.host.fresh_worker_id(&self.options.job);
        let exit_grace = if matches!(self.launcher, Launcher::Process(_)) { EXIT_GRACE } else { Duration::ZERO };
        let artifacts = self.options.artifacts.clone().into();
        let log = self.options.log.clone();
        let harness = Harness::new(self.provision(), id.clone(), self.launcher.origin(&id), artifacts, log, exit_grace);
        self.host.register(&harness);
        let launched = tokio::select! {
            launched = self.launch(&harness) => launched,
            () = self.closed() => Err(Error::Aborted),
        };
        let launched = match launched {
            Ok(launched) => launched,
            Err(error) => {
                harness.fail("was not started".to_owned());
                self.host.unregister(&harness);
                return Err(error);
            }
        };
        let result = self.connected(&harness).await;
        self.host.spawn_tracked(self.clone().oversee(harness.clone(), launched));
        result.map(|()| harness)
    }

    async fn launch(&self, harness: &Arc<Harness>) -> Result<Launched, Error> {
        match &self.launcher {
            Launcher::Process(program) => program.start(harness, &self.host.endpoint).map(Launched::Process),
            Launcher::External(pool) => {
                pool.start(&harness.id, &self.host.endpoint, self.options.timeouts.connect).await?;
                Ok(Launched::External(pool.clone()))
            }
        }
    }

    /// Waits for the control stream. A harness that does not make it is dead afterwards.
    async fn connected(&self, harness: &Harness) -> Result<(), Error> {
        let mut life = harness.life();
        let timeout = self.options.timeouts.connect;
        tokio::select! {
            life = life.wait_for(|life| *life != Life::Starting) => if matches!(life.as_deref(), Ok(Life::Connected)) {
                return Ok(());
            },
            () = self.closed() => return Err(Error::Aborted),
            () = tokio::time::sleep(timeout) => {
                harness.fail(format!("did not connect within {} s", timeout.as_secs_f64()));
            }
        }
        Err(harness.gone())
    }

    /// Stays with a harness until it dies or is not needed any more, and cleans up after it.
    async fn oversee(self: Arc<Self>, harness: Arc<Harness>, launched: Launched) {
        let mut life = harness.life();
        let dead = async { drop(life.wait_for(|life| matches!(life, Life::Dead(_))).await) };
        tokio::select! {
            () = dead => {}
            () = self.closed() => harness.close(),
        }
        let grace = if harness.is_dead() { Duration::ZERO } else { self.options.timeouts.stop_grace };
        match launched {
            Launched::Process(process) => process.stop(grace).await,
            Launched::External(pool) => {
                // A harness that ends in order closes its control stream, after `DoFn.teardown`.
                let mut life = harness.life();
                let _ = tokio::time::timeout(grace, life.wait_for(|life| matches!(life, Life::Dead(_)))).await;
                pool.stop(&harness.id).await;
            }
        }
        harness.fail("was closed".to_owned());
        self.host.unregister(&harness);
    }

    fn provision(&self) -> ProvisionInfo {
        let service = Some(pb::ApiServiceDescriptor { url: self.host.endpoint.clone(), authentication: None });
        let job = [("job_id", self.options.job.as_str()), ("job_name", &self.options.job_name)];
        ProvisionInfo {
            pipeline_options: Some(self.options.pipeline_options.clone()),
            retrieval_token: String::new(),
            status_endpoint: service.clone(),
            logging_endpoint: service.clone(),
            artifact_endpoint: service.clone(),
            control_endpoint: service,
            dependencies: self.options.artifacts.iter().map(|artifact| artifact.info.clone()).collect(),
            runner_capabilities: RUNNER_CAPABILITIES.map(str::to_owned).to_vec(),
            metadata: job.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
            sibling_worker_ids: Vec::new(),
        }
    }
}

/// What harnesses may make use of.
const RUNNER_CAPABILITIES: [&str; 3] = [
    "beam:protocol:monitoring_info_short_ids:v1",
    "beam:protocol:control_response_elements_embedding:v1",
    "beam:protocol:multimap_keys_values_side_input:v1",
];
