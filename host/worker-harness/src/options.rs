//! What a host and its environments are made from. Values only; where they come from is the server's business.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use model::JobId;
use proto::pipeline::ArtifactInformation;

use crate::LogSink;

/// How the Fn API server of a process is reached.
#[derive(Clone, Debug)]
pub struct HostOptions {
    /// Where to listen; port 0 takes a free one.
    pub bind: SocketAddr,
    /// The host name that harnesses are told to connect to, without the port.
    pub advertised_host: String,
    /// Goes into every worker and descriptor id. Different for every host that ever shares a worker pool with this one:
    /// SDKs cache descriptors by id for ever.
    pub instance: String,
}

impl HostOptions {
    /// Listens on a free port of the loopback interface.
    pub fn loopback(instance: impl Into<String>) -> Self {
        HostOptions {
            bind: SocketAddr::from(([127, 0, 0, 1], 0)),
            advertised_host: "localhost".to_owned(),
            instance: instance.into(),
        }
    }
}

/// One environment of one job.
#[derive(Clone)]
pub struct EnvironmentOptions {
    /// Whose environment.
    pub job: JobId,
    /// The job's name, for harnesses that log it.
    pub job_name: String,
    /// The serialized `Environment` message: `beam:env:external:v1` or `beam:env:process:v1`.
    pub environment: Bytes,
    /// The options as submitted.
    pub pipeline_options: prost_types::Struct,
    /// The environment's dependencies.
    pub artifacts: Vec<ResolvedArtifact>,
    /// Variables that a started process is given; those that its environment names go before them.
    pub process_env: BTreeMap<String, String>,
    /// How many harnesses share the shards; 0 counts as 1.
    pub harnesses: u32,
    /// Takes what harnesses log, and what their processes print.
    pub log: Arc<dyn LogSink>,
    /// How long to wait for what.
    pub timeouts: Timeouts,
}

/// A dependency that was staged to this machine.
#[derive(Clone, Debug, PartialEq)]
pub struct ResolvedArtifact {
    /// As the harness is told of it; it asks for the artifact with the same message.
    pub info: ArtifactInformation,
    /// The file with its content.
    pub path: PathBuf,
}

/// How long an environment waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// For a started harness to connect its control stream.
    pub connect: Duration,
    /// Between two requests for the progress of a running bundle.
    pub progress_interval: Duration,
    /// For any answer to a request for progress, a split or metric names; a harness that is silent for longer has failed.
    /// Long, because user code in a native extension can keep a Python harness from answering.
    pub unresponsive: Duration,
    /// For the rest of a bundle's output after its response.
    pub output_after_response: Duration,
    /// For a harness to end by itself once it was told to, and again after a polite signal.
    pub stop_grace: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Timeouts {
            connect: Duration::from_secs(60),
            progress_interval: Duration::from_secs(1),
            unresponsive: Duration::from_secs(300),
            output_after_response: Duration::from_secs(60),
            stop_grace: Duration::from_secs(5),
        }
    }
}

/// Why a host or an environment could not be made.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The address cannot be listened on.
    #[error("cannot listen on {address} for SDK harnesses: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why not.
        source: std::io::Error,
    },
    /// The environment cannot be run here.
    #[error("{0}")]
    Environment(String),
}
