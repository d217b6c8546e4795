//! Which windows of one key merge.
//!
//! Sessions merge here: two of them when they overlap, with exclusive ends, as in Java and Python. About window functions that
//! only an SDK knows the merger is asked, and its answer checked.

use std::collections::BTreeMap;

use bytes::Bytes;
use model::window::IntervalWindow;
use model::{Reader, Timestamp, WindowCoder};

use super::super::Error;
use super::super::merger::{MergedWindows, WindowMerger};
use crate::arrivals::Window;

/// Windows that become one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Merged {
    pub(super) result: Window,
    /// In order of their start; one, if nothing merges.
    pub(super) sources: Vec<Window>,
}

impl Merged {
    /// Whether nothing changes.
    pub(super) fn is_same(&self) -> bool {
        matches!(&self.sources[..], [only] if *only == self.result)
    }
}

/// Merges overlapping windows. The result is in order of start.
pub(super) fn sessions(windows: impl Iterator<Item = Window>) -> Result<Vec<Merged>, Error> {
    let mut intervals = windows
        .map(|window| Ok((IntervalWindow::decode(&mut Reader::new(&window.bytes))?, window)))
        .collect::<Result<Vec<_>, Error>>()?;
    intervals.sort();
    intervals.dedup();
    let mut merged: Vec<(IntervalWindow, Vec<Window>)> = Vec::new();
    for (interval, window) in intervals {
        match merged.last_mut() {
            Some((current, sources)) if interval.start < current.end => {
                current.end = current.end.max(interval.end);
                sources.push(window);
            }
            _ => merged.push((interval, vec![window])),
        }
    }
    Ok(merged.into_iter().map(|(interval, sources)| Merged { result: encoded(interval, &sources), sources }).collect())
}

fn encoded(interval: IntervalWindow, sources: &[Window]) -> Window {
    match sources {
        [only] => only.clone(),
        _ => {
            let mut bytes = Vec::with_capacity(16);
            interval.encode(&mut bytes);
            Window { end: interval.max_timestamp().min(Timestamp::GLOBAL_WINDOW_END), bytes: Bytes::from(bytes) }
        }
    }
}

/// Merges what the merger says. The result is in order of the windows.
pub(super) fn asked(
    windows: impl Iterator<Item = Window>,
    coder: WindowCoder,
    merger: &mut dyn WindowMerger,
) -> Result<Vec<Merged>, Error> {
    let mut alone: BTreeMap<Bytes, Window> = windows.map(|window| (window.bytes.clone(), window)).collect();
    let all: Vec<Bytes> = alone.keys().cloned().collect();
    let answer = if all.len() > 1 { merger.merge(&all)? } else { Vec::new() };
    let mut merged = Vec::new();
    for answered in answer {
        merged.push(checked(answered, coder, &mut alone)?);
    }
    merged.extend(alone.into_values().map(|window| Merged { result: window.clone(), sources: vec![window] }));
    merged.sort_by(|left, right| left.result.cmp(&right.result));
    match merged.windows(2).all(|pair| pair[0].result != pair[1].result) {
        true => Ok(merged),
        false => Err(Error::Merged("a window that two sets of windows become")),
    }
}

/// Takes the sources of one merged window from those that are `alone`. A window that was there already and is what others
/// become is a source, too.
fn checked(answered: MergedWindows, coder: WindowCoder, alone: &mut BTreeMap<Bytes, Window>) -> Result<Merged, Error> {
    let mut reader = Reader::new(&answered.result);
    coder.skip(&mut reader).map_err(|_| Error::Merged("a window that cannot be read"))?;
    if !reader.is_empty() || answered.sources.is_empty() {
        return Err(Error::Merged("a window made of nothing, or with bytes left over"));
    }
    let unknown = || Error::Merged("a window twice, or one that it was not asked about");
    let sources = answered.sources.iter().map(|source| alone.remove(source).ok_or_else(unknown));
    let mut sources = sources.collect::<Result<Vec<_>, _>>()?;
    sources.extend(alone.remove(&answered.result));
    sources.sort();
    let result = Window::new(coder, answered.result).map_err(|_| Error::Merged("a window that cannot be read"))?;
    Ok(Merged { result, sources })
}
