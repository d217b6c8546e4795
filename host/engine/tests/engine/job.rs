//! A whole job in miniature: engines of all shards, a log between them, and a naive model beside each engine.
//!
//! Every consumed row makes one row in every reader, at its own time or later, up to a number of rows. Checked is at every step
//! that each engine decides as its model does, that every row is consumed once, and that no row ever arrives behind a
//! watermark (unless the job makes late rows on purpose).

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::ops::Range;

use bytes::Bytes;
use engine::grouping::NoMerger;
use engine::{Engine, Entry, EntryRows, Head, Options, Position, Topology, Work};
use model::{BundleId, Duration, ShardId, StageId, Timestamp};

use crate::cells::{self, Cells, Overlay};
use crate::dice::Dice;
use crate::naive::{Absorbed, Logged, Naive, ROW_BYTES, Row, RowState};
use crate::rows::{self, Pane};

/// Size of all windows.
pub(crate) const WINDOW_MS: i64 = 10;
/// Residuals of one job, at most.
const RESIDUALS_MAX: usize = 40;
/// Rows of one job, at most, so that diamonds in a row do not multiply them beyond reason.
const ROWS_MAX: usize = 150;

#[derive(Debug)]
enum Arrival {
    Entry(u64, Logged),
    Report(StageId, ShardId, Timestamp),
}

struct Running {
    work: Work,
    panes: Vec<Pane>,
    writes: BTreeMap<Bytes, Option<Bytes>>,
    input_watermark: Timestamp,
}

struct Shard {
    engine: Engine,
    naive: Naive,
    /// Everything that was committed for this shard.
    log: Vec<Arrival>,
    delivered: usize,
    running: BTreeMap<BundleId, Running>,
    cells: Cells,
    /// What each stage has promised so far.
    promised: BTreeMap<StageId, Timestamp>,
    /// What grouping stages go on from after a restart.
    grouped_at: BTreeMap<StageId, Timestamp>,
    passed_over: BTreeMap<StageId, usize>,
}

/// See the file's head.
pub(crate) struct Job {
    topology: Topology,
    options: Options,
    shards: Vec<Shard>,
    dice: Dice,
    late_rows: bool,
    now_ms: i64,
    residuals_left: usize,
    rows_left: usize,
    next_offset: u64,
    /// All decisions, in words.
    pub(crate) trace: String,
}

impl Job {
    pub(crate) fn new(topology: Topology, options: Options, dice: Dice, late_rows: bool) -> Self {
        let shard = |index: u32| {
            let topology = Topology { shard: ShardId(index), ..topology.clone() };
            Shard {
                engine: Engine::new(topology.clone(), options.clone()),
                naive: Naive::new(topology, options.clone()),
                log: Vec::new(),
                delivered: 0,
                running: BTreeMap::new(),
                cells: Cells::new(),
                promised: BTreeMap::new(),
                grouped_at: BTreeMap::new(),
                passed_over: BTreeMap::new(),
            }
        };
        let shards = (0..topology.shards).map(shard).collect();
        Job {
            topology,
            options,
            shards,
            dice,
            late_rows,
            now_ms: 0,
            residuals_left: RESIDUALS_MAX,
            rows_left: ROWS_MAX,
            next_offset: 0,
            trace: String::new(),
        }
    }

    /// Initial entries of stages without producers, before anything runs.
    pub(crate) fn begin(&mut self) {
        for (stage, shape) in (0u32..).map(StageId).zip(self.topology.stages.clone()) {
            if shape.inputs.is_empty() {
                for _ in 0..self.dice.below(4) {
                    let shard = self.dice.below(self.shards.len());
                    let rows = (0..=self.dice.below(4)).map(|_| Timestamp::from_millis(self.dice.between(0, 60))).collect();
                    self.append(shard, stage, rows, None);
                }
            }
        }
        (0..self.shards.len()).for_each(|shard| self.deliver(shard, usize::MAX));
    }

    /// Something happens.
    pub(crate) fn step(&mut self) {
        let shard = self.dice.below(self.shards.len());
        match self.dice.below(100) {
            0..25 => {
                let arrivals = self.dice.between(1, 8) as usize;
                self.deliver(shard, arrivals);
            }
            25..60 => self.next(shard),
            60..80 => self.end(shard, true),
            80..86 => self.end(shard, false),
            86..94 => self.report(shard),
            94..96 => self.script(shard),
            96..99 => self.now_ms += self.dice.between(0, 30),
            _ => self.restart(shard),
        }
    }

