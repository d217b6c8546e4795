//! Steps that work by key, with state and timers: what they mean, and the DoFns that do it.
//!
//! What comes of a step must not depend on the order in which elements and timers come, since that is for the runner to choose:
//! buffers give out each member once, at the end of its window, however often they are emptied; loops begin once per member.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use model::batch::Row;
use model::windowing::WindowingStrategy;
use model::{Coder, Duration, Keyed, Reader, TimeDomain, WindowCoder, window};
use plan::StateKind;
use worker::Error;

use super::compile::decode;
use super::pipeline::Element;
use super::place::{Place, given_out, wrong};
use super::windows::{Windowing, end_of, expiry};
use crate::dice::Dice;
use crate::dofns::{Context, OnTimer};
use crate::plans::kv;

/// What a keyed step does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ByKey {
    /// Keeps elements and gives them out when they are flushed.
    Buffer {
        store: Store,
        flush: Flush,
        /// Whether it is read and cleared in parts.
        in_parts: bool,
    },
    /// Gives out an element at its own time and then once in every period, to the end of its window.
    Loop { period: i64 },
    /// Gives out an element at its own time, for which its timer holds the watermark, when it is so old.
    Alarm { delay: i64 },
    /// Gives out what it is given, and insists on the order of times per key and window.
    Sorted,
}

/// The kind of state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Store {
    Bag,
    Multimap,
    OrderedList,
}

/// When a buffer is given out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flush {
    /// So long after each element in event time, but not after the end of the window.
    Event { delay: i64 },
    /// As that, but each timer is first set to another time, and then moved to the end of the window.
    Moved { delay: i64 },
    /// So long after each element in processing time, and when the window expires.
    Processing { delay: i64 },
    /// As that, and each timer sets another one that does nothing.
    Cascade { delay: i64 },
    /// When the window expires.
    Expiration,
}

impl ByKey {
    /// For elements that may be late, only what treats each of them alike.
    pub(crate) fn generate(dice: &mut Dice, windowing: Windowing, late: bool) -> ByKey {
        let delay = dice.between(0, 80);
        let flush = [
            Flush::Event { delay },
            Flush::Moved { delay },
            Flush::Processing { delay: delay * 100 },
            Flush::Cascade { delay: delay * 50 },
            Flush::Expiration,
        ];
        match dice.below(7) {
            0 => ByKey::Sorted,
            1 if windowing != Windowing::Global && !late => ByKey::Loop { period: dice.between(5, 60) },
            2 if !late => ByKey::Alarm { delay },
            _ => {
                let store = dice.one_of(&[Store::Bag, Store::Multimap, Store::OrderedList]);
                ByKey::Buffer { store, flush: dice.one_of(&flush), in_parts: dice.chance(50) }
            }
        }
    }

    /// What comes of these elements.
    pub(crate) fn interpret(self, elements: &[Element], lateness_ms: i64) -> Vec<Element> {
        let is_taken = |element: &Element| {
            let overtaken = self == ByKey::Sorted && element.time.saturating_add(lateness_ms) < element.watermark;
            expiry(element.window, lateness_ms) >= element.watermark && !overtaken
        };
        let taken = |element: &Element| Element { certain: element.certain && is_taken(element), ..element.clone() };
        self.interpret_taken(&elements.iter().map(taken).collect::<Vec<_>>())
    }

    fn interpret_taken(self, elements: &[Element]) -> Vec<Element> {
        match self {
            ByKey::Buffer { .. } => {
                let given_out = |element: &Element| Element {
                    value: given_out(element.value),
                    time: end_of(element.window),
                    ..element.clone()
                };
                elements.iter().map(given_out).collect()
            }
            ByKey::Loop { period } => {
                let begun: BTreeSet<&Element> = elements.iter().collect();
                let turns = |element: &&Element| {
                    let times = (0..).map(|turn| element.time + turn * period);
                    let end = end_of(element.window);
                    // The last timer that fires is one at the exclusive end of the window.
                    let times = times.take_while(|time| *time <= end + 1).collect::<Vec<_>>();
                    times.into_iter().map(|time| Element { time, ..(*element).clone() }).collect::<Vec<_>>()
                };
                begun.iter().flat_map(turns).collect()
            }
            ByKey::Alarm { .. } => elements.iter().collect::<BTreeSet<_>>().into_iter().cloned().collect(),
            ByKey::Sorted => elements.to_vec(),
        }
    }

