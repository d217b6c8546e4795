//! From a pipeline to a plan and its DoFns, and to the counters that they must come to.
//!
//! Every element of a step that is looked at becomes a counter named after it, so that committed metrics hold the results
//! and say how often each was produced.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::batch::Row;
use model::reader::{put_length_prefixed, put_varint};
use model::window::IntervalWindow;
use model::{BatchBuilder, Coder, Duration, Reader, StageId, Timestamp, WindowCoder, pane, window};
use plan::{Head, Plan, Routing, ScriptEvent, WindowMapping};
use worker::Error;

use super::generate::Pipeline;
use super::keyed::ByKey;
use super::pipeline::{Event, Function, Grouping, Op, Span, Windowing, at_position, end_of, fold, join, positions, side_number};
use crate::dice::Dice;
use crate::dofns::{Access, Context, DoFn, DoFns, global_row};
use crate::plans::{Plans, kv};

/// Values of user counters by transform and name.
pub(crate) type Counters = BTreeMap<(String, String), i64>;

/// What runs, and what must come of it.
pub(crate) struct Compiled {
    pub(crate) plan: Plan,
    pub(crate) dofns: DoFns,
    pub(crate) expected: Counters,
}

struct Compiler<'a> {
    pipeline: &'a Pipeline,
    plans: Plans,
    dofns: DoFns,
    expected: Counters,
}

pub(crate) fn compile(pipeline: &Pipeline, dice: &mut Dice) -> Compiled {
    let mut compiler = Compiler { pipeline, plans: Plans::new(), dofns: DoFns::new(), expected: Counters::new() };
    for (index, op) in pipeline.ops.iter().enumerate() {
        compiler.op(index, op);
        // A step that nobody looks at stays without consumers.
        if index + 1 == pipeline.ops.len() || dice.chance(70) {
            compiler.look_at(index, dice.chance(50));
        }
    }
    Compiled { plan: compiler.plans.build(), dofns: compiler.dofns, expected: compiler.expected }
}

fn collection(index: usize) -> String {
    format!("c{index}")
}

