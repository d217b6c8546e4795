//! Runs of one window, read as one: groups in the order of keys, and for one key in the order of runs.
//!
//! One block of each run is in memory. Blocks are deleted from state when they have been read. A merge that stops early
//! hands out the blocks that it has, so that the next one need not read them again.

use std::collections::BTreeMap;

use bytes::Bytes;
use model::Timestamp;
use model::windowing::OutputTime;

use super::super::output::{Values, combine_holds};
use super::super::{Error, names};
use super::Format;
use super::block::{Block, Group};
use super::window::{Position, Run};
use crate::KeyedState;
use crate::arrivals::{Window, key_order};

/// Blocks by their names, at most one of each run of a window. A block never changes, so that it does not matter when they
/// were read.
pub(super) type OpenBlocks = BTreeMap<Bytes, Bytes>;

/// A merge in progress.
#[derive(Debug)]
pub(super) struct Merge {
    cursors: Vec<Cursor>,
    /// Cursors that have a group, as a binary heap with the least one first.
    heap: Vec<usize>,
    timed: bool,
    output_time: OutputTime,
}

/// Groups of one key, put together.
#[derive(Debug, Default)]
pub(super) struct Gathered {
    pub(super) key: Vec<u8>,
    pub(super) hold: Option<Timestamp>,
    pub(super) values: Values,
}

#[derive(Debug)]
struct Cursor {
    name: Vec<u8>,
    blocks: u32,
    position: Position,
    consumed: u64,
    block: Block,
    group: Option<Group>,
}

impl Merge {
    /// Starts where the runs stand.
    /// `open` has blocks that an earlier merge has read.
    pub(super) fn new(
        format: &Format,
        window: &Window,
        runs: &[Run],
        open: &OpenBlocks,
        state: &dyn KeyedState,
    ) -> Result<Self, Error> {
        let mut cursors = Vec::with_capacity(runs.len());
        for run in runs {
            let name = format.names.run(window.end, &window.bytes, run.number);
            let block = Block::new(Bytes::new(), format.timed());
            let mut cursor = Cursor { name, blocks: run.blocks, position: run.position, consumed: 0, block, group: None };
            if !run.is_consumed() {
                let name = names::numbered(&cursor.name, run.position.block);
                match open.get(&name) {
                    Some(block) => cursor.open(block.clone(), format.timed())?,
                    None => cursor.load(format.timed(), state)?,
                }
            }
            cursors.push(cursor);
        }
        let heap = (0..cursors.len()).filter(|&cursor| cursors[cursor].group.is_some()).collect();
        let mut merge = Merge { cursors, heap, timed: format.timed(), output_time: format.output_time };
        for place in (0..merge.heap.len() / 2).rev() {
            merge.sink(place);
        }
        Ok(merge)
    }

    /// Gathers groups of the least key, until all of them are taken or the values have `bytes_max` bytes.
    /// Returns whether there was one.
    pub(super) fn next(&mut self, gathered: &mut Gathered, bytes_max: usize, state: &mut dyn KeyedState) -> Result<bool, Error> {
        gathered.values.count = 0;
        gathered.values.bytes.clear();
        gathered.hold = None;
        let mut hash = 0;
        while let Some(&least) = self.heap.first() {
            let cursor = &mut self.cursors[least];
            let group = cursor.group.as_ref().expect("a cursor in the heap has a group");
            let key = cursor.block.key(group);
            if gathered.values.count == 0 {
                hash = group.hash;
                gathered.key.clear();
                gathered.key.extend_from_slice(key);
            } else if group.hash != hash || key != gathered.key || gathered.values.bytes.len() >= bytes_max {
                break;
            }
            gathered.values.count += group.count;
            gathered.values.bytes.extend_from_slice(cursor.block.values(group));
            gathered.hold = combine_holds(self.output_time, gathered.hold, group.hold);
            if !cursor.advance(self.timed, state)? {
                self.heap.swap_remove(0);
            }
            self.sink(0);
        }
        Ok(gathered.values.count > 0)
    }

    /// Whether all runs are consumed.
    pub(super) fn finished(&self) -> bool {
        self.heap.is_empty()
    }

    /// Writes down how far the runs are consumed. Returns the blocks that are not.
    pub(super) fn store(self, runs: &mut [Run]) -> Result<OpenBlocks, Error> {
        let mut open = OpenBlocks::new();
        for (run, cursor) in runs.iter_mut().zip(self.cursors) {
            run.position = cursor.position;
            run.bytes = run.bytes.checked_sub(cursor.consumed).ok_or_else(damaged)?;
            if run.is_consumed() != (run.bytes == 0) {
                return Err(damaged());
            }
            if !run.is_consumed() {
                open.insert(names::numbered(&cursor.name, cursor.position.block), cursor.block.bytes());
            }
        }
        Ok(open)
    }

    fn precedes(&self, a: usize, b: usize) -> bool {
        let entry = |cursor: usize| {
            let cursor = &self.cursors[cursor];
            let group = cursor.group.as_ref().expect("a cursor in the heap has a group");
            (group.hash, cursor.block.key(group))
        };
        key_order(entry(a), entry(b)).then(a.cmp(&b)).is_lt()
    }

    /// Restores the heap below a place whose cursor has moved on.
    fn sink(&mut self, mut place: usize) {
        loop {
            let mut least = place;
            for child in [2 * place + 1, 2 * place + 2] {
                if child < self.heap.len() && self.precedes(self.heap[child], self.heap[least]) {
                    least = child;
                }
            }
            if least == place {
                return;
            }
            self.heap.swap(place, least);
            place = least;
        }
    }
}

fn damaged() -> Error {
    Error::Corrupt("a run does not have the bytes that were written".into())
}

impl Cursor {
    /// Moves behind the current group. Returns whether there is another one.
    fn advance(&mut self, timed: bool, state: &mut dyn KeyedState) -> Result<bool, Error> {
        let end = self.group.as_ref().map_or(0, Group::end);
        self.consumed += (end - self.position.offset as usize) as u64;
        self.position.offset = end as u32;
        self.group = self.block.group(end)?;
        if self.group.is_none() {
            state.put(names::numbered(&self.name, self.position.block), None);
            self.position = Position { block: self.position.block + 1, offset: 0 };
            if self.position.block < self.blocks {
                self.load(timed, state)?;
            }
        }
        Ok(self.group.is_some())
    }

    fn load(&mut self, timed: bool, state: &dyn KeyedState) -> Result<(), Error> {
        let name = names::numbered(&self.name, self.position.block);
        let bytes = state.get(&name)?.ok_or_else(|| Error::Corrupt("a block of a run is missing".into()))?;
        self.open(bytes, timed)
    }

    fn open(&mut self, bytes: Bytes, timed: bool) -> Result<(), Error> {
        self.block = Block::new(bytes, timed);
        self.group = self.block.group(self.position.offset as usize)?;
        match self.group {
            Some(_) => Ok(()),
            None => Err(Error::Corrupt("a block of a run ends before its position".into())),
        }
    }
}
