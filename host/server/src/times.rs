//! Times in reports of what holds a job, as people read them beside a clock.

use engine::Times;
use executor::report::span;
use model::Timestamp;
use server::cli::figures;

/// Spelled beside this point in time, in milliseconds since the epoch.
pub(crate) struct Spelled {
    /// The point in time.
    pub(crate) now_ms: i64,
}

impl Times for Spelled {
    fn event(&self, time: Timestamp) -> String {
        match time {
            Timestamp::MIN | Timestamp::GLOBAL_WINDOW_END | Timestamp::MAX => time.to_string(),
            time => figures::moment(time.millis(), self.now_ms),
        }
    }

    fn clock(&self, ms: i64) -> String {
        let moment = figures::moment(ms, self.now_ms);
        if ms > self.now_ms {
            format!("{moment} by the clock, in {}", span(ms - self.now_ms))
        } else {
            format!("{moment} by the clock")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_beside_a_clock() {
        let times = Spelled { now_ms: 1_796_111_104_000 };
        let events = [Timestamp::MIN, Timestamp::MAX, Timestamp::from_millis(1_796_111_104_250), Timestamp::from_millis(5_000)];
        assert_eq!(events.map(|time| times.event(time)), ["MIN", "MAX", "07:45:04.250", "1970-01-01 00:00:05"]);
        assert_eq!(times.clock(1_796_111_142_000), "07:45:42 by the clock, in 38 s");
        assert_eq!(times.clock(1_796_111_104_000), "07:45:04 by the clock");
    }
}
