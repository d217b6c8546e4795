//! Payloads of all jobs, staged or in the log: in memory up to a budget, on disk beyond it.
//!
//! ```text
//!            keep                relieve (oldest first)
//!  new ────────────► in memory ──────────────────────────► on disk only
//!                     │    ▲ └───► in memory and on disk ───────▲ │
//!                     │    │       (durable: by its commit)       │ fetch, while there is room
//!                     │    └──────────────────────────────────────┘
//!  dropped: the memory is free at once, the disk with the next commit ([`Payloads::bury`])
//! ```
//!
//! A payload is shared by the entries and the staged handles that refer to it and is gone with the last of them.
//! Payloads of a process that ended are on disk until a commit that consumes them, or, when no entry refers to them, until
//! the ledger is opened again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use bytes::Bytes;
use ledger::{Error, StagedHandle};

use crate::keys::{self, JobNumber};
use crate::store::{self, Store, Table};

/// Bytes of an encoded batch per row of the payload table.
const CHUNK_BYTES: usize = 1 << 20;
/// Payloads above this many bytes are written ahead of their commit, chunk by chunk.
pub(crate) const AHEAD_BYTES_MIN: u64 = 1 << 20;
/// Payloads of a commit that has this many bytes already are written ahead of it too.
pub(crate) const COMMIT_BYTES_MAX: usize = 8 << 20;
/// Stored bytes that wait to be deleted by a commit that would otherwise write nothing, at most.
const CONDEMNED_BYTES_MAX: u64 = 8 << 20;
/// Stored payloads that wait likewise, at most.
const CONDEMNED_MAX: usize = 256;

/// Bytes that are deleted between two sweeps for files that can be dropped.
const SWEEP_BYTES: u64 = 32 << 20;
/// Stretches without live payloads that one sweep looks at, at most.
const SWEEP_STRETCHES_MAX: usize = 64;

/// The job of a payload, and whether it is gone: then its payloads need neither be kept nor deleted one by one.
#[derive(Debug)]
pub(crate) struct JobMark {
    pub(crate) number: JobNumber,
    gone: AtomicBool,
}

impl JobMark {
    pub(crate) fn new(number: JobNumber) -> Arc<Self> {
        Arc::new(JobMark { number, gone: AtomicBool::new(false) })
    }

    /// Set before the job's rows are deleted.
    pub(crate) fn set_gone(&self) {
        self.gone.store(true, Ordering::SeqCst);
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::SeqCst)
    }
}

/// All payloads of one process.
pub(crate) struct Payloads {
    store: Arc<Store>,
    memory_bytes_max: u64,
    /// Locked after the place of a payload, never before.
    kept: Mutex<Kept>,
    condemned: Mutex<Condemned>,
}

/// Payloads in memory, by the time when they were put there.
#[derive(Default)]
struct Kept {
    order: BTreeMap<u64, (Weak<Payload>, u64)>,
    bytes: u64,
    next_ticket: u64,
    /// Every payload that is or may come to be on disk.
    live: BTreeSet<(JobNumber, u64)>,
}

#[derive(Default)]
struct Condemned {
    stored: Vec<Stored>,
    bytes: u64,
    /// Deleted since the last sweep: the first and last of each job, and the bytes of all.
    deleted: BTreeMap<JobNumber, (u64, u64)>,
    deleted_bytes: u64,
}

/// A payload's rows on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stored {
    job: JobNumber,
    number: u64,
    chunks: u32,
    encoded_bytes: u64,
}

/// One batch, wherever it is.
pub(crate) struct Payload {
    home: Arc<Payloads>,
    /// The job that it belongs to.
    pub(crate) mark: Arc<JobMark>,
    /// Its name on disk.
    pub(crate) number: u64,
    bytes: u64,
    place: Mutex<Place>,
}

