//! Rows on their way into groups and to keys: one copy per window, in an order that brings equal keys together.
//!
//! Nothing is copied here: an [`Arrival`] is a place in a batch with a rank, so that sorting compares integers. For runs
//! the rank is a hash of the key, and the order of keys is by hash and then by bytes; that order is part of the stored
//! format. For cells it is the beginning of the key, so that a call goes through the cells of state in their order.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::ops::Range;

use bytes::Bytes;
use model::{Batch, Coder, Reader, Timestamp, WindowCoder};

use crate::error::Error;

/// A window as the engine sees it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Window {
    /// Its last timestamp, at most that of the global window.
    pub(crate) end: Timestamp,
    /// Its encoding.
    pub(crate) bytes: Bytes,
}

impl Window {
    pub(crate) fn new(coder: WindowCoder, bytes: Bytes) -> Result<Self, Error> {
        let end = coder.max_timestamp(&bytes)?.min(Timestamp::GLOBAL_WINDOW_END);
        Ok(Window { end, bytes })
    }
}

/// One copy of a row, in one window.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    rank: u64,
    /// Number of the window in [`Arrivals::windows`].
    pub(crate) window: u32,
    key_len: u32,
    batch: u32,
    row: u32,
}

impl Arrival {
    /// Where the row is among all rows of the call.
    pub(crate) fn place(&self) -> (u32, u32) {
        (self.batch, self.row)
    }
}

/// How arrivals are sorted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// By window, then by hash of the key, then by key, then as they came.
    WindowFirst,
    /// By key, then as they came.
    KeyFirst,
}

/// The rows of one call.
#[derive(Debug)]
pub(crate) struct Arrivals<'a> {
    batches: &'a [Batch],
    /// The distinct windows, in order of first use.
    pub(crate) windows: Vec<Window>,
    arrivals: Vec<Arrival>,
    /// Copies whose window was not `open`.
    pub(crate) dropped: u64,
}

impl<'a> Arrivals<'a> {
    /// Explodes and sorts `batches`; copies in windows that are not `open` are dropped. Rows in no window vanish.
    pub(crate) fn new(
        batches: &'a [Batch],
        coder: &Coder,
        window_coder: WindowCoder,
        order: Order,
        open: impl Fn(&Window) -> bool,
    ) -> Result<Self, Error> {
        let mut windows = Numbering { coder: window_coder, open, windows: Vec::new(), numbers: BTreeMap::new() };
        let mut arrivals = Vec::with_capacity(batches.iter().map(Batch::rows).sum());
        let mut dropped = 0;
        for (batch_number, batch) in batches.iter().enumerate() {
            let sets = batch.windows().entries().iter().map(|set| windows.of_set(set)).collect::<Result<Vec<_>, _>>()?;
            for row in 0..batch.rows() {
                let set = &sets[batch.windows().entry_of(row)];
                dropped += set.dropped;
                if set.open.is_empty() {
                    continue;
                }
                let value = batch.value(row);
                let key_len = coder.key_len(value).map_err(Error::Row)?;
                let rank = order.rank(&value[..key_len]);
                arrivals.extend(set.open.iter().map(|&window| Arrival {
                    rank,
                    window,
                    key_len: key_len as u32,
                    batch: batch_number as u32,
                    row: row as u32,
                }));
            }
        }
        let mut sorted = Arrivals { batches, windows: windows.windows, arrivals, dropped };
        sorted.sort(order);
        Ok(sorted)
    }

    /// Sorts by rank, and then looks for different keys of the same rank.
    fn sort(&mut self, order: Order) {
        let window = |arrival: &Arrival| if order == Order::WindowFirst { arrival.window } else { 0 };
        let mut arrivals = std::mem::take(&mut self.arrivals);
        arrivals.sort_unstable_by_key(|arrival| (window(arrival), arrival.rank, arrival.batch, arrival.row, arrival.window));
        let mut start = 0;
        while start < arrivals.len() {
            let first = arrivals[start];
            let same = arrivals[start..].iter().take_while(|a| a.rank == first.rank && window(a) == window(&first)).count();
            let ties = &mut arrivals[start..start + same];
            if ties.iter().any(|arrival| self.key(arrival) != self.key(&first)) {
                ties.sort_by(|a, b| self.key(a).cmp(self.key(b)));
            }
            start += same;
        }
        self.arrivals = arrivals;
    }

