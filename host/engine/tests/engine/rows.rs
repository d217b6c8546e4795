//! Rows for grouping stages: keyed, in fixed windows, and what their panes hold.

use bytes::Bytes;
use engine::EntryRows;
use model::reader::put_varint;
use model::window::{self, IntervalWindow};
use model::windowing::{WindowFn, WindowingStrategy};
use model::{Batch, BatchBuilder, Coder, Duration, Reader, Timestamp, WindowCoder, pane};

/// Fixed windows of `size`, the default trigger, nothing accumulated.
pub(crate) fn fixed_windows(size: i64, lateness: i64) -> WindowingStrategy {
    WindowingStrategy {
        window_fn: WindowFn::Fixed { size: Duration(size), offset: Duration(0) },
        window_coder: WindowCoder::Interval,
        allowed_lateness: Duration(lateness),
        ..WindowingStrategy::global()
    }
}

/// `kv<bytes, bytes>`
pub(crate) fn coder() -> Coder {
    Coder::Kv(Box::new(Coder::Bytes), Box::new(Coder::Bytes))
}

/// The fixed window of `size` around a time.
pub(crate) fn window_of(timestamp: Timestamp, size: i64) -> IntervalWindow {
    let start = timestamp.minus(Duration(timestamp.millis().rem_euclid(size)));
    IntervalWindow { start, end: start.plus(Duration(size)) }
}

/// A batch of (key, value, timestamp) in fixed windows of `size`.
pub(crate) fn batch(rows: &[(&str, &str, Timestamp)], size: i64) -> Batch {
    let mut builder = BatchBuilder::new();
    for (key, value, timestamp) in rows {
        let mut window = Vec::new();
        window_of(*timestamp, size).encode(&mut window);
        builder.push_with(*timestamp, &window::single(&window), pane::NO_FIRING, |out| {
            for text in [key, value] {
                put_varint(out, text.len() as u64);
                out.extend_from_slice(text.as_bytes());
            }
        });
    }
    builder.finish()
}

/// The encoded key of an encoded row.
pub(crate) fn key_of(value: &[u8]) -> Bytes {
    Bytes::copy_from_slice(&value[..coder().key_len(value).unwrap()])
}

/// The batches of some rows of entries, as the executor cuts them: one per range.
pub(crate) fn cut(entries: &[EntryRows], payload: impl Fn(&EntryRows) -> Batch) -> Vec<Batch> {
    let cut_one = |entry: &EntryRows| {
        let batch = payload(entry);
        let ranges = entry.rows.iter().map(|rows| batch.slice(rows.start as usize..rows.end as usize));
        ranges.collect::<Vec<_>>()
    };
    entries.iter().flat_map(cut_one).collect()
}

/// One pane: key, window, timestamp and values.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Pane {
    pub(crate) key: String,
    pub(crate) window: IntervalWindow,
    pub(crate) timestamp: Timestamp,
    pub(crate) values: Vec<String>,
}

/// Decodes `kv<bytes, iterable<bytes>>` in one interval window per row.
pub(crate) fn panes(batches: &[Batch]) -> Vec<Pane> {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let pane = |row: model::batch::Row<'_>| {
        let mut reader = Reader::new(row.value);
        let key = text(reader.length_prefixed().unwrap());
        let count = reader.be_i32().unwrap();
        let values = (0..count).map(|_| text(reader.length_prefixed().unwrap())).collect();
        assert_eq!(reader.remaining(), 0, "bytes behind the values of a pane");
        let windows = WindowCoder::Interval.windows_of(row.windows).unwrap();
        assert_eq!(windows.len(), 1, "a pane is in one window");
        let window = IntervalWindow::decode(&mut Reader::new(windows[0])).unwrap();
        Pane { key, window, timestamp: row.timestamp, values }
    };
    batches.iter().flat_map(|batch| batch.iter().map(pane).collect::<Vec<_>>()).collect()
}
