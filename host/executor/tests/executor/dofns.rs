//! A worker of closures that may read side inputs and leave restrictions, and whose bundles a test may hold back, lose,
//! cut short or answer wrongly.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use model::batch::Row;
use model::metrics::{MetricName, MetricValue};
use model::{Batch, BatchBuilder, BundleId, Coder, ShardId, Timestamp, TransformId};
use worker::body::{Body, Transforms};
use worker::reference::{USER_COUNTER, user_metric};
use worker::{Bundle, Completion, Error, Outcome, Progress, Residual, Slot, StageSpec, StateAccess, StateKey, Worker};

use crate::dice::Dice;

/// What a transform does with a row.
pub(crate) type DoFn = Arc<dyn Fn(Row<'_>, &mut Context<'_>) -> Result<(), Error> + Send + Sync>;

/// DoFns by name.
pub(crate) type DoFns = BTreeMap<String, DoFn>;

/// What a DoFn may use while it runs.
pub(crate) struct Context<'a> {
    transform: TransformId,
    state: &'a dyn StateAccess,
    manner: &'a dyn Manner,
    out: BatchBuilder,
    results: &'a mut Results,
}

#[derive(Default)]
struct Results {
    metrics: BTreeMap<MetricName, MetricValue>,
    residuals: Vec<Residual>,
}

impl Context<'_> {
    pub(crate) fn emit(&mut self, row: Row<'_>) {
        self.out.push(row);
    }

    pub(crate) fn count(&mut self, name: &str, by: i64) {
        let name = user_metric(USER_COUNTER, &self.transform, "native", name);
        match self.results.metrics.get_mut(&name) {
            Some(sum) => assert!(sum.merge(&MetricValue::SumInt(by))),
            None => drop(self.results.metrics.insert(name, MetricValue::SumInt(by))),
        }
    }

    /// Where a restriction `from..to` ends for this time, and how long its rest waits in milliseconds.
    pub(crate) fn checkpoint(&self, restriction: Range<u64>) -> (u64, i64) {
        self.manner.checkpoint(restriction)
    }

    /// Leaves a row for later.
    pub(crate) fn leave(&mut self, row: Row<'_>, delay_ms: i64) {
        let mut builder = BatchBuilder::new();
        builder.push(row);
        let residual = Residual { batch: builder.finish(), hold: row.timestamp, delay_ms, unbounded: false };
        self.results.residuals.push(residual);
    }

    /// All elements of a part of the side input with tag `side`.
    pub(crate) fn side(&self, access: Access, window: &[u8], key: &[u8]) -> Result<Vec<u8>, Error> {
        let (transform, side_input) = (self.transform.clone(), "side".to_owned());
        let window = Bytes::copy_from_slice(window);
        let key = match access {
            Access::Elements => StateKey::IterableSideInput { transform, side_input, window },
            Access::Values => {
                let key = Bytes::copy_from_slice(key);
                StateKey::MultimapSideInput { transform, side_input, window, key }
            }
            Access::Keys => StateKey::MultimapKeysSideInput { transform, side_input, window },
            Access::KeysAndValues => StateKey::MultimapKeysValuesSideInput { transform, side_input, window },
        };
        self.read_all(&key)
    }

    /// All pages of a cell.
    pub(crate) fn read_all(&self, key: &StateKey) -> Result<Vec<u8>, Error> {
        let (mut data, mut next) = (Vec::new(), None);
        loop {
            let page = self.state.get(key, next.as_ref())?;
            data.extend_from_slice(&page.data);
            next = page.next;
            if next.is_none() {
                return Ok(data);
            }
        }
    }

    /// A page, for tests that look at pages.
    pub(crate) fn page(&self, key: &StateKey, from: Option<&Bytes>) -> Result<worker::Page, Error> {
        self.state.get(key, from)
    }
}

/// How a side input is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Elements,
    Values,
    Keys,
    KeysAndValues,
}

