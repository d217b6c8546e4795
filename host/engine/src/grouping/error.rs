//! What can go wrong in grouping. None of it is the user's code.

use model::DecodeError;

use super::merger::MergeError;
use crate::state::StateError;

/// Why a call failed. Nothing of it counts: its state writes and its delta are to be dropped.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// State could not be read.
    #[error("read grouping state: {0}")]
    State(#[from] StateError),
    /// A row is not what the stage's coders say. Rows were checked where they entered, so this is our bug.
    #[error("read a row to be grouped: {0}")]
    Row(DecodeError),
    /// A cell is not what was written into it.
    #[error("grouping state is corrupt: {0}")]
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
