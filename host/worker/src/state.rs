//! State and side inputs as a bundle reaches them. Keys are those of the Fn API's `StateKey`.

use bytes::Bytes;
use model::TransformId;

use crate::Error;

/// A cell, or a range of a side input. Windows and keys are encoded (nested, wire coder).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs, reason = "the fields are those of the Fn API's StateKey messages")]
pub enum StateKey {
    /// The rest of a state-backed iterable.
    Runner { key: Bytes },
    /// All elements of a side input.
    IterableSideInput { transform: TransformId, side_input: String, window: Bytes },
    /// The values of one key of a side input.
    MultimapSideInput { transform: TransformId, side_input: String, window: Bytes, key: Bytes },
    /// The distinct keys of a side input.
    MultimapKeysSideInput { transform: TransformId, side_input: String, window: Bytes },
    /// All keys of a side input, each with its values.
    MultimapKeysValuesSideInput { transform: TransformId, side_input: String, window: Bytes },
    /// A bag, value, set or combining cell.
    Bag { transform: TransformId, state: String, window: Bytes, key: Bytes },
    /// The values of one key of a multimap cell.
    Multimap { transform: TransformId, state: String, window: Bytes, key: Bytes, map_key: Bytes },
    /// The keys of a multimap cell.
    MultimapKeys { transform: TransformId, state: String, window: Bytes, key: Bytes },
    /// All entries of a multimap cell.
    MultimapEntries { transform: TransformId, state: String, window: Bytes, key: Bytes },
    /// Entries of an ordered list with `start <= sort key < end`.
    OrderedList { transform: TransformId, state: String, window: Bytes, key: Bytes, start: i64, end: i64 },
}

/// Some encoded elements, and where to go on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// Whole elements, one after another, without a count.
    pub data: Bytes,
    /// Ask again with this; none: that was all.
    pub next: Option<Bytes>,
}

/// State of one bundle. Reads see earlier writes of the same bundle; nobody else does before the commit.
pub trait StateAccess: Send + Sync {
    /// A page of elements, from the beginning or from an earlier page's `next`.
    fn get(&self, key: &StateKey, from: Option<&Bytes>) -> Result<Page, Error>;
    /// Adds encoded elements.
    fn append(&self, key: &StateKey, data: Bytes) -> Result<(), Error>;
    /// Removes all that the key denotes.
    fn clear(&self, key: &StateKey) -> Result<(), Error>;
}
