//! The one error of decoding untrusted bytes.

/// Bytes that are not what their coder says.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The input ended inside a value.
    #[error("input ends inside {0}")]
    Truncated(&'static str),
    /// The input cannot be a value of this kind.
    #[error("malformed {kind}: {reason}")]
    Malformed {
        /// What was being decoded.
        kind: &'static str,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// A value nests deeper than the host follows.
    #[error("value nests deeper than {0} levels")]
    TooDeep(usize),
}

impl DecodeError {
    /// A malformed value of `kind`.
    pub fn malformed(kind: &'static str, reason: &'static str) -> Self {
        DecodeError::Malformed { kind, reason }
    }
}
