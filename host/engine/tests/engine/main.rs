//! Tests of the engine through its face: scripts as data, and random jobs against a naive model.

mod cells;
mod dice;
mod job;
mod naive;
mod random;
mod rows;
mod script;
