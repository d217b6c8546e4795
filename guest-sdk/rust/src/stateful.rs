//! DoFns with state and timers: they see pairs of key and value, and what they keep is kept for each key in each window.

use crate::state::States;
use crate::{Context, Decode, Outputs, Reads, Result};

/// A ParDo's function with state and timers. Its input are pairs, `kv`; elements of one key come one after another, never two at
/// a time, and everything that is kept is kept by key and window.
///
/// As of a [`crate::DoFn`], an instance lives for many bundles, of many keys. What belongs to a key belongs in a state, not
/// in the struct.
///
/// ```
/// use purlin::prelude::*;
///
/// /// Says how many times each user clicked, one minute after the last click.
/// struct Clicks;
///
/// #[derive(States)]
/// struct Kept {
///     count: ValueState<i64>,
///     quiet: EventTimer,
/// }
///
/// impl StatefulDoFn for Clicks {
///     const NAME: &'static str = "clicks";
///     type Key<'a> = &'a str;
///     type Value<'a> = &'a str;
///     type Out = Output<(String, i64)>;
///     type State = Kept;
///
///     fn setup(_config: &[u8]) -> purlin::Result<Self> {
///         Ok(Clicks)
///     }
///     fn process(&mut self, (_user, _page): (&str, &str), cx: &Context<'_>, kept: &mut Kept, _out: &mut Self::Out) -> purlin::Result<()> {
///         kept.count.write(kept.count.read().unwrap_or(0) + 1);
///         kept.quiet.set(cx.timestamp_ms() + 60_000);
///         Ok(())
///     }
///     fn on_timer(&mut self, user: &str, _timer: &FiredTimer<'_>, kept: &mut Kept, out: &mut Self::Out) -> purlin::Result<()> {
///         out.emit((user.to_owned(), kept.count.read().unwrap_or(0)));
///         kept.count.clear();
///         Ok(())
///     }
/// }
/// purlin::component!(Clicks);
///
/// let mut test = purlin::testing::TestDoFn::<Clicks>::new(b"").expect("it is set up");
/// test.process(("ada", "/"), 0).expect("it is processed");
/// test.process(("ada", "/help"), 30_000).expect("it is processed");
/// test.advance_watermark_to(80_000).expect("nothing is due");
/// assert!(test.take_outputs().is_empty());
/// test.advance_watermark_to(90_000).expect("the timer fires");
/// assert_eq!(test.take_outputs(), [("ada".to_owned(), 2)]);
/// ```
pub trait StatefulDoFn: Sized + 'static {
    /// The name by which pipelines find it; unique in a component.
    const NAME: &'static str;
    /// Columns that `process` reads from its context. Timers are mostly set by the time of an element.
    const READS: Reads = Reads::TIMESTAMPS;
    /// Whether [`StatefulDoFn::on_window_expiration`] is to be called.
    const ON_WINDOW_EXPIRATION: bool = false;
    /// Keys of input elements.
    type Key<'a>: Decode<'a>;
    /// Values of input elements.
    type Value<'a>: Decode<'a>;
    /// Its outputs.
    type Out: Outputs;
    /// Its states and timers.
    type State: States;

    /// Makes an instance from the bytes that the pipeline gives. An error is final: the job fails.
    fn setup(config: &[u8]) -> Result<Self>;

    /// A bundle begins: forget what the last one left. There is no key, hence no state.
    fn start_bundle(&mut self, _out: &mut Self::Out) -> Result<()> {
        Ok(())
    }

    /// One element. An error fails the bundle.
    fn process(
        &mut self,
        element: (Self::Key<'_>, Self::Value<'_>),
        cx: &Context<'_>,
        state: &mut Self::State,
        out: &mut Self::Out,
    ) -> Result<()>;

    /// A timer fires. What it emits has the timer's output time. A timer that an earlier callback has set anew or cleared does not
    /// fire.
    fn on_timer(
        &mut self,
        _key: Self::Key<'_>,
        timer: &FiredTimer<'_>,
        _state: &mut Self::State,
        _out: &mut Self::Out,
    ) -> Result<()> {
        Err(format!("timer {} fires, and there is no on_timer", timer.family()).into())
    }

    /// A window is over for a key, late elements included: the last chance to emit what is kept, before it is removed. See
    /// [`StatefulDoFn::ON_WINDOW_EXPIRATION`].
    fn on_window_expiration(
        &mut self,
        _key: Self::Key<'_>,
        _window: Window<'_>,
        _state: &mut Self::State,
        _out: &mut Self::Out,
    ) -> Result<()> {
        Ok(())
    }

    /// A bundle ends: what was kept back in the struct must be emitted now.
    fn finish_bundle(&mut self, _out: &mut Self::Out) -> Result<()> {
        Ok(())
    }

    /// The instance is given up in an orderly way. Not called after a failure; nothing may depend on it.
    fn teardown(&mut self) {}
}

/// Name of the timer family that stands for the end of windows.
pub const EXPIRATION_FAMILY: &str = "on_window_expiration";

/// A timer that fires.
#[derive(Clone, Copy, Debug)]
pub struct FiredTimer<'a> {
    pub(crate) family: &'static str,
    pub(crate) tag: &'a str,
    pub(crate) fire_ms: i64,
    pub(crate) hold_ms: i64,
    pub(crate) output_ms: i64,
    pub(crate) window: Window<'a>,
}

impl<'a> FiredTimer<'a> {
    /// Its family: the name of the field.
    pub fn family(&self) -> &'static str {
        self.family
    }

    /// Its tag in the family; mostly empty.
    pub fn tag(&self) -> &'a str {
        self.tag
    }

    /// When it was to fire, in milliseconds since the epoch: event time or processing time.
    pub fn fire_ms(&self) -> i64 {
        self.fire_ms
    }

    /// The event time of what is emitted, in milliseconds since the epoch.
    pub fn timestamp_ms(&self) -> i64 {
        self.output_ms
    }

    /// What it held the output watermark at, as it was set; [`crate::timers::NO_HOLD_MS`] and beyond: nothing.
    pub fn hold_ms(&self) -> i64 {
        self.hold_ms
    }

    /// The window it was set in.
    pub fn window(&self) -> Window<'a> {
        self.window
    }
}

/// One window: the global window, or an interval of event time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window<'a>(&'a [u8]);

/// The last timestamp of the global window.
const GLOBAL_WINDOW_MAX_MS: i64 = 9_223_371_950_454_775;

impl<'a> Window<'a> {
    /// Of its encoded bytes.
    pub fn new(encoded: &'a [u8]) -> Self {
        Window(encoded)
    }

    /// Its bytes: none for the global window, the end and the length of an interval.
    pub fn encoded(&self) -> &'a [u8] {
        self.0
    }

    /// The last timestamp in the window, in milliseconds since the epoch.
    pub fn max_timestamp_ms(&self) -> i64 {
        match self.0.first_chunk() {
            Some(end) => (u64::from_be_bytes(*end) ^ (1 << 63)) as i64 - 1,
            None => GLOBAL_WINDOW_MAX_MS,
        }
    }
}
