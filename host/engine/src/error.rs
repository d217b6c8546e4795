//! The one error of this crate. Broken invariants are not errors here: the engine asserts them.

use model::DecodeError;

use crate::state::StateError;

/// Why a grouping stage could not go on. Never user code: state that cannot be read is infrastructure, bytes that are
/// not what their coder says are somebody's bug.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// Keyed state could not be read.
    #[error("read keyed state: {0}")]
    State(#[from] StateError),
    /// A row or a cell is not what its coder says.
    #[error("decode a row or a cell of state: {0}")]
    Decode(#[from] DecodeError),
    /// Something that the engine does not do; the text names it.
    #[error("{0} is not supported")]
    Unsupported(String),
}
