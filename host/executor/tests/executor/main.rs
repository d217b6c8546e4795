//! The executor on reference ledgers and workers: a seeded simulator, and what it does in particular situations.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod dice;
mod dofns;
mod merging;
mod plans;
mod rig;
mod rows;

mod simulator;

mod asides;
mod control;
mod draining;
mod failures;
mod keyed;
mod scripts;
mod settling;
mod side_inputs;
mod stalls;
mod user_state;
