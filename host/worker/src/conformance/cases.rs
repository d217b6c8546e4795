//! The cases. Each is named for what must hold.

use model::ShardId;
use model::batch::Row;
use model::metrics::{Distribution, MetricValue};
use model::{Batch, Timestamp, pane, window};

use super::behaviour::{Behaviour, EDGE_TIMESTAMP_MS, MAIN_TAG, METRIC_COUNTER, METRIC_DISTRIBUTION, POISON, SIDE_TAG};
use super::harness::{StageBuilder, Subject, batch, batches, contents, global_batch, metric, run, single, start};
use crate::body::ELEMENT_COUNT;
use crate::reference::{USER_COUNTER, USER_DISTRIBUTION};
use crate::{Error, Outcome, Slot, StageSpec};

fn open(subject: &dyn Subject, stage: &std::sync::Arc<StageSpec>) -> Box<dyn Slot> {
    subject.worker().open(stage.clone(), ShardId(0)).expect("the stage opens")
}

fn run_single(subject: &dyn Subject, behaviour: Behaviour, input: Vec<Batch>) -> Outcome {
    let stage = single(subject, behaviour);
    run(open(subject, &stage).as_mut(), &stage, 1, input).expect("the bundle succeeds")
}

/// Value, timestamp, windows and pane of a row.
type Columns = (Vec<u8>, Timestamp, Vec<u8>, Vec<u8>);

fn rows(batches: &[&Batch]) -> Vec<Columns> {
    let owned = |row: Row<'_>| (row.value.to_vec(), row.timestamp, row.windows.to_vec(), row.pane.to_vec());
    batches.iter().flat_map(|batch| batch.iter().map(owned).collect::<Vec<_>>()).collect()
}

/// Values, timestamps, windows and panes come out as they went in, in order.
pub fn identity_keeps_every_column(subject: &dyn Subject) {
    let input = batch(&[b"a", b"", b"ccc", b"d", b"e", b"f", b"g"]);
    let outcome = run_single(subject, Behaviour::Identity, vec![input.clone()]);
    assert_eq!(rows(&batches(&outcome, 0)), rows(&[&input]));
    assert_eq!(metric(&outcome, ELEMENT_COUNT, ("PCOLLECTION", "out")), Some(&MetricValue::SumInt(7)));
    assert!(outcome.unprocessed.is_empty() && outcome.residuals.is_empty() && outcome.timers.is_empty() && !outcome.finalize);
}

/// Rows that a DoFn does not emit are gone; the others keep their columns.
pub fn filter_drops_rows(subject: &dyn Subject) {
    let input = batch(&[&[1], &[2], &[3], &[4], &[6]]);
    let outcome = run_single(subject, Behaviour::Even, vec![input.clone()]);
    let kept: Vec<_> = rows(&[&input]).into_iter().filter(|row| row.0[1] % 2 == 0).collect();
    assert_eq!(rows(&batches(&outcome, 0)), kept);
}

/// Several outputs of one row follow each other and have its columns.
pub fn flat_map_multiplies_rows(subject: &dyn Subject) {
    let input = batch(&[&[2, 9], &[0], &[3]]);
    let outcome = run_single(subject, Behaviour::Repeat, vec![input.clone()]);
    let expected: Vec<_> = rows(&[&input]).into_iter().flat_map(|row| vec![row.clone(); usize::from(row.0[1])]).collect();
    assert_eq!(rows(&batches(&outcome, 0)), expected);
}

/// Each tag's elements reach the sink of its collection.
pub fn tags_reach_their_sinks(subject: &dyn Subject) {
    let outputs = [(MAIN_TAG, "even"), (SIDE_TAG, "odd")];
    let stage = StageBuilder::new(subject).par_do_tagged(Behaviour::Route, "in", &outputs).sink("odd").sink("even").build();
    let outcome = run(open(subject, &stage).as_mut(), &stage, 1, vec![batch(&[&[1], &[2], &[3], &[4]])]).expect("succeeds");
    assert_eq!(contents(&outcome, 0), [[1], [3]]);
    assert_eq!(contents(&outcome, 1), [[2], [4]]);
}

/// A tag that the pipeline has no collection for does no harm.
pub fn unused_tags_are_dropped(subject: &dyn Subject) {
    let stage = StageBuilder::new(subject).par_do_tagged(Behaviour::Route, "in", &[(SIDE_TAG, "odd")]).sink("odd").build();
    let outcome = run(open(subject, &stage).as_mut(), &stage, 1, vec![batch(&[&[1], &[2]])]).expect("succeeds");
    assert_eq!(contents(&outcome, 0), [[1]]);
}

