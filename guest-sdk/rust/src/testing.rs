//! Stateful DoFns under test, without a runner: state in memory, and a watermark and a clock that move when the test says so.
//!
//! Everything is in the global window unless [`TestDoFn::in_window`] says otherwise. Windows do not expire by themselves.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use crate::keyed::{Keyed, Runs};
use crate::output::{Output, Segment};
use crate::runtime::{Column, DueTimers, Failure, Input, Instance, KeyedInput, KeyedOutcome, Outcome, Rows};
use crate::state::{ChangeKind, Changes, FieldKind, FieldSpec, Page, States, Store};
use crate::timers::TimerChange;
use crate::{Decode, Element, Outputs, Reader, StatefulDoFn};

/// One stateful DoFn. Every element and every timer is a batch of its own.
pub struct TestDoFn<D: StatefulDoFn> {
    keyed: Keyed<D>,
    memory: Memory,
    emitted: Vec<(u32, Segment)>,
    window: Vec<u8>,
    timers: BTreeMap<TimerId, (i64, i64)>,
    watermark_ms: i64,
    now_ms: i64,
}

/// What tells timers apart: family, tag, key and window.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct TimerId {
    family: u32,
    tag: String,
    key: Vec<u8>,
    window: Vec<u8>,
}

impl<D: StatefulDoFn> TestDoFn<D> {
    /// Sets the DoFn up and begins a bundle.
    pub fn new(config: &[u8]) -> Result<Self, Failure> {
        let memory = Memory::of(D::State::FIELDS);
        let keyed = Keyed::new(config, usize::MAX, Box::new(memory.clone()))?;
        let (emitted, window, timers) = (Vec::new(), Vec::new(), BTreeMap::new());
        let mut test = TestDoFn { keyed, memory, emitted, window, timers, watermark_ms: i64::MIN, now_ms: 0 };
        let started = test.keyed.start_bundle()?;
        test.collect(started)?;
        Ok(test)
    }

    /// Elements are in this window from now on: its encoded bytes.
    pub fn in_window(&mut self, window: &[u8]) -> &mut Self {
        self.window = window.to_vec();
        self
    }

    /// Processes an element with an event time, in milliseconds since the epoch.
    pub fn process<K: Element, V: Element>(&mut self, (key, value): (K, V), timestamp_ms: i64) -> Result<(), Failure> {
        let (mut key_bytes, mut element) = (Vec::new(), Vec::new());
        key.encode(&mut key_bytes);
        (key, value).encode(&mut element);
        let window = self.window.clone();
        let set = [&1i32.to_be_bytes()[..], &window].concat();
        self.memory.enter(&key_bytes, &window);
        let (ends, set_ends, now_ms) = ([element.len() as u32], [set.len() as u32], self.now_ms);
        let rows = Input {
            values: &element,
            ends: &ends,
            timestamps: &[timestamp_ms],
            windows: Column { bytes: &set, ends: &set_ends, index: &[] },
            panes: Column { bytes: NO_FIRING, ends: &[1], index: &[] },
        };
        let done = one_run(&key_bytes, &window, |runs| self.keyed.process_keyed(&KeyedInput { rows, runs, now_ms }))?;
        self.settle(done, &key_bytes, &window)
    }

    /// Moves the watermark on and fires what is due, in the order of time, also what is set meanwhile.
    pub fn advance_watermark_to(&mut self, watermark_ms: i64) -> Result<(), Failure> {
        self.watermark_ms = self.watermark_ms.max(watermark_ms);
        self.fire(FieldKind::EventTimer, self.watermark_ms)
    }

    /// Moves the clock on and fires what is due.
    pub fn advance_clock_to(&mut self, now_ms: i64) -> Result<(), Failure> {
        self.now_ms = self.now_ms.max(now_ms);
        self.fire(FieldKind::ProcessingTimer, self.now_ms)
    }

