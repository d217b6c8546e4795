//! A worker of closures that may read side inputs and leave restrictions, and whose bundles a test may hold back, lose,
//! cut short or answer wrongly.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use model::batch::Row;
use model::metrics::{MetricName, MetricValue};
use model::{Batch, BatchBuilder, BundleId, Coder, FiredTimer, RawTime, ShardId, TimerChange, Timestamp, TransformId};
use worker::body::{Body, Transforms};
use worker::reference::{USER_COUNTER, user_metric};
use worker::{Bundle, Completion, Error, Outcome, Progress, Residual, Slot, StageSpec, StateAccess, StateKey, Worker};

use crate::dice::Dice;

/// What a transform does with a row.
pub(crate) type DoFn = Arc<dyn Fn(Row<'_>, &mut Context<'_>) -> Result<(), Error> + Send + Sync>;

/// What a transform does when one of its timers is due.
pub(crate) type OnTimer = Arc<dyn Fn(&FiredTimer, &mut Context<'_>) -> Result<(), Error> + Send + Sync>;

/// DoFns by name.
#[derive(Clone, Default)]
pub(crate) struct DoFns {
    of_rows: BTreeMap<String, DoFn>,
    of_timers: BTreeMap<String, OnTimer>,
}

impl DoFns {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    pub(crate) fn insert(&mut self, name: String, dofn: DoFn) {
        self.of_rows.insert(name, dofn);
    }

    /// What the DoFn of a keyed stage does with timers.
    pub(crate) fn insert_on_timer(&mut self, name: String, on_timer: OnTimer) {
        self.of_timers.insert(name, on_timer);
    }
}

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
    timers: Vec<TimerChange>,
}

/// Which timer: its family, tag, encoded key and encoded window.
#[derive(Clone, Debug)]
pub(crate) struct TimerId {
    pub(crate) family: usize,
    pub(crate) tag: Vec<u8>,
    pub(crate) key: Bytes,
    pub(crate) window: Bytes,
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

    /// The SDK's clock.
    pub(crate) fn now_ms(&self) -> i64 {
        self.manner.now_ms()
    }

    /// A cell of the transform's user state.
    pub(crate) fn bag(&self, state: &str, key: &Bytes, window: &Bytes) -> StateKey {
        let (transform, state) = (self.transform.clone(), state.to_owned());
        StateKey::Bag { transform, state, window: window.clone(), key: key.clone() }
    }

    pub(crate) fn transform(&self) -> TransformId {
        self.transform.clone()
    }

    pub(crate) fn append(&self, key: &StateKey, data: Vec<u8>) -> Result<(), Error> {
        self.state.append(key, data.into())
    }

    pub(crate) fn clear(&self, key: &StateKey) -> Result<(), Error> {
        self.state.clear(key)
    }

    pub(crate) fn set_timer(&mut self, id: TimerId, fire: impl Into<RawTime>, hold: impl Into<RawTime>) {
        let TimerId { family, tag, key, window } = id;
        let set = Some((fire.into(), hold.into(), Bytes::from_static(model::pane::NO_FIRING)));
        self.results.timers.push(TimerChange { family, tag: tag.into(), key, window, set });
    }

    pub(crate) fn clear_timer(&mut self, id: TimerId) {
        let TimerId { family, tag, key, window } = id;
        self.results.timers.push(TimerChange { family, tag: tag.into(), key, window, set: None });
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
    fn keep(&self, _stage: &StageSpec, rows: usize) -> usize {
        rows
    }
    /// See [`Context::now_ms`].
    fn now_ms(&self) -> i64 {
        0
    }
    /// See [`Context::checkpoint`].
    fn checkpoint(&self, restriction: Range<u64>) -> (u64, i64) {
        (restriction.end, 0)
    }
    /// Sends a result, or changes it first, or keeps it, or lets it vanish.
    fn answer(&self, _shard: ShardId, answer: Answer) {
        answer.send();
    }
    /// What is known of a bundle that runs.
    fn progress(&self) -> Option<Progress> {
        None
    }
    /// A bundle is aborted.
    fn aborted(&self, _bundle: BundleId) {}
    /// A bundle's results are durable.
    fn finalized(&self, _shard: ShardId, _bundle: BundleId) {}
    /// See [`Worker::settle`].
    fn settle(&self, _patience: Duration) -> Vec<String> {
        Vec::new()
    }
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
        let name = |transform: &worker::TransformSpec| std::str::from_utf8(&transform.dofn_payload).unwrap().to_owned();
        let names: Vec<String> = stage.transforms.iter().map(name).collect();
        let known = |name: &String| self.dofns.of_rows.get(name).cloned();
        let dofns = names.iter().map(|name| known(name).ok_or_else(|| Error::Protocol(format!("no DoFn is called {name}"))));
        let dofns = dofns.collect::<Result<Vec<_>, _>>()?;
        let on_timer = names.iter().map(|name| self.dofns.of_timers.get(name).cloned()).collect();
        Ok(Box::new(TestSlot { stage, shard, body, dofns, on_timer, manner: self.manner.clone() }))
    }

    fn settle(&self, patience: Duration) -> Vec<String> {
        self.manner.settle(patience)
    }

    fn close(&self) {}
}

