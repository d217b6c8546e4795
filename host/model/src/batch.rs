//! Many windowed elements in columns: the one representation that engine, ledger and workers hand to each other.
//!
//! ```text
//!  values  |key val|key val|key val|...   one arena, the nested encoding of the collection's wire coder
//!  ends         7       14      21        where each row's value ends
//!  times   one for all rows, or one per row
//!  windows dictionary of encoded window sets (int32 count, windows) and an index; no index: all rows are entry 0
//!  panes   the same with encoded panes
//! ```
//!
//! A batch is immutable and cheap to clone; a slice shares the arena. Building one never looks into the values.

mod builder;

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;

use crate::reader::put_varint;
use crate::{DecodeError, Reader, Timestamp};

pub use builder::BatchBuilder;

/// The most bytes of values that one batch can hold: ends are 32 bits wide.
pub const BATCH_BYTES_MAX: usize = u32::MAX as usize;

/// A column of timestamps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Timestamps {
    /// All rows have this one.
    All(Timestamp),
    /// One per row.
    Each(Arc<[Timestamp]>),
}

/// A column of few distinct byte strings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dictionary {
    entries: Arc<[Bytes]>,
    index: Arc<[u32]>,
}

impl Dictionary {
    /// A column in which every row is `entry`.
    pub fn constant(entry: Bytes) -> Self {
        Dictionary { entries: Arc::from([entry]), index: Arc::from([]) }
    }

    /// A column of `rows` rows from its parts: entry of row i is `index[i]`, or entry 0 when the index is empty.
    /// Fails when the index has another length or points outside the entries, and when rows have no entry at all.
    pub fn from_parts(entries: Vec<Bytes>, index: Vec<u32>, rows: usize) -> Result<Self, DecodeError> {
        if entries.is_empty() && rows > 0 {
            return Err(DecodeError::malformed("dictionary", "no entries"));
        }
        if !index.is_empty() && index.len() != rows {
            return Err(DecodeError::malformed("dictionary", "the index has not one entry per row"));
        }
        if index.iter().any(|entry| *entry as usize >= entries.len()) {
            return Err(DecodeError::malformed("dictionary", "index out of range"));
        }
        Ok(Dictionary { entries: entries.into(), index: index.into() })
    }

    /// The entry of each row; empty when all rows are entry 0.
    pub fn index(&self) -> &[u32] {
        &self.index
    }

    /// The column that has, in row i, what this one has in row `origin[i]`.
    ///
    /// # Panics
    /// When an origin is not a row of this column.
    pub fn pick(&self, origin: &[u32]) -> Dictionary {
        if self.is_constant() {
            return self.clone();
        }
        Dictionary { entries: self.entries.clone(), index: origin.iter().map(|row| self.index[*row as usize]).collect() }
    }

    /// The distinct entries, in order of first use.
    pub fn entries(&self) -> &[Bytes] {
        &self.entries
    }

    /// Which entry a row has.
    #[inline]
    pub fn entry_of(&self, row: usize) -> usize {
        self.index.get(row).map_or(0, |&entry| entry as usize)
    }

    /// The bytes of a row.
    #[inline]
    pub fn get(&self, row: usize) -> &Bytes {
        &self.entries[self.entry_of(row)]
    }

    /// Whether all rows are entry 0.
    pub fn is_constant(&self) -> bool {
        self.index.is_empty()
    }

    fn slice(&self, rows: Range<usize>) -> Dictionary {
        if self.is_constant() {
            return self.clone();
        }
        Dictionary { entries: self.entries.clone(), index: Arc::from(&self.index[rows]) }
    }
}

/// Windowed elements of one collection. See the file's head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    values: Bytes,
    ends: Arc<[u32]>,
    timestamps: Timestamps,
    windows: Dictionary,
    panes: Dictionary,
}

/// One row of a batch, borrowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row<'a> {
    /// The element, in the nested encoding of its wire coder.
    pub value: &'a [u8],
    /// Its event time.
    pub timestamp: Timestamp,
    /// Its encoded window set: an int32 count and that many windows.
    pub windows: &'a [u8],
    /// Its encoded pane, with metadata if it has any.
    pub pane: &'a [u8],
}

