//! The executor on reference ledgers and workers: a seeded simulator, and what it does in particular situations.

mod dice;
mod dofns;
mod plans;
mod rig;
mod rows;

mod simulator;

mod failures;
mod control;
mod side_inputs;
