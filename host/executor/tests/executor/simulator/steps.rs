//! Splittable DoFns that hear of it when the job is drained: what must be true of how far they came.

use std::collections::BTreeMap;

use super::panes::Circumstances;
use super::pipeline::{Element, positions};
use super::windows::Span;

/// A splittable DoFn whose restrictions have `value % 7` positions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Steps {
    pub(crate) reshuffled: bool,
    /// Whether it says of itself that it never ends.
    pub(crate) unbounded: bool,
    /// Whether it says what is left of a restriction when the job is drained: about half of it.
    pub(crate) truncates: bool,
}

/// Key, value, time and window of an element with a restriction.
pub(crate) type Whose = (u8, u64, i64, Span);

/// How often each position was processed.
pub(crate) type Positions = BTreeMap<Whose, BTreeMap<u64, i64>>;

impl Steps {
    /// Every position is processed once; where the job was drained, the first of them.
    pub(crate) fn check(self, input: &[Element], processed: &Positions, circumstances: Circumstances) -> Result<(), String> {
        let mut expected: BTreeMap<Whose, i64> = BTreeMap::new();
        for element in input.iter().filter(|element| positions(element.value) > 0) {
            *expected.entry((element.key, element.value, element.time, element.window)).or_default() += 1;
        }
        if let Some(whose) = processed.keys().find(|whose| !expected.contains_key(*whose)) {
            return Err(format!("a restriction of nobody was processed: {whose:?}"));
        }
        let may_be_cut = circumstances.drained && (self.unbounded || self.truncates);
        for (whose, times) in expected {
            let counts = processed.get(&whose).cloned().unwrap_or_default();
            let count = |position| counts.get(&position).copied().unwrap_or(0);
            let all = (0..positions(whose.1)).map(count).collect::<Vec<_>>();
            let known = all.iter().sum::<i64>() == counts.values().sum::<i64>();
            let complete = all.iter().all(|count| *count == times);
            let from_the_first = all.first().is_none_or(|first| *first <= times) && all.windows(2).all(|pair| pair[0] >= pair[1]);
            if !known || !(complete || (may_be_cut && from_the_first)) {
                return Err(format!("the positions of {times} times {whose:?} were processed so often: {counts:?}"));
            }
        }
        Ok(())
    }

    /// Where a restriction ends when the job is drained; none if nothing is left of it.
    pub(crate) fn truncated(from: u64, to: u64) -> Option<u64> {
        let half = (to - from) / 2;
        (half > 0).then_some(from + half)
    }
}

/// As a counter is named after it.
pub(crate) fn to_text((key, value, time, window): Whose, position: u64) -> String {
    let (start, end) = window.unwrap_or((0, -1));
    format!("{key} {value} {time} {start} {end} {position}")
}

pub(crate) fn parse(text: &str) -> (Whose, u64) {
    let numbers: Vec<i64> = text.split(' ').map(|number| number.parse().expect("it was written as a number")).collect();
    let [key, value, time, start, end, position] = numbers[..] else { panic!("{text} has other numbers") };
    ((key as u8, value as u64, time, (start <= end).then_some((start, end))), position as u64)
}
