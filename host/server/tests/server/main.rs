//! The server from outside: generated clients against a port, with a fake behind the seam instead of an executor.
//!
//! One file per subject; `rig` holds the fake, the pipelines and the clients.

mod rig;

mod staging;
mod streams;
mod submission;
mod metrics;
mod robustness;
mod restart;
mod command_line;
