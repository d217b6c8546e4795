//! Keys and rows. Numbers in keys are big-endian, so rows lie in the order of their numbers, a job's rows lie together,
//! and so do a shard's cells.
//!
//! ```text
//!  meta      'e'                                       era: how often the store was opened
//!            'n'                                       the next job number
//!            'j' job id                                job number, shards, description
//!  log       job 1 payload                             chunks and encoded bytes of a stored payload
//!            job 2 shard offset                        header of an entry, number of its payload
//!            job 3 offset                              the same of a broadcast entry
//!            job 4 shard partition offset              rows that remain of an entry that was consumed in part
//!            job 5 shard stage                         latest watermark report
//!  payloads  job payload chunk                         a piece of an encoded batch
//!  state     job shard cell                            value
//! ```

use std::ops::Range;

use bytes::{BufMut, Bytes};
use ledger::{EntryHeader, Partition, Position, WatermarkReport};
use model::reader::{put_length_prefixed, put_varint};
use model::time::{decode_millis, encode_millis};
use model::{DecodeError, JobId, Reader, ShardId, StageId, Timestamp};

pub(crate) const ERA: &[u8] = b"e";
pub(crate) const NEXT_JOB: &[u8] = b"n";
pub(crate) const JOBS: &[u8] = b"j";

/// Tables of the log, in the order in which opening a job reads them.
pub(crate) const PAYLOADS: u8 = 1;
pub(crate) const ENTRIES: u8 = 2;
pub(crate) const BROADCAST: u8 = 3;
pub(crate) const REMAINING: u8 = 4;
pub(crate) const REPORTS: u8 = 5;

/// Tells jobs apart in keys; never used twice in a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct JobNumber(pub(crate) u32);

impl JobNumber {
    /// All keys of the job in `log`, `payloads` and `state`.
    pub(crate) fn range(self) -> Range<[u8; 4]> {
        self.0.to_be_bytes()..self.0.saturating_add(1).to_be_bytes()
    }
}

pub(crate) fn job(id: &JobId) -> Vec<u8> {
    [JOBS, id.as_str().as_bytes()].concat()
}

pub(crate) fn payload(job: JobNumber, payload: u64) -> [u8; 13] {
    let mut key = [0; 13];
    key[..4].copy_from_slice(&job.0.to_be_bytes());
    key[4] = PAYLOADS;
    key[5..].copy_from_slice(&payload.to_be_bytes());
    key
}

pub(crate) fn chunk(job: JobNumber, payload: u64, chunk: u32) -> [u8; 16] {
    let mut key = [0; 16];
    key[..4].copy_from_slice(&job.0.to_be_bytes());
    key[4..12].copy_from_slice(&payload.to_be_bytes());
    key[12..].copy_from_slice(&chunk.to_be_bytes());
    key
}

/// The header of an entry; broadcast entries have one header for all shards.
pub(crate) fn entry(job: JobNumber, shard: ShardId, position: Position) -> Vec<u8> {
    let mut key = Vec::with_capacity(17);
    key.put_u32(job.0);
    match position.partition {
        Partition::Own => {
            key.put_u8(ENTRIES);
            key.put_u32(shard.0);
        }
        Partition::Broadcast => key.put_u8(BROADCAST),
    }
    key.put_u64(position.offset);
    key
}

pub(crate) fn remaining(job: JobNumber, shard: ShardId, position: Position) -> Vec<u8> {
    let mut key = Vec::with_capacity(18);
    key.put_u32(job.0);
    key.put_u8(REMAINING);
    key.put_u32(shard.0);
    key.put_u8(u8::from(position.partition == Partition::Broadcast));
    key.put_u64(position.offset);
    key
}

pub(crate) fn report(job: JobNumber, shard: ShardId, stage: StageId) -> Vec<u8> {
    let mut key = Vec::with_capacity(13);
    key.put_u32(job.0);
    key.put_u8(REPORTS);
    key.put_u32(shard.0);
    key.put_u32(stage.0);
    key
}

pub(crate) fn cell(job: JobNumber, shard: ShardId, cell: &[u8]) -> Vec<u8> {
    let mut key = Vec::with_capacity(8 + cell.len());
    key.put_u32(job.0);
    key.put_u32(shard.0);
    key.put_slice(cell);
    key
}

