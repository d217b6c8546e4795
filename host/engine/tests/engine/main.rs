//! Tests of the engine through its face: scripts as data, its caller's rules, and random jobs against a naive model.

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
