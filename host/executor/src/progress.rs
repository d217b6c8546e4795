//! How far a job is, for people: counters per stage, and each shard's latest status.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use engine::StageStatus;
use model::{ShardId, StageId};

/// Counters of one stage over all shards. Rates are the reader's business.
#[derive(Debug, Default)]
pub struct StageCounters {
    /// Rows that bundles consumed.
    pub rows_in: AtomicU64,
    /// Rows that bundles produced, per reader.
    pub rows_out: AtomicU64,
    /// Bytes of those rows.
    pub bytes_out: AtomicU64,
    /// Bundles committed.
    pub bundles: AtomicU64,
}

/// Shared by the shards of a job and whoever watches it.
pub struct JobProgress {
    /// One per stage.
    pub stages: Vec<StageCounters>,
    /// Commits of all shards.
    pub commits: AtomicU64,
    /// Each shard's engine status when it last had time to write it down.
    statuses: Mutex<Vec<Vec<StageStatus>>>,
}

impl JobProgress {
    /// For a job that has not begun.
    pub fn new(stages: usize, shards: u32) -> Self {
        JobProgress {
            stages: (0..stages).map(|_| StageCounters::default()).collect(),
            commits: AtomicU64::new(0),
            statuses: Mutex::new(vec![Vec::new(); shards as usize]),
        }
    }

    /// The counters of a stage.
    pub fn stage(&self, stage: StageId) -> &StageCounters {
        &self.stages[stage.0 as usize]
    }

    /// Rows consumed by all stages.
    pub fn rows_in(&self) -> u64 {
        self.stages.iter().map(|stage| stage.rows_in.load(Relaxed)).sum()
    }

    /// Writes down a shard's status.
    pub fn set_status(&self, shard: ShardId, status: Vec<StageStatus>) {
        self.statuses.lock().unwrap_or_else(std::sync::PoisonError::into_inner)[shard.0 as usize] = status;
    }

    /// Each shard's latest status.
    pub fn statuses(&self) -> Vec<Vec<StageStatus>> {
        self.statuses.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
    }
}
