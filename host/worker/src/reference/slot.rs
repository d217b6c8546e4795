//! Runs bundles of one slot of the native worker, here or on a thread of the slot's own.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};

use model::metrics::{MetricName, MetricValue};
use model::{Batch, BatchBuilder, BundleId, FiredTimer};

use super::commits::Calls;
use super::{Emitter, Factory, NativeDoFn};
use crate::body::{Body, Transforms};
use crate::finalization::{Finalizable, Unanswered};
use crate::{Bundle, Error, Outcome, Outputs, Progress, Slot, StageSpec};

/// What a slot's thread is to do.
pub(super) type Task = Box<dyn FnOnce(&mut Runner) + Send>;

pub(super) fn run_all(mut runner: Runner, tasks: &mpsc::Receiver<Task>) {
    while let Ok(task) = tasks.recv() {
        task(&mut runner);
    }
}

pub(super) struct NativeSlot {
    pub(super) runs: Runs,
    pub(super) control: Control,
    /// The stage's.
    pub(super) name: String,
    pub(super) finalizable: Arc<Mutex<Finalizable<Calls>>>,
    pub(super) unanswered: Unanswered,
}

pub(super) enum Runs {
    Here(Box<Runner>),
    There(mpsc::SyncSender<Task>),
}

impl Runs {
    fn run(&mut self, task: impl FnOnce(&mut Runner) + Send + 'static) {
        match self {
            Runs::Here(runner) => task(runner),
            Runs::There(sender) => {
                sender.send(Box::new(task)).expect("the slot's thread ends only when its sender is gone");
            }
        }
    }
}

#[derive(Clone)]
pub(super) struct Control {
    /// One more than the id of the last bundle that was to be aborted.
    pub(super) aborted: Arc<AtomicU64>,
    pub(super) closed: Arc<AtomicBool>,
}

impl Slot for NativeSlot {
    fn start(&mut self, bundle: Bundle) {
        self.runs.run(|runner| runner.run(bundle));
    }

    fn split(&mut self, _bundle: BundleId, _fraction: f64) {}

    fn progress(&mut self, _bundle: BundleId) -> Option<Progress> {
        None
    }

    fn abort(&mut self, bundle: BundleId) {
        self.control.aborted.store(bundle.0 + 1, Ordering::Relaxed);
    }

    fn finalize(&mut self, bundle: BundleId) {
        let Some(calls) = self.finalizable.lock().expect("nothing panics with the lock").take(bundle) else { return };
        let told = self.unanswered.tell(&self.name);
        self.runs.run(move |_| {
            calls.make();
            drop(told);
        });
    }
}

pub(super) struct Runner {
    pub(super) stage: Arc<StageSpec>,
    pub(super) body: Arc<Body>,
    pub(super) factories: Vec<Option<Factory>>,
    /// By transform; made at the first bundle and after a failure.
    pub(super) dofns: Vec<Option<(Box<dyn NativeDoFn>, Emitter)>>,
    pub(super) control: Control,
    pub(super) finalizable: Arc<Mutex<Finalizable<Calls>>>,
}

impl Runner {
    fn run(&mut self, bundle: Bundle) {
        let Bundle { id, input, timers, mut outputs, state, done, .. } = bundle;
        if self.dofns.is_empty() {
            self.dofns = self.made();
        }
        let body = self.body.clone();
        self.emitters().for_each(|emitter| emitter.state = Some(state.clone()));
        let metrics = body.run_with_timers(&input, &timers, &mut outputs, &mut Running { bundle: id, runner: self });
        self.emitters().for_each(|emitter| emitter.state = None);
        let outcome = metrics.and_then(|metrics| self.outcome(id, metrics, outputs));
        if outcome.is_err() {
            self.dofns.clear();
        }
        done(id, outcome);
    }

    fn emitters(&mut self) -> impl Iterator<Item = &mut Emitter> {
        self.dofns.iter_mut().flatten().map(|(_, emitter)| emitter)
    }

    fn made(&self) -> Vec<Option<(Box<dyn NativeDoFn>, Emitter)>> {
        let made = self.factories.iter().zip(&self.stage.transforms).map(|(factory, transform)| {
            let tags: Vec<String> = transform.outputs.iter().map(|(tag, _)| tag.clone()).collect();
            let builders = tags.iter().map(|_| BatchBuilder::new()).collect();
            let families = self.stage.timer_families.iter();
            let emitter = Emitter {
                transform: transform.id.clone(),
                tags,
                builders,
                metrics: Default::default(),
                state: None,
                families: families.map(|family| (family.transform.clone(), family.family.clone())).collect(),
                timers: Vec::new(),
                calls: Calls::default(),
            };
            factory.as_ref().map(|factory| (factory(), emitter))
        });
        made.collect()
    }

    fn outcome(
        &mut self,
        bundle: BundleId,
        mut metrics: Vec<(MetricName, MetricValue)>,
        outputs: Outputs,
    ) -> Result<Outcome, Error> {
        let (mut timers, mut calls) = (Vec::new(), Calls::default());
        for emitter in self.emitters() {
            metrics.extend(std::mem::take(&mut emitter.metrics));
            timers.append(&mut emitter.timers);
            calls.append(&mut emitter.calls);
        }
        let outputs = outputs.finish()?;
        let finalize = !calls.is_empty();
        if finalize {
            self.finalizable.lock().expect("nothing panics with the lock").add(bundle, calls);
        }
        Ok(Outcome { outputs, metrics, timers, finalize, ..Outcome::default() })
    }
}

struct Running<'a> {
    bundle: BundleId,
    runner: &'a mut Runner,
}

impl Running<'_> {
    fn call(
        &mut self,
        transform: usize,
        call: impl FnOnce(&mut dyn NativeDoFn, &mut Emitter) -> Result<(), String>,
    ) -> Result<Vec<(usize, Batch)>, Error> {
        let control = &self.runner.control;
        if control.closed.load(Ordering::Relaxed) || control.aborted.load(Ordering::Relaxed) == self.bundle.0 + 1 {
            return Err(Error::Aborted);
        }
        let (dofn, emitter) = self.runner.dofns[transform].as_mut().expect("a body runs every transform but Flattens");
        match call(dofn.as_mut(), emitter) {
            Ok(()) => Ok(emitter.take()),
            Err(message) => Err(Error::User { transform: Some(emitter.transform.clone()), message }),
        }
    }
}

impl Transforms for Running<'_> {
    fn start(&mut self, transform: usize) -> Result<Vec<(usize, Batch)>, Error> {
        self.call(transform, |dofn, emitter| dofn.start_bundle(emitter))
    }

    fn process(&mut self, transform: usize, input: &Batch) -> Result<Vec<(usize, Batch)>, Error> {
        self.call(transform, |dofn, emitter| input.iter().try_for_each(|row| dofn.process(row, emitter)))
    }

    fn timers(&mut self, transform: usize, due: &[FiredTimer]) -> Result<Vec<(usize, Batch)>, Error> {
        self.call(transform, |dofn, emitter| due.iter().try_for_each(|timer| dofn.on_timer(timer, emitter)))
    }

    fn finish(&mut self, transform: usize) -> Result<Vec<(usize, Batch)>, Error> {
        self.call(transform, |dofn, emitter| dofn.finish_bundle(emitter))
    }
}