impl Batch {
    /// A batch from its columns. Fails when they do not fit each other; never looks into values, windows and panes.
    pub fn from_columns(
        values: Bytes,
        ends: Vec<u32>,
        timestamps: Timestamps,
        windows: Dictionary,
        panes: Dictionary,
    ) -> Result<Batch, DecodeError> {
        let rows = ends.len();
        let end = ends.last().map_or(0, |end| *end as usize);
        if !ends.is_sorted() || end != values.len() {
            return Err(DecodeError::malformed("batch", "rows do not fill the arena in order"));
        }
        if matches!(&timestamps, Timestamps::Each(each) if each.len() != rows) {
            return Err(DecodeError::malformed("batch", "not one timestamp per row"));
        }
        let fits = |column: &Dictionary| {
            (column.is_constant() && (rows == 0 || !column.entries.is_empty())) || column.index.len() == rows
        };
        if !fits(&windows) || !fits(&panes) {
            return Err(DecodeError::malformed("batch", "not one window set and pane per row"));
        }
        Ok(Batch { values, ends: ends.into(), timestamps, windows, panes })
    }

    /// How many elements.
    #[inline]
    pub fn rows(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Bytes of all values together.
    pub fn value_bytes(&self) -> usize {
        self.values.len()
    }

    /// Bytes that this batch keeps in memory, about.
    pub fn memory_bytes(&self) -> usize {
        let times = match &self.timestamps {
            Timestamps::All(_) => 0,
            Timestamps::Each(each) => each.len() * 8,
        };
        let dictionaries = (self.windows.index.len() + self.panes.index.len()) * 4
            + self.windows.entries.iter().chain(self.panes.entries.iter()).map(|entry| entry.len() + 32).sum::<usize>();
        self.values.len() + self.ends.len() * 4 + times + dictionaries
    }

    /// The arena: all values, one after another.
    pub fn values(&self) -> &Bytes {
        &self.values
    }

    /// Where each row's value ends in the arena.
    pub fn ends(&self) -> &[u32] {
        &self.ends
    }

    /// The column of timestamps.
    pub fn timestamps(&self) -> &Timestamps {
        &self.timestamps
    }

    /// The column of encoded window sets.
    pub fn windows(&self) -> &Dictionary {
        &self.windows
    }

    /// The column of encoded panes.
    pub fn panes(&self) -> &Dictionary {
        &self.panes
    }

    /// Where a row's value lies in the arena.
    #[inline]
    pub fn range(&self, row: usize) -> Range<usize> {
        let start = if row == 0 { 0 } else { self.ends[row - 1] as usize };
        start..self.ends[row] as usize
    }

    /// A row's value.
    #[inline]
    pub fn value(&self, row: usize) -> &[u8] {
        &self.values[self.range(row)]
    }

    /// A row's event time.
    #[inline]
    pub fn timestamp(&self, row: usize) -> Timestamp {
        match &self.timestamps {
            Timestamps::All(all) => *all,
            Timestamps::Each(each) => each[row],
        }
    }

    /// All columns of one row.
    #[inline]
    pub fn row(&self, row: usize) -> Row<'_> {
        Row { value: self.value(row), timestamp: self.timestamp(row), windows: self.windows.get(row), pane: self.panes.get(row) }
    }

