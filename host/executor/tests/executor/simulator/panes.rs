//! What must be true of the panes of a grouping with any trigger.
//!
//! When such a grouping fires depends on bundles, which are the runner's to cut. What it fires does not altogether: the panes
//! of a key and window count up, say rightly when they are, have times that follow from what is in them, and together hold
//! every element that was not late. Where only the watermark decides, they are determined to the last bit.

use std::collections::BTreeMap;
use std::fmt::Write;

use model::pane::{PaneInfo, Timing};
use model::windowing::{ClosingBehavior, OnTimeBehavior, OutputTime};

use super::firing::Firing;
use super::pipeline::Element;
use super::windows::{Span, end_of, expiry, groups};

/// An element of a pane: its value and time.
pub(crate) type Member = (u64, i64);

/// A pane as it came out.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Pane {
    pub(crate) key: u8,
    pub(crate) window: Span,
    pub(crate) time: i64,
    pub(crate) info: PaneInfo,
    /// In order.
    pub(crate) members: Vec<Member>,
}

/// What is known of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Circumstances {
    /// Whether a process died: then late elements may have been taken for ones in time.
    pub(crate) crashed: bool,
    /// Whether the job was drained.
    pub(crate) drained: bool,
}

/// Checks all panes of a grouping against all elements that went in.
pub(crate) fn check(firing: &Firing, input: &[Element], panes: &[Pane], circumstances: Circumstances) -> Result<(), String> {
    let groups = groups(input, firing.windowing);
    let mut by_group: BTreeMap<(u8, Span), Vec<&Pane>> = groups.keys().map(|group| (*group, Vec::new())).collect();
    for pane in panes {
        let home = groups.keys().find(|(key, window)| *key == pane.key && holds(*window, pane.window));
        let home = home.ok_or_else(|| format!("{pane:?} is of no key and window"))?;
        by_group.get_mut(home).expect("all groups are in it").push(pane);
    }
    for ((key, window), panes) in by_group {
        let group = Group { firing, window, elements: &groups[&(key, window)], circumstances };
        group.check(&panes).map_err(|what| format!("{what}\nof key {key} in {window:?} with {:#?}", group.elements))?;
    }
    Ok(())
}

/// Whether a window is part of another.
fn holds(whole: Span, part: Span) -> bool {
    match (whole, part) {
        (Some(whole), Some(part)) => whole.0 <= part.0 && part.1 <= whole.1,
        _ => whole == part,
    }
}

/// A key and a final window.
struct Group<'a> {
    firing: &'a Firing,
    window: Span,
    elements: &'a [&'a Element],
    circumstances: Circumstances,
}

