//! What one process keeps in memory of one job's log: for every shard, the entries with rows that remain, the latest
//! watermark reports, what its owner has not polled yet, and who that owner is.
//!
//! Adapters wrap it: they make a commit durable between [`Log::begin`] and [`Writing::publish`]. `P` is whatever stands
//! for a payload. Deliberately not here: state, payload bytes, disk.
//!
//! ```text
//!  take_over ──► recover ──► poll, poll, ...          one owner per shard; a later take_over ends it
//!  begin ──► (adapter writes) ──► publish ──► wake    one commit at a time per shard, shards in parallel
//! ```

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use model::{ShardId, StageId, Timestamp};

use crate::contract::*;
use crate::rows;

/// Called when a poll may find something. See [`JobLedger::shard`].
pub type Wake = Arc<dyn Fn() + Send + Sync>;

/// Names one ownership of one shard; a later owner has a greater one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Owner(u64);

/// A new entry on its way to its readers.
#[derive(Clone, Debug)]
pub struct NewEntry<P> {
    /// Who reads it.
    pub to: Destination,
    /// What they see of it.
    pub header: EntryHeader,
    /// What stands for its payload.
    pub payload: P,
}

/// What remains of an entry after a commit. No ranges: the entry is forgotten.
pub type Remains = BTreeMap<Position, Vec<Range<u32>>>;

/// The log of one job. See the file's head.
pub struct Log<P> {
    shards: Vec<ShardLog<P>>,
    /// Payloads of all broadcast entries, whoever has consumed them.
    broadcast: Mutex<BTreeMap<u64, P>>,
}

struct ShardLog<P> {
    /// Held through a commit of the shard; its content is the owner that may commit.
    writer: Mutex<Owner>,
    /// Short sections only. Several are locked in order of shards.
    inbox: Mutex<Inbox<P>>,
    /// Whether the inbox has arrivals; false is certain only to the owner's own eyes after a poll.
    arrived: AtomicBool,
}

struct Inbox<P> {
    owner: Owner,
    /// Whether the owner has recovered; only then arrivals are collected.
    listening: bool,
    wake: Option<Wake>,
    entries: BTreeMap<Position, (EntryHeader, P)>,
    reports: BTreeMap<(StageId, ShardId), Timestamp>,
    arrivals: VecDeque<Arrived>,
}

