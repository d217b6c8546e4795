//! The engine: one shard of one job, as a function of its events.
//!
//! It decides what may run, what a watermark is, what a group holds and when a pane fires. It does not know protocol
//! buffers, threads, clocks, randomness or disks: the executor brings entries, reports and the time in, and carries the
//! decisions out. Same events, same decisions.
//!
//! ```text
//!   entry, watermark, clock ──▶ ┌────────┐ ──▶ next: run these rows of this stage
//!   committed, failed       ──▶ │ engine │ ──▶ reports: watermarks that moved
//!   group, key(rows, state) ──▶ └────────┘ ──▶ panes, timers that fire, state writes
//! ```
//!
//! Read `engine`, the face, first. Below it: `pending` (entries until their rows are consumed), `gate` (side inputs),
//! `watermark`, `schedule` and `policy` (which stage, how much), `inflight` (bundles until they are durable), `kept` with
//! `grouping` (panes) and `keyed` (timers), and `stuck` (what holds what).

mod arrivals;
pub mod engine;
mod error;
mod gate;
pub mod grouping;
pub mod inflight;
mod kept;
mod keyed;
pub mod pending;
pub mod policy;
mod rows;
mod schedule;
pub mod state;
pub mod stuck;
pub mod topology;
mod watermark;

pub use engine::Engine;
pub use error::Error;
pub use inflight::Work;
pub use keyed::Readied;
pub use pending::{Entry, EntryRows, Position};
pub use policy::{BundlePolicy, Options};
pub use state::{KeyedState, StateError};
pub use stuck::{HeldBy, Producer, StageStatus, Times};
pub use topology::*;
