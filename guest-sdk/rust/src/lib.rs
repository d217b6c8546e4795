//! DoFns in Rust: plain functions natively, a WebAssembly component for a Purlin runner.
//!
//! ```
//! use purlin::prelude::*;
//!
//! /// Splits a line into words.
//! #[dofn]
//! fn split(line: &str, out: &mut Output<String>) {
//!     for word in line.split_whitespace() {
//!         out.emit(word.to_lowercase());
//!     }
//! }
//!
//! /// One line of the result.
//! #[dofn]
//! fn format((word, count): (&str, i64)) -> String {
//!     format!("{word}: {count}")
//! }
//!
//! purlin::component!(split, format);
//!
//! let mut out = Output::new();
//! split("So we'll live", &mut out);
//! assert_eq!(out.into_values(), ["so", "we'll", "live"]);
//! assert_eq!(format(("so", 2)), "so: 2");
//! ```
//!
//! `cargo build --profile guest --target wasm32-unknown-unknown` makes a core module of a crate (a `cdylib`) with such a
//! `component!`; hosts take it as it is, and `purlin component pack` makes a component of it.
//!
//! The crate knows the boundary (package `purlin:dofn`) and nothing of any host. Read in the order of the modules:
//! coders and elements, outputs, DoFns, state and timers, what else they may use, then how they are called.

// Generated code names the crate from inside as from outside.
extern crate self as purlin;

pub mod coder;
#[doc(hidden)]
pub mod component;
pub mod dofn;
pub mod element;
pub mod keyed;
pub mod log;
pub mod manifest;
pub mod metrics;
pub mod output;
pub mod runtime;
pub mod state;
pub mod stateful;
#[cfg(not(target_arch = "wasm32"))]
pub mod testing;
pub mod timers;

pub use coder::Coder;
pub use dofn::{Context, DoFn, Error, Reads, Result};
pub use element::{Decode, DecodeError, Element, Reader};
pub use metrics::{Counter, Distribution};
pub use output::{Output, Outputs};
pub use purlin_macros::{Outputs, States, dofn};
pub use state::{BagState, CombineFn, CombiningState, MapState, OrderedListState, SetState, States, ValueState};
pub use stateful::{FiredTimer, StatefulDoFn, Window};
pub use timers::{EventTimer, ProcessingTimer};

#[cfg(target_arch = "wasm32")]
#[doc(hidden)]
pub use component::{Exports, HostStore, bindings};
#[cfg(target_arch = "wasm32")]
#[doc(hidden)]
pub use wit_bindgen::rt as bindings_runtime;

/// What a file of DoFns usually needs.
pub mod prelude {
    pub use crate::state::{Max, Min, Sum};
    pub use crate::{
        BagState, CombineFn, CombiningState, Context, Counter, Decode, Distribution, DoFn, Element, EventTimer, FiredTimer,
        MapState, OrderedListState, Output, Outputs, ProcessingTimer, Reads, SetState, StatefulDoFn, States, ValueState, Window,
        dofn,
    };
}