    /// All rows in order.
    pub fn iter(&self) -> impl Iterator<Item = Row<'_>> {
        (0..self.rows()).map(|row| self.row(row))
    }

    /// The earliest event time, or MAX when there are no rows.
    pub fn min_timestamp(&self) -> Timestamp {
        match &self.timestamps {
            _ if self.is_empty() => Timestamp::MAX,
            Timestamps::All(all) => *all,
            Timestamps::Each(each) => each.iter().copied().min().unwrap_or(Timestamp::MAX),
        }
    }

    /// The rows of `rows`, sharing the arena.
    pub fn slice(&self, rows: Range<usize>) -> Batch {
        if rows == (0..self.rows()) {
            return self.clone();
        }
        let start = if rows.start == 0 { 0 } else { self.ends[rows.start - 1] };
        let end = if rows.is_empty() { start } else { self.ends[rows.end - 1] };
        Batch {
            values: self.values.slice(start as usize..end as usize),
            ends: self.ends[rows.clone()].iter().map(|end| end - start).collect(),
            timestamps: match &self.timestamps {
                Timestamps::All(all) => Timestamps::All(*all),
                Timestamps::Each(each) => Timestamps::Each(Arc::from(&each[rows.clone()])),
            },
            windows: self.windows.slice(rows.clone()),
            panes: self.panes.slice(rows),
        }
    }

    /// Appends a self-delimiting form for disk and network.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, self.rows() as u64);
        put_varint(out, self.values.len() as u64);
        out.extend_from_slice(&self.values);
        for row in 0..self.rows() {
            put_varint(out, self.range(row).len() as u64);
        }
        match &self.timestamps {
            Timestamps::All(all) => {
                out.push(0);
                out.extend_from_slice(&all.encode());
            }
            Timestamps::Each(each) => {
                out.push(1);
                each.iter().for_each(|timestamp| out.extend_from_slice(&timestamp.encode()));
            }
        }
        for dictionary in [&self.windows, &self.panes] {
            put_varint(out, dictionary.entries.len() as u64);
            for entry in dictionary.entries.iter() {
                put_varint(out, entry.len() as u64);
                out.extend_from_slice(entry);
            }
            out.push(u8::from(!dictionary.is_constant()));
            dictionary.index.iter().for_each(|entry| put_varint(out, u64::from(*entry)));
        }
    }

    /// Reads what [`Batch::encode`] writes. The values share `bytes`.
    pub fn decode(bytes: &Bytes) -> Result<Batch, DecodeError> {
        let mut reader = Reader::new(bytes);
        let rows = reader.length()?;
        let value_bytes = reader.length()?;
        let start = reader.position();
        reader.take(value_bytes)?;
        let values = bytes.slice(start..start + value_bytes);
        if rows > reader.remaining() || value_bytes > BATCH_BYTES_MAX {
            return Err(DecodeError::malformed("batch", "impossible number of rows"));
        }
        let mut end = 0usize;
        let ends = (0..rows)
            .map(|_| {
                end = end.saturating_add(reader.length()?);
                if end > value_bytes {
                    return Err(DecodeError::malformed("batch", "row ends outside the arena"));
                }
                Ok(end as u32)
            })
            .collect::<Result<Arc<[u32]>, _>>()?;
        if end != value_bytes {
            return Err(DecodeError::malformed("batch", "rows do not fill the arena"));
        }
        let timestamps = match reader.u8()? {
            0 => Timestamps::All(Timestamp::decode(&mut reader)?),
            _ => Timestamps::Each((0..rows).map(|_| Timestamp::decode(&mut reader)).collect::<Result<_, _>>()?),
        };
        let windows = decode_dictionary(&mut reader, bytes, rows)?;
        let panes = decode_dictionary(&mut reader, bytes, rows)?;
        Ok(Batch { values, ends, timestamps, windows, panes })
    }
}