struct TestSlot {
    stage: Arc<StageSpec>,
    shard: ShardId,
    body: Body,
    dofns: Vec<DoFn>,
    /// Those of keyed stages.
    on_timer: Vec<Option<OnTimer>>,
    manner: Arc<dyn Manner>,
}

impl Slot for TestSlot {
    fn start(&mut self, bundle: Bundle) {
        let Bundle { id, input, timers, state, mut outputs, done, .. } = bundle;
        let rows: usize = input.iter().map(Batch::rows).sum();
        let absorbed = matches!(&self.stage.source.coder, Coder::Kv(_, value) if matches!(**value, Coder::Iterable(_)));
        let keyed = self.on_timer.iter().any(Option::is_some);
        let kept = if absorbed || keyed { rows } else { self.manner.keep(&self.stage, rows) };
        let input = first_rows(&input, kept);
        let mut running = Running { slot: self, state: &*state, results: Results::default() };
        let counts = self.body.run_with_timers(&input, &timers, &mut outputs, &mut running);
        let Results { metrics, residuals, timers } = running.results;
        let result = counts.and_then(|counts| {
            let unprocessed = if kept < rows { vec![kept..rows] } else { Vec::new() };
            let metrics = counts.into_iter().chain(metrics).collect();
            Ok(Outcome { outputs: outputs.finish()?, unprocessed, residuals, metrics, timers, ..Outcome::default() })
        });
        self.manner.answer(self.shard, Answer { stage: self.stage.clone(), bundle: id, result, done });
    }

    fn split(&mut self, _bundle: BundleId, _fraction: f64) {}

    fn progress(&mut self, _bundle: BundleId) -> Option<Progress> {
        self.manner.progress()
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

impl Running<'_> {
    fn call(
        &mut self,
        transform: usize,
        call: impl FnOnce(&mut Context<'_>) -> Result<(), Error>,
    ) -> Result<Vec<(usize, Batch)>, Error> {
        let mut context = Context {
            transform: self.slot.stage.transforms[transform].id.clone(),
            state: self.state,
            manner: &*self.slot.manner,
            out: BatchBuilder::new(),
            results: &mut self.results,
        };
        call(&mut context)?;
        let made = context.out.finish();
        Ok(if made.is_empty() { Vec::new() } else { vec![(0, made)] })
    }
}

impl Transforms for Running<'_> {
    fn start(&mut self, _transform: usize) -> Result<Vec<(usize, Batch)>, Error> {
        Ok(Vec::new())
    }

    fn process(&mut self, transform: usize, input: &Batch) -> Result<Vec<(usize, Batch)>, Error> {
        let dofn = self.slot.dofns[transform].clone();
        self.call(transform, |context| input.iter().try_for_each(|row| dofn(row, context)))
    }

    fn timers(&mut self, transform: usize, due: &[FiredTimer]) -> Result<Vec<(usize, Batch)>, Error> {
        let on_timer = self.slot.on_timer[transform].clone().expect("only keyed DoFns have timers");
        let mut made = Vec::new();
        for timer in due {
            made.extend(self.call(transform, |context| on_timer(timer, context))?);
        }
        Ok(made)
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
    now_ms: Arc<AtomicI64>,
    /// Of the plan. What is asked on the side has a number behind them, and its shard waits.
    stages: usize,
    draining: AtomicBool,
}

impl Chance {
    pub(crate) fn new(seed: u64, lost_in_a_row_max: u32, now_ms: Arc<AtomicI64>, stages: usize) -> Self {
        let dice = Mutex::new(Dice::new(seed));
        Chance {
            dice,
            held: Mutex::default(),
            lost: Mutex::default(),
            lost_in_a_row_max,
            now_ms,
            stages,
            draining: AtomicBool::new(false),
        }
    }

    /// The job is drained from now on.
    pub(crate) fn drain(&self) {
        self.draining.store(true, Ordering::SeqCst);
    }

    fn is_aside(&self, stage: &StageSpec) -> bool {
        stage.stage.0 as usize >= self.stages
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
    fn now_ms(&self) -> i64 {
        self.now_ms.load(Ordering::SeqCst)
    }

    fn keep(&self, stage: &StageSpec, rows: usize) -> usize {
        // What is left of a restriction when the job is drained is not asked to split again.
        let is_whole = self.is_aside(stage) || (stage.splittable && self.draining.load(Ordering::SeqCst));
        let mut dice = self.dice.lock().unwrap();
        let split = rows > 1 && !is_whole && dice.chance(if stage.splittable { 40 } else { 5 });
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
        // What is asked on the side is part of a bundle of its stage.
        let is_aside = self.is_aside(&answer.stage);
        let stage = model::StageId(answer.stage.stage.0 % self.stages as u32);
        let in_a_row = lost.entry((shard, stage)).or_default();
        if *in_a_row < self.lost_in_a_row_max && dice.chance(8) {
            *in_a_row += 1;
            answer.result = match dice.chance(50) {
                true => Err(Error::Infrastructure("the worker is lost".to_owned())),
                false => Err(Error::User { transform: None, message: "this time only".to_owned() }),
            };
        } else if !is_aside {
            *in_a_row = 0;
        }
        if dice.chance(60) && !is_aside {
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
