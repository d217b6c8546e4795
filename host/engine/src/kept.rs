//! What a stage keeps beside its pending rows: groups, or what is to come for keys. One idea of it for the engine, whatever
//! the head is.

use model::{StageId, Timestamp};

use crate::error::Error;
use crate::grouping::{self, Clocks, Grouping, Summary};
use crate::keyed::{self, Keys};
use crate::state::KeyedState;
use crate::stuck::HeldBy;
use crate::topology::{Head, StageShape};

/// See the file's head.
#[derive(Debug)]
pub(crate) enum Kept {
    /// Rows pass.
    Nothing,
    /// Rows are kept until panes fire.
    Groups(Grouping),
    /// Timers and the like are kept until they are due.
    Keys(Box<Keys>),
}

/// What a bundle changes of it once it is durable.
#[derive(Debug)]
pub(crate) enum Delta {
    Groups(grouping::Delta),
    Keys(Box<keyed::Delta>),
}

impl Kept {
    pub(crate) fn new(id: StageId, shape: &StageShape) -> Self {
        let (input_coder, window_coder) = (shape.input_coder.clone(), shape.window_coder);
        match &shape.head {
            Head::Grouping(strategy) => Kept::Groups(Grouping::new(id, strategy.as_ref().clone(), input_coder, window_coder)),
            Head::Keyed(keyed) => Kept::Keys(Box::new(Keys::new(id, keyed.as_ref().clone(), input_coder, window_coder))),
            Head::Plain | Head::Restrictions { .. } | Head::Script => Kept::Nothing,
        }
    }

    /// See [`Grouping::gather`].
    pub(crate) fn gather(&mut self) {
        if let Kept::Groups(grouping) = self {
            grouping.gather();
        }
    }

    /// The groups of a grouping stage.
    ///
    /// # Panics
    /// When it is another stage.
    pub(crate) fn groups(&self, id: StageId) -> &Grouping {
        match self {
            Kept::Groups(grouping) => grouping,
            Kept::Nothing | Kept::Keys(_) => panic!("{id} does not group"),
        }
    }

    /// What a keyed stage keeps.
    ///
    /// # Panics
    /// When it is another stage.
    pub(crate) fn keys(&self, id: StageId) -> &Keys {
        match self {
            Kept::Keys(keys) => keys,
            Kept::Nothing | Kept::Groups(_) => panic!("{id} does not work per key"),
        }
    }

    /// Whether it is kept for keys.
    pub(crate) fn is_keyed(&self) -> bool {
        matches!(self, Kept::Keys(_))
    }

    /// Whether bundles go through state, so that what they take they take whole.
    pub(crate) fn is_something(&self) -> bool {
        !matches!(self, Kept::Nothing)
    }

    pub(crate) fn restore(&mut self, state: &dyn KeyedState) -> Result<(), Error> {
        match self {
            Kept::Nothing => Ok(()),
            Kept::Groups(grouping) => grouping.restore(state),
            Kept::Keys(keys) => keys.restore(state),
        }
    }

    /// The state writes that go with this delta are durable.
    pub(crate) fn apply(&mut self, delta: Delta) {
        match (self, delta) {
            (Kept::Groups(grouping), Delta::Groups(delta)) => grouping.apply(delta),
            (Kept::Keys(keys), Delta::Keys(delta)) => keys.apply(*delta),
            _ => unreachable!("a delta comes back to the stage that made it"),
        }
    }

    /// The time that the stage's output watermark may reach but not pass. MAX if nothing holds it.
    pub(crate) fn hold(&self) -> Timestamp {
        match self {
            Kept::Nothing => Timestamp::MAX,
            Kept::Groups(grouping) => grouping.hold(),
            Kept::Keys(keys) => keys.hold(),
        }
    }

    /// What has the least hold. Timer families have `timer_names`.
    pub(crate) fn held_by(&self, timer_names: &[String]) -> HeldBy {
        match self {
            Kept::Nothing => HeldBy::Nothing,
            Kept::Groups(grouping) => grouping.holder().map_or(HeldBy::Nothing, |(hold, end)| HeldBy::Window { hold, end }),
            Kept::Keys(keys) => keys.held_by(timer_names),
        }
    }

    /// Whether a bundle without rows would do something.
    pub(crate) fn due(&self, clocks: Clocks) -> bool {
        match self {
            Kept::Nothing => false,
            Kept::Groups(grouping) => grouping.due(clocks),
            Kept::Keys(keys) => keys.due(clocks.input_watermark, clocks.now_ms),
        }
    }

    /// Whether what is due comes before rows whose least hold is `rows`: by its time, or because it has let others pass for
    /// `long`. Groups take rows in and fire in one bundle.
    pub(crate) fn goes_first(&self, clocks: Clocks, rows: Timestamp, long: bool) -> bool {
        match self {
            Kept::Nothing | Kept::Groups(_) => false,
            Kept::Keys(keys) => long || keys.due_before(clocks.input_watermark, rows),
        }
    }

    /// The processing time in milliseconds from which [`Kept::due`] holds whatever the watermark.
    pub(crate) fn next_processing_ms(&self) -> Option<i64> {
        match self {
            Kept::Nothing => None,
            Kept::Groups(grouping) => grouping.next_processing_ms(),
            Kept::Keys(keys) => keys.next_processing_ms(),
        }
    }

    pub(crate) fn summary(&self) -> Option<Summary> {
        match self {
            Kept::Groups(grouping) => Some(grouping.summary()),
            Kept::Nothing | Kept::Keys(_) => None,
        }
    }
}
