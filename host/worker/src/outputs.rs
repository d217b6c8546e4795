//! Collects a bundle's output: routes rows to shards, cuts batches, and hands them on before they fill the memory.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::batch::Row;
use model::{Batch, BatchBuilder, Coder, ShardId, StageId, Timestamp};

use crate::{Error, StageSpec};

/// How the rows of a collection find the shard that reads them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Routing {
    /// They stay on the shard that made them.
    Local,
    /// The hash of the encoded key decides.
    ByKey,
    /// Evenly, row by row.
    RoundRobin,
    /// Every shard reads them.
    Broadcast,
}

/// Where a cut batch goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Target {
    /// One shard.
    Shard(ShardId),
    /// All of them.
    Broadcast,
}

/// A batch of output for one reader.
#[derive(Debug)]
pub struct Output {
    /// The reading stage, or the writing stage for side inputs: [`crate::Delivery::stage`].
    pub stage: StageId,
    /// [`crate::Delivery::input`].
    pub input: u32,
    /// Where it goes.
    pub target: Target,
    /// The earliest event time in it, or the earliest last timestamp of a window where that is before: an SDK may put elements
    /// behind the end of their window, and they must not be late for it when they are read.
    pub min_timestamp: Timestamp,
    /// The last timestamp of the latest window in it.
    pub window_end: Timestamp,
    /// The rows, as the stager returned them.
    pub payload: Payload,
}

/// What the stager made of a batch; opaque to workers.
pub type Payload = Box<dyn std::any::Any + Send>;

/// Takes finished batches out of a bundle's memory. Called on whatever thread collects the output.
pub type Stager = Arc<dyn Fn(Batch) -> Result<Payload, Error> + Send + Sync>;

/// A batch is cut at this many bytes of values ...
pub const BATCH_BYTES: usize = 256 * 1024;
/// ... or at this many rows.
pub const BATCH_ROWS: usize = 32 * 1024;

/// Hashes an encoded key; the same everywhere and for ever, since partitions of durable logs depend on it (FNV-1a, then mixed).
pub fn key_hash(key: &[u8]) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325u64;
    for byte in key {
        hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    hash ^= hash >> 32;
    hash = hash.wrapping_mul(0xd6e8_feb8_6659_fd93);
    hash ^ hash >> 32
}

/// The shard of an encoded key among `shards`.
pub fn shard_of(key: &[u8], shards: u32) -> ShardId {
    ShardId((key_hash(key) % u64::from(shards)) as u32)
}

/// Where a bundle's rows go: one per bundle.
pub struct Outputs {
    sinks: Vec<SinkOutputs>,
    stager: Stager,
    finished: Vec<Output>,
    bytes: Arc<std::sync::atomic::AtomicU64>,
}

struct SinkOutputs {
    coder: Coder,
    window_coder: model::WindowCoder,
    lanes: Vec<Lane>,
}

/// All readers of a sink that want their rows routed alike share one lane, and so one copy of the rows.
struct Lane {
    routing: Routing,
    per_window: bool,
    readers: Vec<(StageId, u32)>,
    targets: Vec<Target>,
    slots: Vec<LaneSlot>,
    /// For lanes that keep windows apart: the slot of each window set and target.
    by_window: BTreeMap<Vec<u8>, Vec<Option<usize>>>,
    next: usize,
}

struct LaneSlot {
    target: Target,
    builder: BatchBuilder,
}

/// What [`Outputs`] needs to know of the job.
#[derive(Clone)]
pub struct OutputOptions {
    /// Shards of the job.
    pub shards: u32,
    /// The shard whose bundle this is.
    pub shard: ShardId,
    /// Where round-robin begins, so that small bundles spread too.
    pub first: u32,
    /// Takes finished batches.
    pub stager: Stager,
}

impl Outputs {
    /// A collector for one bundle of `spec`.
    pub fn new(spec: &StageSpec, options: OutputOptions) -> Self {
        let sinks = spec.sinks.iter().map(|sink| SinkOutputs::new(sink, &options)).collect();
        Outputs { sinks, stager: options.stager, finished: Vec::new(), bytes: Arc::default() }
    }

    /// Whether nobody reads any output of the stage.
    pub fn is_nowhere(&self) -> bool {
        self.sinks.is_empty()
    }

    /// Bytes of values collected so far, readable while the bundle runs.
    pub fn bytes(&self) -> Arc<std::sync::atomic::AtomicU64> {
        self.bytes.clone()
    }

    /// Takes one row for a sink (an index into [`StageSpec::sinks`]). The row's columns must be well-formed: routing by key
    /// reads the key, and fails when it cannot.
    #[inline]
    pub fn push(&mut self, sink: usize, row: Row<'_>) -> Result<(), Error> {
        let outputs = &mut self.sinks[sink];
        self.bytes.fetch_add(row.value.len() as u64, std::sync::atomic::Ordering::Relaxed);
        let mut full = false;
        for lane in &mut outputs.lanes {
            let slot = lane.slot(&outputs.coder, &row)?;
            let builder = &mut lane.slots[slot].builder;
            builder.push(row);
            full |= builder.value_bytes() >= BATCH_BYTES || builder.rows() >= BATCH_ROWS;
        }
        if full { self.cut(sink, false) } else { Ok(()) }
    }

