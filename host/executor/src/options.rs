//! What can be chosen about a run. Complete values: defaults are the server's business, except those of tests.

use engine::BundlePolicy;

/// Bounds and habits of a job's shards.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// How often a bundle whose user code failed is tried again before the job fails.
    pub retries: u32,
    /// Rows in a bundle.
    pub bundle_rows_max: usize,
    /// Bytes of input in a bundle.
    pub bundle_bytes_max: u64,
    /// Groups that one bundle fires.
    pub bundle_groups_max: usize,
    /// Restrictions that one bundle processes.
    pub bundle_restrictions_max: usize,
    /// Bytes of user state that one bundle may change, as they are held in memory until its commit. A bundle that changes more
    /// runs again with half as many elements or timers; a single one fails as its user's fault.
    pub bundle_state_bytes_max: usize,
    /// Bytes waiting on a shard above which its sources pause.
    pub backlog_bytes_max: u64,
    /// After this many milliseconds an unbounded restriction is asked to checkpoint.
    pub checkpoint_interval_ms: i64,
    /// After this many bytes of output a restriction is asked to checkpoint, so that results become visible.
    pub checkpoint_output_bytes: u64,
    /// How long a job that has succeeded waits, in milliseconds, before it counts as ended, for user code to hear of its last
    /// commits.
    pub settle_ms: i64,
    /// The same for a job that has failed or was stopped.
    pub settle_stopped_ms: i64,
    /// Whether triggers are to be evaluated as rows come, also where the input is bounded.
    pub streaming: bool,
    /// Whether committed metrics are written into the ledger with every commit, for a later run of the job.
    pub keep_metrics: bool,
    /// How bundles are cut; anything but greedy is for tests.
    pub policy: BundlePolicy,
}

impl Options {
    /// What a local run uses.
    pub fn local() -> Self {
        Options {
            retries: 0,
            bundle_rows_max: 100_000,
            bundle_bytes_max: 4 << 20,
            bundle_groups_max: 100_000,
            bundle_restrictions_max: 8,
            bundle_state_bytes_max: 256 << 20,
            backlog_bytes_max: 64 << 20,
            checkpoint_interval_ms: 1_000,
            checkpoint_output_bytes: 32 << 20,
            settle_ms: 30_000,
            settle_stopped_ms: 2_000,
            streaming: false,
            keep_metrics: true,
            policy: BundlePolicy::Greedy,
        }
    }

    pub(crate) fn engine(&self) -> engine::Options {
        engine::Options {
            rows_max: self.bundle_rows_max,
            bytes_max: self.bundle_bytes_max,
            keys_max: self.bundle_groups_max,
            restrictions_max: self.bundle_restrictions_max,
            backlog_bytes_max: self.backlog_bytes_max,
            policy: self.policy,
        }
    }
}
