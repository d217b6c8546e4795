//! Batches across the boundary: columns into the guest without going through rows, and back with every claim checked.

use bytes::Bytes;
use model::{Batch, Dictionary, Reader, Timestamp, Timestamps, WindowCoder, pane};

use crate::bindings::types;
use crate::manifest::TransformManifest;

/// Which columns besides the values a guest wants.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Reads {
    timestamps: bool,
    windows: bool,
    panes: bool,
}

impl Reads {
    pub(crate) fn of(transform: &TransformManifest) -> Self {
        let reads = |column| transform.reads.contains(column);
        Reads { timestamps: reads("timestamps"), windows: reads("windows"), panes: reads("panes") }
    }
}

/// The columns that have to be copied together before they cross; values and indices are lent as they are.
pub(crate) struct Lowered<'a> {
    batch: &'a Batch,
    timestamps: Vec<i64>,
    windows: Option<Entries<'a>>,
    panes: Option<Entries<'a>>,
}

struct Entries<'a> {
    bytes: Vec<u8>,
    ends: Vec<u32>,
    index: &'a [u32],
}

impl<'a> Lowered<'a> {
    pub(crate) fn new(batch: &'a Batch, reads: Reads) -> Self {
        let timestamps = match batch.timestamps() {
            _ if !reads.timestamps => Vec::new(),
            Timestamps::All(all) => vec![all.millis()],
            Timestamps::Each(each) => each.iter().map(|timestamp| timestamp.millis()).collect(),
        };
        Lowered {
            batch,
            timestamps,
            windows: reads.windows.then(|| Entries::new(batch.windows())),
            panes: reads.panes.then(|| Entries::new(batch.panes())),
        }
    }

    pub(crate) fn param(&self) -> types::Batch<'_> {
        types::Batch {
            values: types::RowsParam { bytes: self.batch.values(), ends: self.batch.ends() },
            timestamps: &self.timestamps,
            windows: dictionary(self.windows.as_ref()),
            panes: dictionary(self.panes.as_ref()),
        }
    }
}

impl<'a> Entries<'a> {
    fn new(column: &'a Dictionary) -> Self {
        let (mut bytes, mut ends) = (Vec::new(), Vec::new());
        for entry in column.entries() {
            bytes.extend_from_slice(entry);
            ends.push(bytes.len() as u32);
        }
        Entries { bytes, ends, index: column.index() }
    }
}

fn dictionary<'a>(entries: Option<&'a Entries<'_>>) -> types::DictionaryParam<'a> {
    let (bytes, ends, index): (&[u8], &[u32], &[u32]) = match entries {
        Some(entries) => (&entries.bytes, &entries.ends, entries.index),
        None => (&[], &[], &[]),
    };
    types::DictionaryParam { entries: types::RowsParam { bytes, ends }, index }
}

/// Makes a batch of what a guest emitted. `input`: the rows of the call, none at the edges of a bundle.
/// The error says what is wrong with it.
pub(crate) fn lift(emitted: types::Emitted, input: Option<&Batch>, window_coder: WindowCoder) -> Result<Batch, String> {
    let rows = emitted.values.ends.len();
    if !emitted.origin.is_empty() && emitted.origin.len() != rows {
        return Err(format!("{} origins for {rows} rows", emitted.origin.len()));
    }
    let origin = Origin { rows: &emitted.origin, input };
    origin.check()?;
    // With timestamps and windows given, an empty origin means that there is none, instead of row by row.
    let detached = emitted.origin.is_empty() && !emitted.timestamps.is_empty() && !emitted.windows.entries.ends.is_empty();
    let timestamps = match emitted.timestamps.as_slice() {
        [] => origin.source("timestamps", rows)?.timestamps(&emitted.origin),
        [one] => Timestamps::All(timestamp(*one)?),
        many => Timestamps::Each(many.iter().map(|millis| timestamp(*millis)).collect::<Result<_, _>>()?),
    };
    let windows = match emitted.windows.entries.ends.is_empty() {
        true => origin.source("windows", rows)?.windows(&emitted.origin),
        false => given(emitted.windows, rows, |entry| check_windows(entry, window_coder))
            .map_err(|reason| format!("windows: {reason}"))?,
    };
    let panes = match emitted.panes.entries.ends.is_empty() {
        true if detached => Dictionary::constant(Bytes::from_static(pane::NO_FIRING)),
        true => origin.source("panes", rows)?.panes(&emitted.origin),
        false => given(emitted.panes, rows, check_pane).map_err(|reason| format!("panes: {reason}"))?,
    };
    Batch::from_columns(emitted.values.bytes.into(), emitted.values.ends, timestamps, windows, panes)
        .map_err(|error| error.to_string())
}

