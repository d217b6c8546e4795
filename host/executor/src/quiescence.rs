//! Finds out that nothing will ever happen again although work remains: then the job is stuck and says why.
//!
//! Every commit raises a version. A shard that has nothing to do, nothing in flight and nothing to wait for writes down the
//! version that it had seen before its last empty poll. When all shards stand at the current version, no commit can be on
//! its way to anybody.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

const FINISHED: u64 = u64::MAX;

/// Shared by the shards of a job in this process.
#[derive(Debug)]
pub struct Quiescence {
    version: AtomicU64,
    /// Per shard: the version at which it is idle. Held for a few instructions, never across anything that waits.
    idle: Mutex<Vec<Option<u64>>>,
}

impl Quiescence {
    /// For a job with this many shards, all busy.
    pub fn new(shards: u32) -> Self {
        Quiescence { version: AtomicU64::new(0), idle: Mutex::new(vec![None; shards as usize]) }
    }

    /// To be read before a poll that may find nothing.
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::SeqCst)
    }

    /// To be called after each commit that others can see.
    pub fn committed(&self) {
        self.version.fetch_add(1, Ordering::SeqCst);
    }

    /// The shard has something to do or to wait for.
    pub fn busy(&self, shard: model::ShardId) {
        self.lock()[shard.0 as usize] = None;
    }

    /// The shard was idle at `version`. True when now all shards are, with nothing on its way.
    pub fn idle(&self, shard: model::ShardId, version: u64) -> bool {
        let mut idle = self.lock();
        idle[shard.0 as usize] = Some(version);
        let current = self.version();
        idle.iter().all(|seen| *seen == Some(current) || *seen == Some(FINISHED))
    }

    /// The shard has finished and will not take part any more.
    pub fn finished(&self, shard: model::ShardId) {
        self.lock()[shard.0 as usize] = Some(FINISHED);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Option<u64>>> {
        self.idle.lock().expect("no panic while the short lock is held")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::ShardId;

    #[test]
    fn a_commit_after_the_last_poll_keeps_the_job_alive() {
        let quiescence = Quiescence::new(2);
        let seen = quiescence.version();
        assert!(!quiescence.idle(ShardId(0), seen));
        quiescence.committed();
        assert!(!quiescence.idle(ShardId(1), quiescence.version()));
        assert!(quiescence.idle(ShardId(0), quiescence.version()));
    }
}
