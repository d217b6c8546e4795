//! What has finished goes to the ledger as one commit, which is tried again while the storage is away. After it the engine hears.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use ledger::{Commit, CommitError, StateWrite};
use model::{StageId, metric_codec};

use super::Shard;
use crate::commit::{self, Counts};
use crate::job::Failure;
use crate::metrics::Preview;
use crate::report::{Activity, Work};
use crate::running::Finished;

/// Commits are tried this often when the storage is away, ...
const COMMIT_TRIES_MAX: u32 = 60;
/// ... with this pause between tries.
const COMMIT_PAUSE_MS: i64 = 500;

/// A commit that has not succeeded yet.
pub(super) struct PendingCommit {
    commit: Commit,
    bundles: Vec<(Finished, Counts)>,
    tries: u32,
    pub(super) not_before_ms: i64,
}

impl PendingCommit {
    /// Of no bundle.
    pub(super) fn new(commit: Commit) -> Self {
        PendingCommit { commit, bundles: Vec::new(), tries: 0, not_before_ms: i64::MIN }
    }
}

impl Shard {
    /// Commits what has finished, together. Returns whether anything was committed.
    pub(super) fn commit(&mut self, now_ms: i64) -> Result<bool, Failure> {
        let mut pending = match self.pending.take() {
            Some(pending) => pending,
            None => match self.gather(now_ms)? {
                Some(pending) => pending,
                None => return Ok(false),
            },
        };
        if now_ms < pending.not_before_ms {
            self.pending = Some(pending);
            return Ok(false);
        }
        match self.ledger.commit(&pending.commit) {
            Ok(()) => {
                self.committed(pending.bundles)?;
                Ok(true)
            }
            Err(CommitError::Retry(_)) if pending.tries < COMMIT_TRIES_MAX => {
                pending.tries += 1;
                pending.not_before_ms = now_ms + COMMIT_PAUSE_MS;
                self.note_refused(&pending, now_ms);
                self.pending = Some(pending);
                Ok(false)
            }
            Err(error) => Err(Failure::Infrastructure(error.to_string())),
        }
    }

    /// For reports: these bundles are done, but the storage does not take them.
    fn note_refused(&self, pending: &PendingCommit, now_ms: i64) {
        let since_ms = now_ms - i64::from(pending.tries - 1) * COMMIT_PAUSE_MS;
        for (Finished { bundle, stage, .. }, _) in &pending.bundles {
            let activity = Activity::Commit { bundle: *bundle, tries: pending.tries };
            self.shared.progress.at_work(self.id, *stage, Work { since_ms, activity });
        }
    }

    fn gather(&mut self, now_ms: i64) -> Result<Option<PendingCommit>, Failure> {
        let job_ms = self.job_time(now_ms);
        let mut commit = Commit::default();
        let mut bundles = Vec::new();
        for mut finished in std::mem::take(&mut self.finished) {
            let spec = &self.shared.stages[finished.stage.0 as usize];
            let ledger = &*self.shared.spec.ledger;
            let counts = commit::add(&mut commit, &mut finished, spec, self.id, &mut self.engine, ledger, job_ms)?;
            bundles.push((finished, counts));
        }
        if self.shared.spec.options.keep_metrics {
            self.add_metrics(&mut commit, &bundles);
        }
        commit.reports = std::mem::take(&mut self.reports);
        if commit.is_empty() && bundles.is_empty() {
            return Ok(None);
        }
        Ok(Some(PendingCommit { bundles, ..PendingCommit::new(commit) }))
    }

    /// Adds each concerned stage's committed metrics as they will be: the values, and the names when there are new ones.
    fn add_metrics(&self, commit: &mut Commit, bundles: &[(Finished, Counts)]) {
        let mut stages: BTreeMap<StageId, Vec<_>> = BTreeMap::new();
        for (finished, _) in bundles.iter().filter(|(finished, _)| !finished.outcome.metrics.is_empty()) {
            stages.entry(finished.stage).or_default().extend(finished.outcome.metrics.iter().cloned());
        }
        for (stage, values) in stages {
            let Preview { values, new_names } = self.shared.metrics.preview(self.id, stage, &values);
            if new_names {
                let mut names = Vec::new();
                metric_codec::encode_names(&values, &mut names);
                commit.state.push(StateWrite { cell: commit::metric_names_cell(stage), value: Some(names.into()) });
            }
            let mut bytes = Vec::new();
            metric_codec::encode_values(&values, &mut bytes);
            commit.state.push(StateWrite { cell: commit::metric_values_cell(stage), value: Some(bytes.into()) });
        }
    }

    fn committed(&mut self, bundles: Vec<(Finished, Counts)>) -> Result<(), Failure> {
        self.shared.quiescence.committed();
        self.shared.progress.commits.fetch_add(1, Ordering::Relaxed);
        self.begun = true;
        self.intake()?;
        for (finished, counts) in bundles {
            self.engine.committed(finished.bundle);
            self.shared.progress.at_rest(self.id, finished.stage);
            self.shared.metrics.commit(self.id, finished.stage, finished.bundle, &finished.outcome.metrics);
            let counters = self.shared.progress.stage(finished.stage);
            counters.rows_in.fetch_add(counts.rows_in, Ordering::Relaxed);
            counters.rows_out.fetch_add(counts.rows_out, Ordering::Relaxed);
            counters.bytes_out.fetch_add(counts.bytes_out, Ordering::Relaxed);
            counters.bundles.fetch_add(1, Ordering::Relaxed);
            if finished.outcome.finalize
                && let Some(slot) = self.slots.get_mut(&finished.stage)
            {
                slot.finalize(finished.bundle);
            }
        }
        Ok(())
    }
}