    /// The window expires for a key: calls back if the DoFn wants it, and removes state and timers.
    pub fn expire<K: Element>(&mut self, key: K) -> Result<(), Failure> {
        let (mut key_bytes, window) = (Vec::new(), self.window.clone());
        key.encode(&mut key_bytes);
        if D::ON_WINDOW_EXPIRATION {
            let end_ms = crate::Window::new(&window).max_timestamp_ms();
            let family = timers::<D>().count() as u32;
            let id = TimerId { family, tag: String::new(), key: key_bytes.clone(), window: window.clone() };
            self.call_back(&id, (end_ms, end_ms))?;
        }
        self.timers.retain(|id, _| id.key != key_bytes || id.window != window);
        self.memory.forget(&key_bytes, &window);
        Ok(())
    }

    /// Ends the bundle and begins another one.
    pub fn finish_bundle(&mut self) -> Result<(), Failure> {
        for edge in [self.keyed.finish_bundle()?, self.keyed.start_bundle()?] {
            self.collect(edge)?;
        }
        Ok(())
    }

    /// When the next timers of a family are to fire, in milliseconds since the epoch, of all keys and windows.
    pub fn timers(&self, family: &str) -> Vec<i64> {
        let number = timers::<D>().position(|field| field.name == family);
        let set = self.timers.iter().filter(|(id, _)| Some(id.family as usize) == number);
        let mut times: Vec<i64> = set.map(|(_, (fire_ms, _))| *fire_ms).collect();
        times.sort_unstable();
        times
    }

    fn fire(&mut self, kind: FieldKind, until_ms: i64) -> Result<(), Failure> {
        let mine = |id: &TimerId| timers::<D>().nth(id.family as usize).is_some_and(|field| field.kind == kind);
        loop {
            let due = self.timers.iter().filter(|(id, (fire_ms, _))| mine(id) && *fire_ms <= until_ms);
            let Some((id, times)) = due.min_by_key(|(_, times)| **times).map(|(id, times)| (id.clone(), *times)) else {
                return Ok(());
            };
            self.timers.remove(&id);
            self.call_back(&id, times)?;
        }
    }

    fn call_back(&mut self, id: &TimerId, (fire_ms, hold_ms): (i64, i64)) -> Result<(), Failure> {
        self.memory.enter(&id.key, &id.window);
        let (tag_ends, now_ms) = ([id.tag.len() as u32], self.now_ms);
        let tags = Rows { bytes: id.tag.as_bytes(), ends: &tag_ends };
        let (families, fire, hold) = (&[id.family][..], &[fire_ms][..], &[hold_ms][..]);
        let done =
            one_run(&id.key, &id.window, |runs| self.keyed.on_timers(&DueTimers { runs, families, tags, fire, hold, now_ms }))?;
        self.settle(done, &id.key, &id.window)
    }

    fn settle(&mut self, done: KeyedOutcome, key: &[u8], window: &[u8]) -> Result<(), Failure> {
        self.collect(done.outcome)?;
        self.memory.apply(done.changes);
        for TimerChange { family, tag, set, .. } in done.timers {
            let id = TimerId { family, tag, key: key.to_vec(), window: window.to_vec() };
            match set {
                Some(times) => drop(self.timers.insert(id, times)),
                None => drop(self.timers.remove(&id)),
            }
        }
        Ok(())
    }

    fn collect(&mut self, outcome: Outcome) -> Result<(), Failure> {
        self.emitted.extend(outcome.outputs);
        outcome.rejected.into_iter().next().map_or(Ok(()), |refused| Err(Failure(refused.detail)))
    }

    /// What was emitted to the output with a tag since the last time.
    ///
    /// # Panics
    /// When its elements are not of type `T`.
    pub fn take_output<T: for<'a> Decode<'a>>(&mut self, tag: &str) -> Vec<T> {
        let number = <D::Out as Outputs>::SPECS.iter().position(|output| output.tag == tag);
        let taken = self.emitted.extract_if(.., |(output, _)| Some(*output as usize) == number);
        taken.flat_map(|(_, segment)| segment.into_values()).collect()
    }
}

impl<T, D> TestDoFn<D>
where
    T: Element + for<'a> Decode<'a>,
    D: StatefulDoFn<Out = Output<T>>,
{
    /// What was emitted since the last time, of a DoFn with one output.
    pub fn take_outputs(&mut self) -> Vec<T> {
        self.take_output(crate::output::MAIN_TAG)
    }
}

/// The pane of elements that no trigger produced.
const NO_FIRING: &[u8] = &[0x0f];

