//! How DoFns are called with batches: the part of a component that is the same natively.
//!
//! The boundary's own types stay in [`crate::component`]; here are plain ones that borrow from them.

use crate::dofn::chain;
use crate::manifest::Description;
use crate::metrics::{Change, take_changes};
use crate::output::Segment;
use crate::{Context, Decode, DoFn, Outputs, Reader};

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
    fn get(&self, row: usize) -> Option<&'a [u8]> {
        let entry = self.index.get(row).map_or(0, |entry| *entry as usize);
        let end = *self.ends.get(entry)? as usize;
        let start = if entry == 0 { 0 } else { self.ends[entry - 1] as usize };
        self.bytes.get(start..end)
    }
}

impl<'a> Input<'a> {
    fn context(&self, row: usize) -> Context<'a> {
        let timestamp = if self.timestamps.len() == 1 { self.timestamps.first() } else { self.timestamps.get(row) };
        Context::new(timestamp.copied(), self.windows.get(row), self.panes.get(row))
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

/// An opened DoFn of any type.
pub trait Instance {
    /// Begins a bundle.
    fn start_bundle(&mut self) -> Result<Outcome, Failure>;
    /// Processes rows in order.
    fn process(&mut self, input: &Input<'_>) -> Result<Outcome, Failure>;
    /// Ends a bundle.
    fn finish_bundle(&mut self) -> Result<Outcome, Failure>;
}

/// A transform that a component holds.
#[derive(Clone, Copy)]
pub struct Registered {
    /// What it says of itself.
    pub description: Description,
    open: Open,
}

/// Makes an instance from its configuration and the bytes of output that it may keep.
type Open = fn(&[u8], usize) -> Result<Box<dyn Instance>, Failure>;

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
    let mut index = 0;
    outputs.each(|output| {
        output.attach(index, flush_bytes);
        index += 1;
    });
    Ok(Box::new(Typed { dofn, outputs }))
}

struct Typed<D: DoFn> {
    dofn: D,
    outputs: D::Out,
}

impl<D: DoFn> Instance for Typed<D> {
    fn start_bundle(&mut self) -> Result<Outcome, Failure> {
        self.outputs.each(|output| output.begin_row(None));
        let result = self.dofn.start_bundle(&mut self.outputs);
        self.bundle_edge("start_bundle", result)
    }

    fn process(&mut self, input: &Input<'_>) -> Result<Outcome, Failure> {
        let mut rejected = Vec::new();
        let mut start = 0usize;
        for (row, end) in input.ends.iter().enumerate() {
            let value = &input.values[start..*end as usize];
            start = *end as usize;
            self.outputs.each(|output| output.begin_row(Some(row as u32)));
            if let Err((code, detail)) = self.process_row(value, &input.context(row)) {
                self.withdraw(row as u32, &detail)?;
                rejected.push(Rejection { row: row as u32, code, detail });
            }
        }
        Ok(Outcome { rejected, ..self.take(Some(input.ends.len())) })
    }

    fn finish_bundle(&mut self) -> Result<Outcome, Failure> {
        self.outputs.each(|output| output.begin_row(None));
        let result = self.dofn.finish_bundle(&mut self.outputs);
        self.bundle_edge("finish_bundle", result)
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

    fn withdraw(&mut self, row: u32, detail: &str) -> Result<(), Failure> {
        let mut whole = true;
        self.outputs.each(|output| whole &= output.withdraw(row));
        let partly = || Failure(format!("row {row} failed after a part of its output was handed over: {detail}"));
        whole.then_some(()).ok_or_else(partly)
    }

    fn bundle_edge(&mut self, what: &str, result: crate::Result<()>) -> Result<Outcome, Failure> {
        result.map_err(|error| Failure(format!("{what}: {}", chain(error.as_ref()))))?;
        let mut stray = false;
        self.outputs.each(|output| stray |= output.take_stray());
        if stray {
            return Err(Failure(format!("{what}: there is no input element to inherit from, use emit_windowed")));
        }
        Ok(self.take(None))
    }

    fn take(&mut self, input_rows: Option<usize>) -> Outcome {
        let mut outputs = Vec::new();
        self.outputs.each(|output| output.take(input_rows, |index, segment| outputs.push((index, segment))));
        Outcome { outputs, rejected: Vec::new(), metrics: take_changes() }
    }
}
