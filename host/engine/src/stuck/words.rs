//! How a stage's status is told: in one line, with times as the reader wants them.

use std::fmt;

use model::{TimeDomain, Timestamp};

use super::{Due, HeldBy, HeldRows, Origin, Producer, RowsWait, StageStatus, shortened};
use crate::grouping::Summary;

/// How times are spelled.
pub trait Times {
    /// A time of event time.
    fn event(&self, time: Timestamp) -> String;
    /// A time of processing time, in milliseconds since the epoch.
    fn clock(&self, ms: i64) -> String;
}

/// Times are numbers of milliseconds.
pub struct Plain;

impl Times for Plain {
    fn event(&self, time: Timestamp) -> String {
        time.to_string()
    }

    fn clock(&self, ms: i64) -> String {
        format!("{ms} ms of processing time")
    }
}

impl StageStatus {
    /// The stage's watermarks, what it has, and what holds it.
    pub fn words(&self, times: &dyn Times) -> String {
        let (input, output) = (times.event(self.input_watermark), times.event(self.output_watermark));
        format!("{} \"{}\": input {input}, output {output}{}; {}", self.stage, self.name, self.has(), self.held(times))
    }

    /// What holds its output watermark, and where that depends on its input, what holds that.
    pub fn held(&self, times: &dyn Times) -> String {
        let held_by = self.held_by.words(times);
        let input = &self.input_held_by;
        match self.waits_for_input() && *input != HeldBy::Nothing {
            true => format!("{held_by}; its input {}", input.words(times)),
            false => held_by,
        }
    }

    /// What it has, each part behind a comma.
    pub fn has(&self) -> String {
        let mut text = String::new();
        if self.pending_entries > 0 {
            text += &format!(", pending rows: {} ({} bytes)", self.pending_rows, self.pending_bytes);
        }
        if self.gated_entries > 0 {
            text += &format!(", entries that wait for side inputs: {}", self.gated_entries);
        }
        if self.delayed_entries > 0 {
            text += &format!(", entries that wait for their time: {}", self.delayed_entries);
        }
        if let Some((bundle, rows)) = self.in_flight {
            text += &format!(", {bundle} in flight (rows: {rows})");
        }
        if let Some(Summary { windows, rows, bytes }) = self.groups.filter(|groups| groups.windows > 0) {
            text += &format!(", open windows: {windows} (rows: {rows}, {bytes} bytes)");
        }
        if self.dropped_rows > 0 {
            text += &format!(", dropped rows: {}", self.dropped_rows);
        }
        text
    }
}

impl HeldBy {
    /// What holds, and at which time.
    pub fn words(&self, times: &dyn Times) -> String {
        let held = |hold: &Timestamp| format!("held at {} by", times.event(*hold));
        match self {
            HeldBy::Nothing => "complete".to_owned(),
            HeldBy::Rows(HeldRows { origin, hold, wait, .. }) => {
                format!("{} rows {}, which {}", held(hold), origin.words(), wait.words(times))
            }
            HeldBy::Window { hold, end } => format!("{} a window that ends at {}", held(hold), times.event(*end)),
            HeldBy::Key { hold, key, due } => format!("{} key {key}, which has {}", held(hold), due.words(times)),
            HeldBy::Script { watermark } => {
                let at = times.event(*watermark);
                format!("waits for its TestStream, which is at {at} and goes on when nothing else can happen")
            }
            HeldBy::Upstream(producer) => format!("waits for {}", producer.words(times)),
        }
    }
}

impl Origin {
    fn words(&self) -> String {
        match self {
            Origin::Outside => "from outside".to_owned(),
            Origin::Residual => "left of a restriction".to_owned(),
            Origin::Stage { stage, name, shard } => format!("of {stage} \"{}\" on {shard}", shortened(name)),
        }
    }
}

impl RowsWait {
    fn words(&self, times: &dyn Times) -> String {
        match self {
            RowsWait::Turn => "wait for their turn".to_owned(),
            RowsWait::More => "wait for all that comes with them".to_owned(),
            RowsWait::Backlog => "wait until less is pending below".to_owned(),
            RowsWait::Until { not_before_ms } => format!("wait until {}", times.clock(*not_before_ms)),
            RowsWait::Bundle(bundle) => format!("are in {bundle}"),
            RowsWait::Commit(bundle) => format!("were in {bundle}, which is not committed"),
            RowsWait::SideInput { name, window_end, required, producer } => {
                let window = format!("for a window that ends at {}", times.event(*window_end));
                let text = format!("wait for side input {name} to pass {} {window}", times.event(*required));
                producer.iter().fold(text, |text, producer| format!("{text}: for {}", producer.words(times)))
            }
        }
    }
}

impl Due {
    fn words(&self, times: &dyn Times) -> String {
        match self {
            Due::Row { time } => format!("a row that waits to be sorted until {}", times.event(*time)),
            Due::Timer { family, domain: TimeDomain::Event, time } => format!("timer \"{family}\" at {}", times.event(*time)),
            Due::Timer { family, domain: TimeDomain::Processing, time } => {
                format!("timer \"{family}\" at {}", times.clock(time.millis()))
            }
            Due::Expiry { time } => format!("its window, which expires at {}", times.event(*time)),
        }
    }
}

impl Producer {
    fn words(&self, times: &dyn Times) -> String {
        let (name, at) = (shortened(&self.name), times.event(self.watermark));
        format!("{} \"{name}\" on {}, which is at {at}", self.stage, self.shard)
    }
}

impl fmt::Display for StageStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.words(&Plain))
    }
}

impl fmt::Display for HeldBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.words(&Plain))
    }
}
