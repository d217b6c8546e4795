//! The server from outside: generated clients against a port, with a fake behind the seam instead of an executor.
//!
//! One file per subject; `rig` holds the fake, the pipelines and the clients.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod rig;

mod command_line;
mod metrics;
mod restart;
mod robustness;
mod staging;
mod streams;
mod submission;
