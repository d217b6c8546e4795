//! Windows of collections, and what grouping makes of elements that come in time.

use std::collections::BTreeMap;

use bytes::Bytes;
use model::windowing::{
    Accumulation, ClosingBehavior, Merging, OnTimeBehavior, OutputTime, Trigger, WindowFn, WindowingStrategy,
};
use model::{Duration, Timestamp, WindowCoder};

use super::pipeline::{Element, fold};

/// Start and end of an interval window in milliseconds, or the global window.
pub(crate) type Span = Option<(i64, i64)>;

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
    /// As sessions, but windows merge only if they have more than [`LOOSE`] milliseconds in common. Workers know that, the
    /// engine does not.
    Custom {
        gap: i64,
    },
    /// Final intervals of another windowing.
    Merged,
}

/// What custom windows may have in common and yet do not merge.
pub(crate) const LOOSE: i64 = 2;

/// A windowing strategy whose windows fire once, since nothing here is late.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grouping {
    pub(crate) windowing: Windowing,
    pub(crate) output_time: OutputTime,
    pub(crate) lateness_ms: i64,
    /// Whether the trigger is spelled out: then its stage may wait for all of its input.
    pub(crate) spelled_out: bool,
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
            Windowing::Sessions { gap } | Windowing::Custom { gap } => vec![Some((time, time + gap))],
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

    /// What two windows must have in common to merge, where windows merge: more than this.
    pub(crate) fn merges(self) -> Option<i64> {
        match self {
            Windowing::Sessions { .. } => Some(0),
            Windowing::Custom { .. } => Some(LOOSE),
            _ => None,
        }
    }

    /// What a collection with these windows says.
    pub(crate) fn strategy(self) -> WindowingStrategy {
        let window_fn = match self {
            Windowing::Global => WindowFn::Global,
            Windowing::Fixed { size, offset } => WindowFn::Fixed { size: Duration(size), offset: Duration(offset) },
            Windowing::Sliding { size, period, offset } => {
                WindowFn::Sliding { size: Duration(size), period: Duration(period), offset: Duration(offset) }
            }
            Windowing::Sessions { gap } => WindowFn::Sessions { gap: Duration(gap) },
            Windowing::Custom { .. } => {
                WindowFn::Custom { urn: "loose sessions".to_owned(), spec: Bytes::new(), environment: None }
            }
            Windowing::Merged => panic!("merged windows are not grouped again here"),
        };
        WindowingStrategy {
            window_fn,
            window_coder: self.coder(),
            merging: if self.merges().is_some() { Merging::NeedsMerge } else { Merging::NonMerging },
            trigger: Trigger::Default,
            accumulation: Accumulation::Discarding,
            output_time: OutputTime::EndOfWindow,
            closing: ClosingBehavior::IfNonEmpty,
            on_time: OnTimeBehavior::Always,
            allowed_lateness: Duration(0),
        }
    }
}

impl Grouping {
    pub(crate) fn strategy(self) -> WindowingStrategy {
        let once = Trigger::AfterEndOfWindow { early: None, late: None };
        WindowingStrategy {
            trigger: if self.spelled_out { once } else { Trigger::Default },
            output_time: self.output_time,
            allowed_lateness: Duration(self.lateness_ms),
            ..self.windowing.strategy()
        }
    }

    /// What becomes of elements of which none is late.
    pub(crate) fn interpret(self, elements: &[Element]) -> Vec<Element> {
        let fire = |((key, window), elements): ((u8, Span), Vec<&Element>)| {
            let times = elements.iter().map(|element| element.time.min(end_of(window)));
            let time = match self.output_time {
                OutputTime::EndOfWindow => end_of(window),
                OutputTime::Earliest => times.min().unwrap(),
                OutputTime::Latest => times.max().unwrap(),
            };
            let values: Vec<u64> = elements.iter().map(|element| element.value).collect();
            Element { value: fold(&values), time, window, ..Element::new(key, 0, 0) }
        };
        groups(elements, self.windowing).into_iter().map(fire).collect()
    }
}

/// The last timestamp of a window.
pub(crate) fn end_of(window: Span) -> i64 {
    window.map_or(Timestamp::GLOBAL_WINDOW_END.millis(), |(_, end)| end - 1)
}

/// The last watermark at which elements of a window are still taken.
pub(crate) fn expiry(window: Span, lateness_ms: i64) -> i64 {
    end_of(window).saturating_add(lateness_ms).min(Timestamp::GLOBAL_WINDOW_END.millis())
}

/// Elements by key and final window.
pub(crate) fn groups(elements: &[Element], windowing: Windowing) -> BTreeMap<(u8, Span), Vec<&Element>> {
    let mut groups: BTreeMap<(u8, Span), Vec<&Element>> = BTreeMap::new();
    for element in elements {
        groups.entry((element.key, element.window)).or_default().push(element);
    }
    match windowing.merges() {
        Some(loose) => merge(groups, loose),
        None => groups,
    }
}

/// Joins windows of a key that have more than `loose` in common. Groups come by key and start.
fn merge(groups: BTreeMap<(u8, Span), Vec<&Element>>, loose: i64) -> BTreeMap<(u8, Span), Vec<&Element>> {
    let mut merged: Vec<(u8, (i64, i64), Vec<&Element>)> = Vec::new();
    for ((key, window), elements) in groups {
        let (start, end) = window.expect("sessions are intervals");
        match merged.last_mut() {
            Some((last_key, last, all)) if *last_key == key && start + loose < last.1 => {
                last.1 = last.1.max(end);
                all.extend(elements);
            }
            _ => merged.push((key, (start, end), elements)),
        }
    }
    merged.into_iter().map(|(key, window, elements)| ((key, Some(window)), elements)).collect()
}
