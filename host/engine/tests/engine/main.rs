//! Tests of the engine through its face: scripts as data, its caller's rules, and random jobs against a naive model.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

mod cells;
mod dice;
mod job;
mod keyed;
mod keys;
mod naive;
mod play;
mod program;
mod random;
mod rows;
mod rules;
mod script;
mod setting;
