//! What is known of one window without reading its blocks: its runs and how far they are consumed.

use bytes::Bytes;
use model::reader::put_varint;
use model::{DecodeError, Reader, Timestamp};

/// A sorted sequence of groups in blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Run {
    /// Its number among the runs of the window; never used twice.
    pub(super) number: u32,
    /// How often its rows were merged into longer runs.
    pub(super) level: u8,
    /// Blocks that were written. Those before `position` are gone.
    pub(super) blocks: u32,
    /// Where the first group is that was not consumed.
    pub(super) position: Position,
    /// Bytes that are not consumed.
    pub(super) bytes: u64,
    /// How many of the runs that follow this one are being merged into it.
    pub(super) sources: u32,
}

/// A place in a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Position {
    pub(super) block: u32,
    pub(super) offset: u32,
}

impl Run {
    pub(super) fn new(number: u32) -> Self {
        Run { number, level: 0, blocks: 0, position: Position::default(), bytes: 0, sources: 0 }
    }

    fn encode(&self, out: &mut Vec<u8>) {
        let Position { block, offset } = self.position;
        for number in [self.number, self.level.into(), self.blocks, block, offset, self.sources] {
            put_varint(out, number.into());
        }
        put_varint(out, self.bytes);
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Run {
            number: number(reader)?,
            level: number(reader)? as u8,
            blocks: number(reader)?,
            position: Position { block: number(reader)?, offset: number(reader)? },
            sources: number(reader)?,
            bytes: reader.varint()?,
        })
    }

    pub(super) fn is_consumed(&self) -> bool {
        self.position.block >= self.blocks
    }
}

/// A window with rows. Runs are ordered by age: rows of one key keep the order in which they came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct OpenWindow {
    pub(super) runs: Vec<Run>,
    /// Rows that have not gone out.
    pub(super) rows: u64,
    /// What holds the output watermark.
    pub(super) hold: Timestamp,
    /// Panes are going out; no more rows come in.
    pub(super) firing: bool,
    /// Bytes that may be merged into longer runs, for what has been written.
    pub(super) merge_credit: u64,
    next_run: u32,
}

impl Default for OpenWindow {
    fn default() -> Self {
        OpenWindow { runs: Vec::new(), rows: 0, hold: Timestamp::MAX, firing: false, merge_credit: 0, next_run: 0 }
    }
}

impl OpenWindow {
    /// An empty run with the next free number.
    pub(super) fn next_run(&mut self) -> Run {
        self.next_run += 1;
        Run::new(self.next_run - 1)
    }

    pub(super) fn append(&mut self, run: Run) {
        self.merge_credit += run.bytes * super::compaction::CREDIT;
        self.runs.push(run);
    }

    /// Whether all rows have gone out.
    pub(super) fn is_consumed(&self) -> bool {
        self.runs.iter().all(Run::is_consumed)
    }

    pub(super) fn bytes(&self) -> u64 {
        self.runs.iter().map(|run| run.bytes).sum()
    }

    pub(super) fn encode(&self) -> Bytes {
        let mut out = Vec::with_capacity(32 + self.runs.len() * 16);
        out.push(u8::from(self.firing));
        out.extend_from_slice(&self.hold.encode());
        for number in [self.rows, self.merge_credit, self.next_run.into(), self.runs.len() as u64] {
            put_varint(&mut out, number);
        }
        self.runs.iter().for_each(|run| run.encode(&mut out));
        out.into()
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        let firing = reader.u8()? != 0;
        let hold = Timestamp::decode(&mut reader)?;
        let (rows, merge_credit, next_run) = (reader.varint()?, reader.varint()?, number(&mut reader)?);
        let runs = (0..reader.varint()?).map(|_| Run::decode(&mut reader)).collect::<Result<_, _>>()?;
        Ok(OpenWindow { runs, rows, hold, firing, merge_credit, next_run })
    }
}

fn number(reader: &mut Reader<'_>) -> Result<u32, DecodeError> {
    u32::try_from(reader.varint()?).map_err(|_| DecodeError::malformed("run", "a number over 32 bits"))
}
