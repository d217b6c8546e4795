//! The plan that most tests start from: numbers out of an impulse, each a key and itself.

use std::sync::Arc;

use model::batch::Row;
use model::reader::{put_length_prefixed, put_varint};
use model::windowing::WindowingStrategy;
use model::{FiredTimer, Keyed, Reader, Timestamp, WindowCoder};
use plan::{Head, Routing, StateKind};
use worker::Error;

use crate::dofns::{Context, DoFns, global_row};
use crate::plans::{Plans, kv};

/// A row: a key and a number.
pub(crate) fn encode(key: &[u8], value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    put_length_prefixed(&mut bytes, key);
    put_varint(&mut bytes, value);
    bytes
}

pub(crate) fn decode(bytes: &[u8]) -> (&[u8], u64) {
    let mut reader = Reader::new(bytes);
    (reader.length_prefixed().unwrap(), reader.varint().unwrap())
}

/// A plan in the making with its DoFns.
#[derive(Default)]
pub(crate) struct Draft {
    pub(crate) plans: Plans,
    pub(crate) dofns: DoFns,
}

impl Draft {
    pub(crate) fn dofn(
        &mut self,
        name: &str,
        dofn: impl Fn(Row<'_>, &mut Context<'_>) -> Result<(), Error> + Send + Sync + 'static,
    ) {
        self.dofns.insert(name.to_owned(), Arc::new(dofn));
    }

    /// Collection `name`: rows of a key and a number, out of a stage of its own.
    pub(crate) fn source(&mut self, name: &str, rows: impl IntoIterator<Item = (Vec<u8>, u64)>) {
        let impulse = format!("{name} impulse");
        let stage = self.plans.impulse(&format!("make {name}"), &impulse);
        self.plans.transform(stage, &format!("make {name}"), &impulse, Some((name, kv(), WindowCoder::Global)));
        let rows: Vec<_> = rows.into_iter().map(|(key, value)| encode(&key, value)).collect();
        self.dofn(&format!("make {name}"), move |_, context| {
            context.count("made", rows.len() as i64);
            rows.iter().for_each(|row| context.emit(global_row(row, Timestamp::from_millis(0))));
            Ok(())
        });
    }

    /// Collection `name`: numbers below `count`, with keys `0` to `9`.
    pub(crate) fn numbers(&mut self, name: &str, count: u64) {
        self.source(name, (0..count).map(|number| (format!("{}", number % 10).into_bytes(), number)));
    }

    /// A stage with one transform, both called `name`, that reads a collection evenly from all shards.
    pub(crate) fn stage(
        &mut self,
        name: &str,
        input: &str,
        output: Option<&str>,
        dofn: impl Fn(Row<'_>, &mut Context<'_>) -> Result<(), Error> + Send + Sync + 'static,
    ) -> model::StageId {
        let source = format!("{name} source");
        let stage = self.plans.stage(name, Head::Plain, &[(input, Routing::RoundRobin)], &source);
        self.plans.transform(stage, name, &source, output.map(|output| (output, kv(), WindowCoder::Global)));
        self.dofn(name, dofn);
        stage
    }

    /// A stage that groups a collection in the global window, with one transform.
    pub(crate) fn group(
        &mut self,
        name: &str,
        input: &str,
        output: Option<&str>,
        dofn: impl Fn(Row<'_>, &mut Context<'_>) -> Result<(), Error> + Send + Sync + 'static,
    ) {
        let source = format!("{name} groups");
        let head = Head::Grouping(Box::new(WindowingStrategy::global()));
        let stage = self.plans.stage(name, head, &[(input, Routing::ByKey)], &source);
        self.plans.transform(stage, name, &source, output.map(|output| (output, kv(), WindowCoder::Global)));
        self.dofn(name, dofn);
    }

    /// A stage that works by key, with one transform, both called `name`; its output is of the input's windows.
    pub(crate) fn by_key(
        &mut self,
        name: &str,
        input: &str,
        keyed: Keyed,
        states: &[(&str, StateKind)],
        dofn: impl Fn(Row<'_>, &mut Context<'_>) -> Result<(), Error> + Send + Sync + 'static,
        on_timer: impl Fn(&FiredTimer, &mut Context<'_>) -> Result<(), Error> + Send + Sync + 'static,
    ) {
        let (source, output, windows) = (format!("{name} source"), format!("{name} output"), keyed.windowing.window_coder);
        let families = keyed.timer_families.clone();
        let stage = self.plans.stage(name, Head::Keyed(Box::new(keyed)), &[(input, Routing::ByKey)], &source);
        self.plans.transform(stage, name, &source, Some((&output, kv(), windows)));
        families.into_iter().for_each(|domain| self.plans.timers(stage, domain));
        states.iter().for_each(|(state, kind)| self.plans.state(stage, state, kind.clone()));
        self.dofn(name, dofn);
        self.dofns.insert_on_timer(name.to_owned(), Arc::new(on_timer));
    }

    /// A stage `name` that adds up the numbers of a collection.
    pub(crate) fn sum(&mut self, name: &str, input: &str) {
        self.stage(name, input, None, |row, context| {
            context.count("rows", 1);
            context.count("sum", decode(row.value).1 as i64);
            Ok(())
        });
    }
}
