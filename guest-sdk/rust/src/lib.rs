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
//! coders and elements, outputs, DoFns, what they may use, then how they are called.

// Generated code names the crate from inside as from outside.
extern crate self as purlin;

pub mod coder;
mod component;
pub mod dofn;
pub mod element;
pub mod log;
pub mod manifest;
pub mod metrics;
pub mod output;
pub mod runtime;

pub use coder::Coder;
pub use dofn::{Context, DoFn, Error, Reads, Result};
pub use element::{Decode, DecodeError, Element, Reader};
pub use metrics::{Counter, Distribution};
pub use output::{Output, Outputs};
pub use purlin_macros::{Outputs, dofn};

#[cfg(target_arch = "wasm32")]
#[doc(hidden)]
pub use component::{Exports, bindings};
#[cfg(target_arch = "wasm32")]
#[doc(hidden)]
pub use wit_bindgen::rt as bindings_runtime;

/// What a file of DoFns usually needs.
pub mod prelude {
    pub use crate::{Context, Counter, Decode, Distribution, DoFn, Element, Output, Outputs, Reads, dofn};
}
