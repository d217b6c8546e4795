//! The Fn API host against harnesses that do what each test says, well or badly.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

mod fake;
mod setup;
mod stage;

mod bundles;
mod conformance;
mod finalization;
mod harnesses;
mod kept;
mod processes;
