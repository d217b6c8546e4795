//! What a keyed step does to the state and the timers of one key and window.

use std::ops::Range;

use bytes::Bytes;
use model::batch::Row;
use model::reader::{put_length_prefixed, put_varint};
use model::{FiredTimer, Reader, Timestamp, WindowCoder, pane, window};
use worker::{Error, StateKey};

use super::compile::{decode_window, encode};
use super::keyed::{Flush, Store};
use super::pipeline::VALUES;
use super::windows::end_of;
use crate::dofns::{Context, TimerId};

/// Distinct keys of a multimap.
const MAP_KEYS: u64 = 3;

/// What becomes of a value in a buffer.
pub(super) fn given_out(value: u64) -> u64 {
    (value * 7 + 3) % VALUES
}

pub(super) fn wrong(what: &str) -> Error {
    Error::Protocol(what.to_owned())
}

/// A key and a window, encoded.
pub(super) struct Place {
    pub(super) key: Bytes,
    pub(super) window: Bytes,
    pub(super) windows: WindowCoder,
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

    fn list(&self, range: Range<i64>, context: &Context<'_>) -> StateKey {
        let (transform, state, Range { start, end }) = (context.transform(), "buffer".to_owned(), range);
        StateKey::OrderedList { transform, state, window: self.window.clone(), key: self.key.clone(), start, end }
    }

    fn all(&self, context: &Context<'_>) -> StateKey {
        let (transform, state) = (context.transform(), "buffer".to_owned());
        StateKey::MultimapEntries { transform, state, window: self.window.clone(), key: self.key.clone() }
    }

    pub(super) fn keep(&self, store: Store, value: u64, context: &Context<'_>) -> Result<(), Error> {
        match store {
            Store::Bag => context.append(&context.bag("buffer", &self.key, &self.window), varint(value)),
            Store::Multimap => context.append(&self.values("buffer", varint(value % MAP_KEYS), context), varint(value)),
            Store::OrderedList => {
                let sort_key = 500 - value as i64;
                let mut entry = varint(sort_key as u64);
                put_length_prefixed(&mut entry, &varint(value));
                context.append(&self.list(i64::MIN..i64::MAX, context), entry)
            }
        }
    }

    pub(super) fn ask_for(&self, flush: Flush, time: Timestamp, context: &mut Context<'_>) {
        let millis = Timestamp::from_millis;
        match flush {
            Flush::Event { delay } => {
                let fire = millis((time.millis() + delay).min(self.end()));
                context.set_timer(self.timer(0, b""), fire, fire);
            }
            Flush::Moved { delay } => {
                let (fire, end) = (millis((time.millis() + delay).min(self.end())), millis(self.end()));
                context.set_timer(self.timer(0, b"moved"), fire, fire);
                context.set_timer(self.timer(0, b"moved"), end, end);
            }
            Flush::Processing { delay } | Flush::Cascade { delay } => {
                let fire = millis(context.now_ms() + delay);
                // Another timer is set and cleared in the same bundle: nothing may be left of it.
                context.set_timer(self.timer(0, b"idle"), fire, time);
                context.clear_timer(self.timer(0, b"idle"));
                context.set_timer(self.timer(0, b""), fire, time);
            }
            Flush::Expiration => {}
        }
    }

    pub(super) fn check_timer(&self, timer: &FiredTimer, flush: Flush, context: &mut Context<'_>) -> Result<(), Error> {
        match flush {
            Flush::Moved { .. } if timer.fire.0 != self.end() => return Err(wrong("a timer that was moved has fired")),
            Flush::Cascade { delay } if timer.family == 0 && &timer.tag[..] == b"" => {
                let fire = Timestamp::from_millis(context.now_ms() + delay);
                context.set_timer(self.timer(0, b"next"), fire, timer.hold);
            }
            _ if &timer.tag[..] == b"idle" => return Err(wrong("a timer that was cleared has fired")),
            _ => {}
        }
        Ok(())
    }

    pub(super) fn give_out(&self, store: Store, in_parts: bool, context: &mut Context<'_>) -> Result<(), Error> {
        let cells = match store {
            Store::Bag => vec![context.bag("buffer", &self.key, &self.window)],
            Store::Multimap if in_parts => (0..MAP_KEYS).map(|key| self.values("buffer", varint(key), context)).collect(),
            Store::Multimap => vec![self.all(context)],
            Store::OrderedList if in_parts => {
                vec![self.list(100..i64::MAX, context), self.list(i64::MIN..-200, context), self.list(-200..100, context)]
            }
            Store::OrderedList => vec![self.list(i64::MIN..i64::MAX, context)],
        };
        let time = Timestamp::from_millis(self.end());
        let by_key = store == Store::Multimap && in_parts;
        for cell in cells {
            let read = context.read_all(&cell)?;
            context.clear(&cell)?;
            if !context.read_all(&cell)?.is_empty() {
                return Err(wrong("a buffer that was cleared is not empty"));
            }
            // The values of one key of a multimap look like a bag.
            let members = members(if by_key { Store::Bag } else { store }, &read);
            members.into_iter().for_each(|value| self.emit(given_out(value), time, context));
        }
        Ok(())
    }

    /// Once for an element's value and time: a timer that fires `delay` later, but not after the end of the window.
    pub(super) fn begin(&self, value: u64, time: Timestamp, delay: i64, context: &mut Context<'_>) -> Result<(), Error> {
        let tag = [varint(value), time.millis().to_be_bytes().to_vec()].concat();
        let begun = self.values("begun", [vec![tag.len() as u8], tag.clone()].concat(), context);
        if context.read_all(&begun)?.is_empty() {
            context.append(&begun, varint(1))?;
            let fire = Timestamp::from_millis((time.millis() + delay).min(self.end()));
            context.set_timer(self.timer(0, &tag), fire, time);
        }
        Ok(())
    }

    pub(super) fn go_on(&self, timer: &FiredTimer, period: i64, context: &mut Context<'_>) -> Result<(), Error> {
        let value = Reader::new(&timer.tag).varint().unwrap();
        self.emit(value, timer.hold.timestamp(), context);
        // Behind the end of the window, nobody hears of it any more.
        let next = Timestamp::from_millis(timer.fire.0 + period);
        context.set_timer(self.timer(0, &timer.tag), next, next);
        Ok(())
    }

    pub(super) fn check_order(&self, time: Timestamp, context: &Context<'_>) -> Result<(), Error> {
        let cell = context.bag("latest", &self.key, &self.window);
        let latest = context.read_all(&cell)?;
        let time = time.encode();
        if latest.len() > time.len() || latest > time.to_vec() {
            return Err(wrong("elements that were to be sorted are not"));
        }
        context.clear(&cell)?;
        context.append(&cell, time.to_vec())
    }

    pub(super) fn emit(&self, value: u64, timestamp: Timestamp, context: &mut Context<'_>) {
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
                assert!(!values.is_empty() && values.iter().all(|value| value % MAP_KEYS == map_key));
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
