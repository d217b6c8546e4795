//! The configuration of a server: one value, complete, printable.
//!
//! How it is spelled on the command line is the business of [`crate::args`].

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;

/// Everything that can be chosen about a server.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Config {
    /// Address that the Job API listens on.
    pub bind: IpAddr,
    /// Port of the Job API and of artifact staging; 0 takes any free one.
    pub job_port: u16,
    /// Host name under which clients reach this server; artifacts are staged to it.
    pub advertised_host: String,
    /// Where jobs, their state and their artifacts are kept; without it they live as long as the process.
    pub data_dir: Option<PathBuf>,
    /// Shards of a job that does not choose.
    pub shards: u32,
    /// Retries of a failed bundle, for a job that does not choose.
    pub retries: u32,
    /// The server ends after this time without a job or a call, in milliseconds; never if none.
    pub idle_shutdown_ms: Option<u64>,
    /// Jobs that run at a time.
    pub active_jobs_max: usize,
    /// Finished jobs that are remembered.
    pub finished_jobs_max: usize,
    /// Bytes of pipelines and messages of finished jobs that are remembered; the latest ten are in any case.
    pub finished_bytes_max: usize,
    /// Prepared jobs that are kept for a client to run them.
    pub preparations_max: usize,
    /// Prepared jobs that were run and are kept for a client to run them again.
    pub preparations_run_max: usize,
    /// Bytes of pipelines of prepared jobs, ten times as much in memory; the latest one is kept in any case.
    pub preparations_bytes_max: usize,
    /// Bytes of one staged artifact.
    pub artifact_bytes_max: u64,
    /// Artifacts of one environment.
    pub artifacts_max: usize,
    /// How long a cancelled job may take to stop before it is given up, in milliseconds.
    pub cancel_grace_ms: u64,
    /// How long jobs may take to stop when the server ends, in milliseconds.
    pub shutdown_grace_ms: u64,
    /// How log lines look.
    pub log_kind: LogKind,
    /// The least important log lines that are written.
    pub log_level: LogLevel,
}

/// How log lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum LogKind {
    /// For people, with a line of progress for each job.
    Dev,
    /// An object per line with `level`, `msg`, `time` and `source`.
    Json,
    /// `key=value` pairs.
    Text,
}

/// Importance of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    /// For debugging the runner's inner loops.
    Trace,
    /// For debugging the runner.
    Debug,
    /// What happens.
    Info,
    /// Look here first.
    Warn,
    /// Somebody must act.
    Error,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            bind: IpAddr::from([127, 0, 0, 1]),
            job_port: 8073,
            advertised_host: "localhost".into(),
            data_dir: None,
            shards: 1,
            retries: 0,
            idle_shutdown_ms: None,
            active_jobs_max: 1_000,
            finished_jobs_max: 100,
            finished_bytes_max: 8 << 20,
            preparations_max: 256,
            preparations_run_max: 4,
            preparations_bytes_max: 32 << 20,
            artifact_bytes_max: 4 << 30,
            artifacts_max: 10_000,
            cancel_grace_ms: 30_000,
            shutdown_grace_ms: 30_000,
            log_kind: LogKind::Dev,
            log_level: LogLevel::Info,
        }
    }
}

impl Config {
    /// Idle time after which the server ends.
    pub fn idle_shutdown(&self) -> Option<Duration> {
        self.idle_shutdown_ms.map(Duration::from_millis)
    }

    /// The configuration as text, for `--print-config`.
    pub fn print(&self) -> String {
        serde_json::to_string_pretty(self).expect("a struct of texts and numbers is always JSON")
    }
}
