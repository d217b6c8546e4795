//! DoFns in WebAssembly components: compiled once per process, run synchronously on the thread of the shard.
//!
//! ```text
//!  bytes -> artifact (kinds, manifest) -> engine (compile, cache, limits) -> Component
//!  stage -> worker (slots) -> instance (store, calls, traps) -> columns (batches in and out)
//!                                                            -> runs, state (keys, windows, state and timers)
//! ```
//!
//! One [`WasmEngine`] per process; a [`Component`] per digest; in each slot one instance per component, rebuilt after a trap
//! and recycled when its memory has grown. The boundary is package `purlin:dofn` (folder `wit`), crossed once per batch.
//! Everything that a guest returns is untrusted; time, memory, output, logs and metrics are limited ([`Options`]).
//! This crate is the only owner of wasmtime. It knows no ledger and no protocol buffers.

pub mod artifact;
mod bindings;
mod columns;
mod compile_cache;
mod component;
mod engine;
mod error;
mod exports;
mod host;
mod instance;
pub mod manifest;
mod metrics;
mod options;
pub mod payload;
mod runs;
mod slot;
mod state;
mod trouble;

pub use artifact::{Kind, pack};
pub use component::Component;
pub use engine::WasmEngine;
pub use error::Error;
pub use host::{LogEntry, LogLevel, LogSink};
pub use manifest::Manifest;
pub use options::Options;
