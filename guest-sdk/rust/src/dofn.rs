//! DoFns as structs. Functions become one by `#[dofn]`; a struct is for state within a bundle, configuration, and outputs
//! that come when a bundle finishes.

use std::fmt;

use crate::stateful::Window;
use crate::{Decode, Outputs};

/// Any error of user code. Its text, with its sources, is what the user of the pipeline reads.
pub type Error = Box<dyn std::error::Error + Send + Sync>;

/// What user code returns.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Which columns of the input, besides the elements, a DoFn reads. Columns that nobody reads are not sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reads {
    /// [`Context::timestamp_ms`]
    pub timestamps: bool,
    /// [`Context::windows`]
    pub windows: bool,
    /// [`Context::pane`]
    pub panes: bool,
}

impl Reads {
    /// Elements only.
    pub const NOTHING: Reads = Reads { timestamps: false, windows: false, panes: false };
    /// Elements and timestamps.
    pub const TIMESTAMPS: Reads = Reads { timestamps: true, windows: false, panes: false };
    /// Everything.
    pub const ALL: Reads = Reads { timestamps: true, windows: true, panes: true };
}

/// A ParDo's function without state, timers and side inputs; with state and timers it is a [`crate::StatefulDoFn`].
///
/// An instance lives for many bundles, never two at a time. After an error or a panic it is given up, and the bundle is
/// run again, or not, by another one.
///
/// ```
/// use purlin::prelude::*;
///
/// /// Says every word with a prefix, and how many there were at the end of the bundle.
/// struct Prefix { prefix: String, seen: i64 }
///
/// impl DoFn for Prefix {
///     const NAME: &'static str = "prefix";
///     type In<'a> = &'a str;
///     type Out = Output<String>;
///
///     fn setup(config: &[u8]) -> purlin::Result<Self> {
///         Ok(Prefix { prefix: String::from_utf8(config.to_vec())?, seen: 0 })
///     }
///     fn start_bundle(&mut self, _out: &mut Self::Out) -> purlin::Result<()> {
///         self.seen = 0;
///         Ok(())
///     }
///     fn process(&mut self, word: &str, _cx: &Context<'_>, out: &mut Self::Out) -> purlin::Result<()> {
///         self.seen += 1;
///         out.emit(format!("{}{word}", self.prefix));
///         Ok(())
///     }
///     fn finish_bundle(&mut self, out: &mut Self::Out) -> purlin::Result<()> {
///         out.emit_windowed(format!("{} words", self.seen), 0, purlin::output::GLOBAL_WINDOW);
///         Ok(())
///     }
/// }
/// # purlin::component!(Prefix);
/// ```
pub trait DoFn: Sized + 'static {
    /// The name by which pipelines find it; unique in a component.
    const NAME: &'static str;
    /// Columns that `process` reads from its context.
    const READS: Reads = Reads::NOTHING;
    /// Input elements.
    type In<'a>: Decode<'a>;
    /// Its outputs.
    type Out: Outputs;

    /// Makes an instance from the bytes that the pipeline gives. An error is final: the job fails.
    fn setup(config: &[u8]) -> Result<Self>;

    /// A bundle begins: forget what the last one left.
    fn start_bundle(&mut self, _out: &mut Self::Out) -> Result<()> {
        Ok(())
    }

    /// One element. An error refuses the element; what it emitted is withdrawn.
    fn process(&mut self, element: Self::In<'_>, cx: &Context<'_>, out: &mut Self::Out) -> Result<()>;

    /// A bundle ends: what was kept back must be emitted now.
    fn finish_bundle(&mut self, _out: &mut Self::Out) -> Result<()> {
        Ok(())
    }

    /// The instance is given up in an orderly way. Not called after a failure; nothing may depend on it.
    fn teardown(&mut self) {}
}

/// What is known of the element that is being processed.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    timestamp_ms: Option<i64>,
    windows: Option<&'a [u8]>,
    pane: Option<&'a [u8]>,
    run: Option<(Window<'a>, i64)>,
}

impl<'a> Context<'a> {
    /// A context for tests of DoFns and for those that call them.
    pub fn new(timestamp_ms: Option<i64>, windows: Option<&'a [u8]>, pane: Option<&'a [u8]>) -> Self {
        Context { timestamp_ms, windows, pane, run: None }
    }

    /// The same for a stateful DoFn: the element's only window, and processing time, in milliseconds since the epoch.
    pub fn of_run(self, window: Window<'a>, now_ms: i64) -> Self {
        Context { run: Some((window, now_ms)), ..self }
    }

    /// Event time, if it is known.
    pub(crate) fn timestamp(&self) -> Option<i64> {
        self.timestamp_ms
    }

    /// The window that state and timers belong to.
    ///
    /// # Panics
    /// Outside stateful DoFns: there, an element may be in several windows, see [`Context::windows`].
    pub fn window(&self) -> Window<'a> {
        self.run.expect("only elements of stateful DoFns are in one window").0
    }

    /// Processing time, in milliseconds since the epoch, when the batch of this element began.
    ///
    /// # Panics
    /// Outside stateful DoFns.
    pub fn now_ms(&self) -> i64 {
        self.run.expect("only stateful DoFns know processing time").1
    }

    /// Event time, in milliseconds since the epoch.
    ///
    /// # Panics
    /// When [`DoFn::READS`] does not ask for it.
    pub fn timestamp_ms(&self) -> i64 {
        self.timestamp_ms.expect("READS of the DoFn does not ask for timestamps")
    }

    /// The encoded window set: a big-endian count and that many windows.
    ///
    /// # Panics
    /// When [`DoFn::READS`] does not ask for it.
    pub fn windows(&self) -> &'a [u8] {
        self.windows.expect("READS of the DoFn does not ask for windows")
    }

    /// The encoded pane.
    ///
    /// # Panics
    /// When [`DoFn::READS`] does not ask for it.
    pub fn pane(&self) -> &'a [u8] {
        self.pane.expect("READS of the DoFn does not ask for panes")
    }
}

/// An error with its chain of sources in one line.
pub(crate) fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        fmt::Write::write_fmt(&mut text, format_args!(": {error}")).expect("a string takes everything");
        source = error.source();
    }
    text
}
