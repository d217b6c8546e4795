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
//! ```

pub mod run;
pub mod config;
pub mod args;
pub mod clock;
pub mod logging;
pub mod refusal;
pub mod panics;
pub mod options;
pub mod store;
pub mod environments;
pub mod metrics;
pub mod planning;
pub mod jobs;
pub mod job_service;
pub mod staging;
pub mod inspect_service;
pub mod progress;
pub mod serve;
pub mod cli;