/// A result on its way to the executor.
pub(crate) struct Answer {
    pub(crate) stage: Arc<StageSpec>,
    pub(crate) bundle: BundleId,
    pub(crate) result: Result<Outcome, Error>,
    done: Completion,
}

impl Answer {
    pub(crate) fn send(self) {
        (self.done)(self.bundle, self.result);
    }
}

/// How a worker treats bundles. The default is a worker without faults that answers at once.
pub(crate) trait Manner: Send + Sync {
    /// How many of the rows of a bundle to process, at least one.
    fn keep(&self, rows: usize, _splittable: bool) -> usize {
        rows
    }
    /// See [`Context::checkpoint`].
    fn checkpoint(&self, restriction: Range<u64>) -> (u64, i64) {
        (restriction.end, 0)
    }
    /// Sends a result, or changes it first, or keeps it, or lets it vanish.
    fn answer(&self, _shard: ShardId, answer: Answer) {
        answer.send();
    }
    /// A bundle is aborted.
    fn aborted(&self, _bundle: BundleId) {}
    /// A bundle's results are durable.
    fn finalized(&self, _shard: ShardId, _bundle: BundleId) {}
}

/// A worker without faults.
pub(crate) struct Faultless;

impl Manner for Faultless {}

/// See the file's head.
pub(crate) struct TestWorker {
    dofns: Arc<DoFns>,
    manner: Arc<dyn Manner>,
}

impl TestWorker {
    pub(crate) fn new(dofns: Arc<DoFns>, manner: Arc<dyn Manner>) -> Self {
        TestWorker { dofns, manner }
    }
}

impl Worker for TestWorker {
    fn open(&self, stage: Arc<StageSpec>, shard: ShardId) -> Result<Box<dyn Slot>, Error> {
        let body = Body::of(&stage)?;
        let dofns = stage.transforms.iter().map(|transform| {
            let name = std::str::from_utf8(&transform.dofn_payload).unwrap();
            self.dofns.get(name).cloned().ok_or_else(|| Error::Protocol(format!("no DoFn is called {name}")))
        });
        let dofns = dofns.collect::<Result<Vec<_>, _>>()?;
        Ok(Box::new(TestSlot { stage, shard, body, dofns, manner: self.manner.clone() }))
    }

    fn close(&self) {}
}

struct TestSlot {
    stage: Arc<StageSpec>,
    shard: ShardId,
    body: Body,
    dofns: Vec<DoFn>,
    manner: Arc<dyn Manner>,
}

impl Slot for TestSlot {
    fn start(&mut self, bundle: Bundle) {
        let Bundle { id, input, state, mut outputs, done, .. } = bundle;
        let rows: usize = input.iter().map(Batch::rows).sum();
        let absorbed = matches!(&self.stage.source.coder, Coder::Kv(_, value) if matches!(**value, Coder::Iterable(_)));
        let kept = if absorbed { rows } else { self.manner.keep(rows, self.stage.splittable) };
        let input = first_rows(&input, kept);
        let mut running = Running { slot: self, state: &*state, results: Results::default() };
        let counts = self.body.run(&input, &mut outputs, &mut running);
        let Results { metrics, residuals } = running.results;
        let result = counts.and_then(|counts| {
            let unprocessed = if kept < rows { vec![kept..rows] } else { Vec::new() };
            let metrics = counts.into_iter().chain(metrics).collect();
            Ok(Outcome { outputs: outputs.finish()?, unprocessed, residuals, metrics, ..Outcome::default() })
        });
        self.manner.answer(self.shard, Answer { stage: self.stage.clone(), bundle: id, result, done });
    }

    fn split(&mut self, _bundle: BundleId, _fraction: f64) {}

    fn progress(&mut self, _bundle: BundleId) -> Option<Progress> {
        None
    }

    fn abort(&mut self, bundle: BundleId) {
        self.manner.aborted(bundle);
    }

    fn finalize(&mut self, bundle: BundleId) {
        self.manner.finalized(self.shard, bundle);
    }
}

