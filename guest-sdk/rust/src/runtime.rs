//! How DoFns are called with batches: the part of a component that is the same natively.
//!
//! The boundary's own types stay in [`crate::component`]; here are plain ones that borrow from them.

use crate::dofn::chain;
use crate::keyed::Runs;
use crate::manifest::Description;
use crate::metrics::{Change, take_changes};
use crate::output::Segment;
use crate::state::Changes;
use crate::timers::TimerChange;
use crate::{Context, Decode, DecodeError, DoFn, Outputs, Reader};

/// Input rows, as `types.batch` has them.
#[derive(Clone, Copy, Debug, Default)]
#[allow(missing_docs, reason = "the fields are those of types.batch")]
pub struct Input<'a> {
    pub values: &'a [u8],
    pub ends: &'a [u32],
    pub timestamps: &'a [i64],
    pub windows: Column<'a>,
    pub panes: Column<'a>,
}

/// `types.dictionary`.
#[derive(Clone, Copy, Debug, Default)]
#[allow(missing_docs, reason = "the fields are those of types.dictionary")]
pub struct Column<'a> {
    pub bytes: &'a [u8],
    pub ends: &'a [u32],
    pub index: &'a [u32],
}

impl<'a> Column<'a> {
    #[inline]
    pub(crate) fn get(&self, row: usize) -> Option<&'a [u8]> {
        self.entry(self.index.get(row).map_or(0, |entry| *entry as usize))
    }

    #[inline]
    pub(crate) fn entry(&self, entry: usize) -> Option<&'a [u8]> {
        let end = *self.ends.get(entry)? as usize;
        let start = if entry == 0 { 0 } else { self.ends[entry - 1] as usize };
        self.bytes.get(start..end)
    }
}

impl<'a> Input<'a> {
    #[inline]
    pub(crate) fn context(&self, row: usize) -> Context<'a> {
        let timestamp = if self.timestamps.len() == 1 { self.timestamps.first() } else { self.timestamps.get(row) };
        Context::new(timestamp.copied(), self.windows.get(row), self.panes.get(row))
    }
}

/// Input rows with keys, as `keyed.keyed-batch` has them.
#[derive(Clone, Copy, Debug, Default)]
#[allow(missing_docs, reason = "the fields are those of keyed.keyed-batch")]
pub struct KeyedInput<'a> {
    pub rows: Input<'a>,
    pub runs: Runs<'a>,
    pub now_ms: i64,
}

/// Timers that are due, as `keyed.due-timers` has them.
#[derive(Clone, Copy, Debug, Default)]
#[allow(missing_docs, reason = "the fields are those of keyed.due-timers")]
pub struct DueTimers<'a> {
    pub runs: Runs<'a>,
    pub families: &'a [u32],
    pub tags: Rows<'a>,
    pub fire: &'a [i64],
    pub hold: &'a [i64],
    pub now_ms: i64,
}

impl DueTimers<'_> {
    /// Family, time to fire and hold.
    pub(crate) fn at(&self, number: usize) -> Result<(u32, i64, i64), DecodeError> {
        match (self.families.get(number), self.fire.get(number), self.hold.get(number)) {
            (Some(family), Some(fire), Some(hold)) => Ok((*family, *fire, *hold)),
            _ => Err(DecodeError("a timer lacks a column")),
        }
    }
}

/// `types.rows`
#[derive(Clone, Copy, Debug, Default)]
#[allow(missing_docs, reason = "the fields are those of types.rows")]
pub struct Rows<'a> {
    pub bytes: &'a [u8],
    pub ends: &'a [u32],
}

impl<'a> Rows<'a> {
    pub(crate) fn get(&self, row: usize) -> Option<&'a [u8]> {
        Column { bytes: self.bytes, ends: self.ends, index: &[] }.entry(row)
    }
}

/// What a call did, as `types.outcome` has it.
#[derive(Debug, Default)]
#[allow(missing_docs, reason = "the fields are those of types.outcome")]
pub struct Outcome {
    pub outputs: Vec<(u32, Segment)>,
    pub rejected: Vec<Rejection>,
    pub metrics: Vec<Change>,
}

/// What a keyed call did, as `keyed.keyed-outcome` has it.
#[derive(Debug, Default)]
#[allow(missing_docs, reason = "the fields are those of keyed.keyed-outcome")]
pub struct KeyedOutcome {
    pub outcome: Outcome,
    pub changes: Changes,
    pub timers: Vec<TimerChange>,
}

/// A refused row.
#[derive(Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are those of types.rejection")]
pub struct Rejection {
    pub row: u32,
    pub code: &'static str,
    pub detail: String,
}

/// Why a call failed as a whole; always permanent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure(pub String);

/// An opened DoFn of any type. One without keys is given batches, one with keys keyed batches and timers.
pub trait Instance {
    /// Begins a bundle.
    fn start_bundle(&mut self) -> Result<Outcome, Failure>;
    /// Processes rows in order.
    fn process(&mut self, _input: &Input<'_>) -> Result<Outcome, Failure> {
        Err(Failure("a transform with state or timers was given rows without keys".into()))
    }
    /// Processes rows of keys in order.
    fn process_keyed(&mut self, _input: &KeyedInput<'_>) -> Result<KeyedOutcome, Failure> {
        Err(Failure("a transform without state was given rows of keys".into()))
    }
    /// Calls back for timers in order.
    fn on_timers(&mut self, _due: &DueTimers<'_>) -> Result<KeyedOutcome, Failure> {
        Err(Failure("a transform without timers was given timers".into()))
    }
    /// Ends a bundle.
    fn finish_bundle(&mut self) -> Result<Outcome, Failure>;
    /// It is given up.
    fn teardown(&mut self);
}

