//! Steps that work by key, with state and timers: what they mean, and the DoFns that do it.
//!
//! What comes of a step must not depend on the order in which elements and timers come, since that is for the runner to choose:
//! buffers give out each member once, at the end of its window, however often they are emptied; loops begin once per member.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use model::batch::Row;
use model::reader::{put_length_prefixed, put_varint};
use model::{Coder, FiredTimer, Keyed, Reader, TimeDomain, Timestamp, WindowCoder, pane, window};
use plan::StateKind;
use worker::{Error, StateKey};

use super::compile::{decode, decode_window, encode};
use super::pipeline::{Element, VALUES, Windowing, end_of};
use crate::dice::Dice;
use crate::dofns::{Context, OnTimer, TimerId};
use crate::plans::kv;

/// What a keyed step does.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ByKey {
    /// Keeps elements and gives them out when they are flushed.
    Buffer { store: Store, flush: Flush },
    /// Gives out an element at its own time and then once in every period, to the end of its window.
    Loop { period: i64 },
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
    /// So long after each element in processing time, and when the window expires.
    Processing { delay: i64 },
    /// When the window expires.
    Expiration,
}

impl ByKey {
    pub(crate) fn generate(dice: &mut Dice, windowing: Windowing) -> ByKey {
        let delay = dice.between(0, 80);
        let flush = dice.one_of(&[Flush::Event { delay }, Flush::Processing { delay: delay * 100 }, Flush::Expiration]);
        match dice.below(6) {
            0 => ByKey::Sorted,
            1 if windowing != Windowing::Global => ByKey::Loop { period: dice.between(5, 60) },
            _ => ByKey::Buffer { store: dice.one_of(&[Store::Bag, Store::Multimap, Store::OrderedList]), flush },
        }
    }

    /// What comes of these elements.
    pub(crate) fn interpret(self, elements: &[Element]) -> Vec<Element> {
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
            ByKey::Sorted => elements.to_vec(),
        }
    }

    /// The head of its stage.
    pub(crate) fn keyed(self, windowing: Windowing) -> Keyed {
        let (timer_families, expiration_family) = match self {
            ByKey::Buffer { flush: Flush::Event { .. }, .. } | ByKey::Loop { .. } => (vec![TimeDomain::Event], None),
            ByKey::Buffer { flush: Flush::Processing { .. }, .. } => (vec![TimeDomain::Processing, TimeDomain::Event], Some(1)),
            ByKey::Buffer { flush: Flush::Expiration, .. } => (vec![TimeDomain::Event], Some(0)),
            ByKey::Sorted => (Vec::new(), None),
        };
        let time_sorted = matches!(self, ByKey::Sorted);
        Keyed { windowing: windowing.strategy(), timer_families, expiration_family, time_sorted }
    }

    pub(crate) fn states(self) -> Vec<(&'static str, StateKind)> {
        let value = Some(Coder::VarInt);
        match self {
            ByKey::Buffer { store: Store::Bag, .. } => vec![("buffer", StateKind::Bag { element: value })],
            ByKey::Buffer { store: Store::Multimap, .. } => vec![("buffer", StateKind::Multimap { value })],
            ByKey::Buffer { store: Store::OrderedList, .. } => vec![("buffer", StateKind::OrderedList)],
            ByKey::Loop { .. } => vec![("begun", StateKind::Multimap { value })],
            ByKey::Sorted => vec![("latest", StateKind::Bag { element: Some(Coder::Bytes) })],
        }
    }

    pub(crate) fn process(self, windows: WindowCoder, row: Row<'_>, context: &mut Context<'_>) -> Result<(), Error> {
        let (_, value) = decode(row.value);
        let key = Bytes::copy_from_slice(&row.value[..kv().key_len(row.value).unwrap()]);
        for bytes in windows.windows_of(row.windows).unwrap() {
            let place = Place { key: key.clone(), window: Bytes::copy_from_slice(bytes), windows };
            match self {
                ByKey::Buffer { store, flush } => {
                    place.keep(store, value, context)?;
                    place.ask_for(flush, row.timestamp, context);
                }
                ByKey::Loop { .. } => place.begin(value, row.timestamp, context)?,
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
                ByKey::Buffer { store, .. } => place.give_out(store, context),
                ByKey::Loop { period } => place.go_on(timer, period, context),
                ByKey::Sorted => Err(wrong("a timer that nobody has set")),
            }
        })
    }
}

fn given_out(value: u64) -> u64 {
    (value * 7 + 3) % VALUES
}

fn wrong(what: &str) -> Error {
    Error::Protocol(what.to_owned())
}

/// A key and a window, encoded.
struct Place {
    key: Bytes,
    window: Bytes,
    windows: WindowCoder,
}

impl Place {
    fn end(&self) -> i64 {
        end_of(decode_window(self.windows, &self.window))
    }

    fn timer(&self, family: usize, tag: &[u8]) -> TimerId {
        TimerId { family, tag: tag.to_vec(), key: self.key.clone(), window: self.window.clone() }
    }

    fn values(&self, state: &str, map_key: Vec<u8>, context: &Context<'_>) -> StateKey {
        let (transform, state, map_key) = (context.transform(), state.to_owned(), map_key.into());
        StateKey::Multimap { transform, state, window: self.window.clone(), key: self.key.clone(), map_key }
    }

