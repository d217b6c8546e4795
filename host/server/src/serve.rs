//! A server's life: take the port, restore jobs, serve until told to stop, end jobs, end streams.
//!
//! The port is bound before anything slow happens, so that a client that waits for the port does not wait for long, and a port
//! that is taken is the first thing to be reported.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use proto::inspect::inspect_server::InspectServer;
use proto::job::artifact_staging_service_server::ArtifactStagingServiceServer;
use proto::job::job_service_server::JobServiceServer;
use tokio::net::TcpListener;
use tonic::transport::Server as GrpcServer;
use tonic::transport::server::TcpIncoming;

use crate::config::{Config, LogKind};
use crate::inspect_service::InspectApi;
use crate::job_service::JobApi;
use crate::jobs::rates::SAMPLE_INTERVAL_MS;
use crate::jobs::{Jobs, Parts};
use crate::panics::CatchPanic;
use crate::progress;
use crate::staging::Staging;

/// Streams that one connection may have open. Each costs a few hundred bytes while idle.
const STREAMS_PER_CONNECTION_MAX: u32 = 100_000;
/// How long open calls may take to end after jobs and streams have.
const CONNECTIONS_GRACE: Duration = Duration::from_secs(2);

/// A port that is taken.
pub struct Bound {
    config: Config,
    listener: TcpListener,
    address: SocketAddr,
}

impl Bound {
    /// Takes the port of a configuration.
    pub async fn bind(config: Config) -> anyhow::Result<Bound> {
        let address = SocketAddr::new(config.bind, config.job_port);
        let listener = TcpListener::bind(address)
            .await
            .with_context(|| format!("listen on {address}; choose another port with --job-port"))?;
        let address = listener.local_addr().context("find the port that was taken")?;
        Ok(Bound { config, listener, address })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until `stop` is ready, or nothing has happened for as long as the configuration allows.
    pub async fn serve(self, parts: Parts, stop: impl Future<Output = ()>) -> anyhow::Result<()> {
        let Bound { config, listener, address } = self;
        let advertised = format!("{}:{}", config.advertised_host, address.port());
        let jobs = Jobs::new(config, parts);
        jobs.restore().await.context("restore the jobs of an earlier run")?;
        tracing::info!(endpoint = advertised, "taking jobs");
        if jobs.config.log_kind == LogKind::Dev {
            tracing::info!("in Python: --runner=PortableRunner --job_endpoint={advertised} --environment_type=LOOPBACK");
        }

        let sampling = tokio::spawn(sample(jobs.clone()));
        let (closing, closed) = tokio::sync::oneshot::channel::<()>();
        let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
        let serving = tokio::spawn(router(&jobs, advertised).serve_with_incoming_shutdown(incoming, async {
            // An error means that the sender is gone, which is a reason to close as well.
            let _ = closed.await;
        }));
        tokio::select! {
            () = stop => tracing::info!("stopping; once more to stop at once"),
            () = idle(&jobs) => tracing::info!("stopping after a time without jobs and calls"),
        }
        jobs.stop().await;
        sampling.abort();
        let _ = closing.send(());
        if jobs.config.data_dir.is_none()
            && let Err(error) = jobs.store.delete()
        {
            tracing::warn!(%error, "the artifacts could not be deleted");
        }
        let aborted = serving.abort_handle();
        match tokio::time::timeout(CONNECTIONS_GRACE, serving).await {
            Ok(served) => served.context("serve the Job API")?.context("serve the Job API")?,
            // Idle connections stay open as long as their clients like.
            Err(_) => aborted.abort(),
        }
        Ok(())
    }
}

type Layers = tower_layer::Stack<CatchPanicLayer, tower_layer::Identity>;

#[derive(Clone, Debug)]
struct CatchPanicLayer;

impl<S> tower_layer::Layer<S> for CatchPanicLayer {
    type Service = CatchPanic<S>;

    fn layer(&self, service: S) -> CatchPanic<S> {
        CatchPanic(service)
    }
}

/// All services of the port. Messages are as large as elements and pipelines are, so sizes are not limited here. Pings are
/// answered however often they come.
fn router(jobs: &Arc<Jobs>, advertised: String) -> tonic::transport::server::Router<Layers> {
    let job_api = JobServiceServer::new(JobApi { jobs: jobs.clone(), advertised });
    let staging = ArtifactStagingServiceServer::new(Staging(jobs.clone()));
    GrpcServer::builder()
        .layer(CatchPanicLayer)
        .max_concurrent_streams(STREAMS_PER_CONNECTION_MAX)
        .http2_adaptive_window(Some(true))
        .add_service(job_api.max_decoding_message_size(usize::MAX).max_encoding_message_size(usize::MAX))
        .add_service(staging.max_decoding_message_size(usize::MAX).max_encoding_message_size(usize::MAX))
        .add_service(InspectServer::new(InspectApi(jobs.clone())))
}

/// Ready when there was neither a job nor a call for as long as is allowed.
async fn idle(jobs: &Jobs) {
    let Some(allowed) = jobs.config.idle_shutdown() else { return std::future::pending().await };
    let allowed_ms = i64::try_from(allowed.as_millis()).unwrap_or(i64::MAX);
    let look = Duration::from_millis(allowed_ms.clamp(40, 4_000) as u64 / 4);
    while jobs.idle_ms() < allowed_ms {
        tokio::time::sleep(look).await;
    }
}

/// Samples jobs, and prints a line of progress for each if a person is watching.
async fn sample(jobs: Arc<Jobs>) {
    let mut ticks = tokio::time::interval(Duration::from_millis(SAMPLE_INTERVAL_MS));
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let print = jobs.config.log_kind == LogKind::Dev;
    let mut last = progress::Last::default();
    loop {
        ticks.tick().await;
        jobs.sample();
        if print {
            last.lines(&jobs).iter().for_each(|line| tracing::info!("{line}"));
        }
    }
}

/// Ready at the first Ctrl-C or SIGTERM; at the second the process ends at once.
pub async fn interrupted() -> anyhow::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let (mut interrupt, mut terminate) = (
        signal(SignalKind::interrupt()).context("listen for Ctrl-C")?,
        signal(SignalKind::terminate()).context("listen for SIGTERM")?,
    );
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    tokio::spawn(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        tracing::warn!("stopped at once; jobs were not ended");
        std::process::exit(130);
    });
    Ok(())
}
