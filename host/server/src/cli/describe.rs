//! `purlin jobs describe`: one job in full, a line per stage, what holds it, and what its user code counts.

use std::io::Write;

use model::Timestamp;
use proto::inspect::{Description, Hold, StageStatus};
use proto::job::MetricResults;

use super::jobs::{printable, state_name, write_message};
use super::table::{Side, table};
use super::{figures, user_metrics};

/// Shards that are told of besides the slowest of each stage.
const HOLDS_MAX: usize = 40;

/// Writes a description.
pub(super) fn write(description: &Description, metrics: &MetricResults, out: &mut dyn Write) -> anyhow::Result<()> {
    let job = description.job.clone().unwrap_or_default();
    let age = figures::age(job.ended_ms.unwrap_or(description.now_ms) - job.submitted_ms);
    let (name, state) = (printable(&job.job_name), state_name(job.state));
    writeln!(out, "{}  {name}  {state}  {age}  shards {}", job.job_id, description.shards)?;
    if !description.stages.is_empty() {
        write!(out, "{}", stages(description))?;
    }
    for more in [holds(description), user_metrics::shown(metrics)].iter().filter(|text| !text.is_empty()) {
        write!(out, "\n{more}")?;
    }
    description.problems.iter().try_for_each(|message| write_message(message, out))
}

fn stages(description: &Description) -> String {
    let columns = [
        ("stage", Side::Left),
        ("in", Side::Right),
        ("in/s", Side::Right),
        ("out", Side::Right),
        ("out/s", Side::Right),
        ("backlog", Side::Right),
        ("input wm", Side::Left),
        ("output wm", Side::Left),
        ("since", Side::Right),
        ("held by", Side::Left),
    ];
    let row = |stage: &StageStatus| {
        let shard = (description.shards > 1 && !stage.held_by.is_empty()).then(|| format!("shard {}: ", stage.slowest_shard));
        vec![
            format!("{} {}", stage.stage, printable(&stage.name)),
            figures::count(stage.rows_in),
            figures::count(stage.rows_in_per_second.round() as u64),
            figures::count(stage.rows_out),
            figures::count(stage.rows_out_per_second.round() as u64),
            figures::count(stage.backlog),
            figures::watermark(stage.input_watermark_ms, description.now_ms),
            figures::watermark(stage.output_watermark_ms, description.now_ms),
            since(description, stage.output_watermark_ms, stage.since_ms),
            format!("{}{}", shard.unwrap_or_default(), printable(&stage.held_by)),
        ]
    };
    table(&columns, &description.stages.iter().map(row).collect::<Vec<_>>())
}

/// What holds on other shards than the slowest of each stage; nothing if nothing does.
fn holds(description: &Description) -> String {
    let slowest = |stage: &StageStatus, hold: &Hold| hold.shard == stage.slowest_shard;
    let others = description.stages.iter().flat_map(|stage| stage.holds.iter().map(move |hold| (stage, hold)));
    let others: Vec<_> = others.filter(|(stage, hold)| !slowest(stage, hold)).collect();
    if others.is_empty() {
        return String::new();
    }
    let columns = [
        ("stage", Side::Left),
        ("shard", Side::Right),
        ("output wm", Side::Left),
        ("since", Side::Right),
        ("also held by", Side::Left),
    ];
    let row = |(stage, hold): &(&StageStatus, &Hold)| {
        vec![
            format!("{} {}", stage.stage, printable(&stage.name)),
            hold.shard.to_string(),
            figures::watermark(hold.output_watermark_ms, description.now_ms),
            since(description, hold.output_watermark_ms, hold.since_ms),
            printable(&hold.held_by),
        ]
    };
    let shown = table(&columns, &others.iter().take(HOLDS_MAX).map(row).collect::<Vec<_>>());
    match others.len().saturating_sub(HOLDS_MAX) {
        0 => shown,
        more => format!("{shown} and {more} more\n"),
    }
}

/// For how long a watermark has stood while the job runs.
fn since(description: &Description, watermark_ms: i64, since_ms: i64) -> String {
    let ended = description.job.as_ref().is_none_or(|job| job.ended_ms.is_some());
    let is_over = ended || watermark_ms >= Timestamp::GLOBAL_WINDOW_END.millis();
    if is_over { "-".into() } else { figures::age(description.now_ms - since_ms) }
}
