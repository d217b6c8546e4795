//! Rows come in: late copies are dropped, the end of their windows is noted, and those that are to be sorted are put by.

use std::collections::BTreeSet;

use bytes::Bytes;
use model::batch::Row;
use model::reader::put_length_prefixed;
use model::{Batch, BatchBuilder, Reader, Timestamp, WindowCoder, window};

use super::names::{Domain, Item, Kind, Pair};
use super::{Bundle, Readied};
use crate::arrivals::{Arrival, Arrivals, Order, Window};
use crate::error::Error;

impl Bundle<'_> {
    pub(super) fn absorb(&mut self, rows: &[Batch]) -> Result<Readied, Error> {
        let (keys, input_watermark) = (self.keys, self.clocks.input_watermark);
        let open = |window: &Window| keys.expiry(window.end) >= input_watermark;
        let arrivals = Arrivals::new(rows, &keys.input_coder, keys.window_coder, Order::KeyFirst, open)?;
        let mut readied = Readied { dropped_rows: arrivals.dropped, ..Readied::default() };
        let numbers = self.number(rows);
        for group in arrivals.groups(Order::KeyFirst) {
            let key = Bytes::copy_from_slice(arrivals.key(&group[0]));
            let on_time = |arrival: &&Arrival| !keys.keyed.time_sorted || !self.is_overtaken(arrivals.timestamp(arrival));
            let kept: Vec<_> = group.iter().filter(on_time).collect();
            readied.dropped_rows += (group.len() - kept.len()) as u64;
            for window in kept.iter().map(|arrival| arrival.window).collect::<BTreeSet<_>>() {
                let window = &arrivals.windows[window as usize];
                self.see(&Pair { key: key.clone(), window: window.bytes.clone() }, window.end)?;
            }
            for arrival in kept.iter().filter(|_| keys.keyed.time_sorted) {
                let (batch, row) = arrival.place();
                let (number, row) = (numbers[batch as usize] + u64::from(row), rows[batch as usize].row(row as usize));
                self.put_by(&key, &arrivals.windows[arrival.window as usize], row, number);
            }
        }
        if !keys.keyed.time_sorted {
            let open = |window: &[u8]| Ok(keys.expiry(keys.end(window)?) >= input_watermark);
            readied.input = rows.iter().map(|batch| in_open(batch, keys.window_coder, open)).collect::<Result<_, _>>()?;
            readied.input.retain(|batch| !batch.is_empty());
        }
        Ok(readied)
    }

    /// The number of the first row of each batch; only rows that are to be sorted have any.
    fn number(&mut self, rows: &[Batch]) -> Vec<u64> {
        if !self.keys.keyed.time_sorted {
            return Vec::new();
        }
        let mut numbers = Vec::with_capacity(rows.len());
        for batch in rows {
            numbers.push(self.next_row);
            self.next_row += batch.rows() as u64;
        }
        self.state.put(self.keys.names.next_row(), Some(Bytes::copy_from_slice(&self.next_row.to_be_bytes())));
        numbers
    }

    /// Whether rows of this time, and later ones, may have been handed out already.
    fn is_overtaken(&self, time: Timestamp) -> bool {
        time.plus(self.keys.lateness()) < self.clocks.input_watermark
    }

    /// Keeps a row until none before it in time can come any more.
    fn put_by(&mut self, key: &Bytes, window: &Window, row: Row<'_>, number: u64) {
        let Row { value, timestamp, pane, .. } = row;
        let time = timestamp.plus(self.keys.lateness()).min(self.keys.expiry(window.end));
        let pair = Pair { key: key.clone(), window: window.bytes.clone() };
        let mut content = Vec::with_capacity(pane.len() + value.len() + 4);
        put_length_prefixed(&mut content, pane);
        content.extend_from_slice(value);
        let item = Item { domain: Domain::Event, time, kind: Kind::Row { timestamp, number }, pair };
        self.add(&item, timestamp, content.into());
    }
}

/// Reads what was put by: pane and value.
pub(super) fn put_by(content: &[u8]) -> Result<(&[u8], &[u8]), Error> {
    let mut reader = Reader::new(content);
    let pane = reader.length_prefixed()?;
    Ok((pane, reader.rest()))
}

/// The rows that are in a window that is `open`, in no other windows.
fn in_open(batch: &Batch, coder: WindowCoder, open: impl Fn(&[u8]) -> Result<bool, Error>) -> Result<Batch, Error> {
    let sets = batch.windows().entries();
    let left = sets.iter().map(|set| open_part(set, coder, &open)).collect::<Result<Vec<_>, _>>()?;
    if left.iter().zip(sets).all(|(left, set)| left.as_deref() == Some(set)) {
        return Ok(batch.clone());
    }
    let mut builder = BatchBuilder::new();
    for (index, row) in batch.iter().enumerate() {
        if let Some(windows) = &left[batch.windows().entry_of(index)] {
            builder.push(Row { windows, ..row });
        }
    }
    Ok(builder.finish())
}

/// The set of those windows of a set that are open; none: there are none.
fn open_part(set: &[u8], coder: WindowCoder, open: impl Fn(&[u8]) -> Result<bool, Error>) -> Result<Option<Vec<u8>>, Error> {
    if coder == WindowCoder::Global {
        let some = Reader::new(set).be_i32().map_err(Error::Row)? > 0 && open(&[])?;
        return Ok(some.then(|| window::GLOBAL_SET.to_vec()));
    }
    let (mut part, mut count) = (vec![0; 4], 0i32);
    for window in coder.windows_of(set).map_err(Error::Row)? {
        if open(window)? {
            part.extend_from_slice(window);
            count += 1;
        }
    }
    part[..4].copy_from_slice(&count.to_be_bytes());
    Ok((count > 0).then_some(part))
}
