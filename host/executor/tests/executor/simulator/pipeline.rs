//! Pipelines as data, and what they mean: plain loops over vectors. No engine, no batches, no shards.

use std::collections::{BTreeMap, BTreeSet};

use model::windowing::{
    Accumulation, ClosingBehavior, Merging, OnTimeBehavior, OutputTime, Trigger, WindowFn, WindowingStrategy,
};
use model::{Duration, Timestamp, WindowCoder};

use super::keyed::ByKey;
use crate::dofns::Access;

/// Start and end of an interval window in milliseconds, or the global window.
pub(crate) type Span = Option<(i64, i64)>;

/// An element in one window. One in several windows is several elements.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Element {
    pub(crate) key: u8,
    pub(crate) value: u64,
    pub(crate) time: i64,
    pub(crate) window: Span,
}

/// Values stay below this.
pub(crate) const VALUES: u64 = 10_007;

/// Windows of a collection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Windowing {
    Global,
    Fixed {
        size: i64,
        offset: i64,
    },
    Sliding {
        size: i64,
        period: i64,
        offset: i64,
    },
    Sessions {
        gap: i64,
    },
    /// Final intervals of another windowing.
    Merged,
}

/// A step. Inputs are indices of earlier steps.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    /// Impulse and a flat map.
    Source(Vec<Element>),
    /// A script whose watermark never passes an element that is still to come.
    Script(Vec<Event>),
    /// State and timers.
    ByKey {
        input: usize,
        windowing: Windowing,
        by_key: ByKey,
    },
    Map {
        input: usize,
        function: Function,
        fused: bool,
    },
    Window {
        input: usize,
        windowing: Windowing,
        fused: bool,
    },
    Reshuffle {
        input: usize,
    },
    Flatten {
        left: usize,
        right: usize,
    },
    /// Group by key, then [`fold`]; in one stage or in two.
    Group {
        input: usize,
        grouping: Grouping,
        one_stage: bool,
    },
    /// Reads `side` for each element and window, then [`join`].
    Side {
        input: usize,
        side: usize,
        access: Access,
        windowing: Windowing,
    },
    /// A splittable DoFn: `value % 7` positions, each makes an element.
    Restrictions {
        input: usize,
        reshuffled: bool,
    },
}

/// What happens in a script.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    Elements(Vec<Element>),
    Watermark(i64),
    TimePasses(i64),
}

/// A windowing strategy whose windows fire once, since nothing here is late.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grouping {
    pub(crate) windowing: Windowing,
    pub(crate) output_time: OutputTime,
    pub(crate) lateness_ms: i64,
    /// Whether the trigger is spelled out: then its stage may wait for all of its input.
    pub(crate) spelled_out: bool,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Function {
    Add(u64),
    /// Drops multiples.
    Filter(u64),
    Twice,
    Rekey(u64),
}

impl Function {
    pub(crate) fn apply(self, key: u8, value: u64) -> Vec<(u8, u64)> {
        match self {
            Function::Add(number) => vec![(key, (value + number) % VALUES)],
            Function::Filter(divisor) if value.is_multiple_of(divisor) => Vec::new(),
            Function::Filter(_) => vec![(key, value)],
            Function::Twice => vec![(key, value), (key.wrapping_add(1) % 8, (value * 2 + 1) % VALUES)],
            Function::Rekey(keys) => vec![((value % keys) as u8, value)],
        }
    }
}

/// What becomes of the values of a group, in any order.
pub(crate) fn fold(values: &[u64]) -> u64 {
    let most = values.iter().max().copied().unwrap_or(0);
    (values.iter().sum::<u64>() * 31 + values.len() as u64 * 7 + most) % VALUES
}

/// What becomes of a value and the number that was read from a side input.
pub(crate) fn join(value: u64, read: u64) -> u64 {
    (value * 3 + read) % VALUES
}

