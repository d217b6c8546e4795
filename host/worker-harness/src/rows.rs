//! Rows of the data stream: windowed values, one after another, to and from batches.
//!
//! ```text
//!  | timestamp 8 | window count 4, windows | pane | value |  | timestamp 8 | ...
//! ```
//!
//! This is the hot path of every element that goes through a harness: one pass, no allocation per row.

use bytes::Bytes;
use model::batch::Row;
use model::{Batch, Coder, DecodeError, Reader, Timestamp, WindowCoder, pane};
use worker::Error;

/// A message to a harness is ended once it has this many bytes; one larger element makes one larger message.
pub(crate) const MESSAGE_BYTES: usize = 2 << 20;

/// No message, and so no element, can be larger: the limit of protocol buffers, less what surrounds the payload.
const ELEMENT_BYTES_MAX: usize = (2 << 30) - 4096;

/// Why rows could not be taken.
#[derive(Debug)]
pub(crate) enum RowError {
    /// They are malformed, from this byte on.
    Malformed(usize, DecodeError),
    /// Whoever takes them refused one.
    Refused(Error),
}

/// Checks every row of `data` and hands it to `take`. Rows in no window at all are dropped, as Beam allows.
#[inline]
pub(crate) fn parse(
    data: &[u8],
    coder: &Coder,
    window_coder: WindowCoder,
    mut take: impl FnMut(Row<'_>) -> Result<(), Error>,
) -> Result<(), RowError> {
    let mut reader = Reader::new(data);
    while !reader.is_empty() {
        let start = reader.position();
        let row = parse_row(&mut reader, coder, window_coder).map_err(|error| RowError::Malformed(start, error))?;
        if row.windows[..4] != [0, 0, 0, 0] {
            take(row).map_err(RowError::Refused)?;
        }
    }
    Ok(())
}

#[inline]
fn parse_row<'a>(reader: &mut Reader<'a>, coder: &Coder, window_coder: WindowCoder) -> Result<Row<'a>, DecodeError> {
    let timestamp = Timestamp::decode(reader)?;
    let windows_at = reader.position();
    skip_windows(reader, window_coder)?;
    let pane_at = reader.position();
    pane::skip(reader)?;
    let value_at = reader.position();
    coder.skip(reader)?;
    Ok(Row {
        timestamp,
        windows: reader.between(windows_at, pane_at),
        pane: reader.between(pane_at, value_at),
        value: reader.between(value_at, reader.position()),
    })
}

/// Reads over a window set. A count that the bytes cannot bear out is refused: global windows have none.
#[inline]
pub(crate) fn skip_windows(reader: &mut Reader<'_>, window_coder: WindowCoder) -> Result<(), DecodeError> {
    let count = reader.be_i32()?;
    let limit = if window_coder == WindowCoder::Global { 1 } else { i32::MAX };
    if !(0..=limit).contains(&count) {
        return Err(DecodeError::malformed("window set", "impossible count"));
    }
    for _ in 0..count {
        window_coder.skip(reader)?;
    }
    Ok(())
}

/// A bundle's input on its way to the data stream.
pub(crate) struct InputRows {
    batches: std::vec::IntoIter<Batch>,
    keeps_metadata: bool,
    current: Option<Current>,
}

struct Current {
    batch: Batch,
    next: usize,
    panes: Vec<Bytes>,
}

impl InputRows {
    /// All rows of `batches`; element metadata is taken off unless the SDK reads it.
    pub(crate) fn new(batches: Vec<Batch>, keeps_metadata: bool) -> Self {
        InputRows { batches: batches.into_iter(), keeps_metadata, current: None }
    }

    /// Whole rows, until there are [`MESSAGE_BYTES`] of them. None: that was all.
    pub(crate) fn next_message(&mut self) -> Result<Option<Bytes>, Error> {
        let mut out = Vec::new();
        while out.len() < MESSAGE_BYTES {
            let Some(current) = &mut self.current else {
                let Some(batch) = self.batches.next() else { break };
                self.current = Some(Current::new(batch, self.keeps_metadata)?);
                continue;
            };
            if current.encode(&mut out)? {
                self.current = None;
            }
        }
        Ok(if out.is_empty() { None } else { Some(out.into()) })
    }
}

impl Current {
    fn new(batch: Batch, keeps_metadata: bool) -> Result<Self, Error> {
        let panes = batch.panes().entries();
        let panes = match keeps_metadata || panes.iter().all(|pane| pane.first().is_none_or(|first| first & 0x80 == 0)) {
            true => panes.to_vec(),
            false => panes
                .iter()
                .map(|pane| pane::without_metadata(pane).map(Bytes::from))
                .collect::<Result<_, _>>()
                .map_err(|error| Error::Protocol(format!("malformed pane in the input of a bundle: {error}")))?,
        };
        Ok(Current { batch, next: 0, panes })
    }

