//! Many runs, large values, and what cells look like in the face of them.

use engine::grouping::{Clocks, Grouped, Grouping, Limits, NoMerger};
use model::pane::NO_FIRING;
use model::reader::put_length_prefixed;
use model::windowing::{Accumulation, OutputTime, Trigger, WindowingStrategy};
use model::{Batch, BatchBuilder, Coder, Reader, StageId, Timestamp, window};

use crate::store::Store;

const STATE_CELL_BYTES_MAX: usize = 256 << 10;

struct Stage {
    strategy: WindowingStrategy,
    grouping: Grouping,
    store: Store,
    input_watermark: Timestamp,
    /// Keys and values as they came out, in order.
    panes: Vec<(Vec<u8>, Vec<Vec<u8>>)>,
}

fn new_grouping(strategy: &WindowingStrategy) -> Grouping {
    let coder = Coder::Kv(Box::new(Coder::Bytes), Box::new(Coder::Bytes));
    Grouping::new(StageId(1), strategy.clone(), coder, strategy.window_coder)
}

impl Stage {
    fn new(strategy: WindowingStrategy) -> Self {
        let grouping = new_grouping(&strategy);
        Stage { strategy, grouping, store: Store::default(), input_watermark: Timestamp::MIN, panes: Vec::new() }
    }

    fn call(&mut self, rows: &[Batch], limits: Limits) {
        let clocks = self.clocks();
        let Grouped { panes, delta, .. } = self.grouping.run(rows, clocks, limits, &mut self.store, &mut NoMerger).unwrap();
        self.store.commit();
        self.grouping.apply(delta);
        for row in panes.iter().flat_map(Batch::iter) {
            let mut reader = Reader::new(row.value);
            let key = reader.length_prefixed().unwrap().to_vec();
            let values = (0..reader.be_i32().unwrap()).map(|_| reader.length_prefixed().unwrap().to_vec()).collect();
            self.panes.push((key, values));
        }
    }

    fn clocks(&self) -> Clocks {
        Clocks { input_watermark: self.input_watermark, output_watermark: Timestamp::MIN, now_ms: 0 }
    }

    fn restore(&mut self) {
        self.grouping = new_grouping(&self.strategy);
        self.grouping.restore(&self.store).unwrap();
    }

    /// Fires everything, and returns how many calls that took.
    fn finish(&mut self, limits: Limits) -> usize {
        self.input_watermark = Timestamp::MAX;
        let mut calls = 0;
        while self.grouping.due(self.clocks()) {
            self.call(&[], limits);
            self.restore();
            calls += 1;
        }
        calls
    }

    fn largest_cell(&self) -> usize {
        self.store.cells().values().map(|value| value.len()).max().unwrap_or(0)
    }
}

fn batch(rows: impl Iterator<Item = (Vec<u8>, Vec<u8>)>) -> Batch {
    let mut builder = BatchBuilder::new();
    for (number, (key, value)) in rows.enumerate() {
        builder.push_with(Timestamp::from_millis(number as i64), window::GLOBAL_SET, NO_FIRING, |out| {
            put_length_prefixed(out, &key);
            put_length_prefixed(out, &value);
        });
    }
    builder.finish()
}

const ALL: Limits = Limits { bytes_max: u64::MAX, keys_max: usize::MAX };

/// Three levels of runs, restored on the way; values of each key stay in order.
#[test]
fn many_small_runs_stay_few() {
    const CALLS: u64 = 5000;
    let mut stage = Stage::new(WindowingStrategy { output_time: OutputTime::Earliest, ..WindowingStrategy::global() });
    let mut most = 0;
    for call in 0..CALLS {
        let rows = (0..3).map(|row| (vec![(call * 7 + row) as u8 % 11], (call * 3 + row).to_be_bytes().to_vec()));
        stage.call(&[batch(rows)], ALL);
        most = most.max(stage.store.cells().len());
        if call % 97 == 0 {
            stage.restore();
        }
    }
    assert!(most < 3 * 2 * 48, "{most} cells at once");
    assert_eq!(stage.grouping.summary().rows, CALLS * 3);
    let calls = stage.finish(Limits { bytes_max: u64::MAX, keys_max: 2 });
    assert_eq!(calls, 6);
    assert_eq!(stage.panes.len(), 11);
    assert!(stage.panes.iter().all(|(_, values)| values.is_sorted()));
    let mut all: Vec<_> = stage.panes.iter().flat_map(|(_, values)| values.clone()).collect();
    all.sort();
    assert!(all.iter().map(Vec::as_slice).eq((0..CALLS * 3).map(u64::to_be_bytes).collect::<Vec<_>>().iter().map(|n| &n[..])));
    assert!(stage.store.cells().is_empty());
}

