//! From a pipeline to a plan and its DoFns.
//!
//! Every element of a step that is looked at becomes a counter named after it, so that committed metrics hold the results
//! and say how often each was produced.

use std::sync::Arc;

use model::batch::Row;
use model::reader::{put_length_prefixed, put_varint};
use model::window::IntervalWindow;
use model::{BatchBuilder, Coder, Duration, Reader, StageId, Timestamp, WindowCoder, window};
use plan::{Head, Plan, Routing, ScriptEvent, WindowMapping};
use worker::Error;

use super::generate::Pipeline;
use super::keyed::ByKey;
use super::pipeline::{Event, Function, Op, join, side_number};
use super::windows::{Span, Windowing, end_of};
use crate::dice::Dice;
use crate::dofns::{Access, Context, DoFn, DoFns, global_row};
use crate::plans::{Plans, kv};

/// What runs.
pub(crate) struct Compiled {
    pub(crate) plan: Plan,
    pub(crate) dofns: DoFns,
    /// Steps whose elements are counted.
    pub(crate) looked_at: Vec<usize>,
}

pub(super) struct Compiler<'a> {
    pipeline: &'a Pipeline,
    pub(super) plans: Plans,
    dofns: DoFns,
}

pub(crate) fn compile(pipeline: &Pipeline, dice: &mut Dice) -> Compiled {
    let mut compiler = Compiler { pipeline, plans: Plans::new(), dofns: DoFns::new() };
    let mut looked_at = Vec::new();
    for (index, op) in pipeline.ops.iter().enumerate() {
        compiler.op(index, op);
        // A step that nobody looks at stays without consumers.
        if !op.is_leaf() && (index + 1 == pipeline.ops.len() || dice.chance(70)) {
            compiler.look_at(index, dice.chance(50));
            looked_at.push(index);
        }
    }
    Compiled { plan: compiler.plans.build(), dofns: compiler.dofns, looked_at }
}

pub(super) fn collection(index: usize) -> String {
    format!("c{index}")
}

