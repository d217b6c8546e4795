//! What a native DoFn may do by key: read and write its state, set and clear its timers.

use std::sync::Arc;

use bytes::Bytes;
use model::{RawTime, TransformId};

use super::Emitter;
use crate::{StateAccess, StateKey, TimerChange};

/// One cell of user state, or a part of a side input, during one bundle.
pub struct Cell {
    access: Arc<dyn StateAccess>,
    key: StateKey,
}

impl Cell {
    /// Its encoded elements, one after another. Errors are those of the state, as text.
    pub fn read(&self) -> Result<Vec<u8>, String> {
        let (mut data, mut next) = (Vec::new(), None);
        loop {
            let page = self.access.get(&self.key, next.as_ref()).map_err(|error| error.to_string())?;
            data.extend_from_slice(&page.data);
            match page.next {
                Some(more) => next = Some(more),
                None => return Ok(data),
            }
        }
    }

    /// Adds encoded elements.
    pub fn append(&self, elements: &[u8]) -> Result<(), String> {
        self.access.append(&self.key, Bytes::copy_from_slice(elements)).map_err(|error| error.to_string())
    }

    /// Removes all elements.
    pub fn clear(&self) -> Result<(), String> {
        self.access.clear(&self.key).map_err(|error| error.to_string())
    }
}

/// A timer of the DoFn by its family, tag, encoded key and encoded window.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "the fields are those of a timer's identity")]
pub struct TimerId<'a> {
    pub family: &'a str,
    pub tag: &'a [u8],
    pub key: &'a [u8],
    pub window: &'a [u8],
}

impl Emitter {
    /// The transform that emits.
    pub fn transform(&self) -> &TransformId {
        &self.transform
    }

    /// A cell of the transform's state: a bag, by its id, encoded key and encoded window.
    pub fn bag(&self, state: &str, key: &[u8], window: &[u8]) -> Result<Cell, String> {
        self.cell(StateKey::Bag {
            transform: self.transform.clone(),
            state: state.to_owned(),
            window: Bytes::copy_from_slice(window),
            key: Bytes::copy_from_slice(key),
        })
    }

    /// Any cell.
    pub fn cell(&self, key: StateKey) -> Result<Cell, String> {
        let access = self.state.clone().ok_or("there is state only during a bundle")?;
        Ok(Cell { access, key })
    }

    /// Sets a timer to fire at a time; until it has, the output watermark stays at `hold`, or goes on if that is MAX or beyond.
    pub fn set_timer(&mut self, id: TimerId<'_>, fire: impl Into<RawTime>, hold: impl Into<RawTime>) -> Result<(), String> {
        self.change(id, Some((fire.into(), hold.into(), Bytes::from_static(model::pane::NO_FIRING))))
    }

    /// Clears a timer, if it is set.
    pub fn clear_timer(&mut self, id: TimerId<'_>) -> Result<(), String> {
        self.change(id, None)
    }

    fn change(&mut self, id: TimerId<'_>, set: Option<(RawTime, RawTime, Bytes)>) -> Result<(), String> {
        let mine = |family: &(TransformId, String)| family.0 == self.transform && family.1 == id.family;
        let family = self.families.iter().position(mine).ok_or_else(|| format!("there is no timer family {}", id.family))?;
        let bytes = Bytes::copy_from_slice;
        self.timers.push(TimerChange { family, tag: bytes(id.tag), key: bytes(id.key), window: bytes(id.window), set });
        Ok(())
    }
}
