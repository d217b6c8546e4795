//! How far a job is, for people: counters per stage, and how each stage of each shard stood when it was last looked at.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use engine::StageStatus;
use model::{ShardId, StageId};

use crate::report::{JobReport, StageReport, Work};

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
    /// Per shard and stage. Held for short: a shard writes down its status, or what it does for one stage.
    reports: Mutex<Vec<Vec<StageReport>>>,
}

impl JobProgress {
    /// For a job that has not begun.
    pub fn new(stages: usize, shards: u32) -> Self {
        JobProgress {
            stages: (0..stages).map(|_| StageCounters::default()).collect(),
            commits: AtomicU64::new(0),
            reports: Mutex::new(vec![Vec::new(); shards as usize]),
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
    pub fn set_status(&self, shard: ShardId, status: Vec<StageStatus>, now_ms: i64) {
        let mut shards = self.lock();
        let mut before = std::mem::take(&mut shards[shard.0 as usize]).into_iter();
        let report = |status: StageStatus| {
            let (watermark, since_ms, work) = match before.next() {
                Some(report) => (report.status.output_watermark, report.since_ms, report.work),
                None => (status.output_watermark, now_ms, None),
            };
            let since_ms = if watermark == status.output_watermark { since_ms } else { now_ms };
            StageReport { status, since_ms, work }
        };
        shards[shard.0 as usize] = status.into_iter().map(report).collect();
    }

    /// Writes down what a shard begins to do for a stage, or how far it is.
    pub fn at_work(&self, shard: ShardId, stage: StageId, work: Work) {
        self.set_work(shard, stage, Some(work));
    }

    /// Nothing is being done for a stage any more.
    pub fn at_rest(&self, shard: ShardId, stage: StageId) {
        self.set_work(shard, stage, None);
    }

    fn set_work(&self, shard: ShardId, stage: StageId, work: Option<Work>) {
        if let Some(report) = self.lock()[shard.0 as usize].get_mut(stage.0 as usize) {
            report.work = work;
        }
    }

    /// How everything stands.
    pub fn report(&self, now_ms: i64) -> JobReport {
        JobReport { shards: self.lock().clone(), now_ms }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Vec<StageReport>>> {
        self.reports.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