/// Bytes of a cell's key before the cell.
pub(crate) const CELL_PREFIX: usize = 8;

/// A key of the log, taken apart.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum LogKey {
    Payload(u64),
    Entry(ShardId, u64),
    Broadcast(u64),
    Remaining(ShardId, Position),
    Report(ShardId, StageId),
}

pub(crate) fn parse(key: &[u8]) -> Result<LogKey, DecodeError> {
    let mut reader = Reader::new(key);
    let u32_of = |reader: &mut Reader<'_>| reader.be_i32().map(|number| number as u32);
    reader.take(4)?;
    let parsed = match reader.u8()? {
        PAYLOADS => LogKey::Payload(reader.be_u64()?),
        ENTRIES => LogKey::Entry(ShardId(u32_of(&mut reader)?), reader.be_u64()?),
        BROADCAST => LogKey::Broadcast(reader.be_u64()?),
        REMAINING => {
            let shard = ShardId(u32_of(&mut reader)?);
            let partition = if reader.u8()? == 0 { Partition::Own } else { Partition::Broadcast };
            LogKey::Remaining(shard, Position { partition, offset: reader.be_u64()? })
        }
        REPORTS => LogKey::Report(ShardId(u32_of(&mut reader)?), StageId(u32_of(&mut reader)?)),
        _ => return Err(DecodeError::malformed("log key", "unknown table")),
    };
    match reader.is_empty() {
        true => Ok(parsed),
        false => Err(DecodeError::malformed("log key", "bytes after its end")),
    }
}

/// The row of a job: its number, its shards, its description.
pub(crate) fn encode_job(number: JobNumber, shards: u32, description: &[u8]) -> Vec<u8> {
    let mut row = Vec::with_capacity(description.len() + 15);
    put_varint(&mut row, u64::from(number.0));
    put_varint(&mut row, u64::from(shards));
    put_length_prefixed(&mut row, description);
    row
}

pub(crate) fn decode_job(row: &[u8]) -> Result<(JobNumber, u32, Bytes), DecodeError> {
    let mut reader = Reader::new(row);
    Ok((JobNumber(number(&mut reader)?), number(&mut reader)?, Bytes::copy_from_slice(reader.length_prefixed()?)))
}

pub(crate) fn encode_stored(chunks: u32, encoded_bytes: u64) -> Vec<u8> {
    let mut row = Vec::with_capacity(15);
    put_varint(&mut row, u64::from(chunks));
    put_varint(&mut row, encoded_bytes);
    row
}

pub(crate) fn decode_stored(row: &[u8]) -> Result<(u32, u64), DecodeError> {
    let mut reader = Reader::new(row);
    Ok((number(&mut reader)?, reader.varint()?))
}

/// The row of an entry: its header without position and remaining rows, and the number of its payload.
pub(crate) fn encode_entry(header: &EntryHeader, payload: u64) -> Vec<u8> {
    let mut row = Vec::with_capacity(64);
    let (stage, shard) = header.producer;
    for number in [header.stage.0, header.input, stage.0, shard.0, header.rows] {
        put_varint(&mut row, u64::from(number));
    }
    put_varint(&mut row, header.bytes);
    put_varint(&mut row, payload);
    row.extend_from_slice(&header.hold.encode());
    row.extend_from_slice(&header.window_end.encode());
    if let Some(not_before_ms) = header.not_before_ms {
        row.extend_from_slice(&encode_millis(not_before_ms));
    }
    row
}

pub(crate) fn decode_entry(row: &[u8], position: Position) -> Result<(EntryHeader, u64), DecodeError> {
    let mut reader = Reader::new(row);
    let stage = StageId(number(&mut reader)?);
    let input = number(&mut reader)?;
    let producer = (StageId(number(&mut reader)?), ShardId(number(&mut reader)?));
    let rows = number(&mut reader)?;
    let bytes = reader.varint()?;
    let payload = reader.varint()?;
    let hold = Timestamp::decode(&mut reader)?;
    let window_end = Timestamp::decode(&mut reader)?;
    let not_before_ms = if reader.is_empty() { None } else { Some(decode_millis(&mut reader)?) };
    let remaining = std::iter::once(0..rows).collect();
    let header = EntryHeader { position, stage, input, producer, rows, remaining, bytes, hold, window_end, not_before_ms };
    Ok((header, payload))
}

