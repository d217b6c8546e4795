//! Tests of the engine through its face: scripts as data, its caller's rules, and random jobs against a naive model.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

mod script;
mod setting;
mod play;
mod rules;
mod random;
mod job;
mod naive;
mod rows;
mod cells;
mod dice;
