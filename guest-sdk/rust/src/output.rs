//! Where a DoFn puts what it makes: typed outputs that write straight into arenas.
//!
//! ```text
//!  emit(value)                       timestamp, windows and pane of the input row
//!  emit_at(value, time)              windows and pane of the input row
//!  emit_windowed(value, time, set)   all given: the only way while a bundle starts or finishes
//! ```
//!
//! Outputs of different kinds land in different segments, so that a column is either inherited or given as a whole.

use std::borrow::Borrow;
use std::marker::PhantomData;

use crate::{Coder, Decode, Element, Reader};

/// The encoded window set that holds only the global window.
pub const GLOBAL_WINDOW: &[u8] = &[0, 0, 0, 1];

/// One output of a DoFn.
#[derive(Debug)]
pub struct Output<T> {
    raw: RawOutput,
    element: PhantomData<fn(&T)>,
}

impl<T> Default for Output<T> {
    fn default() -> Self {
        Output { raw: RawOutput::default(), element: PhantomData }
    }
}

impl<T: Element> Output<T> {
    /// An empty output. Natively it stands for one input row at the beginning.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes an element with timestamp, windows and pane of the input row.
    #[inline]
    pub fn emit(&mut self, value: T) {
        self.raw.push(&value, Shape::Inherited, 0, &[]);
    }

    /// As [`Output::emit`], from a borrowed form: `&str` where the output holds `String`.
    #[inline]
    pub fn emit_ref<B: Element + ?Sized>(&mut self, value: &B)
    where
        T: Borrow<B>,
    {
        self.raw.push(value, Shape::Inherited, 0, &[]);
    }

    /// Takes an element with a timestamp of its own, in milliseconds since the epoch. Beam asks that it is not before that
    /// of the input element.
    #[inline]
    pub fn emit_at(&mut self, value: T, timestamp_ms: i64) {
        self.raw.push(&value, Shape::Timed, timestamp_ms, &[]);
    }

    /// Takes an element with timestamp and encoded window set (see [`GLOBAL_WINDOW`] and [`crate::Context::windows`]).
    #[inline]
    pub fn emit_windowed(&mut self, value: T, timestamp_ms: i64, windows: &[u8]) {
        self.raw.push(&value, Shape::Windowed, timestamp_ms, windows);
    }

    /// For code made by `#[dofn]`, whose output type may borrow from the input.
    #[doc(hidden)]
    #[inline]
    pub fn emit_borrowed<B: Element>(&mut self, value: B) {
        self.raw.push(&value, Shape::Inherited, 0, &[]);
    }

    /// What was emitted, for tests of DoFns.
    ///
    /// # Panics
    /// When an element's own bytes cannot be read back: its `encode` and `decode` do not match.
    pub fn into_values(self) -> Vec<T>
    where
        T: for<'a> Decode<'a>,
    {
        self.raw.segments.into_iter().flat_map(Segment::into_values).collect()
    }
}

/// An output of a DoFn as the manifest names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutputSpec {
    /// Its tag.
    pub tag: &'static str,
    /// How elements look.
    pub coder: &'static Coder,
}

/// Tag of the main output.
pub const MAIN_TAG: &str = "output";

/// All outputs of a DoFn, the main one first. `Output<T>` alone is one; for several, derive it for a struct whose fields are
/// outputs. The first field is the main output, the names of the others are their tags.
///
/// ```
/// use purlin::prelude::*;
///
/// #[derive(Outputs)]
/// struct Parsed {
///     numbers: Output<i64>,
///     garbage: Output<String>,
/// }
/// assert_eq!(Parsed::SPECS[1].tag, "garbage");
/// ```
pub trait Outputs {
    /// Tags and coders.
    const SPECS: &'static [OutputSpec];

    /// Empty outputs.
    fn new() -> Self;

    /// Visits the outputs in the order of [`Outputs::SPECS`].
    fn each(&mut self, visit: impl FnMut(&mut RawOutput));
}

impl<T: Element> Outputs for Output<T> {
    const SPECS: &'static [OutputSpec] = &[OutputSpec { tag: MAIN_TAG, coder: T::CODER }];

    fn new() -> Self {
        Output::default()
    }

    #[inline]
    fn each(&mut self, mut visit: impl FnMut(&mut RawOutput)) {
        visit(&mut self.raw);
    }
}

/// No output at all.
impl Outputs for () {
    const SPECS: &'static [OutputSpec] = &[];

