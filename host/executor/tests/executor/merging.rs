//! A window function that only a worker knows: intervals that merge when they have enough in common.

use model::Reader;
use model::batch::Row;
use model::reader::put_length_prefixed;
use model::window::IntervalWindow;

use crate::dofns::Context;

/// Answers which of the windows in `row` merge: those that have more than `loose` milliseconds in common.
pub(crate) fn merge_windows(row: Row<'_>, loose: i64, context: &mut Context<'_>) {
    let mut reader = Reader::new(row.value);
    let nonce = reader.length_prefixed().unwrap();
    let mut windows: Vec<_> = (0..reader.be_i32().unwrap()).map(|_| IntervalWindow::decode(&mut reader).unwrap()).collect();
    windows.sort();
    let mut merged: Vec<(IntervalWindow, Vec<IntervalWindow>)> = Vec::new();
    for window in windows {
        match merged.last_mut() {
            Some((whole, parts)) if window.start.millis() + loose < whole.end.millis() => {
                whole.end = whole.end.max(window.end);
                parts.push(window);
            }
            _ => merged.push((window, vec![window])),
        }
    }
    let mut answer = Vec::new();
    put_length_prefixed(&mut answer, nonce);
    let list = |answer: &mut Vec<u8>, length: usize| answer.extend_from_slice(&(length as i32).to_be_bytes());
    list(&mut answer, 0);
    list(&mut answer, merged.len());
    for (whole, parts) in merged {
        whole.encode(&mut answer);
        list(&mut answer, parts.len());
        parts.iter().for_each(|part| part.encode(&mut answer));
    }
    context.emit(Row { value: &answer, ..row });
}