impl Compiler<'_> {
    fn op(&mut self, index: usize, op: &Op) {
        let (output, name) = (collection(index), format!("t{index}"));
        let windows = self.coder(index);
        match op {
            Op::Source(elements) => {
                let stage = self.plans.impulse(&format!("source {index}"), &format!("{output} impulse"));
                let rows: Vec<_> = elements.iter().map(|element| (encode(element.key, element.value), element.time)).collect();
                let dofn = move |row: Row<'_>, context: &mut Context<'_>| {
                    for (value, time) in &rows {
                        context.emit(Row { value, timestamp: Timestamp::from_millis(*time), ..row });
                    }
                    Ok(())
                };
                self.transform(stage, &name, &format!("{output} impulse"), &output, kv(), windows, dofn);
            }
            Op::Script(events) => {
                let events = events.iter().map(script_event).collect();
                self.plans.script(&format!("script {index}"), events, &output, kv());
            }
            Op::ByKey { input, windowing, lateness_ms, by_key } => self.by_key(index, *input, *windowing, *lateness_ms, *by_key),
            Op::Map { input, function, fused } => {
                let (function, coder) = (*function, windows);
                let (stage, input) = self.place(index, *input, *fused);
                self.transform(stage, &name, &input, &output, kv(), windows, move |row, context| {
                    map(function, coder, row, context)
                });
            }
            Op::Window { input, windowing, fused } => {
                let windowing = *windowing;
                let (stage, input) = self.place(index, *input, *fused);
                self.transform(stage, &name, &input, &output, kv(), windows, move |row, context| {
                    let set = encode_set(&windowing.assign(row.timestamp.millis()));
                    context.emit(Row { windows: &set, ..row });
                    Ok(())
                });
            }
            Op::Reshuffle { input } => {
                let inputs = [(&*collection(*input), Routing::RoundRobin)];
                self.plans.stage(&format!("reshuffle {index}"), Head::Plain, &inputs, &output);
            }
            Op::Flatten { inputs } => {
                let inputs: Vec<_> = inputs.iter().map(|input| collection(*input)).collect();
                let inputs: Vec<_> = inputs.iter().map(|input| (&**input, Routing::Local)).collect();
                self.plans.stage(&format!("flatten {index}"), Head::Plain, &inputs, &output);
            }
            Op::Group { input, grouping, one_stage } => self.group(index, *input, *grouping, *one_stage),
            Op::Side { input, side, access, windowing } => self.side(index, *input, *side, *access, *windowing),
            Op::Restrictions { input, reshuffled } => self.restrictions(index, *input, *reshuffled),
            Op::Panes { input, firing, one_stage } => self.panes(index, *input, firing, *one_stage),
            Op::Steps { input, steps } => self.steps(index, *input, *steps),
        }
    }

    /// Of the windows of a step.
    pub(super) fn coder(&self, index: usize) -> WindowCoder {
        self.pipeline.windowings[index].coder()
    }

    /// Where a transform with one input runs, and what it reads there: in the stage that makes the input, or in one of its own.
    pub(super) fn place(&mut self, index: usize, input: usize, fused: bool) -> (StageId, String) {
        let input = collection(input);
        let maker = self.plans.maker(&input);
        if fused && self.plans.has_body(maker) {
            return (maker, input);
        }
        let source = format!("c{index} source");
        (self.plans.stage(&format!("stage {index}"), Head::Plain, &[(&input, Routing::Local)], &source), source)
    }

    #[allow(clippy::too_many_arguments, reason = "a transform has that many parts")]
    pub(super) fn transform(
        &mut self,
        stage: StageId,
        name: &str,
        input: &str,
        output: &str,
        coder: Coder,
        windows: WindowCoder,
        dofn: impl Fn(Row<'_>, &mut Context<'_>) -> Result<(), Error> + Send + Sync + 'static,
    ) {
        self.plans.transform(stage, name, input, Some((output, coder, windows)));
        self.dofn(name, dofn);
    }

    pub(super) fn dofn(
        &mut self,
        name: &str,
        dofn: impl Fn(Row<'_>, &mut Context<'_>) -> Result<(), Error> + Send + Sync + 'static,
    ) {
        self.dofns.insert(name.to_owned(), Arc::new(dofn) as DoFn);
    }

    fn by_key(&mut self, index: usize, input: usize, windowing: Windowing, lateness_ms: i64, by_key: ByKey) {
        let (output, name, windows) = (collection(index), format!("t{index}"), windowing.coder());
        let keyed = by_key.keyed(windowing, lateness_ms);
        let families = keyed.timer_families.clone();
        let source = format!("{output} source");
        let inputs = [(&*collection(input), Routing::ByKey)];
        let stage = self.plans.stage(&format!("by key {index}"), Head::Keyed(Box::new(keyed)), &inputs, &source);
        self.transform(stage, &name, &source, &output, kv(), windows, move |row, context| by_key.process(windows, row, context));
        self.dofns.insert_on_timer(name, by_key.on_timer(windows));
        families.into_iter().for_each(|domain| self.plans.timers(stage, domain));
        by_key.states().into_iter().for_each(|(state, kind)| self.plans.state(stage, state, kind));
    }

    fn side(&mut self, index: usize, input: usize, side: usize, access: Access, windowing: Windowing) {
        let (output, name) = (collection(index), format!("t{index}"));
        let windows = self.coder(index);
        let (stage, source) = self.place(index, input, false);
        self.transform(stage, &name, &source, &output, kv(), windows, move |row, context| {
            for main in windows.windows_of(row.windows).unwrap() {
                let (key, value) = decode(row.value);
                let window = windowing.side_window(end_of(decode_window(windows, main)));
                let read = context.side(access, &encode_window(window), &[1, key])?;
                let read = side_number(&decode_side(access, key, &read), access, key);
                context.emit(Row { value: &encode(key, join(value, read)), windows: &window::single(main), ..row });
            }
            Ok(())
        });
        let mapping = if windowing == Windowing::Global { WindowMapping::ToGlobal } else { WindowMapping::ByEnd };
        let strategy = windowing.strategy();
        self.plans.side(stage, &name, &collection(side), strategy, mapping);
    }

    /// Counts the elements of a step by what they are.
    fn look_at(&mut self, index: usize, fused: bool) {
        let windows = self.coder(index);
        let name = format!("look {index}");
        let input = collection(index);
        let maker = self.plans.maker(&input);
        let (stage, source) = if fused && self.plans.has_body(maker) {
            (maker, input)
        } else {
            let source = format!("{name} source");
            (self.plans.stage(&name, Head::Plain, &[(&input, Routing::Local)], &source), source)
        };
        self.plans.transform(stage, &name, &source, None);
        let dofn = move |row: Row<'_>, context: &mut Context<'_>| {
            let (key, value) = decode(row.value);
            for window in windows.windows_of(row.windows).unwrap() {
                context.count(&text(key, value, row.timestamp.millis(), decode_window(windows, window)), 1);
            }
            Ok(())
        };
        self.dofn(&name, dofn);
    }
}

