//! Bundles between their start and their commit.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use bytes::Bytes;
use ledger::StateWrite;
use model::{BundleId, StageId};
use worker::{Outcome, Progress};

use crate::options::Options;
use crate::overlay::Overlay;
use crate::report::{Activity, Work};
use crate::user_state::BundleState;

/// A bundle that a worker has.
pub struct Running {
    /// Its stage.
    pub stage: StageId,
    /// Rows of input.
    pub rows: usize,
    /// Rows and timers that the worker was given.
    pub items: usize,
    /// What its head has written, for the commit.
    pub head: Overlay,
    /// What its DoFn reads and writes.
    pub state: Arc<BundleState>,
    /// Keys and windows of which nothing is to be left.
    pub expired: Vec<(Bytes, Bytes)>,
    /// When it started.
    pub started_ms: i64,
    /// Bytes of output so far.
    pub output_bytes: Arc<AtomicU64>,
    /// Whether its rows are not those that it was started for, so that it cannot leave some of them.
    pub truncated: bool,
    /// Whether and when it was last asked to stop early.
    pub split_asked_ms: Option<i64>,
    /// Output bytes at that time.
    pub split_asked_bytes: u64,
}

/// A bundle that waits for its commit.
pub struct Finished {
    /// Which.
    pub bundle: BundleId,
    /// Its stage.
    pub stage: StageId,
    /// Rows of input.
    pub rows: usize,
    /// State writes of its head and of its DoFn.
    pub writes: Vec<StateWrite>,
    /// What the worker said.
    pub outcome: Outcome,
}

impl Running {
    /// What is to be said of it, with what its worker says.
    pub fn work(&self, bundle: BundleId, progress: Option<&Progress>) -> Work {
        let activity = Activity::Bundle {
            bundle,
            items: self.items,
            row: progress.and_then(|progress| progress.row),
            worker: progress.and_then(|progress| progress.worker.clone()),
            silent_ms: progress.map_or(0, |progress| progress.silent_ms),
        };
        Work { since_ms: self.started_ms, activity }
    }

    /// Whether a restriction has run or produced so long that its results should become visible.
    pub fn wants_checkpoint(&self, unbounded: bool, options: &Options, now_ms: i64) -> bool {
        let since_ms = self.split_asked_ms.unwrap_or(self.started_ms);
        let overdue = unbounded && now_ms - since_ms >= options.checkpoint_interval_ms;
        let produced = self.output_bytes.load(Relaxed) - self.split_asked_bytes;
        overdue || produced >= options.checkpoint_output_bytes
    }
}