    /// Takes all rows of a batch for a sink; rows that need no routing are passed on without a copy.
    pub fn push_batch(&mut self, sink: usize, batch: &Batch) -> Result<(), Error> {
        let whole = self.sinks[sink].lanes.iter().all(Lane::takes_whole_batches);
        if !whole {
            return batch.iter().try_for_each(|row| self.push(sink, row));
        }
        self.bytes.fetch_add(batch.value_bytes() as u64, std::sync::atomic::Ordering::Relaxed);
        if batch.value_bytes() < BATCH_BYTES / 4 && batch.rows() < BATCH_ROWS / 4 {
            return self.add_small(sink, batch);
        }
        self.cut(sink, true)?;
        let outputs = &self.sinks[sink];
        for lane in &outputs.lanes {
            emit(&mut self.finished, &self.stager, outputs.window_coder, lane, lane.slots[0].target, batch)?;
        }
        Ok(())
    }

    /// Takes a batch that is better copied than passed on by itself, for lanes that need no routing.
    fn add_small(&mut self, sink: usize, batch: &Batch) -> Result<(), Error> {
        let mut full = false;
        for lane in &mut self.sinks[sink].lanes {
            let builder = &mut lane.slots[0].builder;
            builder.push_batch(batch);
            full |= builder.value_bytes() >= BATCH_BYTES || builder.rows() >= BATCH_ROWS;
        }
        if full { self.cut(sink, false) } else { Ok(()) }
    }

    /// Everything collected, as batches in order per target.
    pub fn finish(mut self) -> Result<Vec<Output>, Error> {
        for sink in 0..self.sinks.len() {
            self.cut(sink, true)?;
        }
        Ok(self.finished)
    }

    fn cut(&mut self, sink: usize, all: bool) -> Result<(), Error> {
        let window_coder = self.sinks[sink].window_coder;
        for lane in &mut self.sinks[sink].lanes {
            for slot in 0..lane.slots.len() {
                let builder = &mut lane.slots[slot].builder;
                let full = builder.value_bytes() >= BATCH_BYTES || builder.rows() >= BATCH_ROWS;
                if builder.is_empty() || !(all || full) {
                    continue;
                }
                let batch = builder.finish();
                emit(&mut self.finished, &self.stager, window_coder, lane, lane.slots[slot].target, &batch)?;
            }
            if lane.per_window {
                lane.slots.clear();
                lane.by_window.clear();
            }
        }
        Ok(())
    }
}

fn emit(
    finished: &mut Vec<Output>,
    stager: &Stager,
    window_coder: model::WindowCoder,
    lane: &Lane,
    target: Target,
    batch: &Batch,
) -> Result<(), Error> {
    let ends = window_ends(batch, window_coder).map_err(malformed)?;
    let (earliest_end, window_end) = ends.unwrap_or((Timestamp::MAX, Timestamp::MIN));
    for (stage, input) in &lane.readers {
        finished.push(Output {
            stage: *stage,
            input: *input,
            target,
            min_timestamp: batch.min_timestamp().min(earliest_end),
            window_end,
            payload: stager(batch.clone())?,
        });
    }
    Ok(())
}

/// The last timestamp of the latest window of any row; MIN without rows.
pub fn window_end(batch: &Batch, window_coder: model::WindowCoder) -> Result<Timestamp, model::DecodeError> {
    Ok(window_ends(batch, window_coder)?.map_or(Timestamp::MIN, |(_, latest)| latest))
}

/// The last timestamps of the window that ends first and of the one that ends last; none without windows.
fn window_ends(batch: &Batch, window_coder: model::WindowCoder) -> Result<Option<(Timestamp, Timestamp)>, model::DecodeError> {
    let mut ends: Option<(Timestamp, Timestamp)> = None;
    for set in batch.windows().entries() {
        for window in window_coder.windows_of(set)? {
            let end = window_coder.max_timestamp(window)?;
            ends = Some(ends.map_or((end, end), |(first, last)| (first.min(end), last.max(end))));
        }
    }
    Ok(ends)
}

fn malformed(error: model::DecodeError) -> Error {
    Error::Protocol(format!("malformed output element: {error}"))
}

impl SinkOutputs {
    fn new(sink: &crate::SinkSpec, options: &OutputOptions) -> Self {
        let mut lanes: Vec<Lane> = Vec::new();
        for delivery in &sink.deliveries {
            let reader = (delivery.stage, delivery.input);
            let alike = |lane: &&mut Lane| lane.routing == delivery.routing && lane.per_window == delivery.per_window;
            match lanes.iter_mut().find(alike) {
                Some(lane) => lane.readers.push(reader),
                None => lanes.push(Lane::new(delivery, reader, options)),
            }
        }
        SinkOutputs { coder: sink.port.coder.clone(), window_coder: sink.port.window_coder, lanes }
    }
}

