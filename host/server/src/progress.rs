//! Lines of progress in the terminal of a server: one per active job, and only when there is something new to say.

use std::collections::BTreeMap;

use model::JobId;

use crate::cli::figures;
use crate::clock;
use crate::inspect_service::summary;
use crate::jobs::Jobs;

/// What was said last of every active job.
#[derive(Debug, Default)]
pub struct Last(BTreeMap<JobId, String>);

impl Last {
    /// What there is to say now.
    pub fn lines(&mut self, jobs: &Jobs) -> Vec<String> {
        let now_ms = clock::now_ms();
        let mut said = BTreeMap::new();
        let mut lines = Vec::new();
        for job in jobs.active() {
            let stages = job.stages();
            let summary = summary(&job, &stages, now_ms);
            let consumed: u64 = stages.iter().map(|(stage, _)| stage.rows_in).sum();
            let line = format!(
                "{}  {} rows consumed, {}/s, backlog {}, watermark delay {}",
                job.id,
                figures::count(consumed),
                figures::count(summary.elements_per_second.round() as u64),
                figures::count(summary.backlog),
                figures::delay(summary.watermark_delay_ms),
            );
            // The delay alone grows with the clock; that is nothing new.
            let key = line.rsplit_once(", watermark").map_or(line.as_str(), |(figures, _)| figures).to_string();
            if self.0.get(&job.id) != Some(&key) {
                lines.push(line);
            }
            said.insert(job.id.clone(), key);
        }
        self.0 = said;
        lines
    }
}
