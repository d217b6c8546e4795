//! How many rows a second the stages of a job take and give, over the last seconds.

use model::StageId;

use crate::run::StageStatus;

/// How often samples are taken, in milliseconds.
pub const SAMPLE_INTERVAL_MS: u64 = 2_000;

/// Rows a second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rate {
    /// Consumed.
    pub rows_in: f64,
    /// Produced.
    pub rows_out: f64,
}

/// The latest sample of a job and the rates between it and the one before.
#[derive(Clone, Debug, Default)]
pub struct Rates {
    at_ms: i64,
    counts: Vec<(u64, u64)>,
    rates: Vec<Rate>,
}

impl Rates {
    /// Takes a sample; the first one gives no rates.
    pub fn sample(&mut self, now_ms: i64, stages: &[StageStatus]) {
        let counts: Vec<_> = stages.iter().map(|stage| (stage.rows_in, stage.rows_out)).collect();
        let seconds = (now_ms - self.at_ms) as f64 / 1_000.0;
        if self.counts.len() == counts.len() && seconds > 0.0 {
            let rate = |now: u64, before: u64| now.saturating_sub(before) as f64 / seconds;
            let pairs = counts.iter().zip(&self.counts);
            self.rates = pairs.map(|(now, old)| Rate { rows_in: rate(now.0, old.0), rows_out: rate(now.1, old.1) }).collect();
        }
        (self.at_ms, self.counts) = (now_ms, counts);
    }

    /// The rates of a stage, 0 while they are not known.
    pub fn of(&self, stage: StageId) -> Rate {
        self.rates.get(stage.0 as usize).copied().unwrap_or_default()
    }
}
