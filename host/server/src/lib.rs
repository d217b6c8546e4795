//! The server: Job API, artifact staging, configuration and command line.
//!
//! This library is everything of the binary `purlin` that does not need a particular ledger or worker; those are put together
//! in the binary. It is also where the outside enters: only here are arguments, environment and the wall clock read.
//!
//! ```text
//!  args ─► config ─► serve ─┬─ job_service ──┐
//!                           ├─ staging ──────┼─ jobs ─► run (the seam to whatever executes)
//!                           └─ inspect ──────┘
//!  cli ─── asks a running server ──┘
//!  boot ── starts an SDK's harness for any runner
//! ```

pub mod args;
pub mod boot;
pub mod cli;
pub mod clock;
pub mod config;
pub mod environments;
pub mod inspect_service;
pub mod job_service;
pub mod jobs;
pub mod logging;
pub mod metrics;
pub mod options;
pub mod panics;
pub mod planning;
pub mod progress;
pub mod refusal;
pub mod run;
pub mod serve;
pub mod staging;
pub mod store;
