//! The embedded ledger: log, state and progress of all jobs of one process in one RocksDB, one write batch per commit.
//!
//! The only owner of RocksDB. It knows the ledger's contract and nothing of stages, plans or workers.
//!
//! ```text
//!  shard.rs     one owner's commits and polls         job.rs       one job: its log in memory, read back at open
//!  payloads.rs  batches within a memory budget        state.rs     committed cells
//!  store.rs     the database and its bounds           keys.rs      keys and rows
//!  folder.rs    locks, format, temporary folders      options.rs   what it is opened with
//! ```
//!
//! Headers of all entries that are not consumed are in memory ([`ledger::log`]), so polls never touch the disk, and a commit
//! is visible to other shards when its batch is written. A temporary ledger writes payloads only beyond the memory budget
//! and headers never; a durable one writes both in the commit and keeps the payloads in memory as far as the budget goes.

mod folder;
mod job;
mod keys;
mod options;
mod payloads;
mod shard;
mod state;
mod store;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use ledger::{Error, JobLedger, JobRecord, Ledger};
use model::JobId;

pub use options::{Location, Options, Sync};

use job::{Job, JobHandle};
use keys::JobNumber;
use payloads::Payloads;
use store::{Store, Table, counter};

/// The embedded ledger. Clones are the same ledger; it is closed when the last clone and everything opened through it are
/// dropped.
#[derive(Clone)]
pub struct RocksLedger {
    process: Arc<Process>,
}

/// What handles of all kinds keep alive.
pub(crate) struct Process {
    /// Held while jobs come, change and go; not by commits.
    jobs: Mutex<BTreeMap<JobId, Known>>,
    payloads: Arc<Payloads>,
    store: Arc<Store>,
}

struct Known {
    record: JobRecord,
    job: Arc<Job>,
}

/// How much room a ledger takes, about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Bytes of payloads in memory.
    pub payload_memory_bytes: u64,
    /// Bytes of payloads in files and write buffers, those included that wait to be deleted.
    pub payload_table_bytes: u64,
    /// Bytes of payloads in files and write buffers that the next commits will delete.
    pub payload_garbage_bytes: u64,
    /// Bytes of state in files and write buffers.
    pub state_table_bytes: u64,
}

impl RocksLedger {
    /// Opens or makes the ledger. Jobs of a durable one are there as they were after the last commit that the process before
    /// has made; what was staged and not committed is removed.
    ///
    /// # Errors
    /// The folder is used by another process, has another format, or cannot be read.
    pub fn open(options: &Options) -> Result<Self, Error> {
        let store = Arc::new(Store::open(options)?);
        let payloads = Arc::new(Payloads::new(store.clone(), options.memory_bytes_max));
        let mut jobs = BTreeMap::new();
        let mut rows = Vec::new();
        store.scan(Table::Meta, keys::JOBS, &[keys::JOBS[0] + 1], |key, row| {
            let id = std::str::from_utf8(&key[keys::JOBS.len()..]);
            let id = JobId::from(id.map_err(|_| Error::Corrupt("the name of a job is not text".to_owned()))?);
            let row = keys::decode_job(row).map_err(|error| Error::Corrupt(format!("job {id}: {error}")))?;
            rows.push((id, row));
            Ok(true)
        })?;
        remove_ownerless(&store, rows.iter().map(|(_, (number, ..))| *number).collect())?;
        for (id, (number, shards, description)) in rows {
            let job = Job::load(&store, &payloads, &id, number, shards)?;
            jobs.insert(id.clone(), Known { record: JobRecord { job: id, shards, description }, job: Arc::new(job) });
        }
        Ok(RocksLedger { process: Arc::new(Process { jobs: Mutex::new(jobs), payloads, store }) })
    }

    /// How much room it takes.
    pub fn usage(&self) -> Result<Usage, Error> {
        let Process { payloads, store, .. } = &*self.process;
        Ok(Usage {
            payload_memory_bytes: payloads.memory_bytes(),
            payload_table_bytes: store.table_bytes(Table::Payloads)?,
            payload_garbage_bytes: payloads.condemned_bytes(),
            state_table_bytes: store.table_bytes(Table::State)?,
        })
    }

    fn handle(&self, job: &Arc<Job>) -> Arc<dyn JobLedger> {
        Arc::new(JobHandle { job: job.clone(), process: self.process.clone() })
    }
}

impl Process {
    #[cfg(test)]
    pub(crate) fn for_tests(store: Arc<Store>, payloads: Arc<Payloads>) -> Self {
        Process { jobs: Mutex::default(), payloads, store }
    }

