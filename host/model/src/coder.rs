//! (being written)
/// Being written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Coder {
    /// Bytes.
    Bytes,
}