/// The number that is read from these elements of one window of a side input.
pub(crate) fn side_number(side: &[(u8, u64)], access: Access, key: u8) -> u64 {
    match access {
        Access::Elements => side.iter().map(|(_, value)| value).sum(),
        Access::Values => side.iter().filter(|(other, _)| *other == key).map(|(_, value)| value + 1).sum(),
        Access::Keys => side.iter().map(|(key, _)| u64::from(*key) + 1).collect::<BTreeSet<_>>().into_iter().sum(),
        Access::KeysAndValues => {
            let keys = side_number(side, Access::Keys, key);
            keys * 11 + side.iter().map(|(key, value)| (u64::from(*key) + 1) * value).sum::<u64>()
        }
    }
}

/// Positions of an element's restriction.
pub(crate) fn positions(value: u64) -> u64 {
    value % 7
}

/// The element at a position.
pub(crate) fn at_position(value: u64, position: u64) -> u64 {
    (value * 5 + position * 13) % VALUES
}

impl Windowing {
    /// The windows of an element at a time.
    pub(crate) fn assign(self, time: i64) -> Vec<Span> {
        match self {
            Windowing::Global => vec![None],
            Windowing::Fixed { size, offset } => {
                let start = time - (time - offset).rem_euclid(size);
                vec![Some((start, start + size))]
            }
            Windowing::Sliding { size, period, offset } => {
                let last = time - (time - offset).rem_euclid(period);
                let starts = (0..).map(|back| last - back * period).take_while(|start| start + size > time);
                starts.map(|start| Some((start, start + size))).collect()
            }
            Windowing::Sessions { gap } => vec![Some((time, time + gap))],
            Windowing::Merged => panic!("no element is assigned to merged windows"),
        }
    }

    /// The one window of a side input for main windows that end with `time`.
    pub(crate) fn side_window(self, time: i64) -> Span {
        match self {
            Windowing::Global => None,
            Windowing::Sliding { size, period, offset } => {
                let start = time - (time - offset).rem_euclid(period);
                Some((start, start + size))
            }
            _ => self.assign(time)[0],
        }
    }

    pub(crate) fn coder(self) -> WindowCoder {
        if self == Windowing::Global { WindowCoder::Global } else { WindowCoder::Interval }
    }

    /// What a collection with these windows says.
    pub(crate) fn strategy(self) -> WindowingStrategy {
        let grouping = Grouping { windowing: self, output_time: OutputTime::EndOfWindow, lateness_ms: 0, spelled_out: false };
        grouping.strategy()
    }
}

impl Grouping {
    pub(crate) fn strategy(self) -> WindowingStrategy {
        let window_fn = match self.windowing {
            Windowing::Global => WindowFn::Global,
            Windowing::Fixed { size, offset } => WindowFn::Fixed { size: Duration(size), offset: Duration(offset) },
            Windowing::Sliding { size, period, offset } => {
                WindowFn::Sliding { size: Duration(size), period: Duration(period), offset: Duration(offset) }
            }
            Windowing::Sessions { gap } => WindowFn::Sessions { gap: Duration(gap) },
            Windowing::Merged => panic!("merged windows are not grouped again here"),
        };
        let merging =
            if matches!(self.windowing, Windowing::Sessions { .. }) { Merging::NeedsMerge } else { Merging::NonMerging };
        let once = Trigger::AfterEndOfWindow { early: None, late: None };
        WindowingStrategy {
            window_fn,
            window_coder: self.windowing.coder(),
            merging,
            trigger: if self.spelled_out { once } else { Trigger::Default },
            accumulation: Accumulation::Discarding,
            output_time: self.output_time,
            closing: ClosingBehavior::IfNonEmpty,
            on_time: OnTimeBehavior::Always,
            allowed_lateness: Duration(self.lateness_ms),
        }
    }
}

/// The last timestamp of a window.
pub(crate) fn end_of(window: Span) -> i64 {
    window.map_or(Timestamp::GLOBAL_WINDOW_END.millis(), |(_, end)| end - 1)
}