/// Where inherited columns come from.
struct Origin<'a> {
    rows: &'a [u32],
    input: Option<&'a Batch>,
}

impl<'a> Origin<'a> {
    fn check(&self) -> Result<(), String> {
        let Some(greatest) = self.rows.iter().max() else { return Ok(()) };
        let input = self.input.map_or(0, Batch::rows);
        if (*greatest as usize) < input { Ok(()) } else { Err(format!("origin {greatest}, but the input has {input} rows")) }
    }

    fn source(&self, column: &str, rows: usize) -> Result<Source<'a>, String> {
        let input = self.input.ok_or_else(|| format!("{column} are to be inherited where there is no input"))?;
        if self.rows.is_empty() && rows != input.rows() {
            return Err(format!("{rows} rows without origin for {} input rows", input.rows()));
        }
        Ok(Source(input))
    }
}

struct Source<'a>(&'a Batch);

impl Source<'_> {
    fn timestamps(&self, origin: &[u32]) -> Timestamps {
        match self.0.timestamps() {
            Timestamps::Each(each) if !origin.is_empty() => {
                Timestamps::Each(origin.iter().map(|row| each[*row as usize]).collect())
            }
            same => same.clone(),
        }
    }

    fn windows(&self, origin: &[u32]) -> Dictionary {
        pick(self.0.windows(), origin)
    }

    fn panes(&self, origin: &[u32]) -> Dictionary {
        pick(self.0.panes(), origin)
    }
}

fn pick(column: &Dictionary, origin: &[u32]) -> Dictionary {
    if origin.is_empty() { column.clone() } else { column.pick(origin) }
}

fn timestamp(millis: i64) -> Result<Timestamp, String> {
    let timestamp = Timestamp::from_millis(millis);
    if timestamp.millis() == millis { Ok(timestamp) } else { Err(format!("timestamp {millis} is out of range")) }
}

fn given(
    column: types::DictionaryResult,
    rows: usize,
    check: impl Fn(&[u8]) -> Result<(), String>,
) -> Result<Dictionary, String> {
    let bytes = Bytes::from(column.entries.bytes);
    let mut start = 0;
    let mut entries = Vec::with_capacity(column.entries.ends.len().min(rows));
    for end in &column.entries.ends {
        let end = *end as usize;
        if end < start || end > bytes.len() {
            return Err("entries end outside their bytes".to_owned());
        }
        let entry = bytes.slice(start..end);
        check(&entry)?;
        entries.push(entry);
        start = end;
    }
    if start != bytes.len() {
        return Err("bytes are left over".to_owned());
    }
    Dictionary::from_parts(entries, column.index, rows).map_err(|error| error.to_string())
}

fn check_windows(set: &[u8], coder: WindowCoder) -> Result<(), String> {
    let mut reader = Reader::new(set);
    let count = reader.be_i32().map_err(|error| error.to_string())?;
    if count < 1 || (coder == WindowCoder::Global && count != 1) {
        return Err(format!("a set of {count} windows"));
    }
    for _ in 0..count {
        coder.skip(&mut reader).map_err(|error| error.to_string())?;
    }
    if reader.is_empty() { Ok(()) } else { Err("bytes are left over after the windows".to_owned()) }
}

fn check_pane(bytes: &[u8]) -> Result<(), String> {
    let mut reader = Reader::new(bytes);
    pane::skip(&mut reader).map_err(|error| error.to_string())?;
    if reader.is_empty() { Ok(()) } else { Err("bytes are left over after the pane".to_owned()) }
}

#[cfg(test)]
mod tests {
    use model::batch::Row;
    use model::{BatchBuilder, window};

    use super::*;

    fn input() -> Batch {
        let mut builder = BatchBuilder::new();
        for (millis, set) in [(1, window::GLOBAL_SET), (2, window::GLOBAL_SET)] {
            builder.push(Row { value: b"\x01x", timestamp: Timestamp::from_millis(millis), windows: set, pane: pane::NO_FIRING });
        }
        builder.finish()
    }

