//! The WIT package as Rust types, generated. Inputs borrow, results are owned.

#[allow(missing_docs, reason = "generated code; the WIT files are the documentation")]
mod generated {
    wasmtime::component::bindgen!({
        path: "../../wit/dofn-0.1.0",
        world: "stateful",
        ownership: Borrowing { duplicate_if_necessary: true },
        imports: { default: trappable },
    });
}

pub(crate) use generated::exports::purlin::dofn::{describe, describe_keyed, keyed, lifecycle, processor};
pub(crate) use generated::purlin::dofn::{host, state, types};