/// A transform that a component holds.
#[derive(Clone, Copy)]
pub struct Registered {
    /// What it says of itself.
    pub description: Description,
    pub(crate) open: Open,
}

/// Makes an instance from its configuration and the bytes of output that it may keep.
pub(crate) type Open = fn(&[u8], usize) -> Result<Box<dyn Instance>, Failure>;

impl Registered {
    /// The DoFn of a type.
    pub const fn of<D: DoFn>() -> Self {
        Registered { description: crate::manifest::description::<D>(), open: open::<D> }
    }

    /// Makes an instance that hands outputs over when they reach `flush_bytes`.
    pub fn open(&self, config: &[u8], flush_bytes: usize) -> Result<Box<dyn Instance>, Failure> {
        (self.open)(config, flush_bytes)
    }
}

fn open<D: DoFn>(config: &[u8], flush_bytes: usize) -> Result<Box<dyn Instance>, Failure> {
    let dofn = D::setup(config).map_err(|error| Failure(format!("setup: {}", chain(error.as_ref()))))?;
    let mut outputs = D::Out::new();
    attach(&mut outputs, flush_bytes);
    Ok(Box::new(Typed { dofn, outputs }))
}

struct Typed<D: DoFn> {
    dofn: D,
    outputs: D::Out,
}

impl<D: DoFn> Instance for Typed<D> {
    fn start_bundle(&mut self) -> Result<Outcome, Failure> {
        let dofn = &mut self.dofn;
        Edges(&mut self.outputs).run("start_bundle", |outputs| dofn.start_bundle(outputs))
    }

    fn process(&mut self, input: &Input<'_>) -> Result<Outcome, Failure> {
        let mut rejected = Vec::new();
        let mut start = 0usize;
        for (row, end) in input.ends.iter().enumerate() {
            let value = &input.values[start..*end as usize];
            start = *end as usize;
            self.outputs.each(|output| output.begin_row(Some(row as u32)));
            if let Err((code, detail)) = self.process_row(value, &input.context(row)) {
                withdraw(&mut self.outputs, row as u32, &detail)?;
                rejected.push(Rejection { row: row as u32, code, detail });
            }
        }
        Ok(Outcome { rejected, ..take(&mut self.outputs, Some(input.ends.len())) })
    }

    fn finish_bundle(&mut self) -> Result<Outcome, Failure> {
        let dofn = &mut self.dofn;
        Edges(&mut self.outputs).run("finish_bundle", |outputs| dofn.finish_bundle(outputs))
    }

    fn teardown(&mut self) {
        self.dofn.teardown();
    }
}

impl<D: DoFn> Typed<D> {
    #[inline]
    fn process_row(&mut self, value: &[u8], cx: &Context<'_>) -> Result<(), (&'static str, String)> {
        let mut reader = Reader::new(value);
        let element = D::In::decode(&mut reader).map_err(|error| ("decode", format!("malformed input element: {error}")))?;
        if !reader.is_empty() {
            return Err(("decode", "malformed input element: bytes are left over".into()));
        }
        self.dofn.process(element, cx, &mut self.outputs).map_err(|error| ("user", chain(error.as_ref())))
    }
}

/// Numbers the outputs, and says how much they may keep.
pub(crate) fn attach(outputs: &mut impl Outputs, flush_bytes: usize) {
    let mut index = 0;
    outputs.each(|output| {
        output.attach(index, flush_bytes);
        index += 1;
    });
}

/// Removes what came from a row that was refused.
pub(crate) fn withdraw(outputs: &mut impl Outputs, row: u32, detail: &str) -> Result<(), Failure> {
    let mut whole = true;
    outputs.each(|output| whole &= output.withdraw(row));
    let partly = || Failure(format!("row {row} failed after a part of its output was handed over: {detail}"));
    whole.then_some(()).ok_or_else(partly)
}

/// What was emitted and counted since the last time.
pub(crate) fn take(outputs: &mut impl Outputs, input_rows: Option<usize>) -> Outcome {
    let mut taken = Vec::new();
    outputs.each(|output| output.take(input_rows, |index, segment| taken.push((index, segment))));
    Outcome { outputs: taken, rejected: Vec::new(), metrics: take_changes() }
}

/// The start and the finish of a bundle, where outputs have nothing to inherit from.
pub(crate) struct Edges<'a, O: Outputs>(pub(crate) &'a mut O);

impl<O: Outputs> Edges<'_, O> {
    pub(crate) fn run(self, what: &str, call: impl FnOnce(&mut O) -> crate::Result<()>) -> Result<Outcome, Failure> {
        self.0.each(|output| output.begin_row(None));
        call(self.0).map_err(|error| Failure(format!("{what}: {}", chain(error.as_ref()))))?;
        let mut stray = false;
        self.0.each(|output| stray |= output.take_stray());
        if stray {
            return Err(Failure(format!("{what}: there is no input element to inherit from, use emit_windowed")));
        }
        Ok(take(self.0, None))
    }
}
