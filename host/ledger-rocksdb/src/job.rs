//! One job: its log in memory, how that is read back from disk, and how all of it goes away.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ledger::log::{Log, Wake};
use ledger::{EntryHeader, Error, JobLedger, Partition, Position, ShardLedger, Staged};
use model::{Batch, DecodeError, JobId, ShardId};

use crate::Process;
use crate::keys::{self, JobNumber, LogKey};
use crate::payloads::{AHEAD_BYTES_MIN, JobMark, Payload, Payloads, StagedPayload, Stored};
use crate::shard::Shard;
use crate::store::{self, Store, Table};

/// One job, from its creation or the last purge to the next.
pub(crate) struct Job {
    pub(crate) id: JobId,
    /// Its number, and whether it was purged or removed.
    pub(crate) mark: Arc<JobMark>,
    pub(crate) log: Log<Arc<Payload>>,
    /// Whether there may be rows to delete, by table.
    wrote_state: AtomicBool,
    wrote_log: AtomicBool,
}

impl Job {
    /// A job that has not written anything.
    pub(crate) fn new(id: JobId, number: JobNumber, shards: u32) -> Self {
        let [wrote_state, wrote_log] = [const { AtomicBool::new(false) }; 2];
        Job { id, mark: JobMark::new(number), log: Log::new(shards), wrote_state, wrote_log }
    }

    /// A job as the process before left it. Payloads that no entry refers to are deleted.
    pub(crate) fn load(
        store: &Store,
        payloads: &Arc<Payloads>,
        id: &JobId,
        number: JobNumber,
        shards: u32,
    ) -> Result<Self, Error> {
        let job = Job::new(id.clone(), number, shards);
        job.wrote_state.store(true, Ordering::Relaxed);
        job.wrote_log.store(true, Ordering::Relaxed);
        let mut content = Content::default();
        let Range { start, end } = number.range();
        store.scan(Table::Log, &start, &end, |key, row| {
            content.add(key, row).map_err(|error| Error::Corrupt(format!("job {id}: {error}")))?;
            Ok(true)
        })?;
        let garbage = content.restore(&job, payloads)?;
        if !garbage.is_empty() {
            let mut writes = store.writes();
            garbage.iter().for_each(|stored| stored.delete(true, &mut writes));
            store.write_ahead(writes)?;
        }
        Ok(job)
    }

    /// Whether it is still the job of that name.
    pub(crate) fn check_open(&self) -> Result<(), Error> {
        match self.mark.is_gone() {
            false => Ok(()),
            true => Err(Error::Missing(format!("the log of job {}", self.id))),
        }
    }

    pub(crate) fn notes_state(&self) {
        self.wrote_state.store(true, Ordering::Relaxed);
    }

    pub(crate) fn notes_log(&self) {
        self.wrote_log.store(true, Ordering::Relaxed);
    }

    /// Ends all owners; commits that are under way are done when this returns.
    pub(crate) fn close(&self) {
        self.mark.set_gone();
        self.log.fence_all();
    }

    /// Adds the deletion of all its rows.
    pub(crate) fn delete(&self, writes: &mut store::Writes<'_>) {
        let Range { start, end } = self.mark.number.range();
        for table in self.written() {
            writes.delete_range(table, &start, &end);
        }
    }

    /// Gives the room of deleted rows back.
    pub(crate) fn free(&self, store: &Store) -> Result<(), Error> {
        let Range { start, end } = self.mark.number.range();
        self.written().try_for_each(|table| store.free_range(table, &start, &end))
    }

    fn written(&self) -> impl Iterator<Item = Table> {
        let state = self.wrote_state.load(Ordering::Relaxed).then_some([Table::State]);
        let log = self.wrote_log.load(Ordering::Relaxed).then_some([Table::Log, Table::Payloads]);
        state.into_iter().flatten().chain(log.into_iter().flatten())
    }
}

/// The rows of one job's log.
#[derive(Default)]
struct Content {
    stored: BTreeMap<u64, (u32, u64)>,
    own: Vec<(ShardId, EntryHeader, u64)>,
    broadcast: Vec<(EntryHeader, u64)>,
    remaining: BTreeMap<(ShardId, Position), Vec<Range<u32>>>,
    reports: Vec<ledger::WatermarkReport>,
}

impl Content {
    fn add(&mut self, key: &[u8], row: &[u8]) -> Result<(), DecodeError> {
        match keys::parse(key)? {
            LogKey::Payload(number) => {
                self.stored.insert(number, keys::decode_stored(row)?);
            }
            LogKey::Entry(shard, offset) => {
                let (header, payload) = keys::decode_entry(row, Position { partition: Partition::Own, offset })?;
                self.own.push((shard, header, payload));
            }
            LogKey::Broadcast(offset) => {
                self.broadcast.push(keys::decode_entry(row, Position { partition: Partition::Broadcast, offset })?);
            }
            LogKey::Remaining(shard, position) => {
                self.remaining.insert((shard, position), keys::decode_rows(row)?);
            }
            LogKey::Report(shard, stage) => self.reports.push(keys::decode_report(shard, stage, row)?),
        }
        Ok(())
    }

