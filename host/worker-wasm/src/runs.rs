//! Rows and timers of keys, as a guest gets them: each pair of key and window is a run.

use std::collections::HashMap;

use bytes::Bytes;
use model::batch::Row;
use model::{Batch, BatchBuilder, Coder, FiredTimer, Timestamp, WindowCoder, window};

use crate::bindings::{keyed, types};

/// The keys and windows of one call. A run is a pair of them.
#[derive(Debug, Default)]
pub(crate) struct Runs {
    /// By run.
    keys: Vec<Bytes>,
    /// Different windows.
    windows: Vec<Bytes>,
    /// By run, its window.
    window_of: Vec<u32>,
    /// By row or timer, its run.
    of: Vec<u32>,
}

/// Rows in one window each, with their runs. The error says which row is malformed.
pub(crate) fn of_rows(input: &Batch, coder: &Coder, windows: WindowCoder) -> Result<(Batch, Runs), String> {
    let batch = in_single_windows(input, windows)?;
    let runs = numbered(&batch, coder)?;
    Ok((batch, runs))
}

fn numbered(batch: &Batch, coder: &Coder) -> Result<Runs, String> {
    let mut numbers = Numbers::default();
    // Entries of the dictionary may be equal.
    let sets = batch.windows().entries().iter();
    let by_entry: Vec<u32> = sets.map(|set| numbers.window(&set.slice(SET_HEAD_BYTES..))).collect();
    for row in 0..batch.rows() {
        let value = batch.value(row);
        let length = coder.key_len(value).map_err(|error| format!("row {row} has a malformed key: {error}"))?;
        let start = batch.range(row).start;
        let window = by_entry[batch.windows().entry_of(row)];
        numbers.add(&value[..length], window, || batch.values().slice(start..start + length));
    }
    Ok(numbers.runs)
}

/// The runs of timers, and what their outputs inherit: the time that they hold, or else their own, window and pane. The values
/// are the tags.
pub(crate) fn of_timers(due: &[FiredTimer]) -> (Batch, Runs) {
    let (mut numbers, mut builder) = (Numbers::default(), BatchBuilder::new());
    for timer in due {
        let window = numbers.window(&timer.window);
        numbers.add(&timer.key, window, || timer.key.clone());
        let (fire, hold) = (timer.fire.timestamp(), timer.hold.timestamp());
        let timestamp = if hold < Timestamp::MAX { hold } else { fire };
        builder.push(Row { value: &timer.tag, timestamp, windows: &window::single(&timer.window), pane: &timer.pane });
    }
    (builder.finish(), numbers.runs)
}

/// Gives numbers to windows and runs.
#[derive(Default)]
struct Numbers<'a> {
    runs: Runs,
    windows: HashMap<Bytes, u32>,
    pairs: HashMap<(&'a [u8], u32), u32>,
}

impl<'a> Numbers<'a> {
    fn window(&mut self, window: &Bytes) -> u32 {
        if let Some(known) = self.windows.get(window) {
            return *known;
        }
        let number = self.runs.windows.len() as u32;
        self.windows.insert(window.clone(), number);
        self.runs.windows.push(window.clone());
        number
    }

    /// The next row or timer.
    #[inline]
    fn add(&mut self, key: &'a [u8], window: u32, shared: impl FnOnce() -> Bytes) {
        let Numbers { runs, pairs, .. } = self;
        let run = *pairs.entry((key, window)).or_insert_with(|| {
            runs.keys.push(shared());
            runs.window_of.push(window);
            runs.keys.len() as u32 - 1
        });
        runs.of.push(run);
    }
}

/// Bytes before the window of a set of one.
const SET_HEAD_BYTES: usize = 4;

fn in_single_windows(batch: &Batch, coder: WindowCoder) -> Result<Batch, String> {
    let malformed = |error| format!("malformed windows: {error}");
    let sets = batch.windows().entries().iter().map(|set| coder.windows_of(set));
    let sets: Vec<Vec<&[u8]>> = sets.collect::<Result<_, _>>().map_err(malformed)?;
    if sets.iter().all(|set| set.len() == 1) {
        return Ok(batch.clone());
    }
    let mut builder = BatchBuilder::new();
    for (index, row) in batch.iter().enumerate() {
        for one in &sets[batch.windows().entry_of(index)] {
            builder.push(Row { windows: &window::single(one), ..row });
        }
    }
    Ok(builder.finish())
}

impl Runs {
    /// Key and window of a run that a guest names.
    pub(crate) fn get(&self, run: u32) -> Option<(&Bytes, &Bytes)> {
        Some((self.keys.get(run as usize)?, &self.windows[self.window_of[run as usize] as usize]))
    }
}