    fn rows(entries: &[&[u8]]) -> types::RowsResult {
        let mut rows = types::RowsResult { bytes: Vec::new(), ends: Vec::new() };
        for entry in entries {
            rows.bytes.extend_from_slice(entry);
            rows.ends.push(rows.bytes.len() as u32);
        }
        rows
    }

    fn emitted(values: &[&[u8]]) -> types::Emitted {
        let none = || types::DictionaryResult { entries: rows(&[]), index: Vec::new() };
        types::Emitted {
            output: 0,
            values: rows(values),
            origin: Vec::new(),
            timestamps: Vec::new(),
            windows: none(),
            panes: none(),
        }
    }

    #[test]
    fn columns_are_inherited_by_origin() {
        let mut out = emitted(&[b"\x01a", b"\x01b", b"\x01c"]);
        out.origin = vec![1, 0, 1];
        let batch = lift(out, Some(&input()), WindowCoder::Global).unwrap();
        let times: Vec<i64> = batch.iter().map(|row| row.timestamp.millis()).collect();
        assert_eq!(times, [2, 1, 2]);
        let batch = lift(emitted(&[b"\x01a", b"\x01b"]), Some(&input()), WindowCoder::Global).unwrap();
        assert_eq!(batch.timestamps(), input().timestamps());
        let mut out = emitted(&[b"\x01a"]);
        (out.timestamps, out.windows.entries) = (vec![5], rows(&[window::GLOBAL_SET]));
        let batch = lift(out, Some(&input()), WindowCoder::Global).unwrap();
        assert_eq!((batch.row(0).timestamp.millis(), batch.row(0).pane), (5, pane::NO_FIRING));
    }

    #[test]
    fn nothing_that_a_guest_claims_is_believed() {
        let check = |expected: &str, change: fn(&mut types::Emitted), with_input: bool| {
            let mut out = emitted(&[b"\x01a", b"\x01b"]);
            change(&mut out);
            let input = input();
            let error = lift(out, with_input.then_some(&input), WindowCoder::Interval).unwrap_err();
            assert!(error.contains(expected), "{error}");
        };
        check("origin 2, but the input has 2 rows", |out| out.origin = vec![0, 2], true);
        check("1 origins for 2 rows", |out| out.origin = vec![0], true);
        check("origin 0, but the input has 0 rows", |out| out.origin = vec![0, 0], false);
        check("timestamps are to be inherited", |_| {}, false);
        check("windows are to be inherited", |out| out.timestamps = vec![5], false);
        check("1 rows without origin for 2 input rows", |out| out.values = rows(&[b"\x01a"]), true);
        check("rows do not fill the arena", |out| out.values.ends = vec![3, 2], true);
        check("rows do not fill the arena", |out| out.values.ends = vec![2, 5], true);
        check("rows do not fill the arena", |out| out.values.ends = vec![1, 2], true);
        check("not one timestamp per row", |out| out.timestamps = vec![1, 2, 3], true);
        check("timestamp 9223372036854775807 is out of range", |out| out.timestamps = vec![i64::MAX], true);
        check("windows: a set of 0 windows", |out| out.windows.entries = rows(&[&[0, 0, 0, 0]]), true);
        check("windows: input ends", |out| out.windows.entries = rows(&[window::GLOBAL_SET]), true);
        check("windows: input ends", |out| out.windows.entries = rows(&[&[0x7f, 0xff, 0xff, 0xff, 0]]), true);
        check("windows: entries end outside", |out| out.windows.entries.ends = vec![9], true);
        check("panes: bytes are left over after", |out| out.panes.entries = rows(&[&[0x0f, 0]]), true);
        check("panes: malformed pane", |out| out.panes.entries = rows(&[&[0x7f, 1, 1, 1, 1, 1, 1, 1]]), true);
        let index = |out: &mut types::Emitted| {
            out.panes.entries = rows(&[pane::NO_FIRING]);
            out.panes.index = vec![0, 1];
        };
        check("panes: malformed dictionary: index out of range", index, true);
    }

    #[test]
    fn a_set_of_endless_global_windows_is_refused() {
        assert!(check_windows(&[0x7f, 0xff, 0xff, 0xff], WindowCoder::Global).is_err());
        assert_eq!(check_windows(window::GLOBAL_SET, WindowCoder::Global), Ok(()));
    }
}
