//! The DoFns that every subject of the suite offers, and the native worker's.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use model::Timestamp;
use model::batch::Row;
use model::{FiredTimer, RawTime, WindowCoder, pane, window};

use super::harness::{Dofn, ENVIRONMENT, Subject};
use crate::Worker;
use crate::reference::{DOFN_NATIVE, Emitter, NativeDoFn, NativeWorker, TimerId};

/// What a DoFn does with elements of the `bytes` coder. Timestamps, windows and panes are kept. Those with state and timers read
/// pairs of `bytes` and make `bytes`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Behaviour {
    /// Emits every element.
    Identity,
    /// Emits elements whose first byte is even. Elements are not empty.
    Even,
    /// Emits an element as often as its first byte says.
    Repeat,
    /// Emits elements with an even first byte to the main output, others to [`SIDE_TAG`].
    Route,
    /// Emits every element but fails on [`POISON`] with a message that contains `poison`.
    Poison,
    /// Emits nothing but, in the global window at [`EDGE_TIMESTAMP_MS`], `start` when a bundle starts, and when it finishes
    /// `finish` and the number of elements of this bundle as one byte.
    Edges,
    /// Emits every element, adds one to [`METRIC_COUNTER`] and the element's length to [`METRIC_DISTRIBUTION`].
    Measure,
    /// Does with its state [`STATE`], a bag of `bytes`, what the first byte of the value says: `+` adds the rest of the value, `-`
    /// clears, `?` emits the members one after another, each with its length in front, `!` fails after it has added the rest.
    Remember,
    /// Sets (`+`) or clears (`-`) the timer of family [`FAMILY`] whose tag is the rest of the value. It is to fire at the element's
    /// time and holds nothing. When a timer fires, emits `fired` and its tag at its time, and sets it again for one millisecond
    /// later, holding what it held.
    Remind,
    /// Asks for every element to hear that its bundle is durable. Emits, as one byte, for how many elements it has heard so far,
    /// in whatever slot of the worker.
    Heed,
}

/// Tag of the main output.
pub const MAIN_TAG: &str = "output";
/// Tag of the second output of [`Behaviour::Route`].
pub const SIDE_TAG: &str = "odd";
/// The element that [`Behaviour::Poison`] fails on.
pub const POISON: &[u8] = b"poison";
/// Timestamp of what [`Behaviour::Edges`] emits.
pub const EDGE_TIMESTAMP_MS: i64 = 7;
/// Name of the counter of [`Behaviour::Measure`].
pub const METRIC_COUNTER: &str = "seen";
/// Name of its distribution.
pub const METRIC_DISTRIBUTION: &str = "sizes";

/// The state of [`Behaviour::Remember`].
pub const STATE: &str = "members";
/// The timer family of [`Behaviour::Remind`].
pub const FAMILY: &str = "reminders";

/// The reference worker with all behaviours.
pub fn native(asynchronous: bool) -> impl Subject {
    Native { asynchronous }
}

struct Native {
    asynchronous: bool,
}

impl Subject for Native {
    fn worker(&self) -> Arc<dyn Worker> {
        let heard = Arc::<AtomicU8>::default();
        let worker = NativeWorker::new()
            .with("Heed", move || heed(heard.clone()))
            .with("Identity", || emitting(|_, _| 1))
            .with("Even", || emitting(|first, _| u8::from(first.is_multiple_of(2))))
            .with("Repeat", || emitting(|first, _| first))
            .with("Route", || {
                |row: Row<'_>, out: &mut Emitter| {
                    out.emit(if content(row)[0].is_multiple_of(2) { MAIN_TAG } else { SIDE_TAG }, row);
                    Ok(())
                }
            })
            .with("Poison", || {
                |row: Row<'_>, out: &mut Emitter| {
                    out.emit(MAIN_TAG, row);
                    if content(row) == POISON { Err("this is poison".to_owned()) } else { Ok(()) }
                }
            })
            .with("Remember", || remember)
            .with("Remind", || Remind)
            .with("Edges", || Edges { seen: 0 })
            .with("Measure", || {
                emitting(|_, measured| {
                    let (length, out) = measured;
                    out.count(METRIC_COUNTER, 1);
                    out.measure(METRIC_DISTRIBUTION, length);
                    1
                })
            });
        Arc::new(if self.asynchronous { worker.asynchronous() } else { worker })
    }

    fn dofn(&self, behaviour: Behaviour) -> Dofn {
        Dofn { environment: ENVIRONMENT, urn: DOFN_NATIVE.to_owned(), payload: format!("{behaviour:?}").into() }
    }
}

