//! Timers come due: `ReduceFnRunner.onTimers`.
//!
//! A key and window is looked at once for all of its timers that are due. What a call does not get to, because it has
//! fired enough, stays due.

use bytes::Bytes;
use model::time::encode_millis;

use super::super::Error;
use super::super::names::{self, Domain};
use super::{Bundle, SCAN_BYTES_MAX, SCAN_CELLS_MAX};
use crate::arrivals::Window;

impl Bundle<'_> {
    /// Batches of earlier calls that made a trigger ready.
    pub(super) fn fire_deferred(&mut self) -> Result<(), Error> {
        match self.cells.index.deferred() {
            true => self.fire(Domain::Deferred, [0; 8], [u8::MAX; 8]),
            false => Ok(()),
        }
    }

    /// Ends and expiries that the input watermark has passed. This call may have set the first of them.
    pub(super) fn fire_event_timers(&mut self) -> Result<(), Error> {
        let set = self.changes.indexed.iter().filter_map(|(_, now)| now.as_ref()).flat_map(|now| now.events());
        let Some(first) = set.chain(self.cells.index.next_event()).min() else {
            return Ok(());
        };
        self.fire(Domain::Event, first.encode(), self.clocks.input_watermark.encode())
    }

    /// Processing times that have passed.
    pub(super) fn fire_processing_timers(&mut self) -> Result<(), Error> {
        match self.cells.index.next_processing() {
            Some(first) => self.fire(Domain::Processing, encode_millis(first), encode_millis(self.clocks.now_ms)),
            None => Ok(()),
        }
    }

    fn fire(&mut self, domain: Domain, first: [u8; 8], end: [u8; 8]) -> Result<(), Error> {
        if first >= end {
            return Ok(());
        }
        let (mut from, end) = (self.cells.names.timers(domain, first), self.cells.names.timers(domain, end));
        loop {
            let page = self.state.scan(&from, &end, SCAN_CELLS_MAX, SCAN_BYTES_MAX)?;
            let Some((last, _)) = page.last() else {
                return Ok(());
            };
            from = names::behind(last);
            for (timer, _) in page {
                if self.panes.full() {
                    return Ok(());
                }
                let (key, window) = self.cells.split(&timer.slice(names::TIMER_BEGINNING..))?;
                self.on_timers(timer, &key, &window)?;
            }
        }
    }

    fn on_timers(&mut self, timer: Bytes, key: &[u8], window: &Window) -> Result<(), Error> {
        // An earlier timer of this page may have taken this one along.
        if self.state.get(&timer)?.is_none() {
            return Ok(());
        }
        let mut loaded = self.load(key, window)?;
        if loaded.before.is_none() {
            return Err(Error::Corrupt("a timer is set for a window without state".into()));
        }
        self.panes.count_key();
        let (end, expiry) = (window.end, self.cells.expiry(window));
        let input_watermark = self.clocks.input_watermark;
        if input_watermark > expiry {
            if !loaded.now.is_closed() {
                self.emit(key, &mut loaded, true)?;
            }
            self.delete(key, loaded);
            return Ok(());
        }
        let timers = &mut loaded.now.timers;
        timers.deferred = false;
        timers.end &= input_watermark <= end;
        timers.processing = timers.processing.split_off(&self.clocks.now_ms);
        if !loaded.now.is_closed() && self.machine(&mut loaded).should_fire() {
            self.emit(key, &mut loaded, false)?;
        }
        if input_watermark > end && self.clocks.output_watermark <= end {
            loaded.now.timers.expiry = true;
        }
        self.store(key, loaded);
        Ok(())
    }
}