fn first_rows(input: &[Batch], mut rows: usize) -> Vec<Batch> {
    let cut = input.iter().map(|batch| {
        let taken = batch.rows().min(rows);
        rows -= taken;
        batch.slice(0..taken)
    });
    cut.filter(|batch| !batch.is_empty()).collect()
}

struct Running<'a> {
    slot: &'a TestSlot,
    state: &'a dyn StateAccess,
    results: Results,
}

impl Transforms for Running<'_> {
    fn start(&mut self, _transform: usize) -> Result<Vec<(usize, Batch)>, Error> {
        Ok(Vec::new())
    }

    fn process(&mut self, transform: usize, input: &Batch) -> Result<Vec<(usize, Batch)>, Error> {
        let mut context = Context {
            transform: self.slot.stage.transforms[transform].id.clone(),
            state: self.state,
            manner: &*self.slot.manner,
            out: BatchBuilder::new(),
            results: &mut self.results,
        };
        input.iter().try_for_each(|row| self.slot.dofns[transform](row, &mut context))?;
        let made = context.out.finish();
        Ok(if made.is_empty() { Vec::new() } else { vec![(0, made)] })
    }

    fn finish(&mut self, _transform: usize) -> Result<Vec<(usize, Batch)>, Error> {
        Ok(Vec::new())
    }
}

/// Chooses by dice: holds answers until they are released, loses bundles, cuts bundles and restrictions short.
pub(crate) struct Chance {
    dice: Mutex<Dice>,
    held: Mutex<Vec<Answer>>,
    /// Failures in a row, by shard and stage.
    lost: Mutex<BTreeMap<(ShardId, model::StageId), u32>>,
    lost_in_a_row_max: u32,
}

impl Chance {
    pub(crate) fn new(seed: u64, lost_in_a_row_max: u32) -> Self {
        Chance { dice: Mutex::new(Dice::new(seed)), held: Mutex::default(), lost: Mutex::default(), lost_in_a_row_max }
    }

    /// Sends one of the answers that are held, if there is one.
    pub(crate) fn release(&self, dice: &mut Dice) -> bool {
        let mut held = self.held.lock().unwrap();
        if held.is_empty() {
            return false;
        }
        let index = dice.below(held.len());
        let answer = held.swap_remove(index);
        drop(held);
        answer.send();
        true
    }
}

impl Manner for Chance {
    fn keep(&self, rows: usize, splittable: bool) -> usize {
        let mut dice = self.dice.lock().unwrap();
        let split = rows > 1 && dice.chance(if splittable { 40 } else { 5 });
        if split { 1 + dice.below(rows - 1) } else { rows }
    }

    fn checkpoint(&self, restriction: Range<u64>) -> (u64, i64) {
        let mut dice = self.dice.lock().unwrap();
        let size = (restriction.end - restriction.start) as usize;
        if size < 2 || dice.chance(50) {
            return (restriction.end, 0);
        }
        let delay_ms = if dice.chance(50) { dice.between(1, 5_000) } else { 0 };
        (restriction.start + 1 + dice.below(size - 1) as u64, delay_ms)
    }

    fn answer(&self, shard: ShardId, mut answer: Answer) {
        let mut dice = self.dice.lock().unwrap();
        let mut lost = self.lost.lock().unwrap();
        let in_a_row = lost.entry((shard, answer.stage.stage)).or_default();
        if *in_a_row < self.lost_in_a_row_max && dice.chance(8) {
            *in_a_row += 1;
            answer.result = match dice.chance(50) {
                true => Err(Error::Infrastructure("the worker is lost".to_owned())),
                false => Err(Error::User { transform: None, message: "this time only".to_owned() }),
            };
        } else {
            *in_a_row = 0;
        }
        if dice.chance(60) {
            self.held.lock().unwrap().push(answer);
        } else {
            answer.send();
        }
    }
}

/// A row in the global window at a time.
pub(crate) fn global_row(value: &[u8], timestamp: Timestamp) -> Row<'_> {
    Row { value, timestamp, windows: model::window::GLOBAL_SET, pane: model::pane::NO_FIRING }
}