fn script_event(event: &Event) -> ScriptEvent {
    match event {
        Event::Elements(elements) => {
            let mut builder = BatchBuilder::new();
            for element in elements {
                let value = encode(element.key, element.value);
                builder.push(global_row(&value, Timestamp::from_millis(element.time)));
            }
            ScriptEvent::Elements { output: 0, batch: builder.finish() }
        }
        Event::Watermark(millis) => ScriptEvent::Watermark { output: 0, watermark: Timestamp::from_millis(*millis) },
        Event::TimePasses(millis) => ScriptEvent::ProcessingTime(Duration(*millis)),
    }
}

fn map(function: Function, windows: WindowCoder, row: Row<'_>, context: &mut Context<'_>) -> Result<(), Error> {
    let (key, value) = decode(row.value);
    for (key, value) in function.apply(key, value) {
        context.emit(Row { value: &encode(key, value), ..row });
    }
    context.count("seen", windows.windows_of(row.windows).unwrap().len() as i64);
    Ok(())
}

pub(super) fn text(key: u8, value: u64, time: i64, window: Span) -> String {
    match window {
        Some((start, end)) => format!("{key}:{value} at {time} in {start}..{end}"),
        None => format!("{key}:{value} at {time}"),
    }
}

pub(crate) fn encode(key: u8, value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    put_length_prefixed(&mut bytes, &[key]);
    put_varint(&mut bytes, value);
    bytes
}

pub(crate) fn decode(bytes: &[u8]) -> (u8, u64) {
    let mut reader = Reader::new(bytes);
    let decoded = (reader.length_prefixed().unwrap()[0], reader.varint().unwrap());
    assert!(reader.is_empty());
    decoded
}

/// What was read from a side input, as keys and values; where only one of the two was read, the other is made up.
fn decode_side(access: Access, key: u8, bytes: &[u8]) -> Vec<(u8, u64)> {
    let mut reader = Reader::new(bytes);
    let mut read = Vec::new();
    while !reader.is_empty() {
        match access {
            Access::Elements => read.push((reader.length_prefixed().unwrap()[0], reader.varint().unwrap())),
            Access::Values => read.push((key, reader.varint().unwrap())),
            Access::Keys => read.push((reader.length_prefixed().unwrap()[0], 0)),
            Access::KeysAndValues => {
                let key = reader.length_prefixed().unwrap()[0];
                assert!(read.iter().all(|(other, _)| *other != key), "each key comes once");
                (0..reader.be_i32().unwrap()).for_each(|_| read.push((key, reader.varint().unwrap())));
            }
        }
    }
    if access == Access::Keys {
        let mut keys: Vec<u8> = read.iter().map(|(key, _)| *key).collect();
        keys.sort_unstable();
        assert!(keys.windows(2).all(|pair| pair[0] < pair[1]), "keys are distinct");
    }
    read
}

fn encode_window(window: Span) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Some((start, end)) = window {
        IntervalWindow { start: Timestamp::from_millis(start), end: Timestamp::from_millis(end) }.encode(&mut bytes);
    }
    bytes
}

fn encode_set(windows: &[Span]) -> Vec<u8> {
    let mut set = (windows.len() as i32).to_be_bytes().to_vec();
    windows.iter().for_each(|window| set.extend_from_slice(&encode_window(*window)));
    set
}

pub(crate) fn decode_window(coder: WindowCoder, bytes: &[u8]) -> Span {
    match coder {
        WindowCoder::Global => None,
        _ => {
            let window = IntervalWindow::decode(&mut Reader::new(bytes)).unwrap();
            Some((window.start.millis(), window.end.millis()))
        }
    }
}