impl Group<'_> {
    fn is_late(&self) -> bool {
        self.elements.iter().any(|element| element.watermark > i64::MIN)
    }

    /// Whether a pane is fired at the end of the window even if it is empty.
    fn must_be_on_time(&self) -> bool {
        self.firing.fires_at_end() && self.firing.strategy.on_time == OnTimeBehavior::Always
    }

    fn check(&self, panes: &[&Pane]) -> Result<(), String> {
        let mut sequences: BTreeMap<Span, Vec<&Pane>> = BTreeMap::new();
        panes.iter().for_each(|pane| sequences.entry(pane.window).or_default().push(pane));
        sequences.values_mut().for_each(|sequence| sequence.sort_by_key(|pane| pane.info.index));
        // A window that had closed or expired comes again when others merge into it.
        let comes_again = self.firing.merges() && (self.firing.may_finish() || self.is_late());
        if !comes_again {
            for (window, sequence) in &sequences {
                self.check_sequence(*window, sequence).map_err(|what| format!("{what} in {sequence:#?}"))?;
            }
        }
        let is_on_time = |pane: &&Pane| pane.window == self.window && pane.info.timing == Timing::OnTime;
        if self.must_be_on_time() && !self.is_late() && panes.iter().filter(|pane| is_on_time(pane)).count() != 1 {
            return Err(format!("not one pane is on time: {panes:#?}"));
        }
        self.check_content(panes, sequences.get(&self.window).and_then(|sequence| sequence.last().copied()))?;
        if self.firing.waits_for_end() && !self.is_late() {
            self.check_determined(panes)?;
        }
        Ok(())
    }

    /// Panes of one window, by index.
    fn check_sequence(&self, window: Span, sequence: &[&Pane]) -> Result<(), String> {
        let mut before: Vec<Member> = Vec::new();
        let mut not_early = 0;
        for (index, pane) in sequence.iter().enumerate() {
            let PaneInfo { is_first, is_last, timing, index: number, nonspeculative_index } = pane.info;
            let is_early = timing == Timing::Early;
            let new = if self.firing.accumulates() { without(&pane.members, &before) } else { Some(pane.members.clone()) };
            let new = new.ok_or_else(|| format!("pane {index} lacks what was in the one before"))?;
            let fits = number == index as i64 && is_first == (index == 0) && (!is_last || index + 1 == sequence.len());
            let counts = if is_early { -1 } else { not_early };
            // Elements that are not late hold the watermark, and so does the end of a window that fires then.
            let held = !self.is_late() && (self.must_be_on_time() || !new.is_empty());
            let in_turn = timing == Timing::Late && (not_early > 0 || !held) || timing != Timing::Late && not_early == 0;
            if !fits || nonspeculative_index != counts || !in_turn || timing == Timing::Unknown {
                return Err(format!("a pane is out of order: {:?}", pane.info));
            }
            not_early += i64::from(!is_early);
            // What was new when windows merged is not known here.
            if !self.firing.merges() || !self.firing.accumulates() {
                self.check_pane(window, pane, &new)?;
            }
            before.clone_from(&pane.members);
        }
        let ended = sequence.last().is_some_and(|pane| pane.info.is_last);
        let must_end = self.firing.strategy.closing == ClosingBehavior::Always && window == self.window;
        if must_end && !ended && !sequence.is_empty() {
            return Err("there is no last pane".to_owned());
        }
        Ok(())
    }

    /// Whether a pane may be empty, and its time.
    fn check_pane(&self, window: Span, pane: &Pane, new: &[Member]) -> Result<(), String> {
        let strategy = &self.firing.strategy;
        let on_time = pane.info.timing == Timing::OnTime && strategy.on_time == OnTimeBehavior::Always;
        let closing = pane.info.is_last && strategy.closing == ClosingBehavior::Always;
        if new.is_empty() && !on_time && !closing {
            return Err(format!("nothing is new in {pane:?}"));
        }
        let end = end_of(window);
        let mut times = new.iter().map(|(_, time)| *time.min(&end));
        let expected = match strategy.output_time {
            OutputTime::EndOfWindow => Some(end),
            OutputTime::Earliest => times.clone().min(),
            OutputTime::Latest => times.clone().max(),
        };
        let right = expected.unwrap_or(end) == pane.time;
        // Late elements are not counted, and which are late is not known here.
        let may_be_right = self.is_late() && (pane.time == end || times.any(|time| time == pane.time));
        if right || may_be_right { Ok(()) } else { Err(format!("{pane:?} has another time than {expected:?} or {end}")) }
    }

    /// That everything is there which must be, and nothing else.
    fn check_content(&self, panes: &[&Pane], last: Option<&Pane>) -> Result<(), String> {
        let lateness_ms = self.firing.lateness_ms();
        let in_time = |element: &&&Element| expiry(element.window, lateness_ms) >= element.watermark;
        let all = members(self.elements.iter());
        let must = members(self.elements.iter().filter(in_time));
        let may = if self.circumstances.crashed { &all } else { &must };
        let found = if self.firing.accumulates() {
            if let Some(pane) = panes.iter().find(|pane| without(may, &pane.members).is_none()) {
                return Err(format!("{pane:?} holds more than may be in it"));
            }
            last.map_or_else(Vec::new, |pane| pane.members.clone())
        } else {
            let mut found: Vec<Member> = panes.iter().flat_map(|pane| pane.members.iter().copied()).collect();
            found.sort_unstable();
            found
        };
        if without(may, &found).is_none() {
            return Err(format!("there is more than may be: {found:?} in {panes:#?}"));
        }
        let is_cut = self.firing.may_finish() || (self.firing.merges() && self.firing.accumulates() && self.is_late());
        if !is_cut && without(&found, &must).is_none() {
            return Err(format!("there is less than must be: {found:?} in {panes:#?}"));
        }
        Ok(())
    }

    /// Where nothing is late and only the watermark makes the trigger fire.
    fn check_determined(&self, panes: &[&Pane]) -> Result<(), String> {
        let all = members(self.elements.iter());
        let info =
            |index: i64, timing, is_last| PaneInfo { is_first: index == 0, is_last, timing, index, nonspeculative_index: index };
        // The watermark may pass the window's end and expiry at once, and then there is only one pane.
        let mut expected = vec![vec![(info(0, Timing::OnTime, true), all.clone())]];
        let expires_later = expiry(self.window, self.firing.lateness_ms()) > end_of(self.window);
        if expires_later && self.firing.fires_at_end() && !self.firing.may_finish() {
            let mut two = vec![(info(0, Timing::OnTime, false), all.clone())];
            if self.firing.strategy.closing == ClosingBehavior::Always {
                two.push((info(1, Timing::Late, true), if self.firing.accumulates() { all } else { Vec::new() }));
            }
            expected.push(two);
        }
        let mut found: Vec<_> = panes.iter().map(|pane| (pane.info, pane.members.clone())).collect();
        found.sort_by_key(|(info, _)| info.index);
        if expected.contains(&found) { Ok(()) } else { Err(format!("{panes:#?} instead of {expected:#?}")) }
    }
}

