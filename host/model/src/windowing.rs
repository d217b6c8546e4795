//! Windowing strategies: how a grouping boundary turns elements into panes.
//!
//! Descriptions only; the behaviour is the engine's. Names and defaults are those of Beam's `WindowingStrategy`.

use crate::ids::EnvironmentId;
use crate::{Duration, WindowCoder};

/// What assigns windows, and whether they merge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WindowFn {
    /// One window for all.
    Global,
    /// `[n * size + offset, ..)`.
    Fixed {
        /// Length of each window.
        size: Duration,
        /// Start of the window that contains the epoch.
        offset: Duration,
    },
    /// Overlapping windows of `size`, one every `period`.
    Sliding {
        /// Length of each window.
        size: Duration,
        /// Distance between starts.
        period: Duration,
        /// Start of one of them.
        offset: Duration,
    },
    /// Windows of `[t, t + gap)` that merge when they overlap.
    Sessions {
        /// The silence that ends a session.
        gap: Duration,
    },
    /// Known to one SDK only; assignment, and merging if any, happen there.
    Custom {
        /// The URN of its function specification.
        urn: String,
        /// The serialized function specification.
        spec: bytes::Bytes,
        /// Where it can be run.
        environment: Option<EnvironmentId>,
    },
}

/// Whether the windows that arrive at a grouping boundary are final.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Merging {
    /// They are.
    NonMerging,
    /// They are merged here.
    NeedsMerge,
    /// They were merged upstream and are final.
    AlreadyMerged,
}

/// What a pane holds after the first one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accumulation {
    /// What arrived since the pane before.
    Discarding,
    /// Everything since the window began.
    Accumulating,
}

/// The timestamp of a pane, which is also what its window holds the watermark at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputTime {
    /// The last timestamp of the window.
    EndOfWindow,
    /// The latest element in the pane.
    Latest,
    /// The earliest element in the pane that was not late.
    Earliest,
}

/// Whether a window's final pane is emitted when it is empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClosingBehavior {
    /// Yes.
    Always,
    /// No.
    IfNonEmpty,
}

/// Whether the on-time pane is emitted when it is empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnTimeBehavior {
    /// Yes.
    Always,
    /// No.
    IfNonEmpty,
}

/// When panes fire. Structure as in Beam's `Trigger`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trigger {
    /// At the end of the window and again for each late batch.
    Default,
    /// For every batch.
    Always,
    /// Not before the window expires.
    Never,
    /// Once the pane has this many elements.
    ElementCount(i32),
    /// At the end of the window, with repeated firings before and after.
    AfterEndOfWindow {
        /// Fires repeatedly before the end.
        early: Option<Box<Trigger>>,
        /// Fires repeatedly after the end.
        late: Option<Box<Trigger>>,
    },
    /// A span of processing time after the first element of the pane.
    AfterProcessingTime(Vec<TimestampTransform>),
    /// As above with no delay.
    AfterSynchronizedProcessingTime,
    /// When all have fired.
    AfterAll(Vec<Trigger>),
    /// When one has fired.
    AfterAny(Vec<Trigger>),
    /// One after the other.
    AfterEach(Vec<Trigger>),
    /// The first, until the second fires.
    OrFinally(Box<Trigger>, Box<Trigger>),
    /// Again and again.
    Repeat(Box<Trigger>),
}

impl Trigger {
    /// Whether it looks at single elements: some part of it counts them, or is ready with each. What else it looks at, times,
    /// does not hang on which elements come together.
    ///
    /// ```
    /// use model::windowing::Trigger;
    ///
    /// assert!(!Trigger::Repeat(Box::new(Trigger::AfterSynchronizedProcessingTime)).counts_elements());
    /// assert!(Trigger::OrFinally(Box::new(Trigger::Never), Box::new(Trigger::ElementCount(3))).counts_elements());
    /// ```
    pub fn counts_elements(&self) -> bool {
        match self {
            Trigger::Always | Trigger::ElementCount(_) => true,
            Trigger::Default | Trigger::Never | Trigger::AfterProcessingTime(_) | Trigger::AfterSynchronizedProcessingTime => {
                false
            }
            Trigger::AfterEndOfWindow { early, late } => early.iter().chain(late).any(|part| part.counts_elements()),
            Trigger::AfterAll(parts) | Trigger::AfterAny(parts) | Trigger::AfterEach(parts) => {
                parts.iter().any(Trigger::counts_elements)
            }
            Trigger::OrFinally(main, finally) => main.counts_elements() || finally.counts_elements(),
            Trigger::Repeat(part) => part.counts_elements(),
        }
    }
}

/// A step from the time of the first element to the time of firing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimestampTransform {
    /// Later by this span.
    Delay(Duration),
    /// Up to the next multiple of `period` from `offset`.
    AlignTo {
        /// Distance between multiples.
        period: Duration,
        /// One of them.
        offset: Duration,
    },
}

/// Everything that governs a grouping boundary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WindowingStrategy {
    /// What assigned the windows.
    pub window_fn: WindowFn,
    /// How they are encoded on the wire.
    pub window_coder: WindowCoder,
    /// Whether they merge here.
    pub merging: Merging,
    /// When panes fire.
    pub trigger: Trigger,
    /// What later panes hold.
    pub accumulation: Accumulation,
    /// The timestamp of panes.
    pub output_time: OutputTime,
    /// Whether an empty final pane is emitted.
    pub closing: ClosingBehavior,
    /// Whether an empty on-time pane is emitted.
    pub on_time: OnTimeBehavior,
    /// How long after its end a window still takes elements.
    pub allowed_lateness: Duration,
}

impl WindowingStrategy {
    /// The strategy of a pipeline that says nothing: global window, default trigger, discarding, no lateness.
    pub fn global() -> Self {
        WindowingStrategy {
            window_fn: WindowFn::Global,
            window_coder: WindowCoder::Global,
            merging: Merging::NonMerging,
            trigger: Trigger::Default,
            accumulation: Accumulation::Discarding,
            output_time: OutputTime::EndOfWindow,
            closing: ClosingBehavior::IfNonEmpty,
            on_time: OnTimeBehavior::Always,
            allowed_lateness: Duration(0),
        }
    }
}