enum Arrived {
    Entry(Position),
    Watermark(WatermarkReport),
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<P: Clone> Log<P> {
    /// The empty log of a job with that many shards.
    pub fn new(shards: u32) -> Self {
        let shard = || ShardLog {
            writer: Mutex::default(),
            inbox: Mutex::new(Inbox {
                owner: Owner::default(),
                listening: false,
                wake: None,
                entries: BTreeMap::new(),
                reports: BTreeMap::new(),
                arrivals: VecDeque::new(),
            }),
            arrived: AtomicBool::new(false),
        };
        Log { shards: (0..shards).map(|_| shard()).collect(), broadcast: Mutex::default() }
    }

    /// Number of shards.
    pub fn shards(&self) -> u32 {
        self.shards.len() as u32
    }

    /// Puts back an entry that a shard has not consumed, as read from disk. Not for use once the shard has an owner.
    pub fn restore_entry(&self, shard: ShardId, header: EntryHeader, payload: P) {
        lock(&self.shards[shard.0 as usize].inbox).entries.insert(header.position, (header, payload));
    }

    /// Puts back the payload of a broadcast entry.
    pub fn restore_broadcast(&self, offset: u64, payload: P) {
        lock(&self.broadcast).insert(offset, payload);
    }

    /// Puts back a report, for all shards.
    pub fn restore_report(&self, report: WatermarkReport) {
        for shard in &self.shards {
            lock(&shard.inbox).reports.insert((report.stage, report.shard), report.watermark);
        }
    }

    /// Makes a new owner of a shard and fences the one before. Waits for a commit of that one which is under way.
    pub fn take_over(&self, shard: ShardId, wake: Wake) -> Result<Owner, Error> {
        let this = self.shards.get(shard.0 as usize).ok_or_else(|| Error::Missing(shard.to_string()))?;
        Ok(this.change_owner(Some(wake)))
    }

    /// Fences the owners of all shards and makes nobody the owner.
    pub fn fence_all(&self) {
        self.shards.iter().for_each(|shard| {
            shard.change_owner(None);
        });
    }

    /// See [`ShardLedger::recover`].
    pub fn recover(&self, shard: ShardId, owner: Owner) -> Result<Recovered, Error> {
        let this = &self.shards[shard.0 as usize];
        let mut inbox = lock(&this.inbox);
        if inbox.owner != owner {
            return Err(Error::Storage(format!("{shard} was taken over before it was recovered")));
        }
        inbox.arrivals.clear();
        inbox.listening = true;
        this.arrived.store(false, Ordering::Release);
        let entries = inbox.entries.values().map(|(header, _)| header.clone()).collect();
        let report =
            |(&(stage, shard), &watermark): (&(StageId, ShardId), &Timestamp)| WatermarkReport { stage, shard, watermark };
        Ok(Recovered { entries, reports: inbox.reports.iter().map(report).collect() })
    }

    /// See [`ShardLedger::poll`].
    pub fn poll(&self, shard: ShardId, owner: Owner, arrivals_max: usize) -> Vec<Arrival> {
        let this = &self.shards[shard.0 as usize];
        if !this.arrived.load(Ordering::Acquire) {
            return Vec::new();
        }
        let mut inbox = lock(&this.inbox);
        if inbox.owner != owner {
            return Vec::new();
        }
        let count = inbox.arrivals.len().min(arrivals_max);
        let polled = inbox.arrivals.drain(..count).collect::<Vec<_>>();
        this.arrived.store(!inbox.arrivals.is_empty(), Ordering::Release);
        let header = |position| inbox.entries.get(&position).map(|(header, _)| Arrival::Entry(header.clone()));
        polled
            .into_iter()
            .filter_map(|arrived| match arrived {
                Arrived::Entry(position) => header(position),
                Arrived::Watermark(report) => Some(Arrival::Watermark(report)),
            })
            .collect()
    }

    /// What stands for the payload of an entry that still has rows.
    pub fn payload(&self, shard: ShardId, position: Position) -> Result<P, Error> {
        let inbox = lock(&self.shards[shard.0 as usize].inbox);
        let missing = || Error::Missing(format!("entry {} of {shard} ({:?})", position.offset, position.partition));
        inbox.entries.get(&position).map(|(_, payload)| payload.clone()).ok_or_else(missing)
    }

    /// What stands for the payload of a broadcast entry.
    pub fn broadcast_payload(&self, offset: u64) -> Result<P, Error> {
        let payload = lock(&self.broadcast).get(&offset).cloned();
        payload.ok_or_else(|| Error::Missing(format!("broadcast entry {offset}")))
    }

    /// Starts a commit: checks it against the log and keeps other commits and new owners of the shard out until the
    /// result is published or dropped.
    pub fn begin(&self, shard: ShardId, owner: Owner, commit: &Commit) -> Result<Writing<'_, P>, CommitError> {
        commit.check(shard, self.shards())?;
        let this = &self.shards[shard.0 as usize];
        let writer = lock(&this.writer);
        if *writer != owner {
            return Err(CommitError::Fenced);
        }
        let remains = lock(&this.inbox).remains(&commit.consumed)?;
        Ok(Writing { log: self, shard, remains, _writer: writer })
    }
}

impl<P> ShardLog<P> {
    fn change_owner(&self, wake: Option<Wake>) -> Owner {
        let mut writer = lock(&self.writer);
        let mut inbox = lock(&self.inbox);
        writer.0 += 1;
        inbox.owner = *writer;
        inbox.listening = false;
        inbox.wake = wake;
        inbox.arrivals.clear();
        *writer
    }
}

impl<P> Inbox<P> {
    /// What would remain of the entries that are consumed.
    fn remains(&self, consumed: &[Consumed]) -> Result<Remains, CommitError> {
        let mut remains = Remains::new();
        for Consumed { position, rows } in consumed {
            let before = match remains.get(position) {
                Some(left) => left.as_slice(),
                None => self.entries.get(position).map(|(header, _)| header.remaining.as_slice()).unwrap_or_default(),
            };
            let left = rows::subtract(before, rows).ok_or_else(|| {
                CommitError::Fatal(format!("rows {rows:?} of entry {position:?} are consumed, but {before:?} remain"))
            })?;
            remains.insert(*position, left);
        }
        Ok(remains)
    }