    /// The head of its stage.
    pub(crate) fn keyed(self, windowing: Windowing, lateness_ms: i64) -> Keyed {
        let (timer_families, expiration_family) = match self {
            ByKey::Buffer { flush: Flush::Event { .. } | Flush::Moved { .. }, .. } => (vec![TimeDomain::Event], None),
            ByKey::Loop { .. } | ByKey::Alarm { .. } => (vec![TimeDomain::Event], None),
            ByKey::Buffer { flush: Flush::Processing { .. } | Flush::Cascade { .. }, .. } => {
                (vec![TimeDomain::Processing, TimeDomain::Event], Some(1))
            }
            ByKey::Buffer { flush: Flush::Expiration, .. } => (vec![TimeDomain::Event], Some(0)),
            ByKey::Sorted => (Vec::new(), None),
        };
        let time_sorted = matches!(self, ByKey::Sorted);
        let windowing = WindowingStrategy { allowed_lateness: Duration(lateness_ms), ..windowing.strategy() };
        Keyed { windowing, timer_families, expiration_family, time_sorted }
    }

    pub(crate) fn states(self) -> Vec<(&'static str, StateKind)> {
        let value = Some(Coder::VarInt);
        match self {
            ByKey::Buffer { store: Store::Bag, .. } => vec![("buffer", StateKind::Bag { element: value })],
            ByKey::Buffer { store: Store::Multimap, .. } => vec![("buffer", StateKind::Multimap { value })],
            ByKey::Buffer { store: Store::OrderedList, .. } => vec![("buffer", StateKind::OrderedList)],
            ByKey::Loop { .. } | ByKey::Alarm { .. } => vec![("begun", StateKind::Multimap { value })],
            ByKey::Sorted => vec![("latest", StateKind::Bag { element: Some(Coder::Bytes) })],
        }
    }

    pub(crate) fn process(self, windows: WindowCoder, row: Row<'_>, context: &mut Context<'_>) -> Result<(), Error> {
        let (_, value) = decode(row.value);
        let key = Bytes::copy_from_slice(&row.value[..kv().key_len(row.value).unwrap()]);
        for bytes in windows.windows_of(row.windows).unwrap() {
            let place = Place { key: key.clone(), window: Bytes::copy_from_slice(bytes), windows };
            match self {
                ByKey::Buffer { store, flush, .. } => {
                    place.keep(store, value, context)?;
                    place.ask_for(flush, row.timestamp, context);
                }
                ByKey::Loop { .. } => place.begin(value, row.timestamp, 0, context)?,
                ByKey::Alarm { delay } => place.begin(value, row.timestamp, delay, context)?,
                ByKey::Sorted => {
                    place.check_order(row.timestamp, context)?;
                    context.emit(Row { windows: &window::single(bytes), ..row });
                }
            }
        }
        Ok(())
    }

    pub(crate) fn on_timer(self, windows: WindowCoder) -> OnTimer {
        Arc::new(move |timer, context| {
            let place = Place { key: timer.key.clone(), window: timer.window.clone(), windows };
            match self {
                ByKey::Buffer { store, flush, in_parts } => {
                    place.check_timer(timer, flush, context)?;
                    place.give_out(store, in_parts, context)
                }
                ByKey::Loop { period } => place.go_on(timer, period, context),
                ByKey::Alarm { .. } => {
                    place.emit(Reader::new(&timer.tag).varint().unwrap(), timer.hold.timestamp(), context);
                    Ok(())
                }
                ByKey::Sorted => Err(wrong("a timer that nobody has set")),
            }
        })
    }
}
