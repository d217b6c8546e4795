//! Runs stages in SDK harnesses: the runner's side of Beam's Fn API.
//!
//! ```text
//!  HarnessHost           one gRPC server for all harnesses of this process, told apart by the `worker_id` header
//!    HarnessEnvironment  a `worker::Worker`: the harnesses of one environment of one job, started when first needed
//!      Harness           one connected SDK process or thread: control, data and state streams, running bundles
//!      HarnessSlot       a `worker::Slot`: one stage for one shard; each of its bundles is one task (`run`)
//! ```
//!
//! This is a trust boundary: everything a harness sends is checked here, and what it must not send fails its bundle with
//! [`worker::Error::Protocol`]. No pipeline is translated here (`plan` makes the descriptors), nothing is stored, and no
//! bundle is retried (that is the executor's business). Callers are plain threads; tokio stays inside.

mod active;
mod cache_token;
mod descriptor;
mod environment;
mod external;
mod feed;
mod harness;
mod host;
mod logging;
mod metrics;
mod options;
mod process;
mod provision;
mod rows;
mod run;
mod services;
mod slot;
mod split;
mod state_key;
mod timers;

pub use environment::HarnessEnvironment;
pub use host::HarnessHost;
pub use logging::{LogEntry, LogSink, Severity};
pub use options::{EnvironmentOptions, Error, HostOptions, ResolvedArtifact, Timeouts};