/// The elements of a step, given those of all steps before it.
pub(crate) fn interpret(op: &Op, made: &[Vec<Element>]) -> Vec<Element> {
    match op {
        Op::Source(elements) => elements.clone(),
        Op::Script(events) => {
            let elements = |event: &Event| if let Event::Elements(elements) = event { elements.clone() } else { Vec::new() };
            events.iter().flat_map(elements).collect()
        }
        Op::ByKey { input, by_key, .. } => by_key.interpret(&made[*input]),
        Op::Map { input, function, .. } => {
            let apply = |element: &Element| {
                let applied = function.apply(element.key, element.value);
                applied.into_iter().map(|(key, value)| Element { key, value, ..element.clone() }).collect::<Vec<_>>()
            };
            made[*input].iter().flat_map(apply).collect()
        }
        Op::Window { input, windowing, .. } => {
            // An element in several windows is one element to a window function.
            let assign = |element: &Element| {
                let windows = windowing.assign(element.time);
                windows.into_iter().map(|window| Element { window, ..element.clone() }).collect::<Vec<_>>()
            };
            made[*input].iter().flat_map(assign).collect()
        }
        Op::Reshuffle { input } => made[*input].clone(),
        Op::Flatten { left, right } => made[*left].iter().chain(&made[*right]).cloned().collect(),
        Op::Group { input, grouping, .. } => group(&made[*input], grouping.windowing, grouping.output_time),
        Op::Side { input, side, access, windowing } => {
            let look_up = |element: &Element| {
                let window = windowing.side_window(end_of(element.window));
                let side = made[*side].iter().filter(|other| other.window == window);
                let side: Vec<(u8, u64)> = side.map(|other| (other.key, other.value)).collect();
                Element { value: join(element.value, side_number(&side, *access, element.key)), ..element.clone() }
            };
            made[*input].iter().map(look_up).collect()
        }
        Op::Restrictions { input, .. } => {
            let process = |element: &Element| {
                let value = |position| at_position(element.value, position);
                (0..positions(element.value))
                    .map(|position| Element { value: value(position), ..element.clone() })
                    .collect::<Vec<_>>()
            };
            made[*input].iter().flat_map(process).collect()
        }
    }
}

fn group(elements: &[Element], windowing: Windowing, output_time: OutputTime) -> Vec<Element> {
    let mut groups: BTreeMap<(u8, Span), Vec<&Element>> = BTreeMap::new();
    for element in elements {
        groups.entry((element.key, element.window)).or_default().push(element);
    }
    if matches!(windowing, Windowing::Sessions { .. }) {
        groups = merge(groups);
    }
    let fire = |((key, window), elements): ((u8, Span), Vec<&Element>)| {
        let times = elements.iter().map(|element| element.time);
        let time = match output_time {
            OutputTime::EndOfWindow => end_of(window),
            OutputTime::Earliest => times.min().unwrap(),
            OutputTime::Latest => times.max().unwrap(),
        };
        let values: Vec<u64> = elements.iter().map(|element| element.value).collect();
        Element { key, value: fold(&values), time, window }
    };
    groups.into_iter().map(fire).collect()
}

/// Joins windows of a key that overlap. Groups come by key and start.
fn merge(groups: BTreeMap<(u8, Span), Vec<&Element>>) -> BTreeMap<(u8, Span), Vec<&Element>> {
    let mut merged: Vec<(u8, (i64, i64), Vec<&Element>)> = Vec::new();
    for ((key, window), elements) in groups {
        let (start, end) = window.expect("sessions are intervals");
        match merged.last_mut() {
            Some((last_key, last, all)) if *last_key == key && start < last.1 => {
                last.1 = last.1.max(end);
                all.extend(elements);
            }
            _ => merged.push((key, (start, end), elements)),
        }
    }
    merged.into_iter().map(|(key, window, elements)| ((key, Some(window)), elements)).collect()
}
