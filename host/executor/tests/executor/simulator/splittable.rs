//! Splittable DoFns: pairing with a restriction, processing it, and truncating it when the job is drained.

use std::ops::Range;

use model::batch::Row;
use model::reader::put_varint;
use model::{Coder, Reader};
use plan::{Head, Routing};

use super::compile::{Compiler, collection, decode, decode_window, encode};
use super::pipeline::{at_position, positions};
use super::steps::{Steps, to_text};
use crate::dofns::Context;
use crate::plans::kv;

impl Compiler<'_> {
    /// Makes an element of every position.
    pub(super) fn restrictions(&mut self, index: usize, input: usize, reshuffled: bool) {
        let (output, windows) = (collection(index), self.coder(index));
        let source = self.paired(index, input, reshuffled, false);
        let stage = self.plans.maker(&source);
        self.transform(stage, &format!("t{index}"), &source, &output, kv(), windows, |row, context| {
            process(row, context, |position, key, value, context| {
                context.emit(Row { value: &encode(key, at_position(value, position)), ..row });
            });
            Ok(())
        });
    }

    /// Counts every position.
    pub(super) fn steps(&mut self, index: usize, input: usize, steps: Steps) {
        let windows = self.coder(index);
        let source = self.paired(index, input, steps.reshuffled, steps.unbounded);
        let (stage, name) = (self.plans.maker(&source), format!("t{index}"));
        self.plans.transform(stage, &name, &source, None);
        self.dofn(&name, move |row, context| {
            process(row, context, |position, key, value, context| {
                for window in windows.windows_of(row.windows).unwrap() {
                    let whose = (key, value, row.timestamp.millis(), decode_window(windows, window));
                    context.count(&to_text(whose, position), 1);
                }
            });
            Ok(())
        });
        if steps.truncates {
            let name = format!("t{index} truncate");
            self.plans.truncation(stage, &name);
            self.dofn(&name, |row, context| {
                let (element, Range { start, end }) = decode_restriction(row.value);
                if let Some(end) = Steps::truncated(start, end) {
                    context.emit(Row { value: &encode_restriction(element, start..end), ..row });
                }
                Ok(())
            });
        }
    }

    /// The collection of elements with their restrictions, at the head of a stage that processes them.
    fn paired(&mut self, index: usize, input: usize, reshuffled: bool, unbounded: bool) -> String {
        let (pairing, paired) = (format!("t{index} pair"), format!("c{index} paired"));
        let windows = self.coder(index);
        let (stage, source) = self.place(index, input, true);
        let restriction = Coder::Kv(Box::new(Coder::VarInt), Box::new(Coder::VarInt));
        let coder = Coder::Kv(Box::new(kv()), Box::new(restriction));
        self.transform(stage, &pairing, &source, &paired, coder, windows, |row, context| {
            let (_, value) = decode(row.value);
            context.emit(Row { value: &encode_restriction(row.value, 0..positions(value)), ..row });
            Ok(())
        });
        let routing = if reshuffled { Routing::RoundRobin } else { Routing::Local };
        let source = format!("c{index} restrictions");
        let head = Head::Restrictions { unbounded };
        self.plans.stage(&format!("restrictions {index}"), head, &[(&paired, routing)], &source);
        source
    }
}

/// Processes the positions of a restriction, as far as it comes this time, and leaves the rest.
fn process(row: Row<'_>, context: &mut Context<'_>, mut each: impl FnMut(u64, u8, u64, &mut Context<'_>)) {
    let (element, restriction) = decode_restriction(row.value);
    let (key, value) = decode(element);
    let (end, delay_ms) = context.checkpoint(restriction.clone());
    for position in restriction.start..end {
        each(position, key, value, context);
    }
    if end < restriction.end {
        context.leave(Row { value: &encode_restriction(element, end..restriction.end), ..row }, delay_ms);
    }
}

fn encode_restriction(element: &[u8], restriction: Range<u64>) -> Vec<u8> {
    let mut bytes = element.to_vec();
    put_varint(&mut bytes, restriction.start);
    put_varint(&mut bytes, restriction.end);
    bytes
}

fn decode_restriction(bytes: &[u8]) -> (&[u8], Range<u64>) {
    let mut reader = Reader::new(bytes);
    kv().skip(&mut reader).unwrap();
    let element = reader.between(0, reader.position());
    (element, reader.varint().unwrap()..reader.varint().unwrap())
}
