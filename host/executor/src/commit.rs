//! From finished bundles to one commit.

use bytes::Bytes;
use engine::{Engine, EntryRows};
use ledger::{Append, Commit, Consumed, Destination, JobLedger, Partition, Position, Staged};
use model::{ShardId, StageId, WindowCoder};
use worker::outputs::Target;
use worker::{Outcome, Output, Residual, StageSpec};

use crate::job::Failure;
use crate::overlay::CellSpace;
use crate::running::Finished;

/// Rows of a bundle, for the counters.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// Consumed.
    pub rows_in: u64,
    /// Produced, once per reader.
    pub rows_out: u64,
    /// Bytes produced, once per reader.
    pub bytes_out: u64,
}

/// Adds a finished bundle's effects to `commit`.
pub fn add(
    commit: &mut Commit,
    finished: &mut Finished,
    spec: &StageSpec,
    shard: ShardId,
    engine: &mut Engine,
    ledger: &dyn JobLedger,
    now_ms: i64,
) -> Result<Counts, Failure> {
    let outcome = &mut finished.outcome;
    let consumed = engine.finish(finished.bundle, &outcome.unprocessed);
    let rows_in = consumed.iter().flat_map(|entry| &entry.rows).map(|rows| u64::from(rows.end - rows.start)).sum();
    let mut counts = Counts { rows_in, ..Counts::default() };
    commit.consumed.extend(consumed.into_iter().map(consumption));
    for output in outcome.outputs.drain(..) {
        let append = append_output(output, finished.stage)?;
        counts.rows_out += u64::from(append.payload.rows);
        counts.bytes_out += append.payload.bytes;
        commit.appends.push(append);
    }
    for residual in outcome.residuals.drain(..) {
        commit.appends.push(append_residual(residual, spec, shard, ledger, now_ms)?);
    }
    commit.state.append(&mut finished.writes);
    Ok(counts)
}

/// The cell that keeps the names of a stage's committed metrics, in order.
pub fn metric_names_cell(stage: StageId) -> Bytes {
    metrics_cell(stage, b'n')
}

/// The cell that keeps their values, in the order of the names.
pub fn metric_values_cell(stage: StageId) -> Bytes {
    metrics_cell(stage, b'v')
}

fn metrics_cell(stage: StageId, part: u8) -> Bytes {
    CellSpace::Metrics.cell(&[&stage.0.to_be_bytes()[..], &[part]].concat())
}

/// The engine's position as the ledger's.
pub fn ledger_position(position: engine::Position) -> Position {
    let partition = if position.broadcast { Partition::Broadcast } else { Partition::Own };
    Position { partition, offset: position.offset }
}

fn consumption(entry: EntryRows) -> Consumed {
    Consumed { position: ledger_position(entry.position), rows: entry.rows }
}

fn append_output(output: Output, producer: StageId) -> Result<Append, Failure> {
    let payload = output.payload.downcast::<Staged>().map_err(|_| Failure::internal("an output was staged by a stranger"))?;
    Ok(Append {
        to: match output.target {
            Target::Shard(shard) => Destination::Shard(shard),
            Target::Broadcast => Destination::Broadcast,
        },
        stage: output.stage,
        input: output.input,
        producer,
        payload: *payload,
        hold: output.min_timestamp,
        window_end: output.window_end,
        not_before_ms: None,
    })
}

fn append_residual(
    residual: Residual,
    spec: &StageSpec,
    shard: ShardId,
    ledger: &dyn JobLedger,
    now_ms: i64,
) -> Result<Append, Failure> {
    let window_end = worker::outputs::window_end(&residual.batch, windows(spec))
        .map_err(|error| Failure::internal(format!("malformed residual of {}: {error}", spec.name)))?;
    Ok(Append {
        to: Destination::Shard(shard),
        stage: spec.stage,
        input: 0,
        producer: spec.stage,
        payload: ledger.stage(residual.batch).map_err(Failure::storage)?,
        hold: residual.hold,
        window_end,
        not_before_ms: (residual.delay_ms > 0).then(|| now_ms.saturating_add(residual.delay_ms)),
    })
}

fn windows(spec: &StageSpec) -> WindowCoder {
    spec.source.window_coder
}

/// Whether what a worker left undone makes sense: of `rows` rows of input, and with residuals only where the stage is
/// splittable.
pub fn plausible(outcome: &Outcome, rows: usize, splittable: bool) -> bool {
    let mut last = 0;
    let sane = outcome.unprocessed.iter().all(|range| {
        let sane = range.start >= last && range.start < range.end && range.end <= rows;
        last = range.end;
        sane
    });
    sane && (splittable || outcome.residuals.is_empty())
}