fn one_run<R>(key: &[u8], window: &[u8], call: impl FnOnce(Runs<'_>) -> R) -> R {
    let windows = Column { bytes: window, ends: &[window.len() as u32], index: &[] };
    call(Runs { key_bytes: key, key_ends: &[key.len() as u32], windows, run_of: &[0] })
}

fn timers<D: StatefulDoFn>() -> impl Iterator<Item = &'static FieldSpec> {
    D::State::FIELDS.iter().filter(|field| field.kind.is_timer())
}

/// State in memory. Clones share it.
#[derive(Clone)]
pub(crate) struct Memory {
    /// By number of the state.
    ordered: Rc<[bool]>,
    cells: Rc<RefCell<Cells>>,
}

#[derive(Default)]
struct Cells {
    /// Key and window of run 0.
    run: (Vec<u8>, Vec<u8>),
    /// By key and window, state and part. All entries of an ordered list are its empty part.
    parts: BTreeMap<Place, Vec<u8>>,
}

type Place = ((Vec<u8>, Vec<u8>), u32, Vec<u8>);

impl Memory {
    pub(crate) fn of(fields: &[FieldSpec]) -> Self {
        let states = fields.iter().filter(|field| !field.kind.is_timer());
        let ordered = states.map(|field| matches!(field.kind, FieldKind::OrderedList(_))).collect();
        Memory { ordered, cells: Rc::default() }
    }

    fn enter(&self, key: &[u8], window: &[u8]) {
        self.cells.borrow_mut().run = (key.to_vec(), window.to_vec());
    }

    fn forget(&self, key: &[u8], window: &[u8]) {
        let run = (key.to_vec(), window.to_vec());
        self.cells.borrow_mut().parts.retain(|(of, _, _), _| *of != run);
    }
}

impl Store for Memory {
    fn read(&self, _run: u32, state: u32, part: &[u8], _next: Option<&[u8]>) -> Page {
        let cells = self.cells.borrow();
        let ordered = self.ordered[state as usize];
        let place = (cells.run.clone(), state, if ordered { Vec::new() } else { part.to_vec() });
        let elements = cells.parts.get(&place).cloned().unwrap_or_default();
        Page { elements: if ordered { entries(&elements, part, true) } else { elements }, next: None }
    }

    fn keys(&self, _run: u32, state: u32, _next: Option<&[u8]>) -> Page {
        let cells = self.cells.borrow();
        let mine = cells.parts.keys().filter(|(run, of, _)| *run == cells.run && *of == state);
        Page { elements: mine.flat_map(|(_, _, part)| part.clone()).collect(), next: None }
    }

    fn apply(&self, changes: Changes) {
        let cells = &mut *self.cells.borrow_mut();
        for (state, kind, part, elements) in changes.iter() {
            let place = |part: &[u8]| (cells.run.clone(), state, part.to_vec());
            match kind {
                ChangeKind::Append => cells.parts.entry(place(part)).or_default().extend_from_slice(elements),
                ChangeKind::Replace => drop(cells.parts.insert(place(part), elements.to_vec())),
                ChangeKind::Clear if self.ordered[state as usize] => {
                    let all = cells.parts.entry(place(&[])).or_default();
                    *all = entries(all, part, false);
                }
                ChangeKind::Clear if part.is_empty() => {
                    cells.parts.retain(|(of, other, _), _| *of != cells.run || *other != state);
                }
                ChangeKind::Clear => drop(cells.parts.remove(&place(part))),
            }
        }
    }
}

/// The entries of an ordered list inside a range, or those outside.
fn entries(all: &[u8], range: &[u8], inside: bool) -> Vec<u8> {
    let bound = |at: usize| i64::from_be_bytes(range[at..at + 8].try_into().expect("a range has sixteen bytes"));
    let (start, end) = (bound(0), bound(8));
    let (mut reader, mut kept) = (Reader::new(all), Vec::new());
    while !reader.is_empty() {
        let from = all.len() - reader.remaining();
        let sort_key = reader.varint().and_then(|sort_key| reader.length_prefixed().map(|_| sort_key as i64));
        let sort_key = sort_key.expect("entries were written whole");
        if (start..end).contains(&sort_key) == inside {
            kept.extend_from_slice(&all[from..all.len() - reader.remaining()]);
        }
    }
    kept
}
