//! A worker whose DoFns are Rust values of this process: the reference for the contract, and the worker of other crates' tests.
//!
//! DoFns are found by name (URN [`DOFN_NATIVE`], payload: the name). Bundles run on the calling thread, or, to exercise
//! completion from elsewhere, on a thread per slot: see [`slot`]. State and timers are in [`keyed`], calls after the commit in
//! [`commits`]; there is no splitting here.

mod commits;
mod keyed;
mod slot;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use model::batch::Row;
use model::metrics::{Distribution, MetricName, MetricValue};
use model::{Batch, BatchBuilder, FiredTimer, ShardId, TransformId};

use crate::body::Body;
use crate::finalization::{Finalizable, Unanswered};
use crate::{Error, Slot, StageSpec, StateAccess, TimerChange, Worker};

pub use keyed::{Cell, TimerId};

use commits::Calls;
use slot::{Control, NativeSlot, Runner, Runs, run_all};

/// DoFn URN of this worker.
pub const DOFN_NATIVE: &str = "purlin:dofn:native:v1";

/// URN of a counter of user code.
pub const USER_COUNTER: &str = "beam:metric:user:sum_int64:v1";
/// URN of a distribution of user code.
pub const USER_DISTRIBUTION: &str = "beam:metric:user:distribution_int64:v1";

/// A DoFn as a Rust value. Closures are DoFns without bundle edges. An error fails the bundle.
pub trait NativeDoFn: Send {
    /// A bundle begins.
    fn start_bundle(&mut self, _out: &mut Emitter) -> Result<(), String> {
        Ok(())
    }
    /// One element.
    fn process(&mut self, row: Row<'_>, out: &mut Emitter) -> Result<(), String>;
    /// A timer of the DoFn is due.
    fn on_timer(&mut self, timer: &FiredTimer, _out: &mut Emitter) -> Result<(), String> {
        Err(format!("no timer was set, but one of family {} is due", timer.family))
    }
    /// A bundle ends.
    fn finish_bundle(&mut self, _out: &mut Emitter) -> Result<(), String> {
        Ok(())
    }
}

impl<F: FnMut(Row<'_>, &mut Emitter) -> Result<(), String> + Send> NativeDoFn for F {
    fn process(&mut self, row: Row<'_>, out: &mut Emitter) -> Result<(), String> {
        self(row, out)
    }
}

/// Takes what a DoFn makes.
pub struct Emitter {
    transform: TransformId,
    tags: Vec<String>,
    builders: Vec<BatchBuilder>,
    metrics: BTreeMap<MetricName, MetricValue>,
    /// During a bundle.
    state: Option<Arc<dyn StateAccess>>,
    /// Transform and id of each timer family of the stage.
    families: Vec<(TransformId, String)>,
    timers: Vec<TimerChange>,
    /// To be made after the bundle's commit.
    calls: Calls,
}

impl Emitter {
    /// An element for the output with a tag. Tags that the pipeline does not use are dropped.
    pub fn emit(&mut self, tag: &str, row: Row<'_>) {
        if let Some(output) = self.tags.iter().position(|known| known == tag) {
            self.builders[output].push(row);
        }
    }

    /// Adds to a counter.
    pub fn count(&mut self, name: &str, by: i64) {
        self.add(USER_COUNTER, name, MetricValue::SumInt(by));
    }

    /// Adds a value to a distribution.
    pub fn measure(&mut self, name: &str, value: i64) {
        let one = Distribution { count: 1, sum: value, min: value, max: value };
        self.add(USER_DISTRIBUTION, name, MetricValue::DistributionInt(one));
    }

    fn add(&mut self, urn: &str, name: &str, value: MetricValue) {
        let name = user_metric(urn, &self.transform, "native", name);
        match self.metrics.get_mut(&name) {
            Some(sum) => assert!(sum.merge(&value), "one URN has one kind of value"),
            None => drop(self.metrics.insert(name, value)),
        }
    }

    fn take(&mut self) -> Vec<(usize, Batch)> {
        let built = self.builders.iter_mut().enumerate().filter(|(_, builder)| !builder.is_empty());
        built.map(|(output, builder)| (output, builder.finish())).collect()
    }
}

/// The name of a metric of user code.
pub fn user_metric(urn: &str, transform: &TransformId, namespace: &str, name: &str) -> MetricName {
    let label = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    let labels = BTreeMap::from([label("PTRANSFORM", transform.as_str()), label("NAMESPACE", namespace), label("NAME", name)]);
    MetricName { urn: urn.to_owned(), labels }
}

type Factory = Arc<dyn Fn() -> Box<dyn NativeDoFn> + Send + Sync>;

/// The worker. Give it DoFns, then share it.
#[derive(Default)]
pub struct NativeWorker {
    dofns: BTreeMap<String, Factory>,
    asynchronous: bool,
    closed: Arc<AtomicBool>,
    unanswered: Unanswered,
}

impl NativeWorker {
    /// A worker that knows no DoFn and completes bundles before `start` returns.
    pub fn new() -> Self {
        Self::default()
    }

    /// Completes bundles from a thread of their own.
    pub fn asynchronous(mut self) -> Self {
        self.asynchronous = true;
        self
    }

    /// Adds a DoFn: `make` is called for every slot, and again after a failure.
    pub fn with<D: NativeDoFn + 'static>(mut self, name: &str, make: impl Fn() -> D + Send + Sync + 'static) -> Self {
        self.dofns.insert(name.to_owned(), Arc::new(move || Box::new(make())));
        self
    }
}

impl Worker for NativeWorker {
    fn open(&self, stage: Arc<StageSpec>, _shard: ShardId) -> Result<Box<dyn Slot>, Error> {
        if self.closed.load(Ordering::Relaxed) {
            return Err(Error::Infrastructure("the native worker is closed".to_owned()));
        }
        let body = Body::of(&stage)?;
        let factories = stage.transforms.iter().map(|transform| {
            if transform.urn == model::urn::FLATTEN {
                return Ok(None);
            }
            let name = std::str::from_utf8(&transform.dofn_payload).unwrap_or_default();
            let found = self.dofns.get(name).filter(|_| transform.dofn_urn == DOFN_NATIVE);
            let unknown = || {
                Error::Protocol(format!("transform {} is not a DoFn of this worker: {} {name}", transform.id, transform.dofn_urn))
            };
            found.cloned().map(Some).ok_or_else(unknown)
        });
        let factories = factories.collect::<Result<Vec<_>, _>>()?;
        let control = Control { aborted: Arc::new(AtomicU64::new(0)), closed: self.closed.clone() };
        let (name, finalizable) = (stage.name.clone(), Arc::<Mutex<Finalizable<Calls>>>::default());
        let body = Arc::new(body);
        let runner =
            Runner { stage, body, factories, dofns: Vec::new(), control: control.clone(), finalizable: finalizable.clone() };
        let slot = |runs| NativeSlot { runs, control, name, finalizable, unanswered: self.unanswered.clone() };
        if !self.asynchronous {
            return Ok(Box::new(slot(Runs::Here(Box::new(runner)))));
        }
        // One bundle at a time per slot.
        let (sender, receiver) = mpsc::sync_channel(1);
        std::thread::spawn(move || run_all(runner, &receiver));
        Ok(Box::new(slot(Runs::There(sender))))
    }

    fn settle(&self, patience: Duration) -> Vec<String> {
        self.unanswered.wait(patience).into_keys().collect()
    }

    fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
    }
}
