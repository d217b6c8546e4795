//! A list per map key.

use bytes::Bytes;
use engine::state::behind;
use model::{Coder, Reader};
use worker::{Error, Page};

use super::cells::Cells;
use super::list::List;
use super::names::Place;
use crate::side_inputs::PAGE_BYTES;

/// One map of one key and window.
pub(super) struct Multimap<'a> {
    pub(super) place: &'a Place,
}

impl Multimap<'_> {
    /// The map keys, in the order of their bytes. A continuation token is the last of a page.
    pub(super) fn keys(&self, cells: &Cells, from: Option<&Bytes>) -> Result<Page, Error> {
        self.walk(cells, from, |_, map_key, data| {
            data.extend_from_slice(map_key);
            Ok(())
        })
    }

    /// The map keys, each with an iterable of its values.
    pub(super) fn entries(&self, cells: &Cells, from: Option<&Bytes>, value: &Coder) -> Result<Page, Error> {
        self.walk(cells, from, |cells, map_key, data| {
            let values = List { place: self.place, map_key }.all(cells)?;
            data.extend_from_slice(map_key);
            data.extend_from_slice(&count(&values, value)?.to_be_bytes());
            data.extend_from_slice(&values);
            Ok(())
        })
    }

    fn walk(
        &self,
        cells: &Cells,
        from: Option<&Bytes>,
        mut write: impl FnMut(&Cells, &[u8], &mut Vec<u8>) -> Result<(), Error>,
    ) -> Result<Page, Error> {
        let mut data = Vec::new();
        let mut next = from.map_or_else(Vec::new, |last| behind(last));
        loop {
            let heads = self.heads(cells, &next)?;
            let Some(last) = heads.last() else { return Ok(Page { data: data.into(), next: None }) };
            next = behind(last);
            for map_key in heads {
                write(cells, &map_key, &mut data)?;
                if data.len() >= PAGE_BYTES {
                    return Ok(Page { data: data.into(), next: Some(map_key) });
                }
            }
        }
    }

    /// Some map keys from `from` on; none: there are no more.
    fn heads(&self, cells: &Cells, from: &[u8]) -> Result<Vec<Bytes>, Error> {
        let (from, to) = self.place.heads(from);
        let heads = cells.scan(&from, &to, PAGE_BYTES)?;
        Ok(heads.iter().map(|(head, _)| self.place.map_key(head)).collect())
    }

    /// Removes all keys with their values.
    pub(super) fn clear(&self, cells: &mut Cells) -> Result<(), Error> {
        let mut next = Vec::new();
        loop {
            let heads = self.heads(cells, &next)?;
            let Some(last) = heads.last() else { return Ok(()) };
            next = behind(last);
            for map_key in &heads {
                List { place: self.place, map_key }.clear(cells)?;
            }
        }
    }
}

/// How many elements there are in `data`.
fn count(data: &[u8], coder: &Coder) -> Result<i32, Error> {
    let mut reader = Reader::new(data);
    let mut count = 0i32;
    while !reader.is_empty() {
        let before = reader.position();
        coder.skip(&mut reader).map_err(|error| Error::Protocol(format!("malformed value in a multimap: {error}")))?;
        if reader.position() == before {
            return Err(Error::Protocol("values without bytes have bytes".to_owned()));
        }
        count += 1;
    }
    Ok(count)
}
