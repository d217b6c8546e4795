//! Elements come in: `ReduceFnRunner.processElements`, for the rows of one key in one call.
//!
//! Which rows share a call is an accident. A trigger that counts them is therefore asked after each, as in Flink, unless rows are
//! gathered on purpose.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use model::reader::put_length_prefixed;
use model::windowing::OutputTime;
use model::{Reader, Timestamp};

use super::super::Error;
use super::super::names;
use super::super::output::combine_holds;
use super::merging::{self, Merged};
use super::window_state::{Buffer, WindowState};
use super::{Bundle, Loaded, Merges};
use crate::arrivals::{Arrival, Arrivals, Window};

/// Values go to cells of about this many bytes.
const CHUNK_BYTES: usize = 128 << 10;

impl Bundle<'_> {
    /// All rows of one key.
    pub(super) fn batch(&mut self, arrivals: &Arrivals<'_>, group: &[Arrival]) -> Result<(), Error> {
        let key = arrivals.key(&group[0]);
        let mut rows = group.to_vec();
        while !rows.is_empty() {
            rows = self.rows(key, arrivals, &rows)?;
        }
        Ok(())
    }

    /// Takes rows of one key in. Returns those that are left over because a window that merges has closed on the way: new windows
    /// do not merge with it.
    fn rows(&mut self, key: &[u8], arrivals: &Arrivals<'_>, group: &[Arrival]) -> Result<Vec<Arrival>, Error> {
        let mut by_window: BTreeMap<Window, Vec<Arrival>> = BTreeMap::new();
        for arrival in group {
            let window = &arrivals.windows[arrival.window as usize];
            match by_window.get_mut(window) {
                Some(rows) => rows.push(*arrival),
                None => drop(by_window.insert(window.clone(), vec![*arrival])),
            }
        }
        if let Some(merges) = self.cells.merges {
            by_window = self.merge(merges, key, by_window)?;
        }
        let mut left_over = Vec::new();
        for (window, rows) in by_window {
            let mut loaded = self.load(key, &window)?;
            let left = if loaded.now.is_closed() { &rows[..] } else { self.fire_by_rows(key, &mut loaded, arrivals, &rows)? };
            match self.cells.merges {
                Some(_) if left.len() < rows.len() => left_over.extend_from_slice(left),
                _ => self.dropped += left.len() as u64,
            }
            if left.len() < rows.len() {
                self.store(key, loaded);
            }
        }
        Ok(in_order(left_over))
    }

    /// Takes rows into an open window, and fires whenever they make its trigger ready. Returns the rows behind the one that has
    /// closed it.
    fn fire_by_rows<'r>(
        &mut self,
        key: &[u8],
        loaded: &mut Loaded,
        arrivals: &Arrivals<'_>,
        rows: &'r [Arrival],
    ) -> Result<&'r [Arrival], Error> {
        let mut left = rows;
        while !left.is_empty() && !loaded.now.is_closed() {
            let may_fire = if self.cells.by_row { !self.panes.full_of_bytes() } else { !self.panes.full() };
            let at_once = if self.cells.by_row && may_fire { 1 } else { left.len() };
            let (taken, ready) = self.until_ready(loaded, left.len(), at_once);
            self.add(key, loaded, arrivals, &left[..taken]);
            left = &left[taken..];
            if ready && may_fire {
                self.panes.count_key();
                self.emit(key, loaded, false)?;
            } else if ready {
                loaded.now.timers.deferred = true;
            }
        }
        Ok(left)
    }

    /// Tells the trigger of up to `rows` rows, some `at_once`, until it is ready. Returns how many it took, and whether it is.
    fn until_ready(&self, loaded: &mut Loaded, rows: usize, at_once: usize) -> (usize, bool) {
        let mut machine = self.machine(loaded);
        let (mut taken, mut ready) = (0, false);
        while taken < rows && !ready {
            machine.on_elements(at_once as u64);
            taken += at_once;
            ready = machine.should_fire();
        }
        (taken, ready)
    }

    /// Takes rows into an open window: values, holds, timers.
    fn add(&mut self, key: &[u8], loaded: &mut Loaded, arrivals: &Arrivals<'_>, rows: &[Arrival]) {
        for row in rows {
            self.add_hold(loaded, arrivals.timestamp(row));
        }
        self.append(key, &mut loaded.now, rows.iter().map(|row| arrivals.value(row)));
        loaded.now.since_pane += rows.len() as u64;
        loaded.now.values += rows.len() as u64;
        loaded.now.timers.expiry = true;
    }

    /// An element holds the watermark unless it is too late for that; then its window does, until it expires.
    fn add_hold(&self, loaded: &mut Loaded, time: Timestamp) {
        let end = loaded.window.end;
        let output_time = self.cells.strategy.output_time;
        let hold = if output_time == OutputTime::EndOfWindow { end } else { time.min(end) };
        let too_late = hold < self.clocks.output_watermark || end < self.clocks.input_watermark;
        if too_late {
            self.add_expiry_hold(loaded);
        } else {
            loaded.now.element_hold = combine_holds(output_time, loaded.now.element_hold, Some(hold));
        }
    }

    pub(super) fn add_expiry_hold(&self, loaded: &mut Loaded) {
        let expiry = self.cells.expiry(&loaded.window);
        if expiry >= self.clocks.input_watermark {
            loaded.now.extra_hold = Some(expiry);
        }
    }

    /// Writes values as new chunks.
    fn append<'v>(&mut self, key: &[u8], now: &mut WindowState, values: impl Iterator<Item = &'v [u8]>) {
        let mut values = values.peekable();
        while values.peek().is_some() {
            let mut chunk = Vec::new();
            while chunk.len() < CHUNK_BYTES
                && let Some(value) = values.next()
            {
                chunk.extend_from_slice(value);
            }
            if now.buffers.last().is_none_or(|buffer| buffer.chunks == u32::MAX) {
                now.buffers.push(Buffer { number: self.changes.next_buffer, chunks: 0 });
                self.changes.next_buffer += 1;
            }
            let buffer = now.buffers.last_mut().expect("one was pushed if there was none");
            let name = names::numbered(&self.cells.names.buffer(key, buffer.number), buffer.chunks);
            buffer.chunks += 1;
            now.bytes += chunk.len() as u64;
            self.state.put(name, Some(Bytes::from(chunk)));
        }
    }

    /// Merges the batch's windows with the active ones of the key, and sends each row to the result. See 5.5.
    fn merge(
        &mut self,
        merges: Merges,
        key: &[u8],
        new: BTreeMap<Window, Vec<Arrival>>,
    ) -> Result<BTreeMap<Window, Vec<Arrival>>, Error> {
        let active = self.active(key)?;
        let windows = active.iter().chain(new.keys()).cloned();
        let all_merged = match merges {
            Merges::Sessions => merging::sessions(windows)?,
            Merges::Asked => merging::asked(windows, self.cells.window_coder, self.merger)?,
        };
        let mut now_active = active.clone();
        let mut by_result = BTreeMap::new();
        for merged in all_merged {
            let rows: Vec<_> = merged.sources.iter().filter_map(|source| new.get(source)).flatten().copied().collect();
            if rows.is_empty() {
                continue;
            }
            let was_active = merged.sources.iter().any(|source| active.contains(source));
            if was_active && !merged.is_same() {
                self.merge_into(key, &merged, &active)?;
            }
            for source in &merged.sources {
                now_active.remove(source);
            }
            if was_active || !self.load(key, &merged.result)?.now.is_closed() {
                now_active.insert(merged.result.clone());
            }
            by_result.insert(merged.result, in_order(rows));
        }
        if now_active != active {
            self.set_active(key, &now_active);
        }
        Ok(by_result)
    }

    /// Moves what the active sources have into the result.
    fn merge_into(&mut self, key: &[u8], merged: &Merged, active: &BTreeSet<Window>) -> Result<(), Error> {
        let output_time = self.cells.strategy.output_time;
        let mut result = self.load(key, &merged.result)?;
        // What is left of a window that has closed is its timer.
        let own = if active.contains(&merged.result) { Some(result.now.clone()) } else { None };
        let timers = std::mem::take(&mut result.now.timers);
        result.now = WindowState::new(&self.cells.tree);
        result.now.timers = timers;
        let mut slots = Vec::new();
        for source in merged.sources.iter().filter(|source| active.contains(*source)) {
            let source = match &own {
                Some(own) if *source == merged.result => own.clone(),
                _ => {
                    let loaded = self.load(key, source)?;
                    let now = loaded.now.clone();
                    self.delete(key, loaded);
                    now
                }
            };
            result.now.buffers.extend(source.buffers);
            result.now.values += source.values;
            result.now.bytes += source.bytes;
            result.now.since_pane += source.since_pane;
            result.now.element_hold = combine_holds(output_time, result.now.element_hold, source.element_hold);
            slots.push(source.slots);
        }
        if let Some(own) = own {
            (result.now.slots, result.now.pane) = (own.slots, own.pane);
        }
        if output_time == OutputTime::EndOfWindow {
            result.now.element_hold = Some(result.window.end);
        }
        self.add_expiry_hold(&mut result);
        self.machine(&mut result).on_merge(&slots);
        self.store(key, result);
        Ok(())
    }

    /// Windows of a key that may merge: those with state whose trigger has not finished.
    fn active(&self, key: &[u8]) -> Result<BTreeSet<Window>, Error> {
        let mut active = BTreeSet::new();
        if let Some(cell) = self.state.get(&self.cells.names.active(key))? {
            let mut reader = Reader::new(&cell);
            while !reader.is_empty() {
                let bytes = cell.slice_ref(reader.length_prefixed()?);
                active.insert(Window::new(self.cells.window_coder, bytes)?);
            }
        }
        Ok(active)
    }

    fn set_active(&mut self, key: &[u8], active: &BTreeSet<Window>) {
        let mut cell = Vec::new();
        for window in active {
            put_length_prefixed(&mut cell, &window.bytes);
        }
        self.state.put(self.cells.names.active(key), if cell.is_empty() { None } else { Some(cell.into()) });
    }

    /// The window has closed or expired: new windows do not merge with it.
    pub(super) fn deactivate(&mut self, key: &[u8], window: &Window) -> Result<(), Error> {
        if self.cells.merges.is_some() {
            let mut active = self.active(key)?;
            if active.remove(window) {
                self.set_active(key, &active);
            }
        }
        Ok(())
    }
}

/// Rows of several windows, in the order in which they came.
fn in_order(mut rows: Vec<Arrival>) -> Vec<Arrival> {
    rows.sort_by_key(Arrival::place);
    rows
}
