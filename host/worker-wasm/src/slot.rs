//! The worker contract on top of instances: a stage is planned once, a slot runs its bundles.

mod bisect;
mod keyed;
mod plan;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use model::metrics::{MetricName, MetricValue};
use model::{Batch, BundleId, EnvironmentId, FiredTimer, ShardId, TimerChange};
use worker::body::{Body, Transforms};
use worker::{Bundle, Error, Outcome, Progress, Slot, StageSpec, StateAccess, Worker};

use crate::bindings::types;
use crate::columns::lift;
use crate::host::LogSink;
use crate::instance::{Answer, Instance};
use crate::metrics::Sums;
use crate::trouble::Trouble;
use crate::{Component, Options};
use plan::{Node, Plan};

pub(crate) struct WasmWorker {
    components: BTreeMap<EnvironmentId, Arc<Component>>,
    options: Arc<Options>,
    logs: LogSink,
    closed: Arc<AtomicBool>,
}

impl WasmWorker {
    pub(crate) fn new(components: BTreeMap<EnvironmentId, Arc<Component>>, options: Arc<Options>, logs: LogSink) -> Self {
        WasmWorker { components, options, logs, closed: Arc::default() }
    }
}

impl Worker for WasmWorker {
    fn open(&self, stage: Arc<StageSpec>, _shard: ShardId) -> Result<Box<dyn Slot>, Error> {
        if self.closed.load(Ordering::Relaxed) {
            return Err(Error::Infrastructure("the worker for components is closed".to_owned()));
        }
        let plan = Plan::of(&stage, &self.components)?;
        let instances = plan.components.iter().map(|_| None).collect();
        let handles = vec![0; plan.nodes.len()];
        let guests = Guests { plan, instances, handles, options: self.options.clone(), logs: self.logs.clone() };
        Ok(Box::new(WasmSlot { body: Body::of(&stage)?, guests, closed: self.closed.clone() }))
    }

    /// Components do not hear of commits.
    fn settle(&self, _patience: Duration) -> Vec<String> {
        Vec::new()
    }

    fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
    }
}

struct WasmSlot {
    body: Body,
    guests: Guests,
    closed: Arc<AtomicBool>,
}

impl Slot for WasmSlot {
    fn start(&mut self, bundle: Bundle) {
        let (id, outcome, done) = self.run(bundle);
        if outcome.is_err() {
            // Whatever a guest has in memory belongs to a bundle that never was.
            self.guests.instances.fill_with(|| None);
        }
        done(id, outcome);
    }

    /// Bundles run to their end within `start`.
    fn split(&mut self, _bundle: BundleId, _fraction: f64) {}

    fn progress(&mut self, _bundle: BundleId) -> Option<Progress> {
        None
    }

    fn abort(&mut self, _bundle: BundleId) {}

    fn finalize(&mut self, _bundle: BundleId) {}
}

impl WasmSlot {
    fn run(&mut self, bundle: Bundle) -> (BundleId, Result<Outcome, Error>, worker::Completion) {
        let Bundle { id, input, timers, mut outputs, state, now_ms, done, .. } = bundle;
        let sums = self.guests.plan.nodes.iter().map(|_| Sums::default()).collect();
        let (guests, closed) = (&mut self.guests, &*self.closed);
        let mut running = Running { guests, sums, state, now_ms, timers: Vec::new(), closed };
        let ran = self.body.run_with_timers(&input, &timers, &mut outputs, &mut running);
        let outcome = ran.and_then(|mut metrics| {
            let timers = std::mem::take(&mut running.timers);
            metrics.extend(running.metrics());
            Ok(Outcome { outputs: outputs.finish()?, metrics, timers, ..Outcome::default() })
        });
        if outcome.is_ok() {
            self.guests.end_bundle();
        }
        (id, outcome, done)
    }
}

/// The instances of one slot.
struct Guests {
    plan: Plan,
    /// One per component of the plan; made when it is needed.
    instances: Vec<Option<Instance>>,
    /// The guest's number for each transform, while its component has an instance.
    handles: Vec<u32>,
    options: Arc<Options>,
    logs: LogSink,
}

impl Guests {
    /// Makes the component's instance with all its transforms, unless it is there.
    fn ensure(&mut self, component: usize) -> Result<(), Error> {
        if self.instances[component].is_some() {
            return Ok(());
        }
        let nodes = self.plan.nodes.iter().enumerate().filter_map(|(index, node)| Some((index, node.as_ref()?)));
        let mine: Vec<(usize, &Node)> = nodes.filter(|(_, node)| node.component == component).collect();
        let first = mine[0].1;
        let made = Instance::new(&self.plan.components[component], self.options.clone(), self.logs.clone());
        let mut instance = made.map_err(|trouble| first.trouble(&trouble, ""))?;
        for (index, node) in mine {
            self.handles[index] = node.opened(instance.open(&node.id, &node.name, &node.config))?;
        }
        self.instances[component] = Some(instance);
        Ok(())
    }

    fn end_bundle(&mut self) {
        for component in 0..self.instances.len() {
            if self.instances[component].as_mut().is_some_and(Instance::end_bundle) {
                self.give_up(component);
            }
        }
    }