fn members<'a, 'b: 'a>(elements: impl Iterator<Item = &'a &'b Element>) -> Vec<Member> {
    let mut members: Vec<Member> = elements.map(|element| (element.value, element.time)).collect();
    members.sort_unstable();
    members
}

/// What of `all` is not in `some`, if all of that is in it; both in order.
fn without(all: &[Member], some: &[Member]) -> Option<Vec<Member>> {
    let mut some = some.iter().peekable();
    let mut left = Vec::new();
    for member in all {
        if some.peek() == Some(&member) {
            some.next();
        } else {
            left.push(*member);
        }
    }
    some.next().is_none().then_some(left)
}

impl std::fmt::Debug for Pane {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let PaneInfo { is_first, is_last, timing, index, nonspeculative_index } = self.info;
        let edges = match (is_first, is_last) {
            (true, true) => ", only",
            (true, false) => ", first",
            (false, true) => ", last",
            (false, false) => "",
        };
        let Pane { key, window, time, members, .. } = self;
        write!(f, "{timing:?} {index}/{nonspeculative_index}{edges} of {key} in {window:?} at {time}: {members:?}")
    }
}

impl Pane {
    /// As a counter is named after it.
    pub(crate) fn to_text(&self) -> String {
        let PaneInfo { is_first, is_last, timing, index, nonspeculative_index } = self.info;
        let (start, end) = self.window.unwrap_or((0, -1));
        let flags = u8::from(is_first) + 2 * u8::from(is_last) + 4 * timing as u8;
        let mut text = format!("{} {start} {end} {} {flags} {index} {nonspeculative_index}", self.key, self.time);
        self.members.iter().for_each(|(value, time)| write!(text, " {value} {time}").expect("texts can be written to"));
        text
    }

    pub(crate) fn parse(text: &str) -> Pane {
        let mut numbers = text.split(' ').map(|number| number.parse::<i64>().expect("it was written as a number"));
        let mut next = || numbers.next().expect("a pane has so many numbers");
        let (key, start, end, time, flags, index, nonspeculative_index) =
            (next() as u8, next(), next(), next(), next(), next(), next());
        let timing = [Timing::Early, Timing::OnTime, Timing::Late, Timing::Unknown][(flags >> 2) as usize];
        let info = PaneInfo { is_first: flags & 1 != 0, is_last: flags & 2 != 0, timing, index, nonspeculative_index };
        let rest: Vec<i64> = numbers.collect();
        let mut members: Vec<Member> = rest.chunks(2).map(|pair| (pair[0] as u64, pair[1])).collect();
        members.sort_unstable();
        Pane { key, window: (start <= end).then_some((start, end)), time, info, members }
    }
}
