//! Harnesses of a worker pool that runs already: `beam:env:external:v1`, and so Python's and Java's LOOPBACK.

use std::collections::BTreeMap;
use std::time::Duration;

use proto::fnapi::beam_fn_external_worker_pool_client::BeamFnExternalWorkerPoolClient;
use proto::fnapi::{StartWorkerRequest, StopWorkerRequest};
use proto::pipeline::ApiServiceDescriptor;
use tonic::transport::Endpoint;
use worker::Error;

/// A pool may take its time to answer a stop, but nobody waits for it longer than this.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// A worker pool.
#[derive(Clone, Debug)]
pub(crate) struct Pool {
    /// `host:port`.
    pub(crate) endpoint: String,
    pub(crate) params: BTreeMap<String, String>,
}

impl Pool {
    /// Asks for a harness that connects to `host`.
    pub(crate) async fn start(&self, worker_id: &str, host: &str, timeout: Duration) -> Result<(), Error> {
        let service = Some(ApiServiceDescriptor { url: host.to_owned(), authentication: None });
        let request = StartWorkerRequest {
            worker_id: worker_id.to_owned(),
            control_endpoint: service.clone(),
            logging_endpoint: service.clone(),
            artifact_endpoint: service.clone(),
            provision_endpoint: service,
            params: self.params.clone(),
        };
        let asked = tokio::time::timeout(timeout, async { self.connect().await?.start_worker(request).await });
        let failed = |what: String| Error::Infrastructure(format!("worker pool at {} {what}", self.endpoint));
        match asked.await {
            Err(_) => Err(failed(format!("did not start a worker within {} s", timeout.as_secs_f64()))),
            Ok(Err(status)) => Err(failed(format!("cannot start a worker: {}", status.message()))),
            Ok(Ok(response)) => match response.into_inner().error {
                error if error.is_empty() => Ok(()),
                error => Err(failed(format!("did not start a worker: {error}"))),
            },
        }
    }

    /// Tells the pool that a harness is not needed any more. Best effort: its streams have ended anyway.
    pub(crate) async fn stop(&self, worker_id: &str) {
        let request = StopWorkerRequest { worker_id: worker_id.to_owned() };
        let asked = tokio::time::timeout(STOP_TIMEOUT, async { self.connect().await?.stop_worker(request).await });
        match asked.await {
            Ok(Ok(_)) => {}
            Ok(Err(status)) => tracing::debug!(worker_id, endpoint = self.endpoint, %status, "worker was not stopped"),
            Err(_) => tracing::debug!(worker_id, endpoint = self.endpoint, "worker pool did not answer a stop"),
        }
    }

    async fn connect(&self) -> Result<BeamFnExternalWorkerPoolClient<tonic::transport::Channel>, tonic::Status> {
        let unreachable = |error: tonic::transport::Error| {
            let mut causes = error.to_string();
            let mut cause = std::error::Error::source(&error);
            while let Some(error) = cause {
                causes = format!("{causes}: {error}");
                cause = error.source();
            }
            tonic::Status::unavailable(causes)
        };
        let url = match self.endpoint.contains("://") {
            true => self.endpoint.clone(),
            false => format!("http://{}", self.endpoint),
        };
        let channel = Endpoint::from_shared(url).map_err(unreachable)?.connect().await.map_err(unreachable)?;
        Ok(BeamFnExternalWorkerPoolClient::new(channel))
    }
}