/// Ranges as varints: start and length of each. No bytes: none remain.
pub(crate) fn encode_rows(ranges: &[Range<u32>]) -> Vec<u8> {
    let mut row = Vec::with_capacity(ranges.len() * 4);
    for range in ranges {
        put_varint(&mut row, u64::from(range.start));
        put_varint(&mut row, u64::from(range.end - range.start));
    }
    row
}

pub(crate) fn decode_rows(row: &[u8]) -> Result<Vec<Range<u32>>, DecodeError> {
    let mut reader = Reader::new(row);
    let mut ranges = Vec::new();
    while !reader.is_empty() {
        let start = number(&mut reader)?;
        let end = start.checked_add(number(&mut reader)?);
        ranges.push(start..end.ok_or(DecodeError::malformed("row range", "past the last row"))?);
    }
    Ok(ranges)
}

pub(crate) fn decode_report(shard: ShardId, stage: StageId, row: &[u8]) -> Result<WatermarkReport, DecodeError> {
    Ok(WatermarkReport { stage, shard, watermark: Timestamp::decode(&mut Reader::new(row))? })
}

fn number(reader: &mut Reader<'_>) -> Result<u32, DecodeError> {
    u32::try_from(reader.varint()?).map_err(|_| DecodeError::malformed("number", "more than 32 bits"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const JOB: JobNumber = JobNumber(7);

    #[test]
    fn keys_are_taken_apart_as_they_were_put_together() {
        let (shard, stage) = (ShardId(3), StageId(9));
        for partition in [Partition::Own, Partition::Broadcast] {
            let position = Position { partition, offset: 1 << 40 };
            let expected = match partition {
                Partition::Own => LogKey::Entry(shard, position.offset),
                Partition::Broadcast => LogKey::Broadcast(position.offset),
            };
            assert_eq!(parse(&entry(JOB, shard, position)), Ok(expected));
            assert_eq!(parse(&remaining(JOB, shard, position)), Ok(LogKey::Remaining(shard, position)));
        }
        assert_eq!(parse(&payload(JOB, 5)), Ok(LogKey::Payload(5)));
        assert_eq!(parse(&report(JOB, shard, stage)), Ok(LogKey::Report(shard, stage)));
        assert!(parse(&[0, 0, 0, 7, 99]).is_err());
        assert!(parse(&[0, 0, 0, 7, PAYLOADS]).is_err());
    }

    #[test]
    fn a_jobs_keys_are_in_its_range() {
        let range = JOB.range();
        for key in [payload(JOB, u64::MAX).to_vec(), chunk(JOB, 0, 0).to_vec(), cell(JOB, ShardId(u32::MAX), &[0xff; 9])] {
            assert!(key.as_slice() >= range.start.as_slice() && key.as_slice() < range.end.as_slice());
        }
    }

    #[test]
    fn rows_round_trip() {
        let position = Position { partition: Partition::Own, offset: 12 };
        for not_before_ms in [None, Some(-5), Some(i64::MAX)] {
            let header = EntryHeader {
                position,
                stage: StageId(1),
                input: 2,
                producer: (StageId(3), ShardId(4)),
                rows: 5,
                remaining: std::iter::once(0..5).collect(),
                bytes: 1 << 33,
                hold: Timestamp::MIN,
                window_end: Timestamp::GLOBAL_WINDOW_END,
                not_before_ms,
            };
            assert_eq!(decode_entry(&encode_entry(&header, 77), position), Ok((header, 77)));
        }
        let ranges = vec![0..1, 5..u32::MAX];
        assert_eq!(decode_rows(&encode_rows(&ranges)), Ok(ranges));
        assert_eq!(decode_job(&encode_job(JOB, 16, b"text")), Ok((JOB, 16, Bytes::from_static(b"text"))));
        assert_eq!(decode_stored(&encode_stored(3, 9)), Ok((3, 9)));
    }
}
