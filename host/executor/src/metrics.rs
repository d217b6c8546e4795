//! A job's metrics: committed values per shard and stage, and those of bundles that still run.

use std::collections::BTreeMap;
use std::sync::Mutex;

use model::metrics::{MetricName, MetricValue};
use model::{BundleId, ShardId, StageId};

/// Values by name.
pub type Values = BTreeMap<MetricName, MetricValue>;

/// Shared by the shards of a job.
#[derive(Default)]
pub struct JobMetrics {
    /// Held for the merge of one bundle's values.
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    committed: BTreeMap<(ShardId, StageId), Values>,
    running: BTreeMap<(ShardId, BundleId), Vec<(MetricName, MetricValue)>>,
}

/// What will have been committed.
pub struct Preview {
    /// All of it.
    pub values: Values,
    /// Whether it has names that are not committed yet. None ever goes.
    pub new_names: bool,
}

/// Adds `values` to what is there.
pub fn merge(into: &mut Values, values: &[(MetricName, MetricValue)]) {
    for (name, value) in values {
        match into.get_mut(name) {
            // Histograms of different layouts do not add up; the first layout stays.
            Some(known) => drop(known.merge(value)),
            None => drop(into.insert(name.clone(), value.clone())),
        }
    }
}

impl JobMetrics {
    /// The bundle's values are durable. Returns all committed values of the (shard, stage).
    pub fn commit(&self, shard: ShardId, stage: StageId, bundle: BundleId, values: &[(MetricName, MetricValue)]) {
        let mut inner = self.lock();
        inner.running.remove(&(shard, bundle));
        if !values.is_empty() {
            merge(inner.committed.entry((shard, stage)).or_default(), values);
        }
    }

    /// What the (shard, stage) will have committed once `values` are.
    pub fn preview(&self, shard: ShardId, stage: StageId, values: &[(MetricName, MetricValue)]) -> Preview {
        let mut all = self.lock().committed.get(&(shard, stage)).cloned().unwrap_or_default();
        let known = all.len();
        merge(&mut all, values);
        Preview { new_names: all.len() > known, values: all }
    }

    /// Committed values that a ledger kept.
    pub fn restore(&self, shard: ShardId, stage: StageId, values: Values) {
        self.lock().committed.insert((shard, stage), values);
    }

    /// Latest values of a bundle that runs; they replace earlier ones.
    pub fn progress(&self, shard: ShardId, bundle: BundleId, values: Vec<(MetricName, MetricValue)>) {
        self.lock().running.insert((shard, bundle), values);
    }

    /// The bundle is over without a commit. What it counted remains attempted no longer.
    pub fn forget(&self, shard: ShardId, bundle: BundleId) {
        self.lock().running.remove(&(shard, bundle));
    }

    /// All committed values.
    pub fn committed(&self) -> Values {
        let mut all = Values::new();
        for values in self.lock().committed.values() {
            let values: Vec<_> = values.iter().map(|(name, value)| (name.clone(), value.clone())).collect();
            merge(&mut all, &values);
        }
        all
    }

    /// Committed values and those of running bundles.
    pub fn attempted(&self) -> Values {
        let mut all = self.committed();
        for values in self.lock().running.values() {
            merge(&mut all, values);
        }
        all
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}