fn decode_dictionary(reader: &mut Reader<'_>, bytes: &Bytes, rows: usize) -> Result<Dictionary, DecodeError> {
    let count = reader.length()?;
    if count > reader.remaining() || (count == 0 && rows > 0) {
        return Err(DecodeError::malformed("batch", "impossible dictionary"));
    }
    let entries = (0..count)
        .map(|_| {
            let length = reader.length()?;
            let start = reader.position();
            reader.take(length)?;
            Ok(bytes.slice(start..start + length))
        })
        .collect::<Result<Arc<[Bytes]>, DecodeError>>()?;
    let indexed = if reader.u8()? == 0 { 0 } else { rows };
    let index = (0..indexed)
        .map(|_| match reader.length()? {
            entry if entry < count => Ok(entry as u32),
            _ => Err(DecodeError::malformed("batch", "dictionary index out of range")),
        })
        .collect::<Result<Arc<[u32]>, _>>()?;
    Ok(Dictionary { entries, index })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{pane, window};

    fn batch(rows: &[(&str, i64, &[u8])]) -> Batch {
        let mut builder = BatchBuilder::new();
        for (value, millis, windows) in rows {
            let timestamp = Timestamp::from_millis(*millis);
            builder.push(Row { value: value.as_bytes(), timestamp, windows, pane: pane::NO_FIRING });
        }
        builder.finish()
    }

    #[test]
    fn a_batch_of_batches_has_their_rows() {
        let other: &[u8] = b"other";
        let parts = [
            batch(&[("a", 1, window::GLOBAL_SET), ("bc", 1, window::GLOBAL_SET)]),
            batch(&[]),
            batch(&[("", 2, other), ("def", 3, window::GLOBAL_SET), ("g", 3, other)]),
            batch(&[("h", 3, other), ("i", 3, window::GLOBAL_SET)]).slice(1..2),
            batch(&[("x", 3, other), ("j", 4, b"third"), ("y", 3, other)]).slice(1..2),
        ];
        let (mut at_once, mut by_row) = (BatchBuilder::new(), BatchBuilder::new());
        for part in &parts {
            at_once.push_batch(part);
            part.iter().for_each(|row| by_row.push(row));
        }
        let (at_once, by_row) = (at_once.finish(), by_row.finish());
        assert!(at_once.iter().eq(by_row.iter()));
        assert_eq!(at_once.rows(), 7);
    }

    #[test]
    fn constant_columns_cost_nothing() {
        let batch = batch(&[("a", 1, window::GLOBAL_SET), ("bc", 1, window::GLOBAL_SET)]);
        assert!(batch.windows().is_constant() && batch.panes().is_constant());
        assert_eq!(batch.timestamps(), &Timestamps::All(Timestamp::from_millis(1)));
        assert_eq!(batch.value(1), b"bc");
    }

    #[test]
    fn slices_and_bytes_keep_every_column() {
        let (one, two) = (window::single(b"111111111"), window::single(b"222222222"));
        let whole = batch(&[("a", 5, &one), ("", 3, &two), ("ccc", 5, &one), ("d", 9, &two)]);
        assert_eq!(whole.min_timestamp(), Timestamp::from_millis(3));
        for from in 0..=4 {
            for to in from..=4 {
                let slice = whole.slice(from..to);
                assert!(slice.iter().eq((from..to).map(|row| whole.row(row))));
                let mut bytes = Vec::new();
                slice.encode(&mut bytes);
                assert_eq!(Batch::decode(&bytes.into()).unwrap(), slice);
            }
        }
    }

    #[test]
    fn columns_that_do_not_fit_are_refused() {
        let global = || Dictionary::constant(Bytes::from_static(window::GLOBAL_SET));
        let pane = || Dictionary::constant(Bytes::from_static(pane::NO_FIRING));
        let check = |ends: &[u32], times: &[i64]| {
            let times: Vec<Timestamp> = times.iter().map(|millis| Timestamp::from_millis(*millis)).collect();
            Batch::from_columns(Bytes::from_static(b"abc"), ends.to_vec(), Timestamps::Each(times.into()), global(), pane())
                .is_ok()
        };
        assert!(check(&[1, 1, 3], &[1, 2, 3]));
        assert!(!check(&[1, 3, 2, 3], &[1, 2, 3, 4]), "ends go back");
        assert!(!check(&[1, 2], &[1, 2]), "bytes left over");
        assert!(!check(&[1, 4], &[1, 2]), "past the arena");
        assert!(!check(&[], &[]), "no rows for the bytes");
        assert!(!check(&[3], &[1, 2]), "too many timestamps");
        assert!(Dictionary::from_parts(vec![Bytes::new()], vec![0, 1], 2).is_err());
        assert!(Dictionary::from_parts(vec![Bytes::new()], vec![0], 2).is_err());
        assert!(Dictionary::from_parts(vec![], vec![], 1).is_err());
        let picked = Dictionary::from_parts(vec![Bytes::from_static(b"a"), Bytes::from_static(b"b")], vec![0, 1], 2)
            .unwrap()
            .pick(&[1, 1, 0]);
        assert_eq!((0..3).map(|row| picked.get(row).to_vec()).collect::<Vec<_>>(), [b"b", b"b", b"a"]);
    }

    #[test]
    fn truncated_bytes_are_refused() {
        let mut bytes = Vec::new();
        batch(&[("abc", 1, window::GLOBAL_SET), ("d", 2, window::GLOBAL_SET)]).encode(&mut bytes);
        for cut in 0..bytes.len() {
            assert!(Batch::decode(&Bytes::copy_from_slice(&bytes[..cut])).is_err(), "cut at {cut}");
        }
    }
}
