//! Schemas of rows, as plain data. (Being completed together with the row coder.)

use crate::{DecodeError, Reader};

/// The fields of a row.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Schema {}

impl Schema {
    pub(crate) fn skip(&self, _reader: &mut Reader<'_>, _depth: usize) -> Result<(), DecodeError> {
        Err(DecodeError::malformed("row", "rows are opaque here"))
    }
}
