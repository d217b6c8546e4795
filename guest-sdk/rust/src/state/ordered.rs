//! A list that is ordered by a number, mostly a time.

use std::marker::PhantomData;
use std::ops::Range;
use std::rc::Rc;

use super::cells::{Call, Cell, ChangeKind, Changes};
use super::{Field, FieldKind, decoded, encoded};
use crate::element::{put_length_prefixed, put_varint};
use crate::{Decode, Element, Reader};

/// Elements with a sort key, in its order; among equal keys in the order in which they were added. Only the ranges that are asked
/// for are read. The sort key `i64::MAX` cannot be used.
pub struct OrderedListState<T> {
    call: Rc<Call>,
    state: u32,
    element: PhantomData<fn() -> T>,
}

impl<T: Element> Field for OrderedListState<T> {
    const KIND: FieldKind = FieldKind::OrderedList(T::CODER);

    fn attach(call: &Rc<Call>, number: u32) -> Self {
        OrderedListState { call: call.clone(), state: number, element: PhantomData }
    }
}

/// All sort keys.
const EVERYTHING: Range<i64> = i64::MIN..i64::MAX;

impl<T: Element + for<'a> Decode<'a>> OrderedListState<T> {
    /// Adds an element at a sort key.
    pub fn add(&mut self, sort_key: i64, element: T) {
        let element = encoded(&element);
        self.call.grew(element.len() + size_of::<i64>());
        ordered(&self.call, self.state).added.push((sort_key, element));
    }

    /// The elements with these sort keys.
    ///
    /// # Panics
    /// As all reading, when what is stored is not a `T`.
    pub fn read_range(&self, sort_keys: Range<i64>) -> Vec<(i64, T)> {
        let cleared = ordered(&self.call, self.state).cleared.clone();
        let stored = match cleared.contains(&EVERYTHING) {
            true => Vec::new(),
            false => self.call.all(self.state, &part(&sort_keys)),
        };
        let (mut reader, mut found) = (Reader::new(&stored), Vec::new());
        while !reader.is_empty() {
            let (sort_key, element) = entry(&mut reader);
            if !cleared.iter().any(|range| range.contains(&sort_key)) {
                found.push((sort_key, decoded(&mut Reader::new(element), "an element of an ordered list")));
            }
        }
        for (sort_key, element) in &ordered(&self.call, self.state).added {
            if sort_keys.contains(sort_key) {
                found.push((*sort_key, decoded(&mut Reader::new(element), "an element of an ordered list")));
            }
        }
        found.sort_by_key(|(sort_key, _)| *sort_key);
        found
    }

    /// All elements.
    pub fn read(&self) -> Vec<(i64, T)> {
        self.read_range(EVERYTHING)
    }

    /// Removes the elements with these sort keys.
    pub fn clear_range(&mut self, sort_keys: Range<i64>) {
        let mut ordered = ordered(&self.call, self.state);
        ordered.added.retain(|(sort_key, _)| !sort_keys.contains(sort_key));
        ordered.cleared.push(sort_keys);
    }

    /// Removes all elements.
    pub fn clear(&mut self) {
        *ordered(&self.call, self.state) = Ordered { cleared: vec![EVERYTHING], added: Vec::new() };
    }
}

/// What has changed of an ordered list in one call.
#[derive(Default)]
pub(super) struct Ordered {
    cleared: Vec<Range<i64>>,
    /// After all that was cleared.
    added: Vec<(i64, Vec<u8>)>,
}

impl Ordered {
    pub(super) fn changes(self, place: (u32, u32), changes: &mut Changes) {
        for range in self.cleared {
            changes.push(place, ChangeKind::Clear, &part(&range), &[]);
        }
        let mut entries = Vec::new();
        for (sort_key, element) in self.added {
            put_varint(&mut entries, sort_key as u64);
            put_length_prefixed(&mut entries, &element);
        }
        if !entries.is_empty() {
            changes.push(place, ChangeKind::Append, &[], &entries);
        }
    }
}

fn ordered(call: &Call, state: u32) -> std::cell::RefMut<'_, Ordered> {
    std::cell::RefMut::map(call.cell(state, || Cell::Ordered(Ordered::default())), |cell| match cell {
        Cell::Ordered(ordered) => ordered,
        _ => unreachable!("a state has one kind"),
    })
}

/// How a range is named.
fn part(range: &Range<i64>) -> [u8; 16] {
    let mut part = [0; 16];
    part[..8].copy_from_slice(&range.start.to_be_bytes());
    part[8..].copy_from_slice(&range.end.to_be_bytes());
    part
}

fn entry<'a>(reader: &mut Reader<'a>) -> (i64, &'a [u8]) {
    let entry = reader.varint().and_then(|sort_key| Ok((sort_key as i64, reader.length_prefixed()?)));
    entry.expect("a host gives whole entries")
}
