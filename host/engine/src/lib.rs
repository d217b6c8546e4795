//! The engine: one shard of one job, as a function of its events.
//!
//! It decides what may run, what a watermark is, what a group holds and when a pane fires. It does not know protocol
//! buffers, threads, clocks, randomness or disks: the executor brings entries, reports and the time in, and carries the
//! decisions out. Same events, same decisions.
//!
//! ```text
//!   entry, watermark, clock ──▶ ┌────────┐ ──▶ next: run these rows of this stage
//!   committed, failed       ──▶ │ engine │ ──▶ reports: watermarks that moved
//!   group(rows, state)      ──▶ └────────┘ ──▶ panes, state writes
//! ```
//!
//! Read `engine`, the face, first. Below it: `pending` (entries until their rows are consumed), `gate` (side inputs),
//! `watermark`, `schedule` and `policy` (which stage, how much), `inflight` (bundles until they are durable), `grouping`
//! (panes) and `stuck` (what holds what).

pub mod engine;
mod gate;
pub mod grouping;
pub mod inflight;
pub mod pending;
pub mod policy;
mod rows;
mod schedule;
pub mod state;
pub mod stuck;
pub mod topology;
mod watermark;

pub use engine::{Engine, Readied};
pub use grouping::Error;
pub use inflight::Work;
pub use pending::{Entry, EntryRows, Position};
pub use policy::{BundlePolicy, Options};
pub use state::{KeyedState, StateError};
pub use stuck::{HeldBy, Producer, StageStatus};
pub use topology::*;