    pub(crate) fn payloads(&self) -> &Arc<Payloads> {
        &self.payloads
    }

    pub(crate) fn store(&self) -> &Arc<Store> {
        &self.store
    }

    fn jobs(&self) -> MutexGuard<'_, BTreeMap<JobId, Known>> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes a job's row under a number that no job had before.
    fn put_job(&self, writes: &mut store::Writes<'_>, record: &JobRecord) -> Result<JobNumber, Error> {
        let number = counter(&self.store, keys::NEXT_JOB)?;
        let next = number.checked_add(1).ok_or_else(|| Error::Storage("job numbers are used up".to_owned()))?;
        writes.put(Table::Meta, keys::NEXT_JOB, &next.to_be_bytes());
        let row = keys::encode_job(JobNumber(number), record.shards, &record.description);
        writes.put(Table::Meta, &keys::job(&record.job), &row);
        Ok(JobNumber(number))
    }
}

/// Deletes what belongs to no job: left by a process that died while something was purged.
fn remove_ownerless(store: &Store, mut owners: Vec<JobNumber>) -> Result<(), Error> {
    owners.sort();
    let mut from = JobNumber(0);
    for owner in owners.into_iter().chain([JobNumber(u32::MAX)]) {
        let (from_key, to_key) = (from.range().start, owner.range().start);
        for table in [Table::Log, Table::Payloads, Table::State] {
            if store.has_rows(table, &from_key, &to_key)? {
                let mut writes = store.writes();
                writes.delete_range(table, &from_key, &to_key);
                store.write_ahead(writes)?;
                store.free_range(table, &from_key, &to_key)?;
            }
        }
        from = JobNumber(owner.0.saturating_add(1));
    }
    Ok(())
}

fn missing(job: &JobId) -> Error {
    Error::Missing(format!("job {job}"))
}

impl Ledger for RocksLedger {
    fn create(&self, record: JobRecord) -> Result<Arc<dyn JobLedger>, Error> {
        let mut jobs = self.process.jobs();
        if jobs.contains_key(&record.job) {
            return Err(Error::Exists(format!("job {}", record.job)));
        }
        let mut writes = self.process.store.writes();
        let number = self.process.put_job(&mut writes, &record)?;
        self.process.store.write_synced(writes)?;
        let job = Arc::new(Job::new(record.job.clone(), number, record.shards));
        jobs.insert(record.job.clone(), Known { record, job: job.clone() });
        Ok(self.handle(&job))
    }

    fn open(&self, job: &JobId) -> Result<Arc<dyn JobLedger>, Error> {
        let jobs = self.process.jobs();
        jobs.get(job).map(|known| self.handle(&known.job)).ok_or_else(|| missing(job))
    }

    fn jobs(&self) -> Result<Vec<JobRecord>, Error> {
        Ok(self.process.jobs().values().map(|known| known.record.clone()).collect())
    }

    fn describe(&self, job: &JobId, description: Bytes) -> Result<(), Error> {
        let mut jobs = self.process.jobs();
        let known = jobs.get_mut(job).ok_or_else(|| missing(job))?;
        let mut writes = self.process.store.writes();
        let row = keys::encode_job(known.job.mark.number, known.record.shards, &description);
        writes.put(Table::Meta, &keys::job(job), &row);
        self.process.store.write_synced(writes)?;
        known.record.description = description;
        Ok(())
    }

    fn purge(&self, job: &JobId) -> Result<(), Error> {
        let mut jobs = self.process.jobs();
        let known = jobs.get_mut(job).ok_or_else(|| missing(job))?;
        known.job.close();
        let mut writes = self.process.store.writes();
        let number = self.process.put_job(&mut writes, &known.record)?;
        known.job.delete(&mut writes);
        self.process.store.write_synced(writes)?;
        known.job.free(&self.process.store)?;
        known.job = Arc::new(Job::new(job.clone(), number, known.record.shards));
        Ok(())
    }

    fn remove(&self, job: &JobId) -> Result<(), Error> {
        let mut jobs = self.process.jobs();
        let known = jobs.get_mut(job).ok_or_else(|| missing(job))?;
        known.job.close();
        let mut writes = self.process.store.writes();
        writes.delete(Table::Meta, &keys::job(job));
        known.job.delete(&mut writes);
        self.process.store.write_synced(writes)?;
        let freed = known.job.free(&self.process.store);
        jobs.remove(job);
        freed
    }
}