    /// Everything happens that can, until the job is done.
    pub(crate) fn complete(&mut self) {
        for shard in 0..self.shards.len() {
            self.deliver(shard, usize::MAX);
            self.end_scripts(shard);
        }
        for _ in 0..100_000 {
            let before = self.trace.len();
            for shard in 0..self.shards.len() {
                self.deliver(shard, usize::MAX);
                self.next(shard);
                self.end(shard, true);
                self.report(shard);
            }
            if self.shards.iter().all(|shard| shard.engine.finished() && shard.delivered == shard.log.len()) {
                return self.check_complete();
            }
            if self.trace.len() == before {
                let wake = self.shards.iter().filter_map(|shard| shard.engine.wake_at_ms()).min();
                self.now_ms = wake.filter(|ms| *ms > self.now_ms).unwrap_or_else(|| panic!("stuck: {}", self.status()));
            }
        }
        panic!("the job does not end: {}", self.status());
    }

    pub(crate) fn status(&self) -> String {
        let lines = self.shards.iter().flat_map(|shard| {
            let id = shard.naive.topology.shard;
            shard.engine.status().into_iter().map(move |stage| format!("\n{id} {stage}"))
        });
        lines.collect()
    }

    fn check_complete(&self) {
        for shard in &self.shards {
            assert!(shard.engine.idle() && shard.engine.wake_at_ms().is_none(), "{}", self.status());
            assert!(shard.naive.entries.is_empty(), "rows are left: {}", self.status());
            assert!(shard.naive.absorbed.values().all(|rows| rows.is_empty()), "groups are left: {}", self.status());
        }
    }

    fn deliver(&mut self, shard: usize, arrivals: usize) {
        let late_rows = self.late_rows;
        let Shard { engine, naive, log, delivered, .. } = &mut self.shards[shard];
        for arrival in log[*delivered..].iter().take(arrivals) {
            match arrival {
                Arrival::Report(stage, shard, watermark) => {
                    naive.reports.insert((*stage, *shard), *watermark);
                    engine.watermark(*stage, *shard, *watermark);
                }
                Arrival::Entry(offset, logged) => {
                    let input = naive.inputs[logged.stage.0 as usize];
                    let on_time = logged.rows.iter().all(|row| row.timestamp >= input);
                    assert!(late_rows || on_time, "entry {offset} {logged:?} arrives behind {input}");
                    naive.entries.insert(*offset, logged.clone());
                    engine.entry(entry(*offset, logged));
                }
            }
            *delivered += 1;
        }
    }

    fn append(&mut self, shard: usize, stage: StageId, times: Vec<Timestamp>, residual: Option<(Timestamp, Option<i64>)>) {
        let window_end = times.iter().map(|time| rows::window_of(*time, WINDOW_MS).max_timestamp()).max().unwrap();
        let (hold, not_before_ms) = residual.unwrap_or((*times.iter().min().unwrap(), None));
        let mut row = |timestamp| Row { timestamp, key: format!("k{}", self.dice.below(3)), state: RowState::Waiting };
        let rows = times.into_iter().map(&mut row).collect();
        let logged = Logged { stage, rows, hold, window_end, not_before_ms };
        self.shards[shard].log.push(Arrival::Entry(self.next_offset, logged));
        self.next_offset += 1;
    }

    /// A script gives a row or comes further.
    fn script(&mut self, shard: usize) {
        let scripts: Vec<_> = self.shards[shard].naive.scripts.clone().into_iter().collect();
        if scripts.is_empty() {
            return;
        }
        let (stage, watermark) = *self.dice.one_of(&scripts);
        let begun = watermark.max(Timestamp::from_millis(0));
        let next = begun.plus(Duration(self.dice.between(0, 10)));
        if self.dice.chance(50) && self.rows_left > 0 && watermark < Timestamp::MAX {
            self.rows_left -= 1;
            return self.append(shard, stage, vec![next], None);
        }
        self.deliver(shard, usize::MAX);
        self.set_script(shard, stage, next);
    }

    fn end_scripts(&mut self, shard: usize) {
        let stages: Vec<_> = self.shards[shard].naive.scripts.keys().copied().collect();
        stages.into_iter().for_each(|stage| self.set_script(shard, stage, Timestamp::MAX));
    }