    /// Takes consumed rows away and hands back the payloads of entries that are forgotten.
    fn settle(&mut self, remains: Remains) -> Vec<P> {
        let mut forgotten = Vec::new();
        for (position, left) in remains {
            if left.is_empty() {
                forgotten.extend(self.entries.remove(&position).map(|(_, payload)| payload));
            } else if let Some((header, _)) = self.entries.get_mut(&position) {
                header.remaining = left;
            }
        }
        forgotten
    }

    fn deliver_entry(&mut self, header: EntryHeader, payload: P) {
        if self.listening {
            self.arrivals.push_back(Arrived::Entry(header.position));
        }
        self.entries.insert(header.position, (header, payload));
    }

    fn deliver_report(&mut self, report: WatermarkReport) {
        let producer = (report.stage, report.shard);
        if self.reports.get(&producer).is_some_and(|latest| *latest >= report.watermark) {
            return;
        }
        self.reports.insert(producer, report.watermark);
        if self.listening {
            self.arrivals.push_back(Arrived::Watermark(report));
        }
    }
}

/// A commit between its check and its publication.
pub struct Writing<'a, P> {
    log: &'a Log<P>,
    shard: ShardId,
    remains: Remains,
    _writer: MutexGuard<'a, Owner>,
}

impl<P: Clone> Writing<'_, P> {
    /// What will remain of every entry that the commit consumes from.
    pub fn remains(&self) -> &Remains {
        &self.remains
    }

    /// Whether nothing of an entry was consumed before.
    pub fn is_whole(&self, position: Position) -> bool {
        let inbox = lock(&self.log.shards[self.shard.0 as usize].inbox);
        inbox.entries.get(&position).is_some_and(|(header, _)| rows::count(&header.remaining) == u64::from(header.rows))
    }

    /// Of every (stage, shard) the latest report, if it is later than all that were committed before.
    pub fn latest_reports(&self, reports: &[WatermarkReport]) -> Vec<WatermarkReport> {
        let inbox = lock(&self.log.shards[self.shard.0 as usize].inbox);
        let mut latest: BTreeMap<(StageId, ShardId), WatermarkReport> = BTreeMap::new();
        for report in reports {
            let producer = (report.stage, report.shard);
            let before = latest.get(&producer).map(|report| report.watermark).or(inbox.reports.get(&producer).copied());
            if before.is_none_or(|before| before < report.watermark) {
                latest.insert(producer, *report);
            }
        }
        latest.into_values().collect()
    }

    /// Makes the commit visible: to all shards at one moment, so that nobody sees an answer before the question. Then
    /// wakes whoever was sent something.
    pub fn publish(self, entries: Vec<NewEntry<P>>, reports: &[WatermarkReport]) {
        let everyone = !reports.is_empty() || entries.iter().any(|entry| entry.to == Destination::Broadcast);
        let mut reached = vec![everyone; self.log.shards.len()];
        for entry in &entries {
            if let Destination::Shard(shard) = entry.to {
                reached[shard.0 as usize] = true;
            }
        }
        let own = self.shard.0 as usize;
        reached[own] = true;
        let mut inboxes: Vec<Option<MutexGuard<'_, Inbox<P>>>> =
            self.log.shards.iter().zip(&reached).map(|(shard, reached)| reached.then(|| lock(&shard.inbox))).collect();

        let forgotten = inboxes[own].as_mut().map(|inbox| inbox.settle(self.remains));
        for NewEntry { to, header, payload } in entries {
            match to {
                Destination::Shard(shard) => {
                    if let Some(inbox) = &mut inboxes[shard.0 as usize] {
                        inbox.deliver_entry(header, payload);
                    }
                }
                Destination::Broadcast => {
                    for inbox in inboxes.iter_mut().flatten() {
                        inbox.deliver_entry(header.clone(), payload.clone());
                    }
                    lock(&self.log.broadcast).insert(header.position.offset, payload);
                }
            }
        }
        for inbox in inboxes.iter_mut().flatten() {
            reports.iter().for_each(|report| inbox.deliver_report(*report));
        }

        let mut wakes = Vec::new();
        for (inbox, shard) in inboxes.iter().zip(&self.log.shards) {
            let Some(inbox) = inbox else { continue };
            if !inbox.arrivals.is_empty() {
                shard.arrived.store(true, Ordering::Release);
                wakes.extend(inbox.wake.clone());
            }
        }
        drop(inboxes);
        wakes.iter().for_each(|wake| wake());
        // Freeing payloads may take time and locks of the adapter: not under ours.
        drop(forgotten);
    }
}
