//! The WIT package as Rust types, generated. Inputs borrow, results are owned.

#[allow(missing_docs, reason = "generated code; the WIT files are the documentation")]
mod generated {
    wasmtime::component::bindgen!({
        path: "../../wit/dofn-0.1.0",
        world: "stateless",
        ownership: Borrowing { duplicate_if_necessary: true },
        imports: { default: trappable },
    });
}

pub(crate) use generated::exports::purlin::dofn::{describe, lifecycle};
pub(crate) use generated::purlin::dofn::{host, types};
pub(crate) use generated::{Stateless, StatelessPre};