    fn set_script(&mut self, shard: usize, stage: StageId, watermark: Timestamp) {
        writeln!(self.trace, "shard {shard} script {stage} {watermark}").unwrap();
        let Shard { engine, naive, .. } = &mut self.shards[shard];
        naive.scripts.insert(stage, watermark);
        engine.script_watermark(stage, watermark);
    }

    fn next(&mut self, shard: usize) {
        let now_ms = self.now_ms;
        let Shard { engine, naive, running, cells, passed_over, .. } = &mut self.shards[shard];
        let work = engine.next(now_ms);
        naive.now_ms = now_ms;
        naive.settle();
        check_watermarks(engine, naive);
        let in_flight: Vec<_> = running.values().map(|running| running.work.stage).collect();
        let eligible = naive.eligible(&in_flight);
        let Some(work) = work else {
            assert!(eligible.is_empty(), "nothing runs, but {eligible:?} could");
            return assert_eq!(engine.wake_at_ms(), naive.wake_at_ms(&in_flight));
        };
        writeln!(self.trace, "shard {shard} runs {work:?}").unwrap();
        check_choice(&work, &eligible, passed_over);
        let rows = expand(&work.entries);
        let ready = naive.ready(work.stage);
        assert_eq!(rows, ready[..naive.bundle_rows(work.stage, &ready)], "rows of {}", work.stage);
        set_rows(naive, &rows, RowState::InFlight);
        let input_watermark = naive.inputs[work.stage.0 as usize];
        let mut started = Running { work, panes: Vec::new(), writes: BTreeMap::new(), input_watermark };
        if let Head::Grouping(_) = naive.topology.stages[started.work.stage.0 as usize].head {
            let batches =
                rows::cut(&started.work.entries, |entry| payload(entry.position.offset, &naive.entries[&entry.position.offset]));
            let mut overlay = Overlay::new(cells);
            let panes = engine.group(&started.work, &batches, now_ms, &mut overlay, &mut NoMerger).unwrap();
            started.panes = rows::panes(&panes);
            started.writes = overlay.writes;
        }
        running.insert(started.work.bundle, started);
    }

    /// A bundle succeeds or fails.
    fn end(&mut self, shard: usize, succeeds: bool) {
        let bundles: Vec<_> = self.shards[shard].running.keys().copied().collect();
        if bundles.is_empty() {
            return;
        }
        let bundle = *self.dice.one_of(&bundles);
        writeln!(self.trace, "shard {shard} ends {bundle} {succeeds}").unwrap();
        let running = self.shards[shard].running.remove(&bundle).unwrap();
        let input = expand(&running.work.entries);
        let groups = matches!(self.topology.stages[running.work.stage.0 as usize].head, Head::Grouping(_));
        let unprocessed = if groups { Vec::new() } else { self.some_ranges(input.len()) };
        if !succeeds {
            if self.dice.chance(50) {
                self.shards[shard].engine.finish(bundle, &unprocessed);
            }
            self.shards[shard].engine.failed(bundle);
            return set_rows(&mut self.shards[shard].naive, &input, RowState::Waiting);
        }
        let consumed = expand(&self.shards[shard].engine.finish(bundle, &unprocessed));
        let left = |index: &usize| unprocessed.iter().any(|range| range.contains(index));
        let expected: Vec<_> = (0..input.len()).filter(|index| !left(index)).map(|index| input[index]).collect();
        assert_eq!(consumed, expected, "consumed, with {unprocessed:?} of {input:?} left");
        self.commit(shard, running, &consumed);
        // Entries for this very shard arrive before the engine hears of the commit.
        self.deliver(shard, usize::MAX);
        self.shards[shard].engine.committed(bundle);
        set_rows(&mut self.shards[shard].naive, &input, RowState::Waiting);
        set_rows(&mut self.shards[shard].naive, &consumed, RowState::Consumed);
        let left = |entry: &Logged| entry.rows.iter().any(|row| row.state != RowState::Consumed);
        self.shards[shard].naive.entries.retain(|_, entry| left(entry));
    }

