//! Which windows of one key merge.
//!
//! Sessions merge here: two of them when they overlap, with exclusive ends, as in Java and Python. Window functions that
//! only an SDK knows would be asked through it at this place; plans refuse them today.

use bytes::Bytes;
use model::window::IntervalWindow;
use model::{Reader, Timestamp};

use super::super::Error;
use super::super::arrivals::Window;

/// Windows that become one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Merged {
    pub(super) result: Window,
    /// In order of their start; one, if nothing merges.
    pub(super) sources: Vec<Window>,
}

/// Merges overlapping windows. The result is in order of start.
pub(super) fn merge(windows: impl Iterator<Item = Window>) -> Result<Vec<Merged>, Error> {
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