/// A collection feeds two transforms and a sink at once.
pub fn a_collection_may_have_several_readers(subject: &dyn Subject) {
    let stage = StageBuilder::new(subject)
        .par_do(Behaviour::Identity, "in", "same")
        .par_do(Behaviour::Even, "same", "even")
        .par_do(Behaviour::Repeat, "same", "repeated")
        .sink("same")
        .sink("even")
        .sink("repeated")
        .build();
    let outcome = run(open(subject, &stage).as_mut(), &stage, 1, vec![batch(&[&[1], &[2]])]).expect("succeeds");
    assert_eq!(contents(&outcome, 0), [[1], [2]]);
    assert_eq!(contents(&outcome, 1), [[2]]);
    assert_eq!(contents(&outcome, 2), [[1], [2], [2]]);
}

/// The output of one transform is the input of the next, bundle edges included.
pub fn transforms_follow_each_other(subject: &dyn Subject) {
    let stage = StageBuilder::new(subject)
        .global()
        .par_do(Behaviour::Repeat, "in", "repeated")
        .par_do(Behaviour::Edges, "repeated", "edges")
        .par_do(Behaviour::Identity, "edges", "out")
        .sink("out")
        .build();
    let outcome = run(open(subject, &stage).as_mut(), &stage, 1, vec![global_batch(&[&[2], &[3]])]).expect("succeeds");
    assert_eq!(contents(&outcome, 0), [b"start".to_vec(), b"finish\x05".to_vec()]);
    assert_eq!(metric(&outcome, ELEMENT_COUNT, ("PCOLLECTION", "repeated")), Some(&MetricValue::SumInt(5)));
}

/// A Flatten within a stage has the elements of all its inputs.
pub fn flatten_unites(subject: &dyn Subject) {
    let outputs = [(MAIN_TAG, "even"), (SIDE_TAG, "odd")];
    let stage = StageBuilder::new(subject)
        .par_do_tagged(Behaviour::Route, "in", &outputs)
        .par_do(Behaviour::Repeat, "odd", "repeated")
        .flatten(&["even", "repeated"], "all")
        .par_do(Behaviour::Identity, "all", "out")
        .sink("out")
        .build();
    let outcome = run(open(subject, &stage).as_mut(), &stage, 1, vec![batch(&[&[3], &[2]])]).expect("succeeds");
    let mut all = contents(&outcome, 0);
    all.sort();
    assert_eq!(all, [[2], [3], [3], [3]]);
}

/// A bundle without input completes, and nothing comes out of it.
pub fn an_empty_bundle_has_an_outcome(subject: &dyn Subject) {
    assert!(run_single(subject, Behaviour::Identity, Vec::new()).outputs.is_empty());
}

/// The order of batches, and of rows within them, is kept.
pub fn many_batches_keep_their_order(subject: &dyn Subject) {
    let numbers: Vec<[u8; 2]> = (0..500u16).map(u16::to_be_bytes).collect();
    let input = numbers.chunks(7).map(|chunk| batch(&chunk.iter().map(<[u8; 2]>::as_slice).collect::<Vec<_>>())).collect();
    assert_eq!(contents(&run_single(subject, Behaviour::Identity, input), 0), numbers);
}

/// What start and finish emit has its own timestamp and window; counts do not leak from bundle to bundle.
pub fn bundle_edges_may_emit(subject: &dyn Subject) {
    let stage = StageBuilder::new(subject).global().par_do(Behaviour::Edges, "in", "out").sink("out").build();
    let mut slot = open(subject, &stage);
    let input = global_batch(&[&[1], &[2]]);
    for round in 0..3 {
        let outcome = run(slot.as_mut(), &stage, round, vec![input.clone(), input.clone()]).expect("succeeds");
        let row = |content: &[u8]| {
            let timestamp = Timestamp::from_millis(EDGE_TIMESTAMP_MS);
            (super::behaviour::element(content), timestamp, window::GLOBAL_SET.to_vec(), pane::NO_FIRING.to_vec())
        };
        assert_eq!(rows(&batches(&outcome, 0)), [row(b"start"), row(b"finish\x04")], "bundle {round}");
    }
}

/// Counters and distributions are those of one bundle, labelled with the transform.
pub fn metrics_belong_to_their_bundle(subject: &dyn Subject) {
    let stage = single(subject, Behaviour::Measure);
    let mut slot = open(subject, &stage);
    for round in 0..2 {
        let outcome = run(slot.as_mut(), &stage, round, vec![batch(&[b"a", b"bcd"]), batch(&[b"ef"])]).expect("succeeds");
        let of = |urn| metric(&outcome, urn, ("PTRANSFORM", "Measure of in"));
        assert_eq!(of(USER_COUNTER), Some(&MetricValue::SumInt(3)), "bundle {round}");
        let sizes = Distribution { count: 3, sum: 6, min: 1, max: 3 };
        assert_eq!(of(USER_DISTRIBUTION), Some(&MetricValue::DistributionInt(sizes)), "bundle {round}");
        let named = |name| {
            metric(&outcome, if name == METRIC_COUNTER { USER_COUNTER } else { USER_DISTRIBUTION }, ("NAME", name)).is_some()
        };
        assert!(named(METRIC_COUNTER) && named(METRIC_DISTRIBUTION));
    }
}

