//! Tests of planning, in one binary: cases as text, invariants of random pipelines, damaged pipelines.

#![allow(clippy::unwrap_used, reason = "tests")]

mod build;
mod cases;
mod damage;
mod descriptors;
mod invariants;
mod language;
mod random;
mod term;
