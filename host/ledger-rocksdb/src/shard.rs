//! One owner's view of one shard: polls from memory, commits as one write batch.

use std::sync::Arc;

use bytes::Bytes;
use ledger::log::{NewEntry, Owner, Writing};
use ledger::*;
use model::Batch;
use model::ShardId;

use crate::job::JobHandle;
use crate::keys;
use crate::payloads::{AHEAD_BYTES_MIN, COMMIT_BYTES_MAX, Payload, StagedPayload, Stored};
use crate::state::Cells;
use crate::store::{self, Table};

/// Job, shard, lengths and kind of a state write in a batch, at most.
const AROUND_CELL_BYTES: usize = 32;

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
        let mut writes = process.store().writes_of(state_bytes(&commit.state));
        self.put_state(&mut writes, &commit.state);
        let mut stored = Vec::new();
        if process.store().durable() {
            stored = self.put_log(&mut writes, commit, &writing, &entries)?;
        }
        let eager = !writes.is_empty();
        let buried = process.payloads().bury(eager, &mut writes);
        if !writes.is_empty() {
            process.store().write_commit(writes).inspect_err(|_| process.payloads().condemn(buried.iter().copied()))?;
        }
        stored.into_iter().for_each(|(payload, stored)| payload.is_stored(stored));
        writing.publish(entries, &commit.reports);
        if let Err(error) = process.payloads().buried(&buried).and_then(|()| process.payloads().relieve()) {
            // The commit stands; what could not be moved or freed is tried again after the next one.
            tracing::warn!(job = %job.id, shard = self.shard.0, %error, "room for payloads could not be made");
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
            let ours = payload.mark.number == job.mark.number && payload.is_in(process.payloads());
            return if ours { Ok(payload.clone()) } else { Err(elsewhere()) };
        }
        let batch = staged.batch.clone().ok_or_else(elsewhere)?;
        let payload = process.payloads().keep(&job.mark, batch);
        job.notes_log();
        if process.store().durable() && staged.bytes >= AHEAD_BYTES_MIN {
            payload.write_ahead().map_err(retry)?;
        }
        Ok(payload)
    }

    fn put_state(&self, writes: &mut store::Writes<'_>, state: &[StateWrite]) {
        if state.is_empty() {
            return;
        }
        self.handle.job.notes_state();
        for StateWrite { cell, value } in state {
            let key = keys::cell(self.handle.job.mark.number, self.shard, cell);
            match value {
                Some(value) => writes.put(Table::State, &key, value),
                None => writes.delete(Table::State, &key),
            }
        }
    }

    /// Adds everything but state to a durable commit. Answers with the payloads that will be on disk by it.
    fn put_log(
        &self,
        writes: &mut store::Writes<'_>,
        commit: &Commit,
        writing: &Writing<'_, Arc<Payload>>,
        entries: &[NewEntry<Arc<Payload>>],
    ) -> Result<Vec<(Arc<Payload>, Stored)>, CommitError> {
        let job = self.handle.job.mark.number;
        self.handle.job.notes_log();
        for (position, left) in writing.remains() {
            let was_whole = writing.is_whole(*position);
            let row = keys::remaining(job, self.shard, *position);
            // A broadcast entry stays for the other shards, so that this shard has to remember that it is done with it.
            if left.is_empty() && position.partition == Partition::Own {
                writes.delete(Table::Log, &keys::entry(job, self.shard, *position));
                if !was_whole {
                    writes.delete(Table::Log, &row);
                }
            } else {
                writes.put(Table::Log, &row, &keys::encode_rows(left));
            }
        }
        let mut stored = Vec::new();
        for NewEntry { to, header, payload } in entries {
            // An entry lies with its reader.
            let reader = if let Destination::Shard(shard) = to { *shard } else { self.shard };
            writes.put(Table::Log, &keys::entry(job, reader, header.position), &keys::encode_entry(header, payload.number));
            if writes.bytes() > COMMIT_BYTES_MAX {
                payload.write_ahead().map_err(retry)?;
            }
            stored.extend(payload.put(writes).map(|stored| (payload.clone(), stored)));
        }
        for report in writing.latest_reports(&commit.reports) {
            writes.put(Table::Log, &keys::report(job, report.shard, report.stage), &report.watermark.encode());
        }
        Ok(stored)
    }
}

/// What the writes take in a batch, or a little more: cells and values, and what is around each of them.
fn state_bytes(state: &[StateWrite]) -> usize {
    state.iter().map(|write| write.cell.len() + write.value.as_ref().map_or(0, Bytes::len) + AROUND_CELL_BYTES).sum()
}

fn retry(error: Error) -> CommitError {
    CommitError::Retry(error.to_string())
}

fn fatal(error: Error) -> CommitError {
    CommitError::Fatal(error.to_string())
}
