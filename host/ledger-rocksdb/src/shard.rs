//! One owner's view of one shard: polls from memory, commits as one write batch.

use std::sync::Arc;

use ledger::log::{NewEntry, Owner, Writing};
use ledger::*;
use model::Batch;
use model::ShardId;

use crate::job::JobHandle;
use crate::keys;
use crate::payloads::{AHEAD_BYTES_MIN, Payload, StagedPayload, Stored};
use crate::state::Cells;
use crate::store::{self, Table};

pub(crate) struct Shard {
    pub(crate) handle: JobHandle,
    pub(crate) shard: ShardId,
    pub(crate) owner: Owner,
}

impl ShardLedger for Shard {
    fn recover(&mut self) -> Result<Recovered, Error> {
        self.handle.job.check_open()?;
        self.handle.job.log.recover(self.shard, self.owner)
    }

    fn poll(&mut self, entries_max: usize) -> Result<Vec<Arrival>, Error> {
        self.handle.job.check_open()?;
        Ok(self.handle.job.log.poll(self.shard, self.owner, entries_max))
    }

    fn fetch(&self, position: Position) -> Result<Batch, Error> {
        self.handle.job.check_open()?;
        self.handle.job.log.payload(self.shard, position)?.batch()
    }

    fn state(&self) -> Arc<dyn StateReader> {
        Arc::new(Cells { handle: self.handle.clone(), shard: self.shard })
    }

    fn commit(&mut self, commit: &Commit) -> Result<(), CommitError> {
        let JobHandle { job, process } = &self.handle;
        job.check_open().map_err(fatal)?;
        let writing = job.log.begin(self.shard, self.owner, commit)?;
        let entries = self.new_entries(commit)?;
        let mut batch = process.store().batch();
        self.put_state(&mut batch, &commit.state);
        let mut stored = Vec::new();
        if process.store().durable() {
            stored = self.put_log(&mut batch, commit, &writing, &entries);
        }
        let eager = !batch.is_empty();
        let buried = process.payloads().bury(eager, &mut batch);
        if !batch.is_empty() {
            process.store().write_commit(batch).inspect_err(|_| process.payloads().condemn(buried))?;
        }
        stored.into_iter().for_each(|(payload, stored)| payload.is_stored(stored));
        writing.publish(entries, &commit.reports);
        if let Err(error) = process.payloads().relieve() {
            // The commit stands; its payloads are in memory, over the budget, and the next commit tries again.
            tracing::warn!(job = %job.id, shard = self.shard.0, %error, "payloads could not be moved to disk");
        }
        Ok(())
    }
}

impl Shard {
    fn new_entries(&self, commit: &Commit) -> Result<Vec<NewEntry<Arc<Payload>>>, CommitError> {
        let mut entries = Vec::with_capacity(commit.appends.len());
        for append in commit.appends.iter().filter(|append| append.payload.rows > 0) {
            let payload = self.payload(&append.payload)?;
            let offset = self.handle.process.store().next_number();
            let partition = if append.to == Destination::Broadcast { Partition::Broadcast } else { Partition::Own };
            let header = EntryHeader::new(append, self.shard, Position { partition, offset });
            entries.push(NewEntry { to: append.to, header, payload });
        }
        Ok(entries)
    }

    fn payload(&self, staged: &Staged) -> Result<Arc<Payload>, CommitError> {
        let JobHandle { job, process } = &self.handle;
        let elsewhere = || CommitError::Fatal("a payload was staged in another ledger or job".to_owned());
        if let Some(handle) = &staged.handle {
            let StagedPayload(payload) = handle.as_any().downcast_ref().ok_or_else(elsewhere)?;
            let ours = payload.job == job.number && payload.is_in(process.payloads());
            return if ours { Ok(payload.clone()) } else { Err(elsewhere()) };
        }
        let batch = staged.batch.clone().ok_or_else(elsewhere)?;
        let payload = process.payloads().keep(job.number, batch);
        job.notes_log();
        if process.store().durable() && staged.bytes >= AHEAD_BYTES_MIN {
            payload.write_ahead().map_err(|error| CommitError::Retry(error.to_string()))?;
        }
        Ok(payload)
    }

    fn put_state(&self, batch: &mut store::Batch<'_>, writes: &[StateWrite]) {
        if writes.is_empty() {
            return;
        }
        self.handle.job.notes_state();
        for StateWrite { cell, value } in writes {
            let key = keys::cell(self.handle.job.number, self.shard, cell);
            match value {
                Some(value) => batch.put(Table::State, &key, value),
                None => batch.delete(Table::State, &key),
            }
        }
    }

    /// Adds everything but state to the batch of a durable commit. Answers with the payloads that will be on disk by it.
    fn put_log(
        &self,
        batch: &mut store::Batch<'_>,
        commit: &Commit,
        writing: &Writing<'_, Arc<Payload>>,
        entries: &[NewEntry<Arc<Payload>>],
    ) -> Vec<(Arc<Payload>, Stored)> {
        let job = self.handle.job.number;
        self.handle.job.notes_log();
        for (position, left) in writing.remains() {
            let was_whole = writing.is_whole(*position);
            let row = keys::remaining(job, self.shard, *position);
            // A broadcast entry stays for the other shards, so that this shard has to remember that it is done with it.
            if left.is_empty() && position.partition == Partition::Own {
                batch.delete(Table::Log, &keys::entry(job, self.shard, *position));
                if !was_whole {
                    batch.delete(Table::Log, &row);
                }
            } else {
                batch.put(Table::Log, &row, &keys::encode_rows(left));
            }
        }
        let mut stored = Vec::new();
        for NewEntry { to, header, payload } in entries {
            // An entry lies with its reader.
            let reader = if let Destination::Shard(shard) = to { *shard } else { self.shard };
            batch.put(Table::Log, &keys::entry(job, reader, header.position), &keys::encode_entry(header, payload.number));
            stored.extend(payload.put(batch).map(|stored| (payload.clone(), stored)));
        }
        for report in writing.latest_reports(&commit.reports) {
            batch.put(Table::Log, &keys::report(job, report.shard, report.stage), &report.watermark.encode());
        }
        stored
    }
}

fn fatal(error: Error) -> CommitError {
    CommitError::Fatal(error.to_string())
}