#[derive(Default)]
struct Place {
    /// The batch, and its ticket in [`Kept::order`].
    memory: Option<(model::Batch, u64)>,
    disk: Option<Stored>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Payloads {
    pub(crate) fn new(store: Arc<Store>, memory_bytes_max: u64) -> Self {
        Payloads { store, memory_bytes_max, kept: Mutex::default(), condemned: Mutex::default() }
    }

    /// Takes a batch into memory. The caller relieves afterwards.
    pub(crate) fn keep(self: &Arc<Self>, mark: &Arc<JobMark>, batch: model::Batch) -> Arc<Payload> {
        let payload = self.payload(mark, self.store.next_number(), batch.memory_bytes() as u64, None);
        payload.remember(&mut lock(&payload.place), batch);
        payload
    }

    /// A payload that was on disk before this process began.
    pub(crate) fn found(self: &Arc<Self>, mark: &Arc<JobMark>, stored: Stored, bytes: u64) -> Arc<Payload> {
        self.payload(mark, stored.number, bytes, Some(stored))
    }

    fn payload(self: &Arc<Self>, mark: &Arc<JobMark>, number: u64, bytes: u64, disk: Option<Stored>) -> Arc<Payload> {
        lock(&self.kept).live.insert((mark.number, number));
        let place = Mutex::new(Place { memory: None, disk });
        Arc::new(Payload { home: self.clone(), mark: mark.clone(), number, bytes, place })
    }

    /// Moves the oldest payloads to disk until the rest is within the budget.
    pub(crate) fn relieve(&self) -> Result<(), Error> {
        loop {
            let (ticket, oldest) = {
                let mut kept = lock(&self.kept);
                if kept.bytes <= self.memory_bytes_max {
                    return Ok(());
                }
                let Some((ticket, (oldest, bytes))) = kept.order.pop_first() else { return Ok(()) };
                kept.bytes -= bytes;
                (ticket, oldest)
            };
            // Gone meanwhile: its memory is free already.
            if let Some(payload) = oldest.upgrade() {
                payload.leave_memory(ticket)?;
            }
        }
    }

    /// Adds the deletion of payloads that nothing refers to any more to a commit: of all when `eager`, else only when they
    /// have become many. Once that is written they go to [`Payloads::buried`], else back to [`Payloads::condemn`].
    pub(crate) fn bury(&self, eager: bool, writes: &mut store::Writes<'_>) -> Vec<Stored> {
        let mut condemned = lock(&self.condemned);
        if !eager && condemned.bytes <= CONDEMNED_BYTES_MAX && condemned.stored.len() <= CONDEMNED_MAX {
            return Vec::new();
        }
        condemned.bytes = 0;
        let stored = std::mem::take(&mut condemned.stored);
        drop(condemned);
        stored.iter().for_each(|stored| stored.delete(self.store.durable(), writes));
        stored
    }

    /// Notes that the deletions of [`Payloads::bury`] were written. When they have become many, files without live
    /// payloads are dropped, so that a backlog which was worked off does not stay on disk until RocksDB gets to it.
    pub(crate) fn buried(&self, stored: &[Stored]) -> Result<(), Error> {
        let deleted = {
            let mut condemned = lock(&self.condemned);
            for Stored { job, number, encoded_bytes, .. } in stored {
                let (first, last) = condemned.deleted.entry(*job).or_insert((*number, *number));
                (*first, *last) = ((*first).min(*number), (*last).max(*number));
                condemned.deleted_bytes += encoded_bytes;
            }
            if condemned.deleted_bytes < SWEEP_BYTES {
                return Ok(());
            }
            condemned.deleted_bytes = 0;
            std::mem::take(&mut condemned.deleted)
        };
        for (job, (first, last)) in deleted {
            for (from, to) in self.stretches_without_life(job, first, last) {
                self.store.free_range(Table::Payloads, &keys::chunk(job, from, 0), &keys::chunk(job, to, u32::MAX))?;
            }
        }
        Ok(())
    }

    /// Ranges of numbers of a job, ends included, that touch `[first, last]` and hold no live payload.
    fn stretches_without_life(&self, job: JobNumber, first: u64, last: u64) -> Vec<(u64, u64)> {
        let kept = lock(&self.kept);
        let before = kept.live.range((job, 0)..(job, first)).next_back().map_or(0, |(_, number)| number + 1);
        let behind = (job, last)..=(job, u64::MAX);
        let after = kept.live.range(behind).find(|(_, number)| *number > last).map_or(u64::MAX, |(_, number)| *number);
        let mut stretches = Vec::new();
        let mut from = before;
        for number in kept.live.range((job, first)..=(job, last)).map(|(_, number)| *number).chain([after]) {
            if from < number && stretches.len() < SWEEP_STRETCHES_MAX {
                stretches.push((from, number - 1));
            }
            from = number.saturating_add(1);
        }
        stretches
    }

    /// Remembers payloads to be deleted from disk.
    pub(crate) fn condemn(&self, stored: impl IntoIterator<Item = Stored>) {
        let mut condemned = lock(&self.condemned);
        for stored in stored {
            condemned.bytes += stored.encoded_bytes;
            condemned.stored.push(stored);
        }
    }

    /// Bytes of payloads in memory.
    pub(crate) fn memory_bytes(&self) -> u64 {
        lock(&self.kept).bytes
    }

    /// Encoded bytes on disk that wait to be deleted.
    pub(crate) fn condemned_bytes(&self) -> u64 {
        lock(&self.condemned).bytes
    }

    fn has_room_for(&self, bytes: u64) -> bool {
        lock(&self.kept).bytes + bytes <= self.memory_bytes_max
    }
}

impl Stored {
    pub(crate) fn new(job: JobNumber, number: u64, (chunks, encoded_bytes): (u32, u64)) -> Self {
        Stored { job, number, chunks, encoded_bytes }
    }

