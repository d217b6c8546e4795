//! States of keys: a map, and a set, which is a map whose values say nothing.

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet};
use std::marker::PhantomData;
use std::rc::Rc;

use super::cells::{Call, Cell, ChangeKind, Changes};
use super::{Field, FieldKind, decoded, encoded};
use crate::{Decode, Element, Reader};

/// A value for each key. Only the keys that are asked for are read.
pub struct MapState<K, V> {
    call: Rc<Call>,
    state: u32,
    entry: PhantomData<fn() -> (K, V)>,
}

impl<K: Element, V: Element> Field for MapState<K, V> {
    const KIND: FieldKind = FieldKind::Map(K::CODER, V::CODER);

    fn attach(call: &Rc<Call>, number: u32) -> Self {
        MapState { call: call.clone(), state: number, entry: PhantomData }
    }
}

impl<K: Element + for<'a> Decode<'a>, V: Element + for<'a> Decode<'a>> MapState<K, V> {
    /// The value of a key, if it has one.
    ///
    /// # Panics
    /// As all reading, when what is stored is not a `V` (or, for keys, a `K`).
    pub fn get<Q: Element + ?Sized>(&self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        read_value(&self.call, self.state, encoded(key))
    }

    /// Whether a key has a value.
    pub fn contains_key<Q: Element + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        with_entry(&self.call, self.state, encoded(key), |value| value.is_some())
    }

    /// Gives a key a value, without reading the one it has.
    pub fn put(&mut self, key: K, value: V) {
        put(&self.call, self.state, encoded(&key), Some(encoded(&value)));
    }

    /// Takes a key's value away.
    pub fn remove<Q: Element + ?Sized>(&mut self, key: &Q)
    where
        K: Borrow<Q>,
    {
        put(&self.call, self.state, encoded(key), None);
    }

    /// All keys, ordered by their encoded bytes.
    pub fn keys(&self) -> Vec<K> {
        all_keys::<K>(&self.call, self.state).iter().map(|key| decoded(&mut Reader::new(key), "a key of a map")).collect()
    }

    /// All keys with their values. Each value that is not yet known is asked for on its own.
    pub fn entries(&self) -> Vec<(K, V)> {
        let entry = |key: Vec<u8>| {
            let value = read_value(&self.call, self.state, key.clone())?;
            Some((decoded(&mut Reader::new(&key), "a key of a map"), value))
        };
        all_keys::<K>(&self.call, self.state).into_iter().filter_map(entry).collect()
    }

    /// Whether no key has a value.
    pub fn is_empty(&self) -> bool {
        all_keys::<K>(&self.call, self.state).is_empty()
    }

    /// Takes all values away.
    pub fn clear(&mut self) {
        clear(&self.call, self.state);
    }
}

/// Different elements.
pub struct SetState<T> {
    call: Rc<Call>,
    state: u32,
    element: PhantomData<fn() -> T>,
}

impl<T: Element> Field for SetState<T> {
    const KIND: FieldKind = FieldKind::Set(T::CODER);

    fn attach(call: &Rc<Call>, number: u32) -> Self {
        SetState { call: call.clone(), state: number, element: PhantomData }
    }
}

/// The value of every element of a set.
const MEMBER: &[u8] = &[1];

impl<T: Element + for<'a> Decode<'a>> SetState<T> {
    /// Adds an element, if it is not there.
    pub fn add(&mut self, element: T) {
        put(&self.call, self.state, encoded(&element), Some(MEMBER.to_vec()));
    }

    /// Removes an element.
    pub fn remove<Q: Element + ?Sized>(&mut self, element: &Q)
    where
        T: Borrow<Q>,
    {
        put(&self.call, self.state, encoded(element), None);
    }

    /// Whether an element is there. Only this one is asked for.
    pub fn contains<Q: Element + ?Sized>(&self, element: &Q) -> bool
    where
        T: Borrow<Q>,
    {
        with_entry(&self.call, self.state, encoded(element), |member| member.is_some())
    }

