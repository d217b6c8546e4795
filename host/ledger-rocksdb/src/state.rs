//! Committed cells of one shard, read from any thread.

use bytes::Bytes;
use ledger::{Error, StateReader};
use model::ShardId;

use crate::job::JobHandle;
use crate::keys;
use crate::store::Table;

pub(crate) struct Cells {
    pub(crate) handle: JobHandle,
    pub(crate) shard: ShardId,
}

impl StateReader for Cells {
    fn get(&self, cell: &[u8]) -> Result<Option<Bytes>, Error> {
        let key = keys::cell(self.handle.job.mark.number, self.shard, cell);
        self.handle.process.store().get(Table::State, &key)
    }

    fn scan(&self, from: &[u8], to: &[u8], cells_max: usize, bytes_max: usize) -> Result<Vec<(Bytes, Bytes)>, Error> {
        let mut found = Vec::new();
        if from >= to || cells_max == 0 {
            return Ok(found);
        }
        let number = self.handle.job.mark.number;
        let (from, to) = (keys::cell(number, self.shard, from), keys::cell(number, self.shard, to));
        let mut bytes = 0;
        self.handle.process.store().scan(Table::State, &from, &to, |key, value| {
            let cell = &key[keys::CELL_PREFIX..];
            bytes += cell.len() + value.len();
            found.push((Bytes::copy_from_slice(cell), Bytes::copy_from_slice(value)));
            Ok(found.len() < cells_max && bytes < bytes_max)
        })?;
        Ok(found)
    }
}
