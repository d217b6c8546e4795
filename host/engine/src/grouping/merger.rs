//! Asks somebody else which windows merge: for window functions that only an SDK knows.
//!
//! The answer is not trusted: [`super::cells`] checks it against the windows that were asked about.

use bytes::Bytes;

/// Windows that become one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MergedWindows {
    /// The window that takes their place, encoded.
    pub result: Bytes,
    /// Which of the windows that were asked about it takes the place of, itself included if it was among them.
    pub sources: Vec<Bytes>,
}

/// The question could not be answered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct MergeError(pub String);

/// Merges the windows of one grouping stage.
pub trait WindowMerger {
    /// Which of `windows`, distinct and encoded, merge; those that are no source of anything stay as they are. The same
    /// windows get the same answer, in whatever order.
    fn merge(&mut self, windows: &[Bytes]) -> Result<Vec<MergedWindows>, MergeError>;
}

/// For stages that have nobody to ask, because they group by sessions or their windows do not merge.
#[derive(Clone, Copy, Debug)]
pub struct NoMerger;

impl WindowMerger for NoMerger {
    fn merge(&mut self, _windows: &[Bytes]) -> Result<Vec<MergedWindows>, MergeError> {
        Err(MergeError("nobody here knows how these windows merge".into()))
    }
}
