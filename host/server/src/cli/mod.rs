//! Commands that do not serve: they ask a running server, or look at a file. Each writes text to a writer and nothing else, so
//! that tests read what a person would.

mod describe;
pub mod explain;
pub mod figures;
pub mod jobs;
pub mod table;
mod user_metrics;