    /// Adds the deletion of all its rows.
    pub(crate) fn delete(&self, durable: bool, writes: &mut store::Writes<'_>) {
        for chunk in 0..self.chunks {
            writes.delete(Table::Payloads, &keys::chunk(self.job, self.number, chunk));
        }
        if durable {
            writes.delete(Table::Log, &keys::payload(self.job, self.number));
        }
    }

    fn put_listing(&self, writes: &mut store::Writes<'_>) {
        writes.put(Table::Log, &keys::payload(self.job, self.number), &keys::encode_stored(self.chunks, self.encoded_bytes));
    }

    fn read(&self, store: &Store) -> Result<model::Batch, Error> {
        let mut encoded = Vec::with_capacity(self.encoded_bytes as usize);
        for chunk in 0..self.chunks {
            if !store.append_to(Table::Payloads, &keys::chunk(self.job, self.number, chunk), &mut encoded)? {
                return Err(Error::Corrupt(format!("chunk {chunk} of {} of payload {} is gone", self.chunks, self.number)));
            }
        }
        let batch = model::Batch::decode(&Bytes::from(encoded));
        batch.map_err(|error| Error::Corrupt(format!("payload {} cannot be read: {error}", self.number)))
    }
}

impl Payload {
    /// The batch, from memory or from disk.
    pub(crate) fn batch(self: &Arc<Self>) -> Result<model::Batch, Error> {
        let mut place = lock(&self.place);
        match (&place.memory, place.disk) {
            (Some((batch, _)), _) => Ok(batch.clone()),
            (None, Some(stored)) => {
                let batch = stored.read(&self.home.store)?;
                if self.home.has_room_for(self.bytes) {
                    self.remember(&mut place, batch.clone());
                }
                Ok(batch)
            }
            (None, None) => Err(Error::Missing(format!("payload {}", self.number))),
        }
    }

    /// Whether it belongs to these payloads.
    pub(crate) fn is_in(&self, payloads: &Arc<Payloads>) -> bool {
        Arc::ptr_eq(&self.home, payloads)
    }

    /// Writes it ahead of its commit, unless it is on disk already.
    pub(crate) fn write_ahead(&self) -> Result<(), Error> {
        self.store(&mut lock(&self.place))
    }

