//! The Fn API server of a process: one listener for the harnesses of all jobs.

use std::collections::HashMap;
use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use model::JobId;
use proto::fnapi::ProcessBundleDescriptor;
use proto::fnapi::beam_fn_control_server::BeamFnControlServer;
use proto::fnapi::beam_fn_data_server::BeamFnDataServer;
use proto::fnapi::beam_fn_logging_server::BeamFnLoggingServer;
use proto::fnapi::beam_fn_state_server::BeamFnStateServer;
use proto::fnapi::beam_fn_worker_status_server::BeamFnWorkerStatusServer;
use proto::fnapi::provision_service_server::ProvisionServiceServer;
use proto::job::artifact_retrieval_service_server::ArtifactRetrievalServiceServer;
use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tokio::task::{AbortHandle, JoinSet};
use tonic::Status;
use tonic::metadata::MetadataMap;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;

use crate::descriptor::PreparedStage;
use crate::harness::{Harness, locked};
use crate::provision::Provisioning;
use crate::services::Services;
use crate::{EnvironmentOptions, Error, HarnessEnvironment, HostOptions};

/// What a harness may send on one stream before it is read, and on all streams of one connection.
const STREAM_WINDOW_BYTES: u32 = 4 << 20;
const CONNECTION_WINDOW_BYTES: u32 = 64 << 20;
/// Data travels in frames of up to this size.
const FRAME_BYTES_MAX: u32 = 1 << 20;
/// Calls and streams of one connection at the same time.
const CALLS_MAX: u32 = 10_000;
/// After this much silence of a connection, TCP finds out whether the other machine is still there.
const TCP_KEEPALIVE: Duration = Duration::from_secs(60);

/// The server that SDK harnesses connect to. One per process is enough for any number of jobs.
pub struct HarnessHost {
    shared: Arc<Shared>,
    server: AbortHandle,
}

/// What services and environments share.
pub(crate) struct Shared {
    pub(crate) runtime: Handle,
    /// `host:port`, as harnesses are told.
    pub(crate) endpoint: String,
    pub(crate) instance: String,
    numbers: AtomicU64,
    // Held for single operations only.
    harnesses: Mutex<HashMap<String, Arc<Harness>>>,
    descriptors: Mutex<HashMap<String, Arc<ProcessBundleDescriptor>>>,
    tasks: Mutex<JoinSet<()>>,
}

impl HarnessHost {
    /// Starts to listen. `runtime` runs everything; it has to be of the multi-thread kind, with I/O and time.
    pub fn start(options: HostOptions, runtime: Handle) -> Result<Self, Error> {
        let failed = |source| Error::Listen { address: options.bind, source };
        let listener = std::net::TcpListener::bind(options.bind).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let port = listener.local_addr().map_err(failed)?.port();
        let entered = runtime.enter();
        let listener = TcpListener::from_std(listener).map_err(failed)?;
        drop(entered);
        let shared = Arc::new(Shared {
            runtime: runtime.clone(),
            endpoint: format!("{}:{port}", options.advertised_host),
            instance: options.instance,
            numbers: AtomicU64::new(0),
            harnesses: Mutex::default(),
            descriptors: Mutex::default(),
            tasks: Mutex::default(),
        });
        let server = runtime.spawn(serve(listener, shared.clone())).abort_handle();
        Ok(HarnessHost { shared, server })
    }

    /// `host:port`, as harnesses are told.
    pub fn endpoint(&self) -> &str {
        &self.shared.endpoint
    }

    /// Prepares to run the stages of one environment of one job. Fails when it is none that can be run here.
    pub fn environment(&self, options: EnvironmentOptions) -> Result<Arc<HarnessEnvironment>, Error> {
        HarnessEnvironment::new(self.shared.clone(), options).map(Arc::new)
    }

    /// What every connected harness that has a status stream says about itself, by worker id.
    pub async fn statuses(&self, timeout: Duration) -> Vec<(String, String)> {
        let harnesses: Vec<_> = locked(&self.shared.harnesses).values().cloned().collect();
        let mut statuses = Vec::new();
        for harness in harnesses {
            if let Some(text) = harness.status_text(timeout).await {
                statuses.push((harness.id.clone(), text));
            }
        }
        statuses.sort();
        statuses
    }