impl Compiler<'_> {
    fn op(&mut self, index: usize, op: &Op) {
        let (output, name) = (collection(index), format!("t{index}"));
        let windows = self.pipeline.windowings[index].coder();
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
            Op::ByKey { input, windowing, by_key } => self.by_key(index, *input, *windowing, *by_key),
            Op::Map { input, function, fused } => {
                let (function, coder) = (*function, windows);
                let (stage, input) = self.place(index, *input, *fused);
                self.transform(stage, &name, &input, &output, kv(), windows, move |row, context| {
                    map(function, coder, row, context)
                });
                let seen = self.pipeline.made[Self::input_of(op)].len() as i64;
                if seen > 0 {
                    self.expected.insert((name, "seen".to_owned()), seen);
                }
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
            Op::Flatten { left, right } => {
                let inputs = [(&*collection(*left), Routing::Local), (&*collection(*right), Routing::Local)];
                self.plans.stage(&format!("flatten {index}"), Head::Plain, &inputs, &output);
            }
            Op::Group { input, grouping, one_stage } => self.group(index, *input, *grouping, *one_stage),
            Op::Side { input, side, access, windowing } => self.side(index, *input, *side, *access, *windowing),
            Op::Restrictions { input, reshuffled } => self.restrictions(index, *input, *reshuffled),
        }
    }

    fn input_of(op: &Op) -> usize {
        match op {
            Op::Map { input, .. } => *input,
            other => panic!("{other:?} does not count"),
        }
    }

    /// Where a transform with one input runs, and what it reads there: in the stage that makes the input, or in one of its own.
    fn place(&mut self, index: usize, input: usize, fused: bool) -> (StageId, String) {
        let input = collection(input);
        let maker = self.plans.maker(&input);
        if fused && self.plans.has_body(maker) {
            return (maker, input);
        }
        let source = format!("c{index} source");
        (self.plans.stage(&format!("stage {index}"), Head::Plain, &[(&input, Routing::Local)], &source), source)
    }

    #[allow(clippy::too_many_arguments, reason = "a transform has that many parts")]
    fn transform(
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
        self.dofns.insert(name.to_owned(), Arc::new(dofn) as DoFn);
    }

    fn group(&mut self, index: usize, input: usize, grouping: Grouping, one_stage: bool) {
        let (output, windows) = (collection(index), self.pipeline.windowings[index].coder());
        let head = Head::Grouping(Box::new(grouping.strategy()));
        let groups = format!("{output} groups");
        let inputs = [(&*collection(input), Routing::ByKey)];
        let mut stage = self.plans.stage(&format!("group {index}"), head, &inputs, &groups);
        let mut source = groups.clone();
        if !one_stage {
            source = format!("{output} source");
            stage = self.plans.stage(&format!("after {index}"), Head::Plain, &[(&groups, Routing::Local)], &source);
        }
        self.transform(stage, &format!("t{index}"), &source, &output, kv(), windows, |row, context| {
            let mut reader = Reader::new(row.value);
            let key = reader.length_prefixed().unwrap()[0];
            let values: Vec<u64> = (0..reader.be_i32().unwrap()).map(|_| reader.varint().unwrap()).collect();
            assert!(reader.is_empty() && !values.is_empty());
            context.emit(Row { value: &encode(key, fold(&values)), pane: pane::NO_FIRING, ..row });
            Ok(())
        });
    }

    fn by_key(&mut self, index: usize, input: usize, windowing: Windowing, by_key: ByKey) {
        let (output, name, windows) = (collection(index), format!("t{index}"), windowing.coder());
        let keyed = by_key.keyed(windowing);
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
        let windows = self.pipeline.windowings[index].coder();
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

    fn restrictions(&mut self, index: usize, input: usize, reshuffled: bool) {
        let (output, windows) = (collection(index), self.pipeline.windowings[index].coder());
        let (pairing, paired) = (format!("t{index} pair"), format!("{output} paired"));
        let (stage, source) = self.place(index, input, true);
        let restriction = Coder::Kv(Box::new(Coder::VarInt), Box::new(Coder::VarInt));
        let coder = Coder::Kv(Box::new(kv()), Box::new(restriction));
        self.transform(stage, &pairing, &source, &paired, coder, windows, |row, context| {
            let (_, value) = decode(row.value);
            context.emit(Row { value: &encode_restriction(row.value, 0, positions(value)), ..row });
            Ok(())
        });
        let routing = if reshuffled { Routing::RoundRobin } else { Routing::Local };
        let source = format!("{output} restrictions");
        let head = Head::Restrictions { unbounded: false };
        let stage = self.plans.stage(&format!("restrictions {index}"), head, &[(&paired, routing)], &source);
        self.transform(stage, &format!("t{index}"), &source, &output, kv(), windows, |row, context| {
            let mut reader = Reader::new(row.value);
            kv().skip(&mut reader).unwrap();
            let element = reader.between(0, reader.position());
            let (from, to) = (reader.varint().unwrap(), reader.varint().unwrap());
            let (key, value) = decode(element);
            let (end, delay_ms) = context.checkpoint(from..to);
            for position in from..end {
                context.emit(Row { value: &encode(key, at_position(value, position)), ..row });
            }
            if end < to {
                context.leave(Row { value: &encode_restriction(element, end, to), ..row }, delay_ms);
            }
            Ok(())
        });
    }

    /// Counts the elements of a step by what they are.
    fn look_at(&mut self, index: usize, fused: bool) {
        let windows = self.pipeline.windowings[index].coder();
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
        self.dofns.insert(name.clone(), Arc::new(dofn));
        for element in &self.pipeline.made[index] {
            let counter = (name.clone(), text(element.key, element.value, element.time, element.window));
            *self.expected.entry(counter).or_default() += 1;
        }
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

fn text(key: u8, value: u64, time: i64, window: Span) -> String {
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

fn encode_restriction(element: &[u8], from: u64, to: u64) -> Vec<u8> {
    let mut bytes = element.to_vec();
    put_varint(&mut bytes, from);
    put_varint(&mut bytes, to);
    bytes
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