    /// Adds its rows to its commit, unless they are on disk already. Once that is written, the result goes to
    /// [`Payload::is_stored`].
    pub(crate) fn put(&self, writes: &mut store::Writes<'_>) -> Option<Stored> {
        let place = lock(&self.place);
        let (Some((rows, _)), None) = (&place.memory, place.disk) else { return None };
        let mut encoded = Vec::with_capacity(self.bytes as usize + 64);
        rows.encode(&mut encoded);
        let stored = self.stored(&encoded);
        for (chunk, piece) in encoded.chunks(CHUNK_BYTES).enumerate() {
            writes.put(Table::Payloads, &keys::chunk(self.mark.number, self.number, chunk as u32), piece);
        }
        stored.put_listing(writes);
        Some(stored)
    }

    /// Notes that its rows were written.
    pub(crate) fn is_stored(&self, stored: Stored) {
        lock(&self.place).disk = Some(stored);
    }

    fn stored(&self, encoded: &[u8]) -> Stored {
        let chunks = encoded.len().div_ceil(CHUNK_BYTES) as u32;
        Stored { job: self.mark.number, number: self.number, chunks, encoded_bytes: encoded.len() as u64 }
    }

    fn store(&self, place: &mut Place) -> Result<(), Error> {
        let (Some((rows, _)), None) = (&place.memory, place.disk) else { return Ok(()) };
        if self.mark.is_gone() {
            return Ok(());
        }
        let store = &self.home.store;
        let mut encoded = Vec::with_capacity(self.bytes as usize + 64);
        rows.encode(&mut encoded);
        let stored = self.stored(&encoded);
        let mut writes = store.writes();
        if store.durable() {
            // First, so that a process that dies between two chunks leaves something to clean up by.
            stored.put_listing(&mut writes);
        }
        for (chunk, piece) in encoded.chunks(CHUNK_BYTES).enumerate() {
            writes.put(Table::Payloads, &keys::chunk(self.mark.number, self.number, chunk as u32), piece);
            store.write_ahead(std::mem::replace(&mut writes, store.writes()))?;
        }
        place.disk = Some(stored);
        Ok(())
    }

    fn remember(self: &Arc<Self>, place: &mut Place, batch: model::Batch) {
        let mut kept = lock(&self.home.kept);
        let ticket = kept.next_ticket;
        kept.next_ticket += 1;
        kept.bytes += self.bytes;
        kept.order.insert(ticket, (Arc::downgrade(self), self.bytes));
        place.memory = Some((batch, ticket));
    }

    fn leave_memory(self: &Arc<Self>, ticket: u64) -> Result<(), Error> {
        let mut place = lock(&self.place);
        if place.memory.as_ref().is_none_or(|(_, current)| *current != ticket) {
            return Ok(());
        }
        let stored = self.store(&mut place);
        let batch = place.memory.take();
        if let (Err(_), Some((batch, _))) = (&stored, batch) {
            // It has to stay, over the budget.
            self.remember(&mut place, batch);
        }
        stored
    }
}

impl Drop for Payload {
    fn drop(&mut self) {
        let place = std::mem::take(self.place.get_mut().unwrap_or_else(PoisonError::into_inner));
        let mut kept = lock(&self.home.kept);
        kept.live.remove(&(self.mark.number, self.number));
        // Its ticket is gone already when it is being moved to disk at this moment.
        if let Some((_, bytes)) = place.memory.and_then(|(_, ticket)| kept.order.remove(&ticket)) {
            kept.bytes -= bytes;
        }
        drop(kept);
        if let Some(stored) = place.disk
            && !self.mark.is_gone()
        {
            self.home.condemn([stored]);
        }
    }
}

impl std::fmt::Debug for Payload {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "payload {} of {:?}, {} bytes", self.number, self.mark.number, self.bytes)
    }
}

/// What [`ledger::Staged::handle`] holds.
#[derive(Debug)]
pub(crate) struct StagedPayload(pub(crate) Arc<Payload>);

impl StagedHandle for StagedPayload {
    fn as_any(&self) -> &dyn std::any::Any {
        self
    }
}