    /// Appends rows until `out` is full; true when the batch is at its end.
    fn encode(&mut self, out: &mut Vec<u8>) -> Result<bool, Error> {
        let batch = &self.batch;
        let rest = batch.value_bytes() - if self.next == 0 { 0 } else { batch.ends()[self.next - 1] as usize };
        out.reserve((rest + (batch.rows() - self.next) * 24).min(MESSAGE_BYTES + MESSAGE_BYTES / 4));
        while self.next < batch.rows() {
            if out.len() >= MESSAGE_BYTES {
                return Ok(false);
            }
            let value = batch.value(self.next);
            if value.len() > ELEMENT_BYTES_MAX {
                let message = format!("an element of {} bytes exceeds the limit of 2 GiB for SDK harnesses", value.len());
                return Err(Error::User { transform: None, message });
            }
            out.extend_from_slice(&batch.timestamp(self.next).encode());
            out.extend_from_slice(batch.windows().get(self.next));
            out.extend_from_slice(&self.panes[batch.panes().entry_of(self.next)]);
            out.extend_from_slice(value);
            self.next += 1;
        }
        Ok(true)
    }
}

/// About how many bytes the rows of `batches` will take on the wire.
pub(crate) fn wire_bytes(batches: &[Batch]) -> usize {
    let around = |batch: &Batch| {
        let windows = batch.windows().entries().iter().map(Bytes::len).max().unwrap_or(0);
        let pane = batch.panes().entries().iter().map(Bytes::len).max().unwrap_or(0);
        8 + windows + pane
    };
    batches.iter().map(|batch| batch.value_bytes() + batch.rows() * around(batch)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{BatchBuilder, window};

    fn rows(data: &[u8], coder: &Coder, windows: WindowCoder) -> Result<Vec<(Vec<u8>, i64)>, RowError> {
        let mut rows = Vec::new();
        parse(data, coder, windows, |row| {
            rows.push((row.value.to_vec(), row.timestamp.millis()));
            Ok(())
        })?;
        Ok(rows)
    }

    #[test]
    fn what_is_encoded_parses_to_the_same_rows() {
        let mut builder = BatchBuilder::new();
        let window = window::single(&[0x80, 0, 0, 0, 0, 0, 0x27, 0x10, 0x90, 0x4e]);
        for index in 0..1000u64 {
            let value = [2, index as u8, 7];
            builder.push(Row {
                value: &value,
                timestamp: Timestamp::from_millis(index as i64),
                windows: &window,
                pane: pane::NO_FIRING,
            });
        }
        let batch = builder.finish();
        let mut input = InputRows::new(vec![batch.slice(0..10), batch.slice(10..1000)], false);
        let message = input.next_message().unwrap().unwrap();
        assert!(input.next_message().unwrap().is_none());
        assert!(message.len() <= wire_bytes(std::slice::from_ref(&batch)));
        let parsed = rows(&message, &Coder::Bytes, WindowCoder::Interval).unwrap();
        assert!(
            parsed
                .iter()
                .map(|(value, at)| (value.as_slice(), *at))
                .eq(batch.iter().map(|row| (row.value, row.timestamp.millis())))
        );
    }

    #[test]
    fn messages_are_cut_at_rows_and_large_elements_stay_whole() {
        let mut builder = BatchBuilder::new();
        for size in [MESSAGE_BYTES - 10, 10, 3 * MESSAGE_BYTES, 1] {
            let mut value = Vec::new();
            model::reader::put_length_prefixed(&mut value, &vec![1; size]);
            builder.push(Row {
                value: &value,
                timestamp: Timestamp::from_millis(0),
                windows: window::GLOBAL_SET,
                pane: pane::NO_FIRING,
            });
        }
        let mut input = InputRows::new(vec![builder.finish()], false);
        let mut counts = Vec::new();
        while let Some(message) = input.next_message().unwrap() {
            counts.push(rows(&message, &Coder::Bytes, WindowCoder::Global).unwrap().len());
        }
        assert_eq!(counts, [1, 2, 1]);
    }

    #[test]
    fn metadata_is_taken_off_for_sdks_that_do_not_read_it() {
        let pane = pane::with_metadata(pane::PaneInfo::NO_FIRING, b"\x08\x02");
        let mut builder = BatchBuilder::new();
        builder.push(Row { value: &[0], timestamp: Timestamp::from_millis(0), windows: window::GLOBAL_SET, pane: &pane });
        let batch = builder.finish();
        for (keeps, length) in [(false, 8 + 4 + 1 + 1), (true, 8 + 4 + 4 + 1)] {
            let message = InputRows::new(vec![batch.clone()], keeps).next_message().unwrap().unwrap();
            assert_eq!(message.len(), length);
        }
    }

    #[test]
    fn malformed_rows_are_refused() {
        let good = [[0x80, 0, 0, 0, 0, 0, 0, 0].as_slice(), &[0, 0, 0, 1], &[0x0f], &[1, 7]].concat();
        let refused: &[(&str, Vec<u8>)] = &[
            ("cut", good[..good.len() - 1].to_vec()),
            ("two global windows", [&good[..8], &[0, 0, 0, 2], &good[12..]].concat()),
            ("negative windows", [&good[..8], &[0xff, 0, 0, 0], &good[12..]].concat()),
            ("pane layout", [&good[..12], &[0x7f], &good[13..]].concat()),
            ("trailing", [good.as_slice(), &[1]].concat()),
        ];
        assert_eq!(rows(&good, &Coder::Bytes, WindowCoder::Global).unwrap().len(), 1);
        for (name, data) in refused {
            assert!(matches!(rows(data, &Coder::Bytes, WindowCoder::Global), Err(RowError::Malformed(..))), "{name}");
        }
        let nowhere = [&good[..8], &[0, 0, 0, 0], &good[12..]].concat();
        assert!(rows(&nowhere, &Coder::Bytes, WindowCoder::Global).unwrap().is_empty());
    }
}
