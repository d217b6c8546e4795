//! The reference ledger: correct, in memory, with faults on request. For tests and simulations; it outlives a simulated
//! crash, not the process.
//!
//! Positions count up per ledger. Payloads stay where they are: staging is free, and so is dropping what was staged.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use model::{Batch, JobId, ShardId};

use crate::contract::*;
use crate::log::{Log, NewEntry, Owner, Wake};

/// What shall happen to one attempt to commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Nothing is applied and the answer is [`CommitError::Retry`].
    Retry,
    /// Nothing is applied and the answer is [`CommitError::Fatal`].
    Fatal,
    /// The process dies before anything is applied: from here on this handle answers errors only.
    CrashBefore,
    /// The process dies when the commit is applied but its caller has not heard of it.
    CrashAfter,
}

/// An attempt to commit that a [`Faults`] judges.
#[derive(Clone, Copy, Debug)]
pub struct Attempt<'a> {
    /// The job that commits.
    pub job: &'a JobId,
    /// The shard that commits.
    pub shard: ShardId,
    /// How many attempts of all jobs and shards of this handle came before.
    pub number: u64,
    /// What is to be committed.
    pub commit: &'a Commit,
}

/// Decides which attempts fail; none means that the attempt is left alone.
pub type Faults = Arc<dyn Fn(&Attempt<'_>) -> Option<Fault> + Send + Sync>;

/// The reference ledger. Clones are the same ledger.
#[derive(Clone)]
pub struct MemoryLedger {
    process: Arc<Process>,
}

/// What dies in a crash.
struct Process {
    content: Arc<Content>,
    faults: Faults,
    attempts: AtomicU64,
    dead: AtomicBool,
}

/// What survives one.
struct Content {
    jobs: Mutex<BTreeMap<JobId, (JobRecord, Arc<JobContent>)>>,
    next_offset: AtomicU64,
}

struct JobContent {
    log: Log<Batch>,
    state: Vec<Arc<Cells>>,
    purged: AtomicBool,
}

#[derive(Default)]
struct Cells(Mutex<BTreeMap<Bytes, Bytes>>);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Default for MemoryLedger {
    fn default() -> Self {
        Self::new()
    }
}

impl MemoryLedger {
    /// An empty ledger without faults.
    pub fn new() -> Self {
        Self::with_faults(Arc::new(|_| None))
    }

    /// An empty ledger with faults.
    pub fn with_faults(faults: Faults) -> Self {
        let content = Content { jobs: Mutex::default(), next_offset: AtomicU64::new(1) };
        Self::start(Arc::new(content), faults)
    }

    /// Kills the process, as it were: everything uncommitted is gone, whatever was opened through this handle answers
    /// errors, and the returned handle stands on the committed content. Faults stay; attempts count from zero.
    pub fn crash(&self) -> MemoryLedger {
        let faults = self.process.faults.clone();
        self.crash_with_faults(faults)
    }

    /// As [`MemoryLedger::crash`], with other faults from then on.
    pub fn crash_with_faults(&self, faults: Faults) -> MemoryLedger {
        self.process.dead.store(true, Ordering::SeqCst);
        // Fencing waits for commits that are under way: they are either before or after the crash.
        lock(&self.process.content.jobs).values().for_each(|(_, job)| job.log.fence_all());
        Self::start(self.process.content.clone(), faults)
    }

    /// Whether a fault has killed this handle.
    pub fn has_crashed(&self) -> bool {
        self.process.dead.load(Ordering::SeqCst)
    }

    fn start(content: Arc<Content>, faults: Faults) -> Self {
        let process = Process { content, faults, attempts: AtomicU64::new(0), dead: AtomicBool::new(false) };
        MemoryLedger { process: Arc::new(process) }
    }
}

impl Process {
    fn alive(&self) -> Result<(), Error> {
        match self.dead.load(Ordering::SeqCst) {
            false => Ok(()),
            true => Err(Error::Storage("the process that opened this ledger has crashed".to_owned())),
        }
    }
}

impl Content {
    fn find<T>(&self, job: &JobId, then: impl FnOnce(&mut (JobRecord, Arc<JobContent>)) -> T) -> Result<T, Error> {
        lock(&self.jobs).get_mut(job).map(then).ok_or_else(|| Error::Missing(format!("job {job}")))
    }
}

impl JobContent {
    fn new(shards: u32) -> Arc<Self> {
        let state = (0..shards).map(|_| Arc::default()).collect();
        Arc::new(JobContent { log: Log::new(shards), state, purged: AtomicBool::new(false) })
    }

    fn purge(&self) {
        self.purged.store(true, Ordering::SeqCst);
        self.log.fence_all();
    }
}

impl Ledger for MemoryLedger {
    fn create(&self, record: JobRecord) -> Result<Arc<dyn JobLedger>, Error> {
        self.process.alive()?;
        let job = record.job.clone();
        let mut jobs = lock(&self.process.content.jobs);
        if jobs.contains_key(&job) {
            return Err(Error::Exists(format!("job {job}")));
        }
        let content = JobContent::new(record.shards);
        jobs.insert(job.clone(), (record, content.clone()));
        Ok(Arc::new(MemoryJob { process: self.process.clone(), job, content }))
    }

    fn open(&self, job: &JobId) -> Result<Arc<dyn JobLedger>, Error> {
        self.process.alive()?;
        let content = self.process.content.find(job, |(_, content)| content.clone())?;
        Ok(Arc::new(MemoryJob { process: self.process.clone(), job: job.clone(), content }))
    }

    fn jobs(&self) -> Result<Vec<JobRecord>, Error> {
        self.process.alive()?;
        Ok(lock(&self.process.content.jobs).values().map(|(record, _)| record.clone()).collect())
    }

    fn describe(&self, job: &JobId, description: Bytes) -> Result<(), Error> {
        self.process.alive()?;
        self.process.content.find(job, |(record, _)| record.description = description)
    }

    fn purge(&self, job: &JobId) -> Result<(), Error> {
        self.process.alive()?;
        self.process.content.find(job, |(record, content)| {
            content.purge();
            *content = JobContent::new(record.shards);
        })
    }

    fn remove(&self, job: &JobId) -> Result<(), Error> {
        self.process.alive()?;
        let removed = lock(&self.process.content.jobs).remove(job);
        let (_, content) = removed.ok_or_else(|| Error::Missing(format!("job {job}")))?;
        content.purge();
        Ok(())
    }
}

#[derive(Clone)]
struct MemoryJob {
    process: Arc<Process>,
    job: JobId,
    content: Arc<JobContent>,
}

impl MemoryJob {
    fn usable(&self) -> Result<(), Error> {
        self.process.alive()?;
        match self.content.purged.load(Ordering::SeqCst) {
            false => Ok(()),
            true => Err(Error::Missing(format!("the log of job {}", self.job))),
        }
    }
}

impl JobLedger for MemoryJob {
    fn shard(&self, shard: ShardId, wake: Wake) -> Result<Box<dyn ShardLedger>, Error> {
        self.usable()?;
        let owner = self.content.log.take_over(shard, wake)?;
        Ok(Box::new(MemoryShard { job: self.clone(), shard, owner }))
    }

    fn stage(&self, batch: Batch) -> Result<Staged, Error> {
        self.usable()?;
        Ok(Staged::in_memory(batch))
    }

    fn fetch_broadcast(&self, offset: u64) -> Result<Batch, Error> {
        self.usable()?;
        self.content.log.broadcast_payload(offset)
    }
}

struct MemoryShard {
    job: MemoryJob,
    shard: ShardId,
    owner: Owner,
}

impl ShardLedger for MemoryShard {
    fn recover(&mut self) -> Result<Recovered, Error> {
        self.job.usable()?;
        self.job.content.log.recover(self.shard, self.owner)
    }

    fn poll(&mut self, entries_max: usize) -> Result<Vec<Arrival>, Error> {
        self.job.usable()?;
        Ok(self.job.content.log.poll(self.shard, self.owner, entries_max))
    }

    fn fetch(&self, position: Position) -> Result<Batch, Error> {
        self.job.usable()?;
        self.job.content.log.payload(self.shard, position)
    }

    fn state(&self) -> Arc<dyn StateReader> {
        self.job.content.state[self.shard.0 as usize].clone()
    }

    fn commit(&mut self, commit: &Commit) -> Result<(), CommitError> {
        let MemoryJob { process, job, content } = &self.job;
        self.job.usable().map_err(|error| CommitError::Fatal(error.to_string()))?;
        let entries = self.new_entries(commit)?;
        let writing = content.log.begin(self.shard, self.owner, commit)?;
        let number = process.attempts.fetch_add(1, Ordering::SeqCst);
        let crashed = || CommitError::Fatal("the process that opened this ledger has crashed".to_owned());
        let fault = (process.faults)(&Attempt { job, shard: self.shard, number, commit });
        match fault {
            Some(Fault::Retry) => return Err(CommitError::Retry("a fault was asked for".to_owned())),
            Some(Fault::Fatal) => return Err(CommitError::Fatal("a fault was asked for".to_owned())),
            Some(Fault::CrashBefore) => {
                process.dead.store(true, Ordering::SeqCst);
                return Err(crashed());
            }
            Some(Fault::CrashAfter) | None => {}
        }
        if process.dead.load(Ordering::SeqCst) {
            return Err(crashed());
        }
        content.state[self.shard.0 as usize].apply(&commit.state);
        if fault == Some(Fault::CrashAfter) {
            process.dead.store(true, Ordering::SeqCst);
        }
        writing.publish(entries, &commit.reports);
        if fault == Some(Fault::CrashAfter) { Err(crashed()) } else { Ok(()) }
    }
}

impl MemoryShard {
    fn new_entries(&self, commit: &Commit) -> Result<Vec<NewEntry<Batch>>, CommitError> {
        let mut entries = Vec::with_capacity(commit.appends.len());
        for append in commit.appends.iter().filter(|append| append.payload.rows > 0) {
            let payload = append.payload.batch.clone();
            let payload = payload.ok_or_else(|| CommitError::Fatal("a payload was staged in another ledger".to_owned()))?;
            let offset = self.job.process.content.next_offset.fetch_add(1, Ordering::SeqCst);
            let partition = if append.to == Destination::Broadcast { Partition::Broadcast } else { Partition::Own };
            let header = EntryHeader::new(append, self.shard, Position { partition, offset });
            entries.push(NewEntry { to: append.to, header, payload });
        }
        Ok(entries)
    }
}

impl Cells {
    fn apply(&self, writes: &[StateWrite]) {
        let mut cells = lock(&self.0);
        for StateWrite { cell, value } in writes {
            match value {
                Some(value) => cells.insert(cell.clone(), value.clone()),
                None => cells.remove(cell),
            };
        }
    }
}

impl StateReader for Cells {
    fn get(&self, cell: &[u8]) -> Result<Option<Bytes>, Error> {
        Ok(lock(&self.0).get(cell).cloned())
    }

    fn scan(&self, from: &[u8], to: &[u8], cells_max: usize, bytes_max: usize) -> Result<Vec<(Bytes, Bytes)>, Error> {
        if from >= to {
            return Ok(Vec::new());
        }
        let cells = lock(&self.0);
        let mut bytes = 0;
        let mut found = Vec::new();
        for (cell, value) in cells.range::<[u8], _>((std::ops::Bound::Included(from), std::ops::Bound::Excluded(to))) {
            if found.len() == cells_max || (bytes >= bytes_max && !found.is_empty()) {
                break;
            }
            bytes += cell.len() + value.len();
            found.push((cell.clone(), value.clone()));
        }
        Ok(found)
    }
}
