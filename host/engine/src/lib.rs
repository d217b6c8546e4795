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

pub mod topology;
pub mod state;
pub mod grouping;

pub use state::KeyedState;
pub use topology::*;
