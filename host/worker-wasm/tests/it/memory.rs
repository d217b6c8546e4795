//! User state in memory, for one bundle after another.

use std::collections::BTreeMap;
use std::sync::Mutex;

use bytes::Bytes;
use worker::{Error, Page, StateAccess, StateKey};

/// State in memory: parts by their key; an ordered list is one part.
#[derive(Default)]
pub(crate) struct Memory(Mutex<BTreeMap<StateKey, Vec<u8>>>);

impl Memory {
    fn cells(&self) -> std::sync::MutexGuard<'_, BTreeMap<StateKey, Vec<u8>>> {
        self.0.lock().expect("no test panics while it holds the state")
    }
}

/// The range of an ordered list, and the key of the whole of it.
fn whole(key: &StateKey) -> (StateKey, i64, i64) {
    let mut whole = key.clone();
    let StateKey::OrderedList { start, end, .. } = &mut whole else { return (whole, 0, 0) };
    let range = (std::mem::take(start), std::mem::take(end));
    (whole, range.0, range.1)
}

/// The entries inside or outside a range.
fn entries(all: &[u8], (start, end): (i64, i64), inside: bool) -> Vec<u8> {
    let (mut reader, mut kept) = (model::Reader::new(all), Vec::new());
    while !reader.is_empty() {
        let from = reader.position();
        let sort_key = reader.varint().expect("an entry has a sort key") as i64;
        reader.length_prefixed().expect("an entry has an element");
        if (start..end).contains(&sort_key) == inside {
            kept.extend_from_slice(&all[from..reader.position()]);
        }
    }
    kept
}

/// Whether a part of a map belongs to the map that `MultimapKeys` names.
fn is_part_of(part: &StateKey, map: &StateKey) -> bool {
    let StateKey::MultimapKeys { transform, state, window, key } = map else { return false };
    matches!(part, StateKey::Multimap { transform: t, state: s, window: w, key: k, .. }
        if (t, s, w, k) == (transform, state, window, key))
}

impl StateAccess for Memory {
    /// Everything is on the first page, and there is always an empty last one.
    fn get(&self, key: &StateKey, from: Option<&Bytes>) -> Result<Page, Error> {
        if from.is_some() {
            return Ok(Page::default());
        }
        let (cells, (key, start, end)) = (self.cells(), whole(key));
        let data: Vec<u8> = match &key {
            StateKey::MultimapKeys { .. } => cells.keys().filter(|part| is_part_of(part, &key)).flat_map(map_key).collect(),
            StateKey::OrderedList { .. } => entries(cells.get(&key).map_or(&[], Vec::as_slice), (start, end), true),
            _ => cells.get(&key).cloned().unwrap_or_default(),
        };
        Ok(Page { data: data.into(), next: Some(Bytes::from_static(b"more")) })
    }

    fn append(&self, key: &StateKey, data: Bytes) -> Result<(), Error> {
        self.cells().entry(whole(key).0).or_default().extend_from_slice(&data);
        Ok(())
    }

    fn clear(&self, key: &StateKey) -> Result<(), Error> {
        let (mut cells, (key, start, end)) = (self.cells(), whole(key));
        match &key {
            StateKey::OrderedList { .. } => {
                let kept = entries(cells.get(&key).map_or(&[], Vec::as_slice), (start, end), false);
                cells.insert(key, kept);
            }
            StateKey::MultimapKeys { .. } => cells.retain(|part, _| !is_part_of(part, &key)),
            _ => drop(cells.remove(&key)),
        }
        Ok(())
    }
}

fn map_key(part: &StateKey) -> Vec<u8> {
    match part {
        StateKey::Multimap { map_key, .. } => map_key.to_vec(),
        _ => Vec::new(),
    }
}