/// Merging runs of 600 KB takes several steps, each begun and ended in the middle of a run.
#[test]
fn long_merges_go_in_steps() {
    const CALLS: u64 = 130;
    let mut stage = Stage::new(WindowingStrategy::global());
    for call in 0..CALLS {
        let rows = (0..6u64).map(|row| {
            let mut value = vec![call as u8; 100_000];
            value[..8].copy_from_slice(&call.to_be_bytes());
            (vec![(call + row) as u8 % 5], value)
        });
        stage.call(&[batch(rows)], ALL);
        if call % 13 == 0 {
            stage.restore();
        }
    }
    assert!(stage.largest_cell() <= STATE_CELL_BYTES_MAX, "{}", stage.largest_cell());
    stage.finish(Limits { bytes_max: 1, keys_max: usize::MAX });
    assert_eq!(stage.panes.len(), 5);
    assert!(stage.panes.iter().all(|(_, values)| values.is_sorted()));
    assert_eq!(stage.panes.iter().map(|(_, values)| values.len() as u64).sum::<u64>(), CALLS * 6);
    assert!(stage.store.cells().is_empty());
}

/// One key with more than a block, a value with more than a block, an empty key and an empty value.
#[test]
fn groups_of_any_size() {
    let trigger = Trigger::Repeat(Box::new(Trigger::AfterEndOfWindow { early: None, late: None }));
    let cells = WindowingStrategy { trigger, accumulation: Accumulation::Accumulating, ..WindowingStrategy::global() };
    for strategy in [WindowingStrategy::global(), cells] {
        let mut stage = Stage::new(strategy);
        let rows = || {
            let many = (0..500u64).map(|row| (b"many".to_vec(), row.to_be_bytes().repeat(125)));
            let large = [(b"large".to_vec(), vec![1; 1_000_000]), (vec![], vec![2]), (b"empty".to_vec(), vec![])];
            many.chain(large)
        };
        stage.call(&[batch(rows())], ALL);
        stage.call(&[batch(rows())], ALL);
        assert!(stage.largest_cell() <= 1_000_000 + STATE_CELL_BYTES_MAX);
        let calls = stage.finish(Limits { bytes_max: 100_000, keys_max: 3 });
        assert!((2..=4).contains(&calls), "{calls} calls");
        stage.panes.sort();
        let twice = |values: Vec<Vec<u8>>| [values.clone(), values].concat();
        let expected = [
            (vec![], twice(vec![vec![2]])),
            (b"empty".to_vec(), twice(vec![vec![]])),
            (b"large".to_vec(), twice(vec![vec![1; 1_000_000]])),
            (b"many".to_vec(), twice((0..500u64).map(|row| row.to_be_bytes().repeat(125)).collect())),
        ];
        assert!(stage.panes == expected, "panes differ");
    }
}

/// Strategies that cannot be run say so by name, at the first call.
#[test]
fn what_cannot_be_run_is_refused() {
    use model::Duration;
    use model::windowing::TimestampTransform;
    let check = |change: &dyn Fn(&mut WindowingStrategy), what: &str| {
        let mut strategy = WindowingStrategy::global();
        change(&mut strategy);
        let stage = Stage::new(strategy);
        let error = stage.grouping.run(&[], stage.clocks(), ALL, &mut Store::default(), &mut NoMerger).unwrap_err();
        assert_eq!(error.to_string(), format!("grouping does not support {what}"));
    };
    let deep = |levels| (0..levels).fold(Trigger::Always, |trigger, _| Trigger::Repeat(Box::new(trigger)));
    check(&|strategy| strategy.trigger = deep(32), "triggers that nest deeper than 32 levels");
    check(&|strategy| strategy.trigger = Trigger::AfterAll(vec![Trigger::Always; 256]), "triggers of more than 256 parts");
    check(&|strategy| strategy.trigger = Trigger::AfterEach(vec![]), "a trigger that is made of no others");
    check(
        &|strategy| {
            let align = TimestampTransform::AlignTo { period: Duration(0), offset: Duration(0) };
            strategy.trigger = Trigger::AfterProcessingTime(vec![align]);
        },
        "a trigger that aligns to a period that is not positive",
    );
    let mut stage = Stage::new(WindowingStrategy { trigger: deep(31), ..WindowingStrategy::global() });
    stage.call(&[batch([(vec![1], vec![2])].into_iter())], ALL);
    assert_eq!(stage.panes, [(vec![1], vec![vec![2]])]);
}

/// Cells that are cut short are found out, not believed and not a panic.
#[test]
fn damaged_cells_are_errors() {
    let early = Trigger::AfterEndOfWindow { early: Some(Box::new(Trigger::ElementCount(9))), late: None };
    for trigger in [Trigger::Default, early] {
        let mut stage = Stage::new(WindowingStrategy { trigger, ..WindowingStrategy::global() });
        for _ in 0..3 {
            stage.call(&[batch((0..4).map(|row| (vec![row], vec![row; 30])))], ALL);
        }
        let clocks = Clocks { input_watermark: Timestamp::MAX, ..stage.clocks() };
        for (cell, value) in stage.store.cells() {
            for length in 0..value.len() {
                let mut store = stage.store.clone();
                engine::KeyedState::put(&mut store, cell.clone(), Some(value.slice(..length)));
                store.commit();
                let mut grouping = new_grouping(&stage.strategy);
                let found =
                    grouping.restore(&store).and_then(|()| grouping.run(&[], clocks, ALL, &mut store, &mut NoMerger).map(drop));
                assert!(found.is_err(), "cell {cell:?} cut to {length} of {} bytes", value.len());
            }
        }
    }
}