    fn new() -> Self {}

    fn each(&mut self, _visit: impl FnMut(&mut RawOutput)) {}
}

impl<T> Output<T> {
    /// The output without its type, for code made by `#[derive(Outputs)]`.
    #[doc(hidden)]
    pub fn raw(&mut self) -> &mut RawOutput {
        &mut self.raw
    }
}

/// Which columns were given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Shape {
    #[default]
    Inherited,
    Timed,
    Windowed,
}

/// Outputs of one kind, in the columns of the boundary (`types.emitted`).
#[derive(Debug, Default)]
pub struct Segment {
    shape: Shape,
    /// Encoded elements, one after another.
    pub values: Vec<u8>,
    /// Where each ends.
    pub ends: Vec<u32>,
    /// The input row of each; empty when nothing is inherited, or when element i comes from row i.
    pub origin: Vec<u32>,
    /// Given timestamps, or none.
    pub timestamps: Vec<i64>,
    /// Given window sets, one after another, or none.
    pub window_bytes: Vec<u8>,
    /// Where each distinct window set ends.
    pub window_ends: Vec<u32>,
    /// Which set each element has; empty: all have the first.
    pub window_index: Vec<u32>,
}

impl Segment {
    /// Its elements.
    ///
    /// # Panics
    /// When they are not of type `T`.
    pub(crate) fn into_values<T: for<'a> Decode<'a>>(self) -> Vec<T> {
        let mut reader = Reader::new(&self.values);
        let value = |_| T::decode(&mut reader).expect("what an element writes it can read");
        (0..self.ends.len()).map(value).collect()
    }

    fn window_set(&self, number: usize) -> &[u8] {
        let start = if number == 0 { 0 } else { self.window_ends[number - 1] as usize };
        &self.window_bytes[start..self.window_ends[number] as usize]
    }

    fn push_windows(&mut self, windows: &[u8]) {
        let found = (0..self.window_ends.len()).rev().find(|number| self.window_set(*number) == windows);
        let number = found.unwrap_or_else(|| {
            self.window_bytes.extend_from_slice(windows);
            self.window_ends.push(self.window_bytes.len() as u32);
            self.window_ends.len() - 1
        });
        self.window_index.push(number as u32);
    }
}

/// Distinct window sets per segment are looked up one by one; more than these begin a new segment.
const WINDOW_SETS_MAX: usize = 64;

/// An output without its element type.
#[derive(Debug)]
pub struct RawOutput {
    segments: Vec<Segment>,
    /// The row that is being processed; none while a bundle starts or finishes.
    row: Option<u32>,
    /// Whether something was emitted that had no row to inherit from.
    stray: bool,
    /// The last row of which something was already handed over.
    flushed: Option<u32>,
    flush_bytes: usize,
    index: u32,
}

impl Default for RawOutput {
    fn default() -> Self {
        RawOutput { segments: Vec::new(), row: Some(0), stray: false, flushed: None, flush_bytes: usize::MAX, index: 0 }
    }
}

impl RawOutput {
    /// Sets the output's number, and how many bytes it may keep before it hands them to the host.
    pub fn attach(&mut self, index: u32, flush_bytes: usize) {
        self.index = index;
        self.flush_bytes = flush_bytes;
    }

    /// From now on outputs come from this row.
    #[inline]
    pub fn begin_row(&mut self, row: Option<u32>) {
        self.row = row;
    }

    #[inline]
    fn push<E: Element + ?Sized>(&mut self, value: &E, shape: Shape, timestamp: i64, windows: &[u8]) {
        if self.row.is_none() && shape != Shape::Windowed {
            self.stray = true;
            return;
        }
        let origin = self.row;
        let segment = self.segment(shape);
        value.encode(&mut segment.values);
        segment.ends.push(segment.values.len() as u32);
        if let Some(row) = origin {
            segment.origin.push(row);
        }
        if shape != Shape::Inherited {
            segment.timestamps.push(timestamp);
        }
        if shape == Shape::Windowed {
            segment.push_windows(windows);
        }
        if segment.values.len() >= self.flush_bytes {
            self.flush();
        }
    }

    #[inline]
    fn segment(&mut self, shape: Shape) -> &mut Segment {
        let fits = |last: &Segment| last.shape == shape && last.window_ends.len() < WINDOW_SETS_MAX;
        if !self.segments.last().is_some_and(fits) {
            self.segments.push(Segment { shape, ..Segment::default() });
        }
        let last = self.segments.len() - 1;
        &mut self.segments[last]
    }