    /// Drops an instance in which nothing has failed.
    fn give_up(&mut self, component: usize) {
        let Some(mut instance) = self.instances[component].take() else { return };
        for (node, handle) in self.plan.nodes.iter().zip(&self.handles) {
            if let Some(node) = node.as_ref().filter(|node| node.component == component) {
                instance.close(&node.id, *handle);
            }
        }
    }
}

impl Drop for Guests {
    fn drop(&mut self) {
        (0..self.instances.len()).for_each(|component| self.give_up(component));
    }
}

/// One bundle.
struct Running<'a> {
    guests: &'a mut Guests,
    /// By transform.
    sums: Vec<Sums>,
    state: Arc<dyn StateAccess>,
    now_ms: i64,
    /// Changes of timers so far.
    timers: Vec<TimerChange>,
    closed: &'a AtomicBool,
}

impl Running<'_> {
    /// A call without keys. `input`: the rows, none at the edges of a bundle.
    fn call(
        &mut self,
        transform: usize,
        input: Option<&Batch>,
        call: impl FnOnce(&mut Instance, &Node, u32) -> Answer<types::Outcome>,
    ) -> Result<Vec<(usize, Batch)>, Error> {
        match self.enter(transform, call)? {
            Ok(Ok(outcome)) => self.collect(transform, outcome, input),
            Ok(Err(failure)) => Err(self.guests.plan.node(transform).failure(failure)),
            Err(trouble) => Err(self.blame(transform, &trouble, input)),
        }
    }

    /// Calls the instance of a transform.
    fn enter<T>(
        &mut self,
        transform: usize,
        call: impl FnOnce(&mut Instance, &Node, u32) -> Answer<T>,
    ) -> Result<Answer<T>, Error> {
        if self.closed.load(Ordering::Relaxed) {
            return Err(Error::Aborted);
        }
        let component = self.guests.plan.node(transform).component;
        self.guests.ensure(component)?;
        let handle = self.guests.handles[transform];
        let node = self.guests.plan.node(transform);
        let instance = self.guests.instances[component].as_mut().expect("it was just made sure of");
        Ok(call(instance, node, handle))
    }

    fn collect(
        &mut self,
        transform: usize,
        outcome: types::Outcome,
        input: Option<&Batch>,
    ) -> Result<Vec<(usize, Batch)>, Error> {
        let node = self.guests.plan.node(transform);
        if let Some(rejection) = outcome.rejected.first() {
            return Err(node.rejected(rejection, outcome.rejected.len(), input));
        }
        self.sums[transform].add(outcome.metrics, &self.guests.options).map_err(|reason| node.error(&reason))?;
        let mut made = Vec::with_capacity(outcome.outputs.len());
        for emitted in outcome.outputs {
            let number = emitted.output;
            let unknown = || node.error(&format!("the component made something for output {number}, which it does not have"));
            let output = *node.outputs.get(number as usize).ok_or_else(unknown)?;
            let malformed = |reason| node.error(&format!("the component made a malformed batch for output {number}: {reason}"));
            if emitted.values.ends.is_empty() && emitted.values.bytes.is_empty() {
                continue;
            }
            let batch = lift(emitted, input, self.guests.plan.window_coder).map_err(malformed)?;
            made.extend(output.map(|output| (output, batch)));
        }
        Ok(made)
    }

    fn blame(&self, transform: usize, trouble: &Trouble, input: Option<&Batch>) -> Error {
        let node = self.guests.plan.node(transform);
        let place = input.map(|input| match bisect::failing_row(self.guests, node, trouble, input) {
            Some(row) => {
                format!("\nrow {row} of {} in its batch, first bytes {}", input.rows(), worker::body::hex(input.value(row)))
            }
            None => format!("\nin a batch of {} rows", input.rows()),
        });
        node.trouble(trouble, &place.unwrap_or_default())
    }

    fn metrics(self) -> Vec<(MetricName, MetricValue)> {
        let nodes = self.guests.plan.nodes.iter().zip(self.sums);
        nodes
            .filter_map(|(node, sums)| Some((node.as_ref()?, sums)))
            .flat_map(|(node, sums)| sums.named(&node.id, &node.name))
            .collect()
    }
}

impl Transforms for Running<'_> {
    fn start(&mut self, transform: usize) -> Result<Vec<(usize, Batch)>, Error> {
        self.call(transform, None, |instance, node, handle| instance.start(&node.id, handle))
    }

    fn process(&mut self, transform: usize, input: &Batch) -> Result<Vec<(usize, Batch)>, Error> {
        if self.guests.plan.node(transform).keyed.is_some() {
            return self.process_keyed(transform, input);
        }
        self.call(transform, Some(input), |instance, node, handle| instance.process(&node.id, handle, input, node.reads))
    }

    fn timers(&mut self, transform: usize, due: &[FiredTimer]) -> Result<Vec<(usize, Batch)>, Error> {
        self.call_timers(transform, due)
    }

    fn finish(&mut self, transform: usize) -> Result<Vec<(usize, Batch)>, Error> {
        self.call(transform, None, |instance, node, handle| instance.finish(&node.id, handle))
    }
}
