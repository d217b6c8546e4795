//! The executor: runs a plan as P shards on ledgers and workers.
//!
//! One shard is one single-threaded loop ([`shard`]): it asks its engine what may run, lets a worker run it, and hands the
//! outcome to the ledger as one commit. There is no coordinator in the data path; [`job`] only starts the shards, watches
//! for the first failure and for the end, and answers questions about the job.
//!
//! It sees no protocol buffers and no particular worker or ledger.

pub mod aside;
pub mod assembly;
pub mod commit;
pub mod job;
pub mod merging;
pub mod metrics;
pub mod options;
pub mod overlay;
pub mod progress;
pub mod quiescence;
pub mod report;
pub mod running;
mod script;
mod settling;
pub mod shard;
pub mod side_inputs;
pub mod user_state;

pub use job::{Failure, Job, JobSpec, Observer};
pub use options::Options;