/// An element far larger than a batch should be.
pub fn a_big_element_passes(subject: &dyn Subject) {
    let big: Vec<u8> = (0..9_000_000u32).map(|at| ((at * 31) >> 3) as u8).collect();
    let outcome = run_single(subject, Behaviour::Identity, vec![batch(&[b"small", &big, b"after"])]);
    assert!(contents(&outcome, 0) == [b"small".to_vec(), big, b"after".to_vec()]);
}

/// User code's failure carries its text and the transform; nothing of the bundle shows; the slot works on.
pub fn a_failure_names_its_transform_and_has_no_effect(subject: &dyn Subject) {
    let stage = single(subject, Behaviour::Poison);
    let mut slot = open(subject, &stage);
    for round in 0..2 {
        let failed = run(slot.as_mut(), &stage, 2 * round, vec![batch(&[b"a"]), batch(&[b"b", POISON, b"c"])]);
        match failed {
            Err(Error::User { transform, message }) => {
                assert!(message.contains("poison"), "{message}");
                assert!(transform.is_none_or(|transform| transform.as_str() == "Poison of in"));
            }
            other => panic!("expected an error of user code, got {other:?}"),
        }
        let outcome = run(slot.as_mut(), &stage, 2 * round + 1, vec![batch(&[b"d"])]).expect("the slot works on");
        assert_eq!(contents(&outcome, 0), [b"d"]);
        let count = metric(&outcome, ELEMENT_COUNT, ("PCOLLECTION", "out"));
        assert!(count.is_none_or(|count| *count == MetricValue::SumInt(1)), "{count:?}");
    }
}

/// Abort is too late or it works; either way one completion comes, and the slot works on.
pub fn an_aborted_bundle_completes_once(subject: &dyn Subject) {
    let stage = single(subject, Behaviour::Identity);
    let mut slot = open(subject, &stage);
    let many: Vec<Batch> = (0..200).map(|_| batch(&[b"a", b"b", b"c"])).collect();
    let completed = start(slot.as_mut(), &stage, 1, many);
    slot.abort(model::BundleId(1));
    let results: Vec<_> = completed.iter().collect();
    assert_eq!(results.len(), 1);
    match &results[0] {
        Ok(outcome) => assert_eq!(contents(outcome, 0).len(), 600),
        Err(error) => assert!(matches!(error, Error::Aborted), "{error}"),
    }
    let outcome = run(slot.as_mut(), &stage, 2, vec![batch(&[b"d"])]).expect("the slot works on");
    assert_eq!(contents(&outcome, 0), [b"d"]);
}

/// Slots of different shards and stages run at the same time without mixing anything up.
pub fn slots_work_side_by_side(subject: &dyn Subject) {
    let worker = subject.worker();
    let behaviours = [Behaviour::Identity, Behaviour::Measure, Behaviour::Poison];
    let stage = |(behaviour, id)| StageBuilder::new(subject).id(id).par_do(behaviour, "in", "out").sink("out").build();
    let stages: Vec<_> = behaviours.into_iter().zip(0..).map(stage).collect();
    std::thread::scope(|scope| {
        for shard in 0..3 {
            for stage in &stages {
                let mut slot = worker.open(stage.clone(), ShardId(shard)).expect("the stage opens");
                scope.spawn(move || {
                    for round in 0..10u8 {
                        let input = batch(&[&[round, shard as u8], &[2]]);
                        let outcome = run(slot.as_mut(), stage, u64::from(round), vec![input]).expect("succeeds");
                        assert_eq!(contents(&outcome, 0), [vec![round, shard as u8], vec![2]]);
                    }
                });
            }
        }
    });
}

/// A slot needs no handle to its worker.
pub fn a_slot_works_on_when_its_worker_is_dropped(subject: &dyn Subject) {
    let (worker, stage) = (subject.worker(), single(subject, Behaviour::Identity));
    let [mut first, mut second] = [0, 1].map(|shard| worker.open(stage.clone(), ShardId(shard)).expect("the stage opens"));
    drop(worker);
    for round in 0..2 {
        let outcome = run(first.as_mut(), &stage, round, vec![batch(&[b"a"])]).expect("succeeds");
        assert_eq!(contents(&outcome, 0), [b"a"]);
    }
    drop(first);
    assert!(run(second.as_mut(), &stage, 0, vec![batch(&[b"a"])]).is_ok(), "whatever becomes of other slots");
}

/// A worker that was closed gives no slots, and those that it gave run nothing.
pub fn a_closed_worker_opens_and_runs_nothing(subject: &dyn Subject) {
    let (worker, stage) = (subject.worker(), single(subject, Behaviour::Identity));
    let mut slot = worker.open(stage.clone(), ShardId(0)).expect("the stage opens");
    worker.close();
    assert!(worker.open(stage.clone(), ShardId(1)).is_err());
    let result = run(slot.as_mut(), &stage, 1, vec![batch(&[b"a"])]);
    assert!(matches!(result, Err(Error::Aborted | Error::Infrastructure(_))), "{result:?}");
}