    fn flush(&mut self) {
        self.flushed = self.row;
        #[cfg(target_arch = "wasm32")]
        for segment in self.segments.drain(..) {
            crate::component::emit(self.index, segment.finished(None));
        }
    }

    /// Removes what came from a row. False: a part of it is already with the host.
    pub fn withdraw(&mut self, row: u32) -> bool {
        while let Some(segment) = self.segments.last_mut() {
            while segment.origin.last() == Some(&row) {
                segment.origin.pop();
                segment.ends.pop();
                segment.values.truncate(segment.ends.last().map_or(0, |end| *end as usize));
                segment.timestamps.pop();
                segment.window_index.pop();
            }
            if !segment.ends.is_empty() {
                break;
            }
            self.segments.pop();
        }
        self.flushed != Some(row)
    }

    /// Everything since the last time, as the boundary wants it. `input_rows`: of the call, if it processed rows.
    pub fn take(&mut self, input_rows: Option<usize>, mut each: impl FnMut(u32, Segment)) {
        let whole = input_rows.filter(|_| self.flushed.is_none() && self.segments.len() == 1);
        for segment in self.segments.drain(..) {
            each(self.index, segment.finished(whole));
        }
        self.flushed = None;
    }

    /// Whether something was emitted that had no row to inherit from; asked once.
    pub fn take_stray(&mut self) -> bool {
        std::mem::take(&mut self.stray)
    }
}

impl Segment {
    /// Leaves out what goes without saying.
    fn finished(mut self, input_rows: Option<usize>) -> Segment {
        let row_by_row =
            input_rows == Some(self.origin.len()) && self.origin.iter().enumerate().all(|(row, origin)| row as u32 == *origin);
        // With windows and timestamps given, an empty origin would mean that there is none to take the pane from.
        if row_by_row && self.shape != Shape::Windowed {
            self.origin.clear();
        }
        if self.window_ends.len() == 1 {
            self.window_index.clear();
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(output: &mut Output<String>, rows: Option<usize>) -> Vec<Segment> {
        let mut segments = Vec::new();
        output.raw.take(rows, |_, segment| segments.push(segment));
        segments
    }

    #[test]
    fn one_output_per_row_needs_no_origin() {
        let mut output = Output::new();
        for row in 0..3 {
            output.raw.begin_row(Some(row));
            output.emit_ref("x");
        }
        let segments = taken(&mut output, Some(3));
        assert_eq!(segments.len(), 1);
        assert!(segments[0].origin.is_empty());
        assert_eq!(segments[0].ends, [2, 4, 6]);
    }

    #[test]
    fn kinds_do_not_share_a_segment_and_keep_their_order() {
        let mut output = Output::new();
        output.raw.begin_row(Some(4));
        output.emit("a".into());
        output.emit_at("b".into(), 9);
        output.emit_windowed("c".into(), 9, GLOBAL_WINDOW);
        output.emit_windowed("d".into(), 9, &[0, 0, 0, 0]);
        output.emit("e".into());
        let segments = taken(&mut output, Some(5));
        let values: Vec<&[u8]> = segments.iter().map(|segment| segment.values.as_slice()).collect();
        assert_eq!(values, [&b"\x01a"[..], b"\x01b", b"\x01c\x01d", b"\x01e"]);
        assert_eq!(segments[2].window_index, [0, 1]);
        assert_eq!(segments[1].origin, [4]);
    }

    #[test]
    fn a_refused_row_leaves_nothing() {
        let mut output: Output<String> = Output::new();
        output.raw.begin_row(Some(0));
        output.emit("keep".into());
        output.raw.begin_row(Some(1));
        output.emit("drop".into());
        output.emit_at("drop".into(), 3);
        assert!(output.raw.withdraw(1));
        assert_eq!(output.into_values(), ["keep"]);
    }

    #[test]
    fn nothing_can_be_inherited_without_a_row() {
        let mut output: Output<String> = Output::new();
        output.raw.begin_row(None);
        output.emit("stray".into());
        assert!(output.raw.take_stray());
        output.emit_windowed("fine".into(), 0, GLOBAL_WINDOW);
        assert!(!output.raw.take_stray());
        assert_eq!(output.into_values(), ["fine"]);
    }
}
