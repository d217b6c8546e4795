//! Tests of planning, in one binary: cases as text, invariants of random pipelines, damaged pipelines.

#![allow(clippy::unwrap_used, reason = "tests")]

mod term;
mod language;
mod build;
mod invariants;
mod cases;
mod random;
mod damage;
mod descriptors;