    /// All elements, ordered by their encoded bytes.
    ///
    /// # Panics
    /// When what is stored is not a `T`.
    pub fn read(&self) -> Vec<T> {
        let elements = all_keys::<T>(&self.call, self.state);
        elements.iter().map(|element| decoded(&mut Reader::new(element), "an element of a set")).collect()
    }

    /// Whether there is no element.
    pub fn is_empty(&self) -> bool {
        all_keys::<T>(&self.call, self.state).is_empty()
    }

    /// Removes all elements.
    pub fn clear(&mut self) {
        clear(&self.call, self.state);
    }
}

/// What is known of a map in one call.
#[derive(Default)]
pub(super) struct Map {
    /// Whether nothing is left of what is stored.
    cleared: bool,
    /// By encoded key.
    entries: BTreeMap<Vec<u8>, Entry>,
}

struct Entry {
    value: Option<Vec<u8>>,
    changed: bool,
}

impl Map {
    pub(super) fn changes(self, place: (u32, u32), changes: &mut Changes) {
        if self.cleared {
            changes.push(place, ChangeKind::Clear, &[], &[]);
        }
        for (key, entry) in self.entries.into_iter().filter(|(_, entry)| entry.changed) {
            match entry.value {
                Some(value) => changes.push(place, ChangeKind::Replace, &key, &value),
                None if self.cleared => {}
                None => changes.push(place, ChangeKind::Clear, &key, &[]),
            }
        }
    }
}

fn map(call: &Call, state: u32) -> std::cell::RefMut<'_, Map> {
    std::cell::RefMut::map(call.cell(state, || Cell::Map(Map::default())), |cell| match cell {
        Cell::Map(map) => map,
        _ => unreachable!("a state has one kind"),
    })
}

fn with_entry<R>(call: &Call, state: u32, key: Vec<u8>, read: impl FnOnce(Option<&[u8]>) -> R) -> R {
    let mut map = map(call, state);
    if let Some(entry) = map.entries.get(&key) {
        return read(entry.value.as_deref());
    }
    let stored = if map.cleared { Vec::new() } else { call.all(state, &key) };
    call.grew(key.len());
    let value = (!stored.is_empty()).then_some(stored);
    let result = read(value.as_deref());
    map.entries.insert(key, Entry { value, changed: false });
    result
}

fn read_value<V: for<'a> Decode<'a>>(call: &Call, state: u32, key: Vec<u8>) -> Option<V> {
    with_entry(call, state, key, |value| value.map(|value| decoded(&mut Reader::new(value), "a value of a map")))
}

fn put(call: &Call, state: u32, key: Vec<u8>, value: Option<Vec<u8>>) {
    call.grew(key.len() + value.as_ref().map_or(0, Vec::len));
    map(call, state).entries.insert(key, Entry { value, changed: true });
}

fn clear(call: &Call, state: u32) {
    *map(call, state) = Map { cleared: true, entries: BTreeMap::new() };
}

/// Encoded keys: those that are stored, with what has changed.
fn all_keys<K: for<'a> Decode<'a>>(call: &Call, state: u32) -> BTreeSet<Vec<u8>> {
    let map = map(call, state);
    let mut keys = if map.cleared { BTreeSet::new() } else { stored_keys::<K>(call, state) };
    for (key, entry) in &map.entries {
        match entry.value {
            Some(_) => drop(keys.insert(key.clone())),
            None => drop(keys.remove(key)),
        }
    }
    keys
}

fn stored_keys<K: for<'a> Decode<'a>>(call: &Call, state: u32) -> BTreeSet<Vec<u8>> {
    let (mut keys, mut next) = (BTreeSet::new(), None);
    loop {
        let page = call.keys_page(state, next.as_deref());
        let mut reader = Reader::new(&page.elements);
        while !reader.is_empty() {
            let start = page.elements.len() - reader.remaining();
            let _: K = decoded(&mut reader, "a key of a state");
            keys.insert(page.elements[start..page.elements.len() - reader.remaining()].to_vec());
        }
        next = page.next;
        if next.is_none() {
            return keys;
        }
    }
}
