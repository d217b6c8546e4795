//! The cells of one bundle's user state: committed ones with its own writes on top, and a bound on the writes.

use std::sync::Arc;

use bytes::Bytes;
use engine::KeyedState;
use engine::state::StateError;
use ledger::{StateReader, StateWrite};
use worker::Error;

use crate::overlay::{CellSpace, Overlay};

/// Cells that one scan returns, at most: what they take besides their values is bounded by it.
const SCAN_CELLS_MAX: usize = 16_384;

pub(super) struct Cells {
    overlay: Overlay,
    bytes_max: usize,
}

impl Cells {
    pub(super) fn new(committed: Arc<dyn StateReader>, bytes_max: usize) -> Self {
        Cells { overlay: Overlay::new(committed, CellSpace::UserState), bytes_max }
    }

    pub(super) fn get(&self, cell: &[u8]) -> Result<Option<Bytes>, Error> {
        self.overlay.get(cell).map_err(unreadable)
    }

    /// About `bytes_max` bytes of cells in `[from, to)`; fewer than there are means: ask again from behind the last one.
    pub(super) fn scan(&self, from: &[u8], to: &[u8], bytes_max: usize) -> Result<Vec<(Bytes, Bytes)>, Error> {
        self.overlay.scan(from, to, SCAN_CELLS_MAX, bytes_max).map_err(unreadable)
    }

    pub(super) fn put(&mut self, cell: Bytes, value: Bytes) {
        self.overlay.put(cell, Some(value));
    }

    pub(super) fn delete(&mut self, cell: Bytes) {
        self.overlay.put(cell, None);
    }

    /// Whether the writes take no more memory than a bundle may hold.
    pub(super) fn check_bound(&self) -> Result<(), Error> {
        if self.overlay.bytes() <= self.bytes_max {
            return Ok(());
        }
        let message = format!("a bundle changed more than {} bytes of user state; it has to be smaller", self.bytes_max);
        Err(Error::User { transform: None, message })
    }

    pub(super) fn into_writes(self) -> Vec<StateWrite> {
        self.overlay.into_writes()
    }
}

fn unreadable(error: StateError) -> Error {
    Error::Infrastructure(error.to_string())
}

/// What is in a cell is not what was written there: our bug.
pub(super) fn corrupt(what: impl std::fmt::Display) -> Error {
    Error::Protocol(format!("user state is corrupt: {what}"))
}
