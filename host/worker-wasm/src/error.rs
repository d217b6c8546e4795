//! Why a component is refused. What goes wrong while a bundle runs is `worker::Error`.

use std::path::PathBuf;

/// A component that cannot be used, or an engine that cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Neither a core module nor a component.
    #[error("not a WebAssembly file: it begins with {begin}")]
    NotWasm {
        /// The first bytes.
        begin: String,
    },
    /// Native code is never taken from outside.
    #[error("precompiled code is refused: submit the portable .wasm file")]
    Precompiled,
    /// Over [`crate::Options::component_bytes_max`].
    #[error("component has {bytes} bytes, the limit is {max}")]
    TooLarge {
        /// Its size.
        bytes: usize,
        /// The limit.
        max: usize,
    },
    /// A core module that cannot be made a component, mostly because it does not describe its types.
    #[error("core module cannot be made a component (was it built with purlin::component!?): {0}")]
    Convert(String),
    /// It does not compile.
    #[error("not a valid WebAssembly file: {0}")]
    Invalid(String),
    /// It wants what no host of its world gives, for example WASI.
    #[error(
        "component imports {name}, which is not offered: a DoFn may import only purlin:dofn/host@0.1.0 and purlin:dofn/state@0.1.0"
    )]
    UnknownImport {
        /// The import.
        name: String,
    },
    /// It does not do what a DoFn component must.
    #[error("component does not export {name}")]
    MissingExport {
        /// The interface.
        name: &'static str,
    },
    /// The manifest section cannot be read, or says something else than the component.
    #[error("manifest: {0}")]
    Manifest(String),
    /// `describe.transforms` failed.
    #[error("component cannot describe itself: {0}")]
    Describe(String),
    /// The folder for compiled code is not safe or does not work.
    #[error("compile cache {}: {reason}", path.display())]
    Cache {
        /// The folder or file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// The engine cannot be made: the machine's fault or ours.
    #[error("WebAssembly engine: {0}")]
    Engine(String),
}