    /// Waits until the harnesses of all closed environments have ended, then stops to listen. Close the environments before.
    pub async fn shutdown(self) {
        // Tasks that run may start others: a start that succeeds starts the task that stays with the harness.
        loop {
            let mut tasks = std::mem::take(&mut *locked(&self.shared.tasks));
            if tasks.is_empty() {
                return;
            }
            while tasks.join_next().await.is_some() {}
        }
    }
}

impl Drop for HarnessHost {
    fn drop(&mut self) {
        self.server.abort();
        for harness in locked(&self.shared.harnesses).values() {
            harness.fail("lost its host".to_owned());
        }
    }
}

async fn serve(listener: TcpListener, shared: Arc<Shared>) {
    macro_rules! unlimited {
        ($server:ident($service:expr)) => {
            $server::from_arc($service).max_decoding_message_size(usize::MAX).max_encoding_message_size(usize::MAX)
        };
    }
    let services = Arc::new(Services(shared.clone()));
    let provisioning = Arc::new(Provisioning(shared));
    // No pings of our own, and none of the harnesses' are refused: Python pings often, also when idle.
    let served = Server::builder()
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_frame_size(FRAME_BYTES_MAX)
        .max_concurrent_streams(CALLS_MAX)
        .add_service(unlimited!(BeamFnControlServer(services.clone())))
        .add_service(unlimited!(BeamFnDataServer(services.clone())))
        .add_service(unlimited!(BeamFnStateServer(services.clone())))
        .add_service(unlimited!(BeamFnLoggingServer(services.clone())))
        .add_service(unlimited!(BeamFnWorkerStatusServer(services)))
        .add_service(unlimited!(ProvisionServiceServer(provisioning.clone())))
        .add_service(unlimited!(ArtifactRetrievalServiceServer(provisioning)))
        .serve_with_incoming(TcpIncoming::from(listener).with_nodelay(Some(true)).with_keepalive(Some(TCP_KEEPALIVE)));
    if let Err(error) = served.await {
        tracing::error!(%error, "the server for SDK harnesses ended");
    }
}

impl Shared {
    /// The harness that a call comes from.
    pub(crate) fn harness(&self, metadata: &MetadataMap) -> Result<Arc<Harness>, Status> {
        let id = metadata.get("worker_id").ok_or_else(|| Status::invalid_argument("the header worker_id is missing"))?;
        let id = id.to_str().map_err(|_| Status::invalid_argument("the header worker_id is not text"))?;
        let harness = locked(&self.harnesses).get(id).filter(|harness| !harness.is_dead()).cloned();
        harness.ok_or_else(|| Status::not_found(format!("no worker {id:?} is expected")))
    }

    pub(crate) fn register(&self, harness: &Arc<Harness>) {
        locked(&self.harnesses).insert(harness.id.clone(), harness.clone());
    }

    pub(crate) fn unregister(&self, harness: &Harness) {
        locked(&self.harnesses).remove(&harness.id);
    }

    pub(crate) fn descriptor(&self, id: &str) -> Option<Arc<ProcessBundleDescriptor>> {
        locked(&self.descriptors).get(id).cloned()
    }

    pub(crate) fn offer_descriptor(&self, stage: &PreparedStage) {
        locked(&self.descriptors).insert(stage.descriptor_id.clone(), stage.descriptor.clone());
    }

    pub(crate) fn forget_descriptor(&self, id: &str) {
        locked(&self.descriptors).remove(id);
    }

    /// A number that this host never gave before.
    pub(crate) fn fresh_number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    /// Boot programs make folder names and flags of worker ids, so they are kept plain.
    pub(crate) fn fresh_worker_id(&self, job: &JobId) -> String {
        let plain =
            |text: &str| text.chars().map(|c| if c.is_ascii_alphanumeric() || c == '_' { c } else { '-' }).collect::<String>();
        format!("{}-{}-{}", plain(&self.instance), plain(job.as_str()), self.fresh_number())
    }

    /// Runs a task that [`HarnessHost::shutdown`] waits for.
    pub(crate) fn spawn_tracked(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut tasks = locked(&self.tasks);
        while tasks.try_join_next().is_some() {}
        tasks.spawn_on(task, &self.runtime);
    }
}
