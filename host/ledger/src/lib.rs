//! The ledger: durable storage for one job's log, keyed state and progress, with one operation that matters, commit.
//!
//! This crate is the contract, what adapters keep in memory for their shards ([`log`]), an in-memory reference ([`memory`])
//! and the conformance suite ([`conformance`]) that every adapter passes. It knows bytes, batches and positions; it does not know what a stage does with them.
//!
//! ```text
//!  per job:  log, P partitions     entries addressed to one shard, in order per producer
//!            broadcast partition   entries that every shard reads (side inputs)
//!            state, P spaces       ordered cells, one writer each
//! ```
//!
//! A shard's ledger has one owner. Opening it again fences the earlier owner: that one's next commit answers
//! [`CommitError::Fenced`] and changes nothing.

pub mod conformance;
pub mod contract;
pub mod log;
pub mod memory;
pub mod rows;

pub use contract::*;
