//! What every component exports: descriptions, instances, and bundles of DoFns without state.

use std::cell::RefCell;

use super::bindings::exports::purlin::dofn::describe::{self, Output, Transform};
use super::bindings::exports::purlin::dofn::lifecycle::{self, Grant};
use super::bindings::exports::purlin::dofn::processor;
use super::bindings::purlin::dofn::host;
use super::bindings::purlin::dofn::types;
use crate::Coder;
use crate::log::Level;
use crate::manifest::Description;
use crate::metrics::ChangeBy;
use crate::output::Segment;
use crate::runtime::{Column, Failure, Input, Instance, Outcome, Registered};

/// What `component!` makes a type for.
pub trait Exports {
    /// The transforms of the component.
    const REGISTERED: &'static [Registered];
}

thread_local! {
    /// Opened instances by handle. Taken out while they run, so that nothing is borrowed across user code.
    static INSTANCES: RefCell<Vec<Option<Box<dyn Instance>>>> = const { RefCell::new(Vec::new()) };
}

pub(crate) fn log(level: Level, message: &str) {
    host::log(host_level(level), message);
}

pub(crate) fn emit(output: u32, segment: Segment) {
    host::emit(&emitted(output, segment));
}

impl<T: Exports> describe::Guest for T {
    fn transforms() -> Vec<Transform> {
        let plain = T::REGISTERED.iter().filter(|registered| registered.description.keyed.is_none());
        plain.map(|registered| transform(&registered.description)).collect()
    }
}

impl<T: Exports> lifecycle::Guest for T {
    fn open(name: String, config: Vec<u8>, grant: Grant) -> Result<u32, types::Failure> {
        std::panic::set_hook(Box::new(|panic| log(Level::Error, &panic.to_string())));
        crate::log::set_level(guest_level(grant.log_level));
        let registered = T::REGISTERED.iter().find(|registered| registered.description.name == name);
        let registered = registered.ok_or_else(|| types::Failure::Permanent(format!("no transform is called {name}")))?;
        let instance = registered.open(&config, grant.flush_bytes as usize).map_err(failure)?;
        Ok(INSTANCES.with_borrow_mut(|instances| {
            let free = instances.iter().position(Option::is_none).unwrap_or_else(|| {
                instances.push(None);
                instances.len() - 1
            });
            instances[free] = Some(instance);
            free as u32
        }))
    }

    fn close(handle: u32) {
        let closed = INSTANCES.with_borrow_mut(|instances| instances.get_mut(handle as usize).and_then(Option::take));
        if let Some(mut instance) = closed {
            instance.teardown();
        }
    }
}

impl<T: Exports> processor::Guest for T {
    fn start_bundle(handle: u32) -> Result<types::Outcome, types::Failure> {
        with_instance(handle, |instance| instance.start_bundle()).map(outcome)
    }

    fn process(handle: u32, input: types::Batch) -> Result<types::Outcome, types::Failure> {
        with_instance(handle, |instance| instance.process(&rows(&input))).map(outcome)
    }

    fn finish_bundle(handle: u32) -> Result<types::Outcome, types::Failure> {
        with_instance(handle, |instance| instance.finish_bundle()).map(outcome)
    }
}

pub(super) fn rows(input: &types::Batch) -> Input<'_> {
    Input {
        values: &input.values.bytes,
        ends: &input.values.ends,
        timestamps: &input.timestamps,
        windows: column(&input.windows),
        panes: column(&input.panes),
    }
}

pub(super) fn column(dictionary: &types::Dictionary) -> Column<'_> {
    Column { bytes: &dictionary.entries.bytes, ends: &dictionary.entries.ends, index: &dictionary.index }
}

pub(super) fn with_instance<R>(
    handle: u32,
    call: impl FnOnce(&mut dyn Instance) -> Result<R, Failure>,
) -> Result<R, types::Failure> {
    let slot = handle as usize;
    let taken = INSTANCES.with_borrow_mut(|instances| instances.get_mut(slot).and_then(Option::take));
    let mut instance = taken.ok_or_else(|| types::Failure::Permanent(format!("no instance has handle {handle}")))?;
    let result = call(instance.as_mut());
    INSTANCES.with_borrow_mut(|instances| instances[slot] = Some(instance));
    result.map_err(failure)
}

pub(super) fn outcome(outcome: Outcome) -> types::Outcome {
    let rejection = |rejection: crate::runtime::Rejection| types::Rejection {
        row: rejection.row,
        code: rejection.code.into(),
        detail: rejection.detail,
    };
    let metric = |change: crate::metrics::Change| types::Metric {
        namespace: change.namespace.into(),
        name: change.name.into(),
        change: match change.by {
            ChangeBy::Counter(by) => types::Change::Counter(by),
            ChangeBy::Distribution { count, sum, min, max } => {
                types::Change::Distribution(types::Distribution { count, sum, min, max })
            }
        },
    };
    types::Outcome {
        outputs: outcome.outputs.into_iter().map(|(index, segment)| emitted(index, segment)).collect(),
        rejected: outcome.rejected.into_iter().map(rejection).collect(),
        metrics: outcome.metrics.into_iter().map(metric).collect(),
    }
}

fn emitted(output: u32, segment: Segment) -> types::Emitted {
    let nothing = || types::Dictionary { entries: types::Rows { bytes: Vec::new(), ends: Vec::new() }, index: Vec::new() };
    types::Emitted {
        output,
        values: types::Rows { bytes: segment.values, ends: segment.ends },
        origin: segment.origin,
        timestamps: segment.timestamps,
        windows: types::Dictionary {
            entries: types::Rows { bytes: segment.window_bytes, ends: segment.window_ends },
            index: segment.window_index,
        },
        panes: nothing(),
    }
}

pub(super) fn transform(description: &Description) -> Transform {
    let mut coders = Vec::new();
    let input = add_coder(&mut coders, description.input);
    let outputs = description.outputs.iter();
    let outputs = outputs.map(|output| Output { tag: output.tag.into(), coder: add_coder(&mut coders, output.coder) }).collect();
    let reads = description.reads;
    let reads = describe::Reads { timestamps: reads.timestamps, windows: reads.windows, panes: reads.panes };
    Transform { name: description.name.into(), coders, input, outputs, reads }
}

pub(super) fn add_coder(coders: &mut Vec<describe::Coder>, coder: &Coder) -> u32 {
    let parts = coder.parts().into_iter().flatten().map(|part| add_coder(coders, part)).collect();
    coders.push(describe::Coder { urn: coder.urn().into(), payload: Vec::new(), parts });
    coders.len() as u32 - 1
}

fn failure(failure: Failure) -> types::Failure {
    types::Failure::Permanent(failure.0)
}

fn host_level(level: Level) -> types::Level {
    match level {
        Level::Trace => types::Level::Trace,
        Level::Debug => types::Level::Debug,
        Level::Info => types::Level::Info,
        Level::Warn => types::Level::Warn,
        Level::Error => types::Level::Error,
    }
}

fn guest_level(level: types::Level) -> Level {
    match level {
        types::Level::Trace => Level::Trace,
        types::Level::Debug => Level::Debug,
        types::Level::Info => Level::Info,
        types::Level::Warn => Level::Warn,
        types::Level::Error => Level::Error,
    }
}
