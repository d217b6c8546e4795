//! The component itself: exports of world `purlin:dofn/stateless`, on top of [`crate::runtime`].
//!
//! Only the macro is here natively, where it checks names and types and exports nothing.

/// Makes the crate a component of these DoFns, and embeds its manifest.
///
/// ```
/// use purlin::prelude::*;
///
/// #[dofn]
/// fn double(n: i64) -> i64 {
///     n * 2
/// }
///
/// purlin::component!(double);
/// ```
#[macro_export]
macro_rules! component {
    ($($dofn:ty),+ $(,)?) => {
        const _: () = {
            const TRANSFORMS: &[$crate::manifest::Description] = &[$($crate::manifest::description::<$dofn>()),+];
            const LENGTH: usize = $crate::manifest::json_length(TRANSFORMS);
            $crate::__export!(TRANSFORMS, LENGTH, $($dofn),+);
        };
    };
}

#[cfg(not(target_arch = "wasm32"))]
#[doc(hidden)]
#[macro_export]
macro_rules! __export {
    ($transforms:ident, $length:ident, $($dofn:ty),+) => {
        const _: [u8; $length] = $crate::manifest::json($transforms);
        const _: &[$crate::runtime::Registered] = &[$($crate::runtime::Registered::of::<$dofn>()),+];
    };
}

#[cfg(target_arch = "wasm32")]
#[doc(hidden)]
#[macro_export]
macro_rules! __export {
    ($transforms:ident, $length:ident, $($dofn:ty),+) => {
        // Not `#[used]`: the section is made from any static, and the static itself need not be in memory too.
        #[unsafe(link_section = "purlin:manifest")]
        static MANIFEST: [u8; $length] = $crate::manifest::json($transforms);

        enum Registry {}
        impl $crate::Exports for Registry {
            const REGISTERED: &'static [$crate::runtime::Registered] = &[$($crate::runtime::Registered::of::<$dofn>()),+];
        }
        $crate::bindings::export!(Registry with_types_in $crate::bindings);
    };
}

#[cfg(target_arch = "wasm32")]
pub use wasm::*;

#[cfg(target_arch = "wasm32")]
mod wasm {
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
            T::REGISTERED.iter().map(|registered| transform(&registered.description)).collect()
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
            drop(closed);
        }
    }

    impl<T: Exports> processor::Guest for T {
        fn start_bundle(handle: u32) -> Result<types::Outcome, types::Failure> {
            with_instance(handle, |instance| instance.start_bundle())
        }

        fn process(handle: u32, input: types::Batch) -> Result<types::Outcome, types::Failure> {
            let rows = Input {
                values: &input.values.bytes,
                ends: &input.values.ends,
                timestamps: &input.timestamps,
                windows: column(&input.windows),
                panes: column(&input.panes),
            };
            with_instance(handle, |instance| instance.process(&rows))
        }

        fn finish_bundle(handle: u32) -> Result<types::Outcome, types::Failure> {
            with_instance(handle, |instance| instance.finish_bundle())
        }
    }

    fn column(dictionary: &types::Dictionary) -> Column<'_> {
        Column { bytes: &dictionary.entries.bytes, ends: &dictionary.entries.ends, index: &dictionary.index }
    }

    fn with_instance(
        handle: u32,
        call: impl FnOnce(&mut dyn Instance) -> Result<Outcome, Failure>,
    ) -> Result<types::Outcome, types::Failure> {
        let slot = handle as usize;
        let taken = INSTANCES.with_borrow_mut(|instances| instances.get_mut(slot).and_then(Option::take));
        let mut instance = taken.ok_or_else(|| types::Failure::Permanent(format!("no instance has handle {handle}")))?;
        let result = call(instance.as_mut());
        INSTANCES.with_borrow_mut(|instances| instances[slot] = Some(instance));
        result.map(outcome).map_err(failure)
    }

    fn outcome(outcome: Outcome) -> types::Outcome {
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

    fn transform(description: &Description) -> Transform {
        let mut coders = Vec::new();
        let input = add_coder(&mut coders, description.input);
        let outputs = description.outputs.iter();
        let outputs =
            outputs.map(|output| Output { tag: output.tag.into(), coder: add_coder(&mut coders, output.coder) }).collect();
        let reads = description.reads;
        let reads = describe::Reads { timestamps: reads.timestamps, windows: reads.windows, panes: reads.panes };
        Transform { name: description.name.into(), coders, input, outputs, reads }
    }

    fn add_coder(coders: &mut Vec<describe::Coder>, coder: &Coder) -> u32 {
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
}

/// Generated from the WIT package.
#[cfg(target_arch = "wasm32")]
#[doc(hidden)]
#[allow(unsafe_code, missing_docs, unreachable_pub, clippy::all, reason = "generated code")]
pub mod bindings {
    wit_bindgen::generate!({
        path: "../../wit/dofn-0.1.0",
        world: "stateless",
        pub_export_macro: true,
        default_bindings_module: "purlin::bindings",
        runtime_path: "::purlin::bindings_runtime",
    });
}
