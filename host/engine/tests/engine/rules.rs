//! Rules that a caller must keep: breaking one is a bug, and the engine says so at once.

use engine::grouping::NoMerger;
use engine::{BundlePolicy, Engine, Entry, Head, Options, Position, StageShape, Topology, Upstream, Work};
use model::{BundleId, ShardId, StageId, Timestamp, WindowCoder};

use crate::cells::{Cells, Overlay};
use crate::rows;

/// A source, a stage behind it and a grouping stage behind that.
fn engine() -> Engine {
    let stage = |name: &str, head, inputs: &[u32]| StageShape {
        name: name.to_string(),
        head,
        inputs: inputs.iter().map(|stage| Upstream { stage: StageId(*stage), local: false }).collect(),
        gates: Vec::new(),
        input_coder: rows::coder(),
        window_coder: WindowCoder::Interval,
    };
    let grouping = Head::Grouping(Box::new(rows::fixed_windows(10, 0)));
    let stages = vec![stage("a", Head::Plain, &[]), stage("b", Head::Plain, &[0]), stage("g", grouping, &[1])];
    let topology = Topology { shards: 1, shard: ShardId(0), stages };
    Engine::new(topology, Options { policy: BundlePolicy::Greedy, ..Options::default() })
}

fn entry(stage: u32, offset: u64) -> Entry {
    Entry {
        position: Position { broadcast: false, offset },
        stage: StageId(stage),
        remaining: std::iter::once(0..3).collect(),
        bytes: 30,
        rows: 3,
        hold: Timestamp::from_millis(5),
        window_end: Timestamp::from_millis(9),
        not_before_ms: None,
    }
}

/// An engine with a bundle of three rows in flight.
fn running(stage: u32) -> (Engine, Work) {
    let mut engine = engine();
    engine.entry(entry(stage, 0));
    let work = engine.next(0).expect("there are rows");
    (engine, work)
}

#[test]
#[should_panic(expected = "entry 0 for stage 1 arrived twice")]
fn an_entry_arrives_once() {
    let mut engine = engine();
    engine.entry(entry(1, 0));
    engine.entry(entry(1, 0));
}

#[test]
#[should_panic(expected = "has no rows")]
fn an_entry_has_rows() {
    engine().entry(Entry { remaining: Vec::new(), ..entry(1, 0) });
}

#[test]
#[should_panic(expected = "reach beyond 3 rows")]
fn an_entry_has_no_more_rows_than_it_says() {
    engine().entry(Entry { remaining: std::iter::once(0..4).collect(), ..entry(1, 0) });
}

#[test]
#[should_panic(expected = "stage 0 on shard 0 reports 9 after 10")]
fn reports_do_not_go_back() {
    let mut engine = engine();
    engine.watermark(StageId(0), ShardId(0), Timestamp::from_millis(10));
    engine.watermark(StageId(0), ShardId(0), Timestamp::from_millis(9));
}

#[test]
#[should_panic(expected = "bundle 0 is committed before it is finished")]
fn a_bundle_is_finished_before_it_is_committed() {
    let (mut engine, work) = running(1);
    engine.committed(work.bundle);
}

#[test]
#[should_panic(expected = "finished twice")]
fn a_bundle_is_finished_once() {
    let (mut engine, work) = running(1);
    engine.finish(work.bundle, &[]);
    engine.finish(work.bundle, &[]);
}

#[test]
#[should_panic(expected = "bundle 0 is not in flight")]
fn a_bundle_ends_once() {
    let (mut engine, work) = running(1);
    engine.finish(work.bundle, &[]);
    engine.committed(work.bundle);
    engine.failed(work.bundle);
}

#[test]
#[should_panic(expected = "bundle 7 is not in flight")]
fn a_bundle_that_ends_was_started() {
    engine().failed(BundleId(7));
}

#[test]
#[should_panic(expected = "unprocessed rows: [2..4] reach beyond 3 rows")]
fn unprocessed_rows_are_rows_of_the_bundle() {
    let (mut engine, work) = running(1);
    engine.finish(work.bundle, &[2..4]);
}

#[test]
#[should_panic(expected = "do not ascend")]
fn unprocessed_rows_ascend() {
    let (mut engine, work) = running(1);
    engine.finish(work.bundle, &[2..3, 0..1]);
}

#[test]
#[should_panic(expected = "bundle 0 finishes before it is grouped")]
fn a_grouping_bundle_is_grouped() {
    let (mut engine, work) = running(2);
    engine.finish(work.bundle, &[]);
}

#[test]
#[should_panic(expected = "bundle 0 leaves rows that are absorbed")]
fn a_grouping_bundle_leaves_nothing() {
    let (mut engine, work) = running(2);
    engine.group(&work, &[], 0, &mut Overlay::new(&Cells::new()), &mut NoMerger).expect("nothing is grouped");
    engine.finish(work.bundle, &[1..2]);
}

#[test]
#[should_panic(expected = "stage 1 does not group")]
fn only_grouping_stages_group() {
    let (mut engine, work) = running(1);
    engine.group(&work, &[], 0, &mut Overlay::new(&Cells::new()), &mut NoMerger).expect("it panics before");
}