    fn list(&self, context: &Context<'_>) -> StateKey {
        let (transform, state, start, end) = (context.transform(), "buffer".to_owned(), i64::MIN, i64::MAX);
        StateKey::OrderedList { transform, state, window: self.window.clone(), key: self.key.clone(), start, end }
    }

    fn all(&self, context: &Context<'_>) -> StateKey {
        let (transform, state) = (context.transform(), "buffer".to_owned());
        StateKey::MultimapEntries { transform, state, window: self.window.clone(), key: self.key.clone() }
    }

    fn keep(&self, store: Store, value: u64, context: &Context<'_>) -> Result<(), Error> {
        match store {
            Store::Bag => context.append(&context.bag("buffer", &self.key, &self.window), varint(value)),
            Store::Multimap => context.append(&self.values("buffer", varint(value % 3), context), varint(value)),
            Store::OrderedList => {
                let sort_key = 500 - value as i64;
                let mut entry = varint(sort_key as u64);
                put_length_prefixed(&mut entry, &varint(value));
                context.append(&self.list(context), entry)
            }
        }
    }

    fn ask_for(&self, flush: Flush, time: Timestamp, context: &mut Context<'_>) {
        let millis = Timestamp::from_millis;
        match flush {
            Flush::Event { delay } => {
                let fire = millis((time.millis() + delay).min(self.end()));
                context.set_timer(self.timer(0, b""), fire, fire);
            }
            Flush::Processing { delay } => {
                let fire = millis(context.now_ms() + delay);
                // Another timer is set and cleared in the same bundle: nothing may be left of it.
                context.set_timer(self.timer(0, b"idle"), fire, time);
                context.clear_timer(self.timer(0, b"idle"));
                context.set_timer(self.timer(0, b""), fire, time);
            }
            Flush::Expiration => {}
        }
    }

    fn give_out(&self, store: Store, context: &mut Context<'_>) -> Result<(), Error> {
        let cell = match store {
            Store::Bag => context.bag("buffer", &self.key, &self.window),
            Store::Multimap => self.all(context),
            Store::OrderedList => self.list(context),
        };
        let read = context.read_all(&cell)?;
        context.clear(&cell)?;
        if !context.read_all(&cell)?.is_empty() {
            return Err(wrong("a buffer that was cleared is not empty"));
        }
        let time = Timestamp::from_millis(self.end());
        members(store, &read).into_iter().for_each(|value| self.emit(given_out(value), time, context));
        Ok(())
    }

    /// Once for an element's value and time.
    fn begin(&self, value: u64, time: Timestamp, context: &mut Context<'_>) -> Result<(), Error> {
        let tag = [varint(value), time.millis().to_be_bytes().to_vec()].concat();
        let begun = self.values("begun", [vec![tag.len() as u8], tag.clone()].concat(), context);
        if context.read_all(&begun)?.is_empty() {
            context.append(&begun, varint(1))?;
            context.set_timer(self.timer(0, &tag), time, time);
        }
        Ok(())
    }

    fn go_on(&self, timer: &FiredTimer, period: i64, context: &mut Context<'_>) -> Result<(), Error> {
        let value = Reader::new(&timer.tag).varint().unwrap();
        self.emit(value, timer.hold.timestamp(), context);
        // Behind the end of the window, nobody hears of it any more.
        let next = Timestamp::from_millis(timer.fire.0 + period);
        context.set_timer(self.timer(0, &timer.tag), next, next);
        Ok(())
    }

    fn check_order(&self, time: Timestamp, context: &Context<'_>) -> Result<(), Error> {
        let cell = context.bag("latest", &self.key, &self.window);
        let latest = context.read_all(&cell)?;
        let time = time.encode();
        if latest.len() > time.len() || latest > time.to_vec() {
            return Err(wrong("elements that were to be sorted are not"));
        }
        context.clear(&cell)?;
        context.append(&cell, time.to_vec())
    }

    fn emit(&self, value: u64, timestamp: Timestamp, context: &mut Context<'_>) {
        let key = Reader::new(&self.key).length_prefixed().unwrap()[0];
        let windows = window::single(&self.window);
        context.emit(Row { value: &encode(key, value), timestamp, windows: &windows, pane: pane::NO_FIRING });
    }
}

fn varint(value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    put_varint(&mut bytes, value);
    bytes
}

/// The values in what was read of a buffer.
fn members(store: Store, read: &[u8]) -> Vec<u64> {
    let mut reader = Reader::new(read);
    let (mut members, mut least) = (Vec::new(), i64::MIN);
    while !reader.is_empty() {
        match store {
            Store::Bag => members.push(reader.varint().unwrap()),
            Store::Multimap => {
                let map_key = reader.varint().unwrap();
                let count = reader.be_i32().unwrap();
                let values: Vec<u64> = (0..count).map(|_| reader.varint().unwrap()).collect();
                assert!(!values.is_empty() && values.iter().all(|value| value % 3 == map_key));
                members.extend(values);
            }
            Store::OrderedList => {
                let sort_key = reader.varint().unwrap() as i64;
                assert!(sort_key >= least, "a list is in order");
                least = sort_key;
                members.push(Reader::new(reader.length_prefixed().unwrap()).varint().unwrap());
            }
        }
    }
    members
}