    fn commit(&mut self, shard: usize, running: Running, consumed: &[(u64, u32)]) {
        let stage = running.work.stage;
        let Shard { naive, cells, grouped_at, .. } = &mut self.shards[shard];
        let row = |(offset, row): &(u64, u32)| naive.entries[offset].rows[*row as usize].clone();
        let rows: Vec<_> = consumed.iter().map(row).collect();
        if let Head::Grouping(_) = naive.topology.stages[stage.0 as usize].head {
            cells::commit(cells, running.writes);
            grouped_at.insert(stage, running.input_watermark);
            let absorbed = naive.absorbed.entry(stage).or_default();
            for ((offset, index), row) in consumed.iter().zip(&rows) {
                let window = rows::window_of(row.timestamp, WINDOW_MS);
                if window.max_timestamp() >= running.input_watermark {
                    absorbed.insert(format!("{offset}.{index}"), Absorbed { key: row.key.clone(), window });
                }
            }
            for pane in &running.panes {
                assert!(pane.window.max_timestamp() < running.input_watermark, "{pane:?} fires at {}", running.input_watermark);
                assert_eq!(pane.timestamp, pane.window.max_timestamp());
                for value in &pane.values {
                    let row =
                        absorbed.remove(value).unwrap_or_else(|| panic!("{value} in {pane:?} was not absorbed, or has fired"));
                    assert_eq!(row, Absorbed { key: pane.key.clone(), window: pane.window });
                }
            }
            let times = running.panes.iter().map(|pane| pane.timestamp).collect();
            return self.output(shard, stage, times);
        }
        let mut times = Vec::new();
        for row in rows {
            let restriction = matches!(self.topology.stages[stage.0 as usize].head, Head::Restrictions { .. });
            if restriction && self.residuals_left > 0 && self.dice.chance(40) {
                self.residuals_left -= 1;
                let later = row.timestamp.plus(Duration(self.dice.between(0, 15)));
                let hold = if self.dice.chance(20) { Timestamp::MIN } else { later };
                let not_before_ms = self.dice.chance(60).then(|| self.now_ms + self.dice.between(-5, 40));
                self.append(shard, stage, vec![later], Some((hold, not_before_ms)));
            }
            times.push(row.timestamp);
        }
        self.output(shard, stage, times);
    }

    /// One row in every reader per time, on any shard.
    fn output(&mut self, shard: usize, producer: StageId, times: Vec<Timestamp>) {
        let promised = self.shards[shard].promised.get(&producer).copied().unwrap_or(Timestamp::MIN);
        let stages = (0u32..).map(StageId).zip(&self.topology.stages);
        let inputs = stages.flat_map(|(reader, shape)| shape.inputs.iter().map(move |input| (reader, *input)));
        let readers: Vec<_> = inputs.filter(|(_, input)| input.stage == producer).collect();
        for (reader, input) in readers {
            let mut by_shard: BTreeMap<usize, Vec<Timestamp>> = BTreeMap::new();
            for time in times.iter().take(self.rows_left) {
                self.rows_left -= 1;
                assert!(self.late_rows || promised <= *time, "{producer} puts out {time} after it promised {promised}");
                let moved = if self.late_rows { self.dice.between(-20, 4) } else { self.dice.between(0, 4) };
                let to = if input.local { shard } else { self.dice.below(self.shards.len()) };
                by_shard.entry(to).or_default().push(time.plus(Duration(moved)));
            }
            by_shard.into_iter().for_each(|(to, times)| self.append(to, reader, times, None));
        }
    }

    fn report(&mut self, shard: usize) {
        let Shard { engine, naive, promised, .. } = &mut self.shards[shard];
        let reports = engine.reports();
        naive.settle();
        check_watermarks(engine, naive);
        for (stage, watermark) in &reports {
            let before = promised.insert(*stage, *watermark);
            assert!(before < Some(*watermark), "{stage} reports {watermark} after {before:?}");
        }
        for (stage, watermark) in reports {
            writeln!(self.trace, "shard {shard} reports {stage} {watermark}").unwrap();
            for log in self.shards.iter_mut().map(|shard| &mut shard.log) {
                log.push(Arrival::Report(stage, ShardId(shard as u32), watermark));
            }
        }
        let Shard { naive, promised, .. } = &self.shards[shard];
        for stage in naive.stages() {
            let output = naive.outputs[stage.0 as usize];
            assert!(output == Timestamp::MIN || promised.get(&stage) == Some(&output), "{stage} keeps {output} for itself");
        }
    }

