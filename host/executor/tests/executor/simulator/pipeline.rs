//! Pipelines as data, and what they mean: plain loops over vectors. No engine, no batches, no shards.

use std::collections::BTreeSet;

use super::firing::Firing;
use super::keyed::ByKey;
use super::steps::Steps;
use super::windows::{Grouping, Span, Windowing, end_of};
use crate::dofns::Access;

/// An element in one window. One in several windows is several elements.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Element {
    pub(crate) key: u8,
    pub(crate) value: u64,
    pub(crate) time: i64,
    pub(crate) window: Span,
    /// How far its script's watermark was when it came; MIN where no element is late.
    pub(crate) watermark: i64,
    /// Whether it is there in any case. Otherwise it is there only if a process died at the right time: what it knew of
    /// watermarks that nobody had gone by yet is lost with it.
    pub(crate) certain: bool,
}

impl Element {
    /// One in the global window that is not late.
    pub(crate) fn new(key: u8, value: u64, time: i64) -> Self {
        Element { key, value, time, window: None, watermark: i64::MIN, certain: true }
    }
}

impl std::fmt::Debug for Element {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{} at {}", self.key, self.value, self.time)?;
        if let Some((start, end)) = self.window {
            write!(f, " in {start}..{end}")?;
        }
        if self.watermark > i64::MIN {
            write!(f, " behind {}", self.watermark)?;
        }
        if self.certain { Ok(()) } else { write!(f, " perhaps") }
    }
}

/// Values stay below this.
pub(crate) const VALUES: u64 = 10_007;

/// A step. Inputs are indices of earlier steps.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    /// Impulse and a flat map.
    Source(Vec<Element>),
    /// Its elements may be late.
    Script(Vec<Event>),
    /// State and timers.
    ByKey {
        input: usize,
        windowing: Windowing,
        lateness_ms: i64,
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
        inputs: Vec<usize>,
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
    /// Groups by key, with any trigger; nothing reads its panes.
    Panes {
        input: usize,
        firing: Firing,
        one_stage: bool,
    },
    /// A splittable DoFn that is told when the job is drained; nothing reads what it makes.
    Steps {
        input: usize,
        steps: Steps,
    },
}

impl Op {
    /// Whether nothing reads what it makes.
    pub(crate) fn is_leaf(&self) -> bool {
        matches!(self, Op::Panes { .. } | Op::Steps { .. })
    }
}

/// What happens in a script.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    Elements(Vec<Element>),
    Watermark(i64),
    TimePasses(i64),
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

/// The elements of a step, given those of all steps before it.
pub(crate) fn interpret(op: &Op, made: &[Vec<Element>]) -> Vec<Element> {
    match op {
        Op::Source(elements) => elements.clone(),
        Op::Script(events) => {
            let elements = |event: &Event| if let Event::Elements(elements) = event { elements.clone() } else { Vec::new() };
            events.iter().flat_map(elements).collect()
        }
        Op::ByKey { input, lateness_ms, by_key, .. } => by_key.interpret(&made[*input], *lateness_ms),
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
        Op::Flatten { inputs } => inputs.iter().flat_map(|input| &made[*input]).cloned().collect(),
        Op::Group { input, grouping, .. } => grouping.interpret(&made[*input]),
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
        Op::Panes { .. } | Op::Steps { .. } => Vec::new(),
    }
}