/// Runs in the columns of the boundary.
pub(crate) struct Lowered<'a> {
    runs: &'a Runs,
    keys: (Vec<u8>, Vec<u32>),
    windows: (Vec<u8>, Vec<u32>),
}

impl<'a> Lowered<'a> {
    pub(crate) fn new(runs: &'a Runs) -> Self {
        Lowered { runs, keys: arena(&runs.keys), windows: arena(&runs.windows) }
    }

    pub(crate) fn param(&self) -> keyed::Runs<'_> {
        // With one window, an empty index says that all have it.
        let index: &[u32] = if self.runs.windows.len() > 1 { &self.runs.window_of } else { &[] };
        keyed::Runs { keys: rows(&self.keys), windows: types::DictionaryParam { entries: rows(&self.windows), index } }
    }

    pub(crate) fn of(&self) -> &'a [u32] {
        &self.runs.of
    }
}

/// Byte strings one after another, with their ends.
pub(crate) fn arena<'a>(entries: impl IntoIterator<Item = &'a Bytes>) -> (Vec<u8>, Vec<u32>) {
    let (mut bytes, mut ends) = (Vec::new(), Vec::new());
    for entry in entries {
        bytes.extend_from_slice(entry);
        ends.push(bytes.len() as u32);
    }
    (bytes, ends)
}

pub(crate) fn rows((bytes, ends): &(Vec<u8>, Vec<u32>)) -> types::RowsParam<'_> {
    types::RowsParam { bytes, ends }
}

#[cfg(test)]
mod tests {
    use model::window::IntervalWindow;
    use model::{RawTime, pane};

    use super::*;

    fn interval(start: i64) -> Vec<u8> {
        let mut bytes = Vec::new();
        IntervalWindow { start: Timestamp::from_millis(start), end: Timestamp::from_millis(start + 10) }.encode(&mut bytes);
        bytes
    }

    #[test]
    fn every_row_is_in_one_window_of_its_key() {
        let coder = Coder::Kv(Box::new(Coder::Bytes), Box::new(Coder::VarInt));
        let both = [&2i32.to_be_bytes()[..], &interval(0), &interval(5)].concat();
        let mut builder = BatchBuilder::new();
        for (value, windows) in [(b"\x01a\x07", both.clone()), (b"\x01b\x08", window::single(&interval(5))), (b"\x01a\x09", both)]
        {
            builder.push(Row { value, timestamp: Timestamp::from_millis(6), windows: &windows, pane: pane::NO_FIRING });
        }
        let (batch, runs) = of_rows(&builder.finish(), &coder, WindowCoder::Interval).unwrap();
        assert_eq!(runs.of, [0, 1, 2, 0, 1]);
        assert_eq!(batch.iter().map(|row| row.value[2]).collect::<Vec<_>>(), [7, 7, 8, 9, 9]);
        let names: Vec<_> =
            (0..3).map(|run| runs.get(run).map(|(key, window)| (key.to_vec(), window.to_vec())).unwrap()).collect();
        assert_eq!(names, [(b"\x01a".to_vec(), interval(0)), (b"\x01a".to_vec(), interval(5)), (b"\x01b".to_vec(), interval(5))]);
        assert!(runs.get(3).is_none());
    }

    #[test]
    fn a_malformed_key_is_named() {
        let coder = Coder::Kv(Box::new(Coder::Bytes), Box::new(Coder::VarInt));
        let mut builder = BatchBuilder::new();
        for value in [&b"\x01a\x07"[..], b"\x09a"] {
            builder.push(Row { value, timestamp: Timestamp::MIN, windows: window::GLOBAL_SET, pane: pane::NO_FIRING });
        }
        let error = of_rows(&builder.finish(), &coder, WindowCoder::Global).unwrap_err();
        assert!(error.starts_with("row 1 has a malformed key"), "{error}");
    }

    #[test]
    fn outputs_of_timers_inherit_what_they_hold() {
        let timer = |tag: &'static [u8], fire, hold| FiredTimer {
            family: 0,
            tag: Bytes::from_static(tag),
            key: Bytes::from_static(b"\x01a"),
            window: interval(0).into(),
            fire: RawTime(fire),
            hold,
            pane: Bytes::from_static(pane::NO_FIRING),
        };
        let (batch, runs) = of_timers(&[timer(b"x", 7, RawTime(3)), timer(b"", 8, RawTime::NO_HOLD)]);
        assert_eq!(batch.iter().map(|row| row.timestamp.millis()).collect::<Vec<_>>(), [3, 8]);
        assert_eq!(runs.of, [0, 0]);
    }
}