    /// Ranges of arrivals with the same key and, when sorted by window, the same window.
    pub(crate) fn groups(&self, order: Order) -> impl Iterator<Item = &[Arrival]> {
        self.arrivals.chunk_by(move |a, b| {
            (order == Order::KeyFirst || a.window == b.window) && a.rank == b.rank && self.key(a) == self.key(b)
        })
    }

    /// Encoded key.
    #[inline]
    pub(crate) fn key(&self, arrival: &Arrival) -> &'a [u8] {
        let batch = &self.batches[arrival.batch as usize];
        let Range { start, .. } = batch.range(arrival.row as usize);
        &batch.values()[start..start + arrival.key_len as usize]
    }

    /// Encoded value.
    #[inline]
    pub(crate) fn value(&self, arrival: &Arrival) -> &'a [u8] {
        let batch = &self.batches[arrival.batch as usize];
        let Range { start, end } = batch.range(arrival.row as usize);
        &batch.values()[start + arrival.key_len as usize..end]
    }

    #[inline]
    pub(crate) fn timestamp(&self, arrival: &Arrival) -> Timestamp {
        self.batches[arrival.batch as usize].timestamp(arrival.row as usize)
    }
}

/// The windows of one encoded set.
struct WindowSet {
    open: Vec<u32>,
    dropped: u64,
}

struct Numbering<F> {
    coder: WindowCoder,
    open: F,
    windows: Vec<Window>,
    numbers: BTreeMap<Bytes, Option<u32>>,
}

impl<F: Fn(&Window) -> bool> Numbering<F> {
    fn of_set(&mut self, set: &Bytes) -> Result<WindowSet, Error> {
        let mut numbered = WindowSet { open: Vec::new(), dropped: 0 };
        // The global window has no bytes: there is one of it, whatever count is declared.
        let windows = match self.coder {
            WindowCoder::Global => vec![&[][..]; usize::from(Reader::new(set).be_i32().map_err(Error::Row)? > 0)],
            coder => coder.windows_of(set).map_err(Error::Row)?,
        };
        for bytes in windows {
            match self.number(set.slice_ref(bytes))? {
                Some(number) => numbered.open.push(number),
                None => numbered.dropped += 1,
            }
        }
        Ok(numbered)
    }

    fn number(&mut self, bytes: Bytes) -> Result<Option<u32>, Error> {
        if let Some(number) = self.numbers.get(&bytes) {
            return Ok(*number);
        }
        let window = Window::new(self.coder, bytes.clone())?;
        let number = (self.open)(&window).then_some(self.windows.len() as u32);
        if number.is_some() {
            self.windows.push(window);
        }
        self.numbers.insert(bytes, number);
        Ok(number)
    }
}

impl Order {
    #[inline]
    fn rank(self, key: &[u8]) -> u64 {
        match (self, key.first_chunk()) {
            (Order::WindowFirst, _) => key_hash(key),
            (Order::KeyFirst, Some(beginning)) => u64::from_be_bytes(*beginning),
            (Order::KeyFirst, None) => {
                key.iter().enumerate().fold(0, |rank, (place, &byte)| rank | u64::from(byte) << (56 - 8 * place))
            }
        }
    }
}

/// Spreads keys over 64 bits. Not a secret: keys that collide are told apart by their bytes, more slowly.
#[inline]
pub(crate) fn key_hash(key: &[u8]) -> u64 {
    let mut chunks = key.chunks_exact(8);
    let mut hash = key.len() as u64;
    for chunk in &mut chunks {
        hash = spread(hash ^ u64::from_le_bytes(chunk.try_into().expect("chunks have eight bytes")));
    }
    let mut rest = [0; 8];
    rest[..chunks.remainder().len()].copy_from_slice(chunks.remainder());
    spread(spread(hash ^ u64::from_le_bytes(rest)))
}

#[inline]
fn spread(bits: u64) -> u64 {
    // An odd number without pattern: the fraction of the square root of 11.
    let wide = u128::from(bits ^ 0x510e_527f_ade6_82d1) * u128::from(0x9b05_688c_2b3e_6c1f_u64);
    wide as u64 ^ (wide >> 64) as u64
}

/// The order of keys: by hash, then by bytes.
#[inline]
pub(crate) fn key_order(a: (u64, &[u8]), b: (u64, &[u8])) -> Ordering {
    a.0.cmp(&b.0).then_with(|| a.1.cmp(b.1))
}
