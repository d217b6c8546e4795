//! Asks an SDK which windows of a key merge. Answers are kept: Beam's window functions say the same about the same windows.

use std::collections::HashMap;

use bytes::Bytes;
use engine::grouping::{MergeError, MergedWindows, WindowMerger};
use model::coder::skip_iterable;
use model::{Batch, BatchBuilder, Coder, DecodeError, Reader, Timestamp, pane, window};

use crate::aside::Aside;
use crate::job::Failure;

/// Answers that are kept; when there are more, all are forgotten.
const ANSWERS_MAX: usize = 4_096;

/// See the file's head. For one stage of one shard.
pub struct Merger {
    aside: Aside,
    window: Coder,
    answers: HashMap<Vec<Bytes>, Vec<MergedWindows>>,
    failure: Option<Failure>,
}

impl Merger {
    /// Asks `aside`; `window` is the wire coder of windows.
    pub fn new(aside: Aside, window: Coder) -> Self {
        Merger { aside, window, answers: HashMap::new(), failure: None }
    }

    /// Why the last question was not answered, if it was not.
    pub fn take_failure(&mut self) -> Option<Failure> {
        self.failure.take()
    }

    fn ask(&mut self, windows: &[Bytes]) -> Result<Vec<MergedWindows>, Failure> {
        let batches = self.aside.run(vec![question(windows)])?;
        let malformed = |what: String| Failure::internal(format!("\"{}\" was answered with {what}", self.aside.name()));
        let mut rows = batches.iter().flat_map(Batch::iter);
        let (Some(row), None) = (rows.next(), rows.next()) else {
            return Err(malformed("not exactly one element".into()));
        };
        merged(row.value, &self.window).map_err(|error| malformed(format!("a malformed element: {error}")))
    }
}

impl WindowMerger for Merger {
    fn merge(&mut self, windows: &[Bytes]) -> Result<Vec<MergedWindows>, MergeError> {
        if let Some(answer) = self.answers.get(windows) {
            return Ok(answer.clone());
        }
        let answer = self.ask(windows).map_err(|failure| {
            let error = MergeError(failure.to_string());
            self.failure = Some(failure);
            error
        })?;
        if self.answers.len() >= ANSWERS_MAX {
            self.answers.clear();
        }
        self.answers.insert(windows.to_vec(), answer.clone());
        Ok(answer)
    }
}

/// `KV<bytes, Iterable<W>>` with no bytes.
fn question(windows: &[Bytes]) -> Batch {
    let mut builder = BatchBuilder::new();
    builder.push_with(Timestamp::MIN, window::GLOBAL_SET, pane::NO_FIRING, |out| {
        out.push(0);
        out.extend_from_slice(&(windows.len() as i32).to_be_bytes());
        windows.iter().for_each(|window| out.extend_from_slice(window));
    });
    builder.finish()
}

/// Reads `KV<bytes, KV<Iterable<W>, Iterable<KV<W, Iterable<W>>>>>`; the windows that stay are of no interest.
fn merged(answer: &[u8], window: &Coder) -> Result<Vec<MergedWindows>, DecodeError> {
    let mut reader = Reader::new(answer);
    reader.length_prefixed()?;
    skip_iterable(&mut reader, false, |reader| window.skip(reader))?;
    let mut all = Vec::new();
    skip_iterable(&mut reader, false, |reader| {
        let result = taken(reader, window)?;
        let mut sources = Vec::new();
        skip_iterable(reader, false, |reader| {
            sources.push(taken(reader, window)?);
            Ok(())
        })?;
        all.push(MergedWindows { result, sources });
        Ok(())
    })?;
    match reader.is_empty() {
        true => Ok(all),
        false => Err(DecodeError::malformed("merged windows", "bytes are left over")),
    }
}

fn taken(reader: &mut Reader<'_>, window: &Coder) -> Result<Bytes, DecodeError> {
    let from = reader.position();
    window.skip(reader)?;
    Ok(Bytes::copy_from_slice(reader.between(from, reader.position())))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Windows that are bytes of one letter: `a` is written 01 61.
    fn check(answer: &str, expected: Result<&str, ()>) {
        let bytes: Vec<u8> = answer.split_whitespace().map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect();
        let text = |bytes: &Bytes| String::from_utf8_lossy(&bytes[1..]).into_owned();
        let shown = merged(&bytes, &Coder::Bytes).map(|merged| {
            let one = |one: &MergedWindows| format!("{}={}", text(&one.result), one.sources.iter().map(text).collect::<String>());
            merged.iter().map(one).collect::<Vec<_>>().join(" ")
        });
        assert_eq!(shown.map_err(|_| ()), expected.map(str::to_owned));
    }

    #[test]
    fn answers_are_read_and_not_trusted() {
        let (two_stay, nothing_stays) = ("00 00 00 02 01 61 01 62", "00 00 00 00");
        check(&format!("00 {two_stay} {nothing_stays}"), Ok(""));
        check(&format!("01 6e {nothing_stays} 00 00 00 01 01 63 {two_stay}"), Ok("c=ab"));
        check(&format!("00 {nothing_stays} ff ff ff ff 01 01 63 {two_stay} 01 01 64 ff ff ff ff 01 01 65 00 00"), Ok("c=ab d=e"));
        check(&format!("00 {two_stay}"), Err(()));
        check(&format!("00 {two_stay} {nothing_stays} 00"), Err(()));
        check("00 7f ff ff ff 01 61", Err(()));
        check("00 ff ff ff fe 01 61", Err(()));
    }
}
