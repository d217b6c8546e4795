//! Bundles between their start and their commit: at most one per stage, each ended exactly once.
//!
//! ```text
//!  start ──▶ running ──finish──▶ finished ──committed──▶ gone, with its effects
//!               └──────failed───────┴───────────────────▶ gone, without
//! ```

use std::collections::BTreeMap;
use std::ops::Range;

use model::{BundleId, StageId};

use crate::pending::EntryRows;
use crate::rows;

/// Work for one bundle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Work {
    /// Never used twice by one engine.
    pub bundle: BundleId,
    /// What it is work for.
    pub stage: StageId,
    /// Input in order. Empty for a grouping or keyed stage that only fires.
    pub entries: Vec<EntryRows>,
}

/// A bundle in flight. `Delta` is what a grouping or keyed stage will apply when the bundle is durable.
#[derive(Debug)]
pub(crate) struct Running<Delta> {
    pub(crate) stage: StageId,
    pub(crate) entries: Vec<EntryRows>,
    pub(crate) delta: Option<Delta>,
    pub(crate) finished: Option<Finished>,
}

/// How a bundle's input divides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Finished {
    pub(crate) consumed: Vec<EntryRows>,
    pub(crate) unprocessed: Vec<EntryRows>,
}

/// See the file's head.
#[derive(Debug)]
pub(crate) struct InFlight<Delta> {
    bundles: BTreeMap<BundleId, Running<Delta>>,
    by_stage: Vec<Option<BundleId>>,
    next: u64,
}

impl<Delta> InFlight<Delta> {
    pub(crate) fn new(stages: usize) -> Self {
        InFlight { bundles: BTreeMap::new(), by_stage: vec![None; stages], next: 0 }
    }

    pub(crate) fn start(&mut self, stage: StageId, entries: Vec<EntryRows>) -> Work {
        let bundle = BundleId(self.next);
        self.next += 1;
        let before = self.by_stage[stage.0 as usize].replace(bundle);
        assert!(before.is_none(), "{bundle} of {stage} starts while another is in flight");
        let running = Running { stage, entries: entries.clone(), delta: None, finished: None };
        self.bundles.insert(bundle, running);
        Work { bundle, stage, entries }
    }

    pub(crate) fn get_mut(&mut self, bundle: BundleId) -> &mut Running<Delta> {
        self.bundles.get_mut(&bundle).unwrap_or_else(|| panic!("{bundle} is not in flight"))
    }

    /// Removes a bundle that has ended.
    pub(crate) fn end(&mut self, bundle: BundleId) -> Running<Delta> {
        let running = self.bundles.remove(&bundle).unwrap_or_else(|| panic!("{bundle} is not in flight"));
        self.by_stage[running.stage.0 as usize] = None;
        running
    }

    /// The bundle of a stage.
    pub(crate) fn of(&self, stage: StageId) -> Option<BundleId> {
        self.by_stage[stage.0 as usize]
    }

    /// Whether the bundle of a stage is done and waits for its commit.
    pub(crate) fn is_finished(&self, stage: StageId) -> bool {
        self.of(stage).is_some_and(|bundle| self.bundles[&bundle].finished.is_some())
    }

    /// Rows of the bundle of a stage.
    pub(crate) fn rows_of(&self, stage: StageId) -> usize {
        let entries = self.of(stage).map(|bundle| self.bundles[&bundle].entries.as_slice()).unwrap_or_default();
        entries.iter().map(|entry| rows::count(&entry.rows)).sum()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.bundles.is_empty()
    }
}

impl<Delta> Running<Delta> {
    /// Divides the input by the ranges of it, counted over all its rows in order, that were not processed.
    pub(crate) fn finish(&mut self, unprocessed: &[Range<usize>]) -> &Finished {
        assert!(self.finished.is_none(), "a bundle of {} is finished twice", self.stage);
        let rows = self.entries.iter().map(|entry| rows::count(&entry.rows)).sum();
        rows::assert_sane(unprocessed, rows, "unprocessed rows");
        self.finished.insert(divide(&self.entries, unprocessed))
    }
}

fn divide(entries: &[EntryRows], unprocessed: &[Range<usize>]) -> Finished {
    let mut finished = Finished { consumed: Vec::new(), unprocessed: Vec::new() };
    let mut splits = unprocessed.iter().cloned().peekable();
    let mut counted = 0;
    for EntryRows { position, rows } in entries {
        let (mut consumed, mut left) = (Vec::new(), Vec::new());
        for range in rows {
            let mut row = range.start;
            while row < range.end {
                let at = counted + (row - range.start) as usize;
                splits.next_if(|split| split.end <= at);
                let (to, cut) = match splits.peek() {
                    Some(split) if split.start <= at => (&mut left, split.end),
                    Some(split) => (&mut consumed, split.start),
                    None => (&mut consumed, usize::MAX),
                };
                let end = range.end.min(row.saturating_add(u32::try_from(cut - at).unwrap_or(u32::MAX)));
                to.push(row..end);
                row = end;
            }
            counted += (range.end - range.start) as usize;
        }
        for (rows, side) in [(consumed, &mut finished.consumed), (left, &mut finished.unprocessed)] {
            if !rows.is_empty() {
                side.push(EntryRows { position: *position, rows });
            }
        }
    }
    finished
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pending::Position;

    fn ranges<T: std::str::FromStr<Err: std::fmt::Debug>>(text: &str) -> Vec<Range<T>> {
        let bounds = text.split_whitespace().map(|range| range.split_once("..").unwrap());
        bounds.map(|(start, end)| start.parse().unwrap()..end.parse().unwrap()).collect()
    }

    /// Rows of entries 0, 1 and so on, separated by bars.
    fn entries(text: &str) -> Vec<EntryRows> {
        let position = |offset| Position { broadcast: false, offset };
        let entry = |(offset, text)| EntryRows { position: position(offset), rows: ranges(text) };
        (0..).zip(text.split('|')).map(entry).filter(|entry| !entry.rows.is_empty()).collect()
    }

    fn check(input: &str, unprocessed: &str, consumed: &str, left: &str) {
        let finished = divide(&entries(input), &ranges(unprocessed));
        assert_eq!(finished, Finished { consumed: entries(consumed), unprocessed: entries(left) });
    }

    #[test]
    fn ranges_of_a_bundle_are_mapped_to_its_entries() {
        check("0..3 | 4..6 8..9", "", "0..3 | 4..6 8..9", "");
        check("0..3 | 4..6 8..9", "0..6", "", "0..3 | 4..6 8..9");
        check("0..3 | 4..6 8..9", "2..4", "0..2 | 5..6 8..9", "2..3 | 4..5");
        check("0..3 | 4..6 8..9", "0..1 2..3 5..6", "1..2 | 4..6", "0..1 2..3 | 8..9");
        check("0..3", "0..1 1..2", "2..3", "0..1 1..2");
    }
}
