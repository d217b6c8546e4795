//! From a submitted pipeline to a [`Plan`]: validate, build the graph, lower, fuse, choose wire coders, cut stages.
//!
//! Pure: a pipeline and capabilities in, a plan or a list of problems out. No files, no clock, no engine.
//! [`explain`](Plan::explain) prints a plan as stable text, which is also how plans are tested.

pub mod plan;

pub use plan::*;