    /// The shard's process is gone; another goes on from what is durable.
    fn restart(&mut self, shard: usize) {
        writeln!(self.trace, "shard {shard} restarts").unwrap();
        self.deliver(shard, usize::MAX);
        let Shard { engine, naive, running, cells, grouped_at, passed_over, promised, .. } = &mut self.shards[shard];
        running.clear();
        passed_over.clear();
        *engine = Engine::new(naive.topology.clone(), self.options.clone());
        engine.restore(&Overlay::new(cells)).unwrap();
        for (offset, logged) in &mut naive.entries {
            let waiting = logged.rows.iter_mut().filter(|row| row.state == RowState::InFlight);
            waiting.for_each(|row| row.state = RowState::Waiting);
            if logged.rows.iter().any(|row| row.state == RowState::Waiting) {
                engine.entry(entry(*offset, logged));
            }
        }
        for (stage, watermark) in &naive.scripts {
            engine.script_watermark(*stage, *watermark);
        }
        for ((stage, shard), watermark) in &naive.reports {
            engine.watermark(*stage, *shard, *watermark);
        }
        for stage in naive.stages() {
            let own = promised.get(&stage).copied().unwrap_or(Timestamp::MIN);
            naive.outputs[stage.0 as usize] = own;
            naive.inputs[stage.0 as usize] = own.max(grouped_at.get(&stage).copied().unwrap_or(Timestamp::MIN));
        }
        naive.now_ms = i64::MIN;
    }

    fn some_ranges(&mut self, rows: usize) -> Vec<Range<usize>> {
        let mut ranges = Vec::new();
        let mut row = 0;
        while row < rows && self.dice.chance(30) {
            let start = row + self.dice.below(rows - row);
            let end = start + 1 + self.dice.below(rows - start);
            ranges.push(start..end);
            row = end;
        }
        ranges
    }
}

fn check_watermarks(engine: &Engine, naive: &Naive) {
    for status in engine.status() {
        let index = status.stage.0 as usize;
        let (input, output) = (naive.inputs[index], naive.outputs[index]);
        assert_eq!((status.input_watermark, status.output_watermark), (input, output), "watermarks of {status}");
    }
}

/// The deepest stage, unless another was passed over for too long.
fn check_choice(work: &Work, eligible: &[StageId], passed_over: &mut BTreeMap<StageId, usize>) {
    assert!(eligible.contains(&work.stage), "{} runs, but only {eligible:?} may", work.stage);
    let waited = passed_over.get(&work.stage).copied().unwrap_or(0);
    assert!(work.stage == eligible[0] || waited >= 32, "{} runs before {:?}", work.stage, eligible[0]);
    for stage in eligible {
        let count = passed_over.entry(*stage).or_default();
        *count = if *stage == work.stage { 0 } else { *count + 1 };
        assert!(*count < 32 + eligible.len(), "{stage} was passed over {count} times");
    }
}

fn expand(entries: &[EntryRows]) -> Vec<(u64, u32)> {
    let rows = |entry: &EntryRows| {
        let offset = entry.position.offset;
        entry.rows.iter().cloned().flatten().map(move |row| (offset, row)).collect::<Vec<_>>()
    };
    entries.iter().flat_map(rows).collect()
}

fn set_rows(naive: &mut Naive, rows: &[(u64, u32)], state: RowState) {
    for (offset, row) in rows {
        naive.entries.get_mut(offset).unwrap().rows[*row as usize].state = state;
    }
}

fn entry(offset: u64, logged: &Logged) -> Entry {
    let waiting = (0u32..).zip(&logged.rows).filter(|(_, row)| row.state == RowState::Waiting);
    Entry {
        position: Position { broadcast: false, offset },
        stage: logged.stage,
        producer: (logged.stage, ShardId(0)),
        remaining: waiting.map(|(row, _)| row..row + 1).collect(),
        bytes: logged.rows.len() as u64 * ROW_BYTES,
        rows: logged.rows.len() as u32,
        hold: logged.hold,
        window_end: logged.window_end,
        not_before_ms: logged.not_before_ms,
    }
}

fn payload(offset: u64, logged: &Logged) -> model::Batch {
    let values: Vec<_> = (0..logged.rows.len()).map(|row| format!("{offset}.{row}")).collect();
    let rows = logged.rows.iter().zip(&values).map(|(row, value)| (row.key.as_str(), value.as_str(), row.timestamp));
    rows::batch(&rows.collect::<Vec<_>>(), WINDOW_MS)
}
