//! What can go wrong where rows, panes and timers are made ready. None of it is the user's code.

use model::DecodeError;

use crate::grouping::MergeError;
use crate::state::StateError;

/// Why a call failed. Nothing of it counts: its state writes are to be dropped.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// State could not be read.
    #[error("read the engine's state: {0}")]
    State(#[from] StateError),
    /// A row is not what the stage's coders say. Rows were checked where they entered, so this is our bug.
    #[error("read a row by its key: {0}")]
    Row(DecodeError),
    /// A cell is not what was written into it.
    #[error("the engine's state is corrupt: {0}")]
    Corrupt(String),
    /// The values of one key and window do not fit into one element.
    #[error("the values of one key in one window exceed {0}, more than one element can hold")]
    PaneTooLarge(&'static str),
    /// Windows could not be merged.
    #[error("merge windows: {0}")]
    Merger(#[from] MergeError),
    /// Whoever merges windows has said something that cannot be.
    #[error("the window function answered with {0} when it was asked which windows merge")]
    Merged(&'static str),
    /// A bundle set a timer that its stage cannot have.
    #[error("a timer {0}")]
    Timer(String),
    /// The windowing strategy cannot be run here.
    #[error("grouping does not support {0}")]
    Refused(String),
}

impl From<DecodeError> for Error {
    /// For bytes that come from state.
    fn from(error: DecodeError) -> Self {
        Error::Corrupt(error.to_string())
    }
}
