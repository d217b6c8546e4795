//! Entries in the order of their sort keys, and among equal ones in the order in which they were added.
//!
//! An entry is a sort key (a signed number, as a varint) and a value with its length in front. Each lives in a cell of its own.
//! A continuation token is the end of the name of a page's last entry.

use bytes::Bytes;
use engine::state::behind;
use model::{DecodeError, Reader};
use worker::{Error, Page};

use super::cells::{Cells, corrupt};
use super::names::Place;
use crate::side_inputs::PAGE_BYTES;

/// One ordered list of one key and window.
pub(super) struct Ordered<'a> {
    pub(super) place: &'a Place,
}

impl Ordered<'_> {
    /// Entries with `start <= sort key < end`.
    pub(super) fn page(&self, cells: &Cells, start: i64, end: i64, from: Option<&Bytes>) -> Result<Page, Error> {
        let begin = self.place.entries(start);
        let begin = from.map_or(begin.clone(), |last| behind(&self.place.entry_of_rest(last)).max(begin));
        let found = cells.scan(&begin, &self.place.entries(end), PAGE_BYTES)?;
        let data: Vec<u8> = found.iter().flat_map(|(_, entry)| entry).copied().collect();
        // What ends early for another reason than its size makes one more page, which is empty.
        Ok(Page { data: data.into(), next: found.last().map(|(last, _)| self.place.entry_rest(last)) })
    }

    pub(super) fn append(&self, cells: &mut Cells, data: &Bytes) -> Result<(), Error> {
        let mut sequence = self.next_sequence(cells)?;
        let mut reader = Reader::new(data);
        while !reader.is_empty() {
            let at = reader.position();
            let sort_key = sort_key(&mut reader).map_err(|error| Error::Protocol(format!("malformed entry: {error}")))?;
            if sort_key == i64::MAX {
                return Err(Error::Protocol(format!("the sort key {sort_key} cannot be kept: no range contains it")));
            }
            cells.put(self.place.entry(sort_key, sequence), data.slice(at..reader.position()));
            sequence += 1;
        }
        cells.put(self.place.next_sequence(), Bytes::copy_from_slice(&sequence.to_be_bytes()));
        Ok(())
    }

    fn next_sequence(&self, cells: &Cells) -> Result<u64, Error> {
        let Some(cell) = cells.get(&self.place.next_sequence())? else { return Ok(0) };
        Reader::new(&cell).be_u64().map_err(corrupt)
    }

    /// Removes entries with `start <= sort key < end`.
    pub(super) fn clear(&self, cells: &mut Cells, start: i64, end: i64) -> Result<(), Error> {
        let (mut from, to) = (self.place.entries(start), self.place.entries(end));
        loop {
            let found = cells.scan(&from, &to, PAGE_BYTES)?;
            let Some((last, _)) = found.last() else { return Ok(()) };
            from = behind(last);
            found.into_iter().for_each(|(entry, _)| cells.delete(entry));
        }
    }

    /// Removes all that there is of the list.
    pub(super) fn remove(&self, cells: &mut Cells) -> Result<(), Error> {
        if cells.get(&self.place.next_sequence())?.is_some() {
            self.clear(cells, i64::MIN, i64::MAX)?;
            cells.delete(self.place.next_sequence());
        }
        Ok(())
    }
}

/// Reads over one entry.
fn sort_key(reader: &mut Reader<'_>) -> Result<i64, DecodeError> {
    let sort_key = reader.varint()? as i64;
    reader.length_prefixed()?;
    Ok(sort_key)
}