/// A DoFn that emits an element as often as `times` says of its first byte (0 if it is empty) and its length.
fn emitting(
    times: impl Fn(u8, (i64, &mut Emitter)) -> u8 + Send,
) -> impl FnMut(Row<'_>, &mut Emitter) -> Result<(), String> + Send {
    move |row: Row<'_>, out: &mut Emitter| {
        let content = content(row);
        let times = times(content.first().copied().unwrap_or(0), (content.len() as i64, out));
        (0..times).for_each(|_| out.emit(MAIN_TAG, row));
        Ok(())
    }
}

/// The bytes of an element of the `bytes` coder.
pub(super) fn content<'a>(row: Row<'a>) -> &'a [u8] {
    model::Reader::new(row.value).length_prefixed().expect("the suite's elements are well-formed")
}

/// The nested form of an element of the `bytes` coder.
pub(super) fn element(content: &[u8]) -> Vec<u8> {
    let mut value = Vec::new();
    model::reader::put_length_prefixed(&mut value, content);
    value
}

/// The encoded key of a pair, the first byte of its value and the rest of it.
fn pair<'a>(row: Row<'a>) -> (&'a [u8], u8, &'a [u8]) {
    let mut reader = model::Reader::new(row.value);
    reader.length_prefixed().expect("the suite's elements are well-formed");
    let key = &row.value[..reader.position()];
    let value = reader.length_prefixed().expect("the suite's elements are well-formed");
    (key, value[0], &value[1..])
}

/// The one window of a row of the suite.
fn window_of<'a>(row: Row<'a>) -> &'a [u8] {
    WindowCoder::Interval.windows_of(row.windows).expect("the suite's windows are intervals")[0]
}

fn remember(row: Row<'_>, out: &mut Emitter) -> Result<(), String> {
    let (key, does, rest) = pair(row);
    let members = out.bag(STATE, key, window_of(row))?;
    match does {
        b'+' => members.append(&element(rest)),
        b'-' => members.clear(),
        b'?' => {
            out.emit(MAIN_TAG, Row { value: &element(&members.read()?), ..row });
            Ok(())
        }
        _ => members.append(&element(rest)).and(Err("this is too much".to_owned())),
    }
}

fn heed(heard: Arc<AtomicU8>) -> impl FnMut(Row<'_>, &mut Emitter) -> Result<(), String> + Send {
    move |row, out| {
        out.emit(MAIN_TAG, Row { value: &element(&[heard.load(Ordering::SeqCst)]), ..row });
        let heard = heard.clone();
        out.after_commit(move || {
            heard.fetch_add(1, Ordering::SeqCst);
        });
        Ok(())
    }
}

struct Remind;

impl NativeDoFn for Remind {
    fn process(&mut self, row: Row<'_>, out: &mut Emitter) -> Result<(), String> {
        let (key, does, tag) = pair(row);
        let id = TimerId { family: FAMILY, tag, key, window: window_of(row) };
        match does {
            b'+' => out.set_timer(id, row.timestamp, Timestamp::MAX),
            _ => out.clear_timer(id),
        }
    }

    fn on_timer(&mut self, timer: &FiredTimer, out: &mut Emitter) -> Result<(), String> {
        let value = element(&[b"fired ", &timer.tag[..]].concat());
        let windows = window::single(&timer.window);
        out.emit(MAIN_TAG, Row { value: &value, timestamp: timer.fire.timestamp(), windows: &windows, pane: &timer.pane });
        let id = TimerId { family: FAMILY, tag: &timer.tag, key: &timer.key, window: &timer.window };
        out.set_timer(id, RawTime(timer.fire.0 + 1), timer.hold)
    }
}

struct Edges {
    seen: u8,
}

impl Edges {
    fn emit(out: &mut Emitter, content: &[u8]) {
        let timestamp = Timestamp::from_millis(EDGE_TIMESTAMP_MS);
        out.emit(MAIN_TAG, Row { value: &element(content), timestamp, windows: window::GLOBAL_SET, pane: pane::NO_FIRING });
    }
}

impl NativeDoFn for Edges {
    fn start_bundle(&mut self, out: &mut Emitter) -> Result<(), String> {
        self.seen = 0;
        Self::emit(out, b"start");
        Ok(())
    }

    fn process(&mut self, _row: Row<'_>, _out: &mut Emitter) -> Result<(), String> {
        self.seen += 1;
        Ok(())
    }

    fn finish_bundle(&mut self, out: &mut Emitter) -> Result<(), String> {
        Self::emit(out, &[b"finish".as_slice(), &[self.seen]].concat());
        Ok(())
    }
}