impl Lane {
    fn new(delivery: &crate::Delivery, reader: (StageId, u32), options: &OutputOptions) -> Self {
        let targets: Vec<Target> = match delivery.routing {
            Routing::Local => vec![Target::Shard(options.shard)],
            Routing::Broadcast => vec![Target::Broadcast],
            Routing::ByKey | Routing::RoundRobin => (0..options.shards).map(|shard| Target::Shard(ShardId(shard))).collect(),
        };
        let slots = if delivery.per_window { Vec::new() } else { targets.iter().map(|target| LaneSlot::new(*target)).collect() };
        let next = options.first as usize % targets.len();
        Lane {
            routing: delivery.routing,
            per_window: delivery.per_window,
            readers: vec![reader],
            targets,
            slots,
            by_window: BTreeMap::new(),
            next,
        }
    }

    fn takes_whole_batches(&self) -> bool {
        !self.per_window && matches!(self.routing, Routing::Local | Routing::Broadcast)
    }

    #[inline]
    fn slot(&mut self, coder: &Coder, row: &Row<'_>) -> Result<usize, Error> {
        let target = match self.routing {
            Routing::Local | Routing::Broadcast => 0,
            Routing::ByKey => {
                let length = coder.key_len(row.value).map_err(malformed)?;
                (key_hash(&row.value[..length]) % self.targets.len() as u64) as usize
            }
            Routing::RoundRobin => {
                self.next = (self.next + 1) % self.targets.len();
                self.next
            }
        };
        Ok(if self.per_window { self.window_slot(target, row.windows) } else { target })
    }

    fn window_slot(&mut self, target: usize, windows: &[u8]) -> usize {
        if !self.by_window.contains_key(windows) {
            self.by_window.insert(windows.to_vec(), vec![None; self.targets.len()]);
        }
        let slots = self.by_window.get_mut(windows).expect("it was added above");
        *slots[target].get_or_insert_with(|| {
            self.slots.push(LaneSlot::new(self.targets[target]));
            self.slots.len() - 1
        })
    }
}

impl LaneSlot {
    fn new(target: Target) -> Self {
        LaneSlot { target, builder: BatchBuilder::new() }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use model::window::IntervalWindow;
    use model::{Duration, EnvironmentId, WindowCoder, pane, window};

    use super::*;
    use crate::{Delivery, PortSpec, SinkSpec};

    fn spec() -> StageSpec {
        let port = || PortSpec {
            transform: "port".into(),
            collection: "collection".to_owned(),
            coder: Coder::Bytes,
            window_coder: WindowCoder::Interval,
        };
        let delivery = Delivery { stage: StageId(1), input: 0, routing: Routing::Local, per_window: false };
        StageSpec {
            stage: StageId(0),
            name: "stage".to_owned(),
            environment: EnvironmentId(0),
            transforms: Vec::new(),
            descriptor: bytes::Bytes::new(),
            source: port(),
            sinks: vec![SinkSpec { port: port(), deliveries: vec![delivery] }],
            timer_families: Vec::new(),
            splittable: false,
        }
    }

    /// Rows of a time in a window of ten milliseconds from a start on; the output holds at `hold` and its windows end at `end`.
    fn check(rows: &[(i64, i64)], hold: i64, end: i64) {
        let stager: Stager = Arc::new(|batch| Ok(Box::new(batch)));
        let mut outputs = Outputs::new(&spec(), OutputOptions { shards: 1, shard: ShardId(0), first: 0, stager });
        for (time, start) in rows {
            let start = Timestamp::from_millis(*start);
            let mut bytes = Vec::new();
            IntervalWindow { start, end: start.plus(Duration(10)) }.encode(&mut bytes);
            let timestamp = Timestamp::from_millis(*time);
            let row = Row { value: &[0], timestamp, windows: &window::single(&bytes), pane: pane::NO_FIRING };
            outputs.push(0, row).expect("the row is well formed");
        }
        let outputs = outputs.finish().expect("the rows are well formed");
        assert_eq!(outputs.len(), 1);
        let times = (outputs[0].min_timestamp, outputs[0].window_end);
        assert_eq!(times, (Timestamp::from_millis(hold), Timestamp::from_millis(end)));
    }

    #[test]
    fn elements_behind_the_end_of_their_window_hold_at_that_end() {
        check(&[(3, 0)], 3, 9);
        check(&[(13, 10), (25, 20)], 13, 29);
        check(&[(10, 0)], 9, 9);
        check(&[(30, 20), (27, 20)], 27, 29);
        check(&[(30, 20), (35, 30)], 29, 39);
    }
}
