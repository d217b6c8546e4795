//! Tests of grouping against its public interface: scripts, Beam's transcripts, random events against a plain model.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod driver;
mod merging;
mod model;
mod random;
mod script;
mod store;
mod strategy;
mod transcripts;
mod volume;
