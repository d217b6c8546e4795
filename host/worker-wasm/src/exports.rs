//! What a component exports: which interfaces are there is looked up once, and bound in every instance.

use wasmtime::Store;
use wasmtime::component::{Instance, InstancePre};

use crate::bindings::{describe, describe_keyed, keyed, lifecycle, processor};
use crate::host::HostState;

/// The interfaces of a component, not yet of an instance.
pub(crate) struct Interfaces {
    describe: describe::GuestIndices,
    lifecycle: lifecycle::GuestIndices,
    processor: processor::GuestIndices,
    stateful: Option<(describe_keyed::GuestIndices, keyed::GuestIndices)>,
}

/// The interfaces of an instance.
pub(crate) struct Exports {
    pub(crate) describe: describe::Guest,
    pub(crate) lifecycle: lifecycle::Guest,
    pub(crate) processor: processor::Guest,
    pub(crate) stateful: Option<(describe_keyed::Guest, keyed::Guest)>,
}

impl Interfaces {
    /// `stateful`: whether the component is of world `stateful`.
    pub(crate) fn new(pre: &InstancePre<HostState>, stateful: bool) -> wasmtime::Result<Self> {
        let both = || Ok::<_, wasmtime::Error>((describe_keyed::GuestIndices::new(pre)?, keyed::GuestIndices::new(pre)?));
        Ok(Interfaces {
            describe: describe::GuestIndices::new(pre)?,
            lifecycle: lifecycle::GuestIndices::new(pre)?,
            processor: processor::GuestIndices::new(pre)?,
            stateful: stateful.then(both).transpose()?,
        })
    }

    pub(crate) fn load(&self, store: &mut Store<HostState>, instance: &Instance) -> wasmtime::Result<Exports> {
        let stateful = match &self.stateful {
            Some((describe, keyed)) => Some((describe.load(&mut *store, instance)?, keyed.load(&mut *store, instance)?)),
            None => None,
        };
        Ok(Exports {
            describe: self.describe.load(&mut *store, instance)?,
            lifecycle: self.lifecycle.load(&mut *store, instance)?,
            processor: self.processor.load(&mut *store, instance)?,
            stateful,
        })
    }
}
