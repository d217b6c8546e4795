//! Rules that a caller must keep: breaking one is a bug, and the engine says so at once.

use engine::grouping::NoMerger;
use engine::{BundlePolicy, Engine, Entry, Head, Options, Position, StageShape, Topology, Upstream, Work};
use model::{BundleId, Duration, ShardId, StageId, TimerChange, Timestamp, WindowCoder};

use crate::cells::{Cells, Overlay};
use crate::program;
use crate::rows;

/// A source, a stage behind it, a grouping stage behind that, a keyed one with a last timer and one that a script feeds.
fn engine() -> Engine {
    let stage = |name: &str, head, inputs: &[u32]| StageShape {
        name: name.to_string(),
        head,
        inputs: inputs.iter().map(|stage| Upstream { stage: StageId(*stage), local: false }).collect(),
        gates: Vec::new(),
        timer_names: Vec::new(),
        input_coder: rows::coder(),
        window_coder: WindowCoder::Interval,
    };
    let grouping = Head::Grouping(Box::new(rows::fixed_windows(10, 0)));
    let keyed = Head::Keyed(Box::new(program::keyed(rows::fixed_windows(10, 0), "keyed:10:0:last")));
    let stages = vec![
        stage("a", Head::Plain, &[]),
        stage("b", Head::Plain, &[0]),
        stage("g", grouping, &[1]),
        stage("k", keyed, &[1]),
        stage("s", Head::Script, &[]),
    ];
    let topology = Topology { shards: 1, shard: ShardId(0), stages };
    Engine::new(topology, Options { policy: BundlePolicy::Greedy, ..Options::default() })
}

fn entry(stage: u32, offset: u64) -> Entry {
    Entry {
        position: Position { broadcast: false, offset },
        stage: StageId(stage),
        producer: (StageId(stage), ShardId(0)),
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

#[test]
#[should_panic(expected = "bundle 0 finishes before it is grouped or keyed")]
fn a_bundle_of_a_keyed_stage_is_keyed() {
    let (mut engine, work) = running(3);
    engine.finish(work.bundle, &[]);
}

#[test]
#[should_panic(expected = "bundle 0 sets timers, but is not keyed")]
fn timers_are_set_by_bundles_that_are_keyed() {
    let (mut engine, work) = running(3);
    engine.timers(work.bundle, Vec::new(), Duration(0), &mut Overlay::new(&Cells::new())).expect("it panics before");
}

#[test]
#[should_panic(expected = "bundle 0 sets timers after it has finished")]
fn timers_are_set_before_a_bundle_finishes() {
    let (mut engine, work) = running(3);
    let cells = Cells::new();
    let mut overlay = Overlay::new(&cells);
    engine.key(&work, &[], 0, &mut overlay).expect("nothing is keyed");
    engine.finish(work.bundle, &[]);
    engine.timers(work.bundle, Vec::new(), Duration(0), &mut overlay).expect("it panics before");
}

#[test]
#[should_panic(expected = "stage 1 does not work per key")]
fn only_keyed_stages_are_keyed() {
    let (mut engine, work) = running(1);
    engine.key(&work, &[], 0, &mut Overlay::new(&Cells::new())).expect("it panics before");
}

#[test]
#[should_panic(expected = "the script of stage 4 goes back from 10 to 9")]
fn scripts_do_not_go_back() {
    let mut engine = engine();
    engine.script_watermark(StageId(4), Timestamp::from_millis(10));
    engine.script_watermark(StageId(4), Timestamp::from_millis(9));
}

#[test]
#[should_panic(expected = "no script feeds stage 1")]
fn scripts_feed_their_own_stages() {
    engine().script_watermark(StageId(1), Timestamp::MAX);
}

/// What workers say of timers is not trusted: it is an error and not a panic.
#[test]
fn timers_that_a_stage_cannot_have_are_refused() {
    let (key, window) = (&b"\x01x"[..], rows::window_of(Timestamp::from_millis(5), 10));
    let mut encoded = Vec::new();
    window.encode(&mut encoded);
    let check = |family: usize, key: &[u8], window: &[u8], expected: &str| {
        let (mut engine, work) = running(3);
        let cells = Cells::new();
        let mut overlay = Overlay::new(&cells);
        engine.key(&work, &[], 0, &mut overlay).expect("nothing is keyed");
        let [key, window] = [key, window].map(bytes::Bytes::copy_from_slice);
        let change = TimerChange { family, tag: bytes::Bytes::new(), key, window, set: None };
        let result = engine.timers(work.bundle, vec![change], Duration(0), &mut overlay);
        assert_eq!(result.err().map_or("fine".to_string(), |error| error.to_string()), expected);
    };
    check(0, key, &encoded, "fine");
    check(2, key, &encoded, "a timer of the family that is for the end of windows was set");
    check(3, key, &encoded, "a timer of family 3, which the stage does not have");
    for (key, window) in [(&b"\x02x"[..], &encoded[..]), (b"\x01xy", &encoded), (key, b""), (key, &[&encoded[..], b"z"].concat())]
    {
        check(0, key, window, "a timer has a key or window that its stage cannot have");
    }
}
