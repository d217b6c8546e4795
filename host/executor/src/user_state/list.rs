//! A list of encoded elements that is appended to at its end, read in pages and cleared as a whole.
//!
//! ```text
//!  head    the number of chunks, then the tail: the latest elements, while they are few bytes
//!  chunk   elements in order; written once, never changed
//! ```
//!
//! So a single value lives in one cell, and a long list grows by chunks however little is added at a time. A continuation
//! token is the number of the chunk to go on with; the tail has the number that it will have as a chunk.

use bytes::Bytes;
use model::reader::put_varint;
use model::{Coder, Reader};
use worker::{Error, Page};

use super::cells::{Cells, corrupt};
use super::names::Place;
use crate::side_inputs::PAGE_BYTES;

/// A tail that would be longer becomes a chunk, in bytes.
const TAIL_BYTES_MAX: usize = 8 << 10;
/// What is added at once is cut into chunks of about this size, where its elements can be told apart, in bytes.
const CHUNK_BYTES: usize = 256 << 10;

/// One list: a bag, or the values of one key of a multimap.
pub(super) struct List<'a> {
    pub(super) place: &'a Place,
    pub(super) map_key: &'a [u8],
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Head {
    chunks: u64,
    tail: Bytes,
}

impl Head {
    fn encode(&self) -> Bytes {
        let mut bytes = Vec::with_capacity(self.tail.len() + 2);
        put_varint(&mut bytes, self.chunks);
        bytes.extend_from_slice(&self.tail);
        bytes.into()
    }

    fn decode(bytes: &Bytes) -> Result<Head, Error> {
        let mut reader = Reader::new(bytes);
        let chunks = reader.varint().map_err(corrupt)?;
        Ok(Head { chunks, tail: bytes.slice(reader.position()..) })
    }
}

impl List<'_> {
    fn head(&self, cells: &Cells) -> Result<Option<Head>, Error> {
        cells.get(&self.place.head(self.map_key))?.as_ref().map(Head::decode).transpose()
    }

    fn chunk(&self, number: u64) -> Bytes {
        self.place.chunk(self.map_key, number)
    }

    /// About [`PAGE_BYTES`] of elements, from the beginning or from where an earlier page ended.
    pub(super) fn page(&self, cells: &Cells, from: Option<&Bytes>) -> Result<Page, Error> {
        let start = from.map_or(Ok(0), number)?;
        let Some(head) = self.head(cells)? else { return Ok(Page::default()) };
        if start >= head.chunks {
            return Ok(Page { data: head.tail, next: None });
        }
        let found = cells.scan(&self.chunk(start), &self.chunk(head.chunks), PAGE_BYTES)?;
        if found.is_empty() {
            return Err(corrupt("a chunk is missing"));
        }
        let reached = start + found.len() as u64;
        let mut data: Vec<u8> = found.iter().flat_map(|(_, chunk)| chunk).copied().collect();
        if reached < head.chunks {
            return Ok(Page { data: data.into(), next: Some(Bytes::copy_from_slice(&reached.to_be_bytes())) });
        }
        data.extend_from_slice(&head.tail);
        Ok(Page { data: data.into(), next: None })
    }

    /// All elements, for what cannot be read in pages.
    pub(super) fn all(&self, cells: &Cells) -> Result<Vec<u8>, Error> {
        let mut page = self.page(cells, None)?;
        let mut all = page.data.to_vec();
        while let Some(next) = page.next {
            page = self.page(cells, Some(&next))?;
            all.extend_from_slice(&page.data);
        }
        Ok(all)
    }

    /// Adds elements. Without any the list merely exists from now on.
    pub(super) fn append(&self, cells: &mut Cells, data: &Bytes, element: Option<&Coder>) -> Result<(), Error> {
        let mut head = self.head(cells)?.unwrap_or_default();
        for piece in pieces(data, element)? {
            if !head.tail.is_empty() && head.tail.len() + piece.len() > TAIL_BYTES_MAX {
                cells.put(self.chunk(head.chunks), std::mem::take(&mut head.tail));
                head.chunks += 1;
            }
            if piece.len() > TAIL_BYTES_MAX {
                cells.put(self.chunk(head.chunks), piece);
                head.chunks += 1;
            } else {
                head.tail = [&head.tail[..], &piece].concat().into();
            }
        }
        cells.put(self.place.head(self.map_key), head.encode());
        Ok(())
    }

    /// Removes the list.
    pub(super) fn clear(&self, cells: &mut Cells) -> Result<(), Error> {
        let Some(head) = self.head(cells)? else { return Ok(()) };
        (0..head.chunks).for_each(|number| cells.delete(self.chunk(number)));
        cells.delete(self.place.head(self.map_key));
        Ok(())
    }
}

fn number(token: &Bytes) -> Result<u64, Error> {
    let bytes: [u8; 8] = token[..].try_into().map_err(|_| Error::Protocol("foreign continuation token".to_owned()))?;
    Ok(u64::from_be_bytes(bytes))
}

/// Cuts elements that came together into chunks; all of them are one where only the SDK can tell them apart.
fn pieces(data: &Bytes, element: Option<&Coder>) -> Result<Vec<Bytes>, Error> {
    let (Some(element), true) = (element, data.len() > CHUNK_BYTES) else { return Ok(vec![data.clone()]) };
    let mut reader = Reader::new(data);
    let (mut pieces, mut from) = (Vec::new(), 0);
    while !reader.is_empty() {
        let before = reader.position();
        element.skip(&mut reader).map_err(|error| Error::Protocol(format!("malformed element: {error}")))?;
        if reader.position() == before {
            return Err(Error::Protocol("elements without bytes have bytes".to_owned()));
        }
        if reader.position() - from >= CHUNK_BYTES {
            pieces.push(data.slice(from..reader.position()));
            from = reader.position();
        }
    }
    if from < data.len() {
        pieces.push(data.slice(from..));
    }
    Ok(pieces)
}