    /// Fills the job's log and answers with the payloads that nothing refers to.
    fn restore(mut self, job: &Job, payloads: &Arc<Payloads>) -> Result<Vec<Stored>, Error> {
        let corrupt = |what: String| Error::Corrupt(format!("job {}: {what}", job.id));
        let mut known: BTreeMap<u64, Arc<Payload>> = BTreeMap::new();
        let stored = std::mem::take(&mut self.stored);
        let mut payload = |number: u64, bytes: u64| {
            if let Some(payload) = known.get(&number) {
                return Ok(payload.clone());
            }
            let row = stored.get(&number).ok_or_else(|| corrupt(format!("payload {number} of an entry is gone")))?;
            let payload = payloads.found(&job.mark, Stored::new(job.mark.number, number, *row), bytes);
            known.insert(number, payload.clone());
            Ok(payload)
        };
        for (shard, mut header, number) in self.own {
            if shard.0 >= job.log.shards() {
                return Err(corrupt(format!("an entry is for {shard}")));
            }
            let payload = payload(number, header.bytes)?;
            if let Some(left) = self.remaining.remove(&(shard, header.position)) {
                header.remaining = left;
            }
            job.log.restore_entry(shard, header, payload);
        }
        for (header, number) in self.broadcast {
            let payload = payload(number, header.bytes)?;
            job.log.restore_broadcast(header.position.offset, payload.clone());
            for shard in (0..job.log.shards()).map(ShardId) {
                let mut header = header.clone();
                if let Some(left) = self.remaining.remove(&(shard, header.position)) {
                    header.remaining = left;
                }
                if !header.remaining.is_empty() {
                    job.log.restore_entry(shard, header, payload.clone());
                }
            }
        }
        self.reports.iter().for_each(|report| job.log.restore_report(*report));
        let garbage = stored.iter().filter(|(number, _)| !known.contains_key(number));
        Ok(garbage.map(|(number, row)| Stored::new(job.mark.number, *number, *row)).collect())
    }
}

/// A job as its users hold it.
#[derive(Clone)]
pub(crate) struct JobHandle {
    pub(crate) job: Arc<Job>,
    pub(crate) process: Arc<Process>,
}

impl JobLedger for JobHandle {
    fn shard(&self, shard: ShardId, wake: Wake) -> Result<Box<dyn ShardLedger>, Error> {
        self.job.check_open()?;
        let owner = self.job.log.take_over(shard, wake)?;
        Ok(Box::new(Shard { handle: self.clone(), shard, owner }))
    }

    fn stage(&self, batch: Batch) -> Result<Staged, Error> {
        self.job.check_open()?;
        let (rows, bytes) = (batch.rows() as u32, batch.memory_bytes() as u64);
        let payload = self.process.payloads().keep(&self.job.mark, batch);
        if self.process.store().durable() && bytes >= AHEAD_BYTES_MIN {
            payload.write_ahead()?;
        }
        self.job.notes_log();
        self.process.payloads().relieve()?;
        Ok(Staged { batch: None, handle: Some(Arc::new(StagedPayload(payload))), rows, bytes })
    }

    fn fetch_broadcast(&self, offset: u64) -> Result<Batch, Error> {
        self.job.check_open()?;
        self.job.log.broadcast_payload(offset)?.batch()
    }
}

#[cfg(test)]
mod tests {
    use ledger::{Append, Commit, Destination};
    use model::{StageId, Timestamp};

    use super::*;
    use crate::options::{Options, Sync};

    fn rows(value: &[u8]) -> Batch {
        let mut rows = model::BatchBuilder::new();
        let (windows, pane) = (model::window::GLOBAL_SET, model::pane::NO_FIRING);
        rows.push(model::batch::Row { value, timestamp: Timestamp::MIN, windows, pane });
        rows.finish()
    }

    fn payload_rows(store: &Store) -> usize {
        let mut count = 0;
        for table in [Table::Payloads, Table::Log] {
            let each = |key: &[u8], _: &[u8]| {
                count += usize::from(table == Table::Payloads || key[4] == keys::PAYLOADS);
                Ok(true)
            };
            store.scan(table, &[], &[0xff; 20], each).unwrap();
        }
        count
    }

    /// A payload of 3 MB is staged ahead; what the process leaves behind is one that is committed and one that is not.
    #[test]
    fn what_was_staged_and_not_committed_is_removed_at_open() {
        let folder = tempfile::TempDir::new().unwrap();
        let options = Options { sync: Sync::Off, ..Options::durable(folder.path()) };
        let store = Arc::new(Store::open(&options).unwrap());
        let payloads = Arc::new(Payloads::new(store.clone(), u64::MAX));
        let process = Arc::new(Process::for_tests(store.clone(), payloads.clone()));
        let (id, number) = (JobId::from("job"), JobNumber(3));
        let handle = JobHandle { job: Arc::new(Job::new(id.clone(), number, 1)), process };
        let kept = handle.stage(rows(&vec![1; 3 << 20])).unwrap();
        let garbage = handle.stage(rows(&vec![2; 3 << 20])).unwrap();
        assert_eq!(payload_rows(&store), 2 * (4 + 1));
        let append = Append {
            to: Destination::Shard(ShardId(0)),
            stage: StageId(0),
            input: 0,
            producer: StageId(0),
            payload: kept.clone(),
            hold: Timestamp::MAX,
            window_end: Timestamp::MAX,
            not_before_ms: None,
        };
        let mut owner = handle.shard(ShardId(0), Arc::new(|| {})).unwrap();
        owner.commit(&Commit { appends: vec![append], ..Commit::default() }).unwrap();
        // The next process: nobody else is reading or writing, and nothing was dropped.
        let job = Job::load(&store, &payloads, &id, number, 1).unwrap();
        assert_eq!(payload_rows(&store), 4 + 1);
        let owner = job.log.take_over(ShardId(0), Arc::new(|| {})).unwrap();
        let entries = job.log.recover(ShardId(0), owner).unwrap().entries;
        assert_eq!(entries.len(), 1);
        let found = job.log.payload(ShardId(0), entries[0].position).unwrap().batch().unwrap();
        assert_eq!(found, rows(&vec![1; 3 << 20]));
        drop((kept, garbage));
    }
}
