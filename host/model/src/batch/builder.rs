//! Puts a batch together, row by row or from the rows of others. What a batch is, is in [`super`].

use bytes::Bytes;

use super::{Batch, Dictionary, Row, Timestamps};
use crate::Timestamp;

/// Bytes that a builder reserves for a batch because the one before it was as large, at most.
const EXPECTED_BYTES_MAX: usize = 1 << 20;

/// Builds a [`Batch`] row by row.
#[derive(Debug, Default)]
pub struct BatchBuilder {
    values: Vec<u8>,
    /// Bytes that the arena of the next batch begins with: batches of one builder are mostly alike.
    expected_bytes: usize,
    ends: Vec<u32>,
    timestamps: Vec<Timestamp>,
    windows: DictionaryBuilder,
    panes: DictionaryBuilder,
}

impl BatchBuilder {
    /// An empty builder.
    pub fn new() -> Self {
        Self::default()
    }

    /// Rows so far.
    pub fn rows(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are no rows yet.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Bytes of values so far.
    pub fn value_bytes(&self) -> usize {
        self.values.len()
    }

    /// Adds a row.
    ///
    /// # Panics
    /// When the values exceed [`super::BATCH_BYTES_MAX`]; callers cut batches long before.
    #[inline]
    pub fn push(&mut self, row: Row<'_>) {
        self.begin();
        self.values.extend_from_slice(row.value);
        self.end_row(row.timestamp, row.windows, row.pane);
    }

    /// Adds a row whose value is written by `write` straight into the arena.
    #[inline]
    pub fn push_with(&mut self, timestamp: Timestamp, windows: &[u8], pane: &[u8], write: impl FnOnce(&mut Vec<u8>)) {
        self.begin();
        write(&mut self.values);
        self.end_row(timestamp, windows, pane);
    }

    /// Adds all rows of a batch, column by column.
    ///
    /// # Panics
    /// As [`BatchBuilder::push`].
    pub fn push_batch(&mut self, batch: &Batch) {
        let Some(last) = batch.rows().checked_sub(1) else { return };
        let (row, values) = (self.ends.len(), batch.range(0).start..batch.range(last).end);
        let (from, to) = (self.values.len(), values.start);
        self.values.extend_from_slice(&batch.values[values]);
        u32::try_from(self.values.len()).expect("a batch is cut before it reaches 4 GiB");
        self.ends.extend(batch.ends[..=last].iter().map(|end| (from + *end as usize - to) as u32));
        self.timestamps.extend((0..=last).map(|row| batch.timestamp(row)));
        self.windows.push_all(row, &batch.windows, batch.rows());
        self.panes.push_all(row, &batch.panes, batch.rows());
    }

    #[inline]
    fn begin(&mut self) {
        if self.values.capacity() == 0 {
            self.values.reserve(self.expected_bytes);
        }
    }

    #[inline]
    fn end_row(&mut self, timestamp: Timestamp, windows: &[u8], pane: &[u8]) {
        let end = u32::try_from(self.values.len()).expect("a batch is cut before it reaches 4 GiB");
        let row = self.ends.len();
        self.ends.push(end);
        self.timestamps.push(timestamp);
        self.windows.push(row, windows);
        self.panes.push(row, pane);
    }

    /// The batch of all rows so far; the builder is empty afterwards.
    ///
    /// A batch may wait long in a memory budget that counts its bytes, so it keeps no spare capacity: a builder that is cut
    /// just above a power of two has grown to twice what it needs.
    pub fn finish(&mut self) -> Batch {
        self.values.shrink_to_fit();
        self.expected_bytes = (self.values.len() + self.values.len() / 32).min(EXPECTED_BYTES_MAX);
        let timestamps = std::mem::take(&mut self.timestamps);
        let timestamps = match timestamps.first() {
            Some(first) if timestamps.iter().all(|timestamp| timestamp == first) => Timestamps::All(*first),
            None => Timestamps::All(Timestamp::MAX),
            _ => Timestamps::Each(timestamps.into()),
        };
        Batch {
            values: std::mem::take(&mut self.values).into(),
            ends: std::mem::take(&mut self.ends).into(),
            timestamps,
            windows: self.windows.finish(),
            panes: self.panes.finish(),
        }
    }
}

/// Looks entries up among the latest few before it looks among all: neighbours mostly share windows and panes.
#[derive(Debug, Default)]
struct DictionaryBuilder {
    entries: Vec<Bytes>,
    numbers: std::collections::BTreeMap<Bytes, u32>,
    index: Vec<u32>,
    last: u32,
}

impl DictionaryBuilder {
    #[inline]
    fn push(&mut self, row: usize, bytes: &[u8]) {
        if self.entries.get(self.last as usize).is_none_or(|entry| entry != bytes) {
            self.last = self.number(bytes);
        }
        self.push_last(row);
    }

    /// Adds the entries of `rows` rows of another dictionary, each of which is looked up once.
    fn push_all(&mut self, row: usize, other: &Dictionary, rows: usize) {
        let mut numbers: Vec<Option<u32>> = vec![None; other.entries().len()];
        for (at, row) in (0..rows).zip(row..) {
            let entry = other.entry_of(at);
            self.last = *numbers[entry].get_or_insert_with(|| self.number(&other.entries()[entry]));
            self.push_last(row);
        }
    }

    #[inline]
    fn push_last(&mut self, row: usize) {
        if self.last > 0 && self.index.is_empty() {
            self.index = vec![0; row];
        }
        if !self.index.is_empty() || self.last > 0 {
            self.index.push(self.last);
        }
    }

    fn number(&mut self, bytes: &[u8]) -> u32 {
        if let Some(number) = self.numbers.get(bytes) {
            return *number;
        }
        let number = self.entries.len() as u32;
        let entry = Bytes::copy_from_slice(bytes);
        self.entries.push(entry.clone());
        self.numbers.insert(entry, number);
        number
    }

    fn finish(&mut self) -> Dictionary {
        let built = std::mem::take(self);
        Dictionary { entries: built.entries.into(), index: built.index.into() }
    }
}
