//! Merging runs into longer ones, so that firing a window merges few of them.
//!
//! Runs of one level lie next to each other, older and higher levels first. When a level has [`FAN_IN`] runs, they are
//! merged into one of the next level, in steps; lower levels go first. Bytes that come in pay for bytes that are merged,
//! so a call does a bounded amount of work and the number of runs stays within about `2 * FAN_IN` a level.

use super::super::Error;
use super::Format;
use super::block::{GROUP_BYTES, RunWriter};
use super::merge::{Gathered, Merge, OpenBlocks};
use super::window::OpenWindow;
use crate::KeyedState;
use crate::arrivals::Window;

/// Runs of one level that are merged into one of the next.
const FAN_IN: usize = 24;
/// Bytes that one call merges at most, but for the rest of one group.
const STEP_BYTES_MAX: u64 = 4 << 20;
/// Bytes that may be merged for each byte that comes in: enough for this many levels to keep up.
pub(super) const CREDIT: u64 = 4;

/// One step of merging, if one is paid for.
pub(super) fn step(format: &Format, window: &Window, open: &mut OpenWindow, state: &mut dyn KeyedState) -> Result<(), Error> {
    let Some(begun) = choose(open) else {
        return Ok(());
    };
    let sources = begun.sources(open);
    let remaining: u64 = open.runs[sources.clone()].iter().map(|run| run.bytes).sum();
    let step_bytes = remaining.min(STEP_BYTES_MAX);
    if open.merge_credit < step_bytes {
        return Ok(());
    }
    let target = begun.start(open);
    let sources = target + 1..target + 1 + open.runs[target].sources as usize;
    let mut merge = Merge::new(format, window, &open.runs[sources.clone()], &OpenBlocks::new(), state)?;
    let mut writer = RunWriter::new(format, window, open.runs[target].clone());
    let mut gathered = Gathered::default();
    let mut merged = 0;
    while merged < step_bytes && merge.next(&mut gathered, GROUP_BYTES, state)? {
        let Gathered { key, hold, values } = &gathered;
        merged += (key.len() + values.bytes.len()) as u64;
        writer.push(key, values.count, values.bytes.len(), *hold, [&values.bytes[..]].into_iter(), state);
    }
    let finished = merge.finished();
    merge.store(&mut open.runs[sources.clone()])?;
    open.runs[target] = writer.finish(state);
    if finished {
        open.runs[target].sources = 0;
        open.runs.drain(sources);
    }
    // What is left over in the end pays for nothing: it would only allow one long step later.
    open.merge_credit = open.merge_credit.saturating_sub(merged).min(CREDIT * STEP_BYTES_MAX);
    Ok(())
}

/// What to merge next.
enum Choice {
    /// Into the run at this place, which was begun before.
    Continue(usize),
    /// The [`FAN_IN`] runs from this place on.
    Begin(usize),
}

/// The lowest level with something to do. Its runs are the last ones in the list that are.
fn choose(open: &OpenWindow) -> Option<Choice> {
    let mut end = open.runs.len();
    while end > 0 {
        let level = open.runs[end - 1].level;
        let first = open.runs[..end].iter().rposition(|run| run.level != level).map_or(0, |place| place + 1);
        if first > 0 && open.runs[first - 1].sources > 0 {
            return Some(Choice::Continue(first - 1));
        }
        if end - first >= FAN_IN && open.runs[first..end].iter().all(|run| run.sources == 0) {
            return Some(Choice::Begin(first));
        }
        end = first;
    }
    None
}

impl Choice {
    fn sources(&self, open: &OpenWindow) -> std::ops::Range<usize> {
        match *self {
            Choice::Continue(target) => target + 1..target + 1 + open.runs[target].sources as usize,
            Choice::Begin(first) => first..first + FAN_IN,
        }
    }

    /// The place of the run that is being written.
    fn start(self, open: &mut OpenWindow) -> usize {
        match self {
            Choice::Continue(target) => target,
            Choice::Begin(first) => {
                let mut target = open.next_run();
                target.level = open.runs[first].level.saturating_add(1);
                target.sources = FAN_IN as u32;
                open.runs.insert(first, target);
                first
            }
        }
    }
}
