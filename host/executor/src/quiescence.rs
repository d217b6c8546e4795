//! Finds out that nothing will ever happen again although work remains: then the job is stuck and says why.
//!
//! Every commit raises a version. A shard that has nothing to do, nothing in flight and nothing to wait for writes down the
//! version that it had seen before its last empty poll. When all shards stand at the current version, no commit can be on
//! its way to anybody. Shards that stand at an earlier one are to look again: nothing else might wake them.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use model::ShardId;

const FINISHED: u64 = u64::MAX;

/// What an idle shard learns of the others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Somebody has something to do.
    Busy,
    /// All are idle, but these have not seen the latest commit.
    Behind(Vec<ShardId>),
    /// All are idle and nothing is on its way.
    Stuck,
}

fn shards(idle: &[Option<u64>], which: impl Fn(u64) -> bool) -> Vec<ShardId> {
    (0..).map(ShardId).zip(idle).filter(|(_, seen)| seen.is_some_and(&which)).map(|(shard, _)| shard).collect()
}

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
    pub fn busy(&self, shard: ShardId) {
        self.lock()[shard.0 as usize] = None;
    }

    /// The shard was idle at `version`.
    pub fn idle(&self, shard: ShardId, version: u64) -> Standing {
        let mut idle = self.lock();
        idle[shard.0 as usize] = Some(version);
        if idle.contains(&None) {
            return Standing::Busy;
        }
        let current = self.version();
        let behind = shards(&idle, |seen| seen != current && seen != FINISHED);
        if behind.is_empty() { Standing::Stuck } else { Standing::Behind(behind) }
    }

    /// The shard has finished and will not take part any more. Returns who is idle and has to look again, since nobody else
    /// will: all others, once all of them are.
    pub fn finished(&self, shard: ShardId) -> Vec<ShardId> {
        let mut idle = self.lock();
        idle[shard.0 as usize] = Some(FINISHED);
        if idle.contains(&None) { Vec::new() } else { shards(&idle, |seen| seen != FINISHED) }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Option<u64>>> {
        self.idle.lock().expect("no panic while the short lock is held")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commit_after_the_last_poll_keeps_the_job_alive() {
        let quiescence = Quiescence::new(2);
        let seen = quiescence.version();
        assert_eq!(quiescence.idle(ShardId(0), seen), Standing::Busy);
        quiescence.committed();
        assert_eq!(quiescence.idle(ShardId(1), quiescence.version()), Standing::Behind(vec![ShardId(0)]));
        assert_eq!(quiescence.idle(ShardId(0), quiescence.version()), Standing::Stuck);
    }

    #[test]
    fn the_last_to_finish_makes_the_idle_look_again() {
        let quiescence = Quiescence::new(3);
        assert_eq!(quiescence.idle(ShardId(0), quiescence.version()), Standing::Busy);
        quiescence.committed();
        assert_eq!(quiescence.finished(ShardId(1)), []);
        assert_eq!(quiescence.finished(ShardId(2)), [ShardId(0)]);
        assert_eq!(quiescence.idle(ShardId(0), quiescence.version()), Standing::Stuck);
    }
}
