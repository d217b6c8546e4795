//! Why a job stands where it stands: every stage of every shard with what holds it, for people.
//!
//! The engine knows what holds a watermark; here comes what only the host knows: since when, who works on it, and whether the
//! stage that is waited for is in truth further on. The same report is printed by `purlin jobs describe` and by a job that
//! fails because it is stuck.

use std::fmt;

use engine::stuck::Plain;
use engine::{StageStatus, Times};
use model::{BundleId, ShardId, Timestamp};

/// One stage of one shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StageReport {
    /// How it stood when it was last looked at.
    pub status: StageStatus,
    /// Since when the output watermark stands, in milliseconds of processing time: as far as this run of the job knows, and late by
    /// as much as lies between two looks.
    pub since_ms: i64,
    /// What is being done for it now.
    pub work: Option<Work>,
}

/// Something that is being done for a stage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Work {
    /// Since when, in milliseconds of processing time.
    pub since_ms: i64,
    /// What.
    pub activity: Activity,
}

/// What is being done for a stage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Activity {
    /// A worker runs a bundle.
    Bundle {
        /// Which.
        bundle: BundleId,
        /// Rows and timers in it.
        items: usize,
        /// The row that it is at, if the worker says so.
        row: Option<u64>,
        /// Where it runs; none: on the shard's own thread, or the worker does not say.
        worker: Option<String>,
        /// Milliseconds since the worker was last heard of.
        silent_ms: u64,
    },
    /// A bundle is done and waits for the storage.
    Commit {
        /// Which.
        bundle: BundleId,
        /// How often it was tried.
        tries: u32,
    },
    /// The shard waits for an answer of user code that it needs to put a bundle together.
    Aside {
        /// What is asked.
        name: String,
    },
}

/// All stages of a job as they stand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobReport {
    /// Per shard, one entry per stage of the plan; empty for a shard that has not begun.
    pub shards: Vec<Vec<StageReport>>,
    /// When the report was made, in milliseconds of processing time.
    pub now_ms: i64,
}

/// A worker that was not heard of for less than this is not called silent.
const SILENT_MS: u64 = 5_000;

impl JobReport {
    /// What holds by itself: every stage and shard that is not complete and does not just wait for another one.
    pub fn holders(&self) -> Vec<(ShardId, &StageReport)> {
        self.incomplete().filter(|(_, report)| self.waits_for(report).is_none()).collect()
    }

    /// One line about a stage of a shard.
    pub fn line(&self, shard: ShardId, report: &StageReport, times: &dyn Times) -> String {
        let StageReport { status, since_ms, .. } = report;
        let (input, output) = (times.event(status.input_watermark), times.event(status.output_watermark));
        let since = span(self.now_ms - since_ms);
        let has = status.has();
        let held = self.held(report, times);
        format!("{} \"{}\" on {shard}: input {input}, output {output} for {since}{has}; {held}", status.stage, status.name)
    }

    /// What holds a stage of a shard; empty if it is complete.
    pub fn held(&self, report: &StageReport, times: &dyn Times) -> String {
        let status = &report.status;
        if status.output_watermark == Timestamp::MAX && report.work.is_none() {
            return String::new();
        }
        let mut text = status.held(times);
        if let Some(further) = self.further(status) {
            text += &format!("; that stage itself is at {}, which has not arrived here", times.event(further));
        }
        if let Some(work) = &report.work {
            text += &format!("; {}", work.words(self.now_ms));
        }
        text
    }

    fn incomplete(&self) -> impl Iterator<Item = (ShardId, &StageReport)> {
        let shards = (0u32..).map(ShardId).zip(&self.shards);
        let all = shards.flat_map(|(shard, stages)| stages.iter().map(move |report| (shard, report)));
        all.filter(|(_, report)| report.status.output_watermark < Timestamp::MAX)
    }

    /// The one that a stage waits for, unless it is itself at work, or that one is further on than the stage has heard.
    fn waits_for(&self, report: &StageReport) -> Option<&StageReport> {
        if report.work.is_some() || self.further(&report.status).is_some() {
            return None;
        }
        let producer = report.status.waits_for()?;
        self.shards.get(producer.shard.0 as usize)?.get(producer.stage.0 as usize)
    }

    /// The watermark of the stage that another one waits for, where it is more than what that one has heard.
    fn further(&self, status: &StageStatus) -> Option<Timestamp> {
        let producer = status.waits_for()?;
        let report = self.shards.get(producer.shard.0 as usize)?.get(producer.stage.0 as usize)?;
        Some(report.status.output_watermark).filter(|watermark| *watermark > producer.watermark)
    }

    /// What holds, and then what waits for that, a line each.
    pub fn words(&self, times: &dyn Times) -> String {
        let (waiting, holding): (Vec<_>, Vec<_>) = self.incomplete().partition(|(_, report)| self.waits_for(report).is_some());
        let mut text = String::new();
        for (title, reports) in [("what holds:", holding), ("what waits for that:", waiting)] {
            if !reports.is_empty() {
                text += title;
                reports.iter().for_each(|(shard, report)| text += &format!("\n  {}", self.line(*shard, report, times)));
                text.push('\n');
            }
        }
        text
    }
}

impl Work {
    /// What is being done, by whom and for how long.
    fn words(&self, now_ms: i64) -> String {
        let since = span(now_ms - self.since_ms);
        match &self.activity {
            Activity::Bundle { bundle, items, row, worker, silent_ms } => {
                let at = row.map_or(String::new(), |row| format!(", at row {row}"));
                let runs = worker.as_ref().map_or("runs".to_owned(), |worker| format!("is in the hands of {worker}"));
                let silent = match *silent_ms {
                    ..SILENT_MS => String::new(),
                    ms => format!(", but there was no answer for {}", span(i64::try_from(ms).unwrap_or(i64::MAX))),
                };
                format!("{bundle} (rows or timers: {items}{at}) {runs} for {since}{silent}")
            }
            Activity::Commit { bundle, tries } => {
                format!("the commit of {bundle} waits for the storage for {since}, tries: {tries}")
            }
            Activity::Aside { name } => format!("waits for the answer of {name} for {since}"),
        }
    }
}

impl fmt::Display for JobReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.words(&Plain))
    }
}

/// A span in milliseconds as people say it: in the one or two largest units that it has.
pub fn span(ms: i64) -> String {
    let ms = ms.max(0);
    let seconds = ms / 1_000;
    match seconds {
        0..10 => format!("{}.{} s", seconds, ms % 1_000 / 100),
        10..120 => format!("{seconds} s"),
        120..7_200 => format!("{} min {} s", seconds / 60, seconds % 60),
        7_200..172_800 => format!("{} h {} min", seconds / 3_600, seconds / 60 % 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds / 3_600 % 24),
    }
}

#[cfg(test)]
mod tests {
    use super::span;

    #[test]
    fn spans_as_people_read_them() {
        let spans = [-1, 0, 1_250, 10_999, 119_999, 120_000, 7_199_000, 7_260_000, 200_000_000].map(span);
        let expected = ["0.0 s", "0.0 s", "1.2 s", "10 s", "119 s", "2 min 0 s", "119 min 59 s", "2 h 1 min", "2 d 7 h"];
        assert_eq!(spans, expected);
    }
}
