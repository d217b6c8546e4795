//! Random windowing strategies: any trigger, any mode, any lateness.

use model::Duration;
use model::windowing::{
    Accumulation, ClosingBehavior, OnTimeBehavior, OutputTime, TimestampTransform, Trigger, WindowingStrategy,
};

use super::windows::Windowing;
use crate::dice::Dice;

/// Levels of a trigger.
const DEPTH_MAX: usize = 2;

/// How a grouping with any trigger fires.
#[derive(Clone, Debug)]
pub(crate) struct Firing {
    pub(crate) windowing: Windowing,
    pub(crate) strategy: WindowingStrategy,
}

impl Firing {
    pub(crate) fn generate(dice: &mut Dice, windowing: Windowing) -> Firing {
        let of_root = trigger(dice, DEPTH_MAX);
        let strategy = WindowingStrategy {
            // Most triggers finish with their first firing, and only a few elements are in a pane then.
            trigger: if dice.chance(40) { Trigger::Repeat(Box::new(of_root)) } else { of_root },
            accumulation: dice.one_of(&[Accumulation::Discarding, Accumulation::Accumulating]),
            output_time: dice.one_of(&[OutputTime::EndOfWindow, OutputTime::Earliest, OutputTime::Latest]),
            closing: dice.one_of(&[ClosingBehavior::Always, ClosingBehavior::IfNonEmpty]),
            on_time: dice.one_of(&[OnTimeBehavior::Always, OnTimeBehavior::IfNonEmpty]),
            allowed_lateness: lateness(dice),
            ..windowing.strategy()
        };
        Firing { windowing, strategy }
    }

    pub(crate) fn merges(&self) -> bool {
        self.windowing.merges().is_some()
    }

    pub(crate) fn accumulates(&self) -> bool {
        self.strategy.accumulation == Accumulation::Accumulating
    }

    pub(crate) fn lateness_ms(&self) -> i64 {
        self.strategy.allowed_lateness.0
    }

    /// Whether the trigger can finish before its window expires: what comes then is dropped.
    pub(crate) fn may_finish(&self) -> bool {
        match &self.strategy.trigger {
            Trigger::Default | Trigger::Always | Trigger::Never | Trigger::Repeat(_) => false,
            Trigger::AfterEndOfWindow { late, .. } => late.is_none(),
            _ => true,
        }
    }

    /// Whether the window's end makes the trigger fire, whatever happened before it.
    pub(crate) fn fires_at_end(&self) -> bool {
        matches!(self.strategy.trigger, Trigger::Default | Trigger::AfterEndOfWindow { .. })
    }

    /// Whether only the watermark makes the trigger fire, as long as nothing is late.
    pub(crate) fn waits_for_end(&self) -> bool {
        match &self.strategy.trigger {
            Trigger::Default | Trigger::Never => true,
            Trigger::AfterEndOfWindow { early, .. } => early.as_deref().is_none_or(|early| *early == Trigger::Never),
            _ => false,
        }
    }
}

/// None, some, or so much that it reaches beyond all times.
pub(crate) fn lateness(dice: &mut Dice) -> Duration {
    match dice.below(5) {
        0 | 1 => Duration(0),
        2 => Duration(i64::MAX / 1_000),
        _ => Duration(dice.between(1, 60)),
    }
}

fn trigger(dice: &mut Dice, depth: usize) -> Trigger {
    if depth == 0 || dice.chance(35) {
        return leaf(dice);
    }
    let mut parts = |count| (0..count).map(|_| trigger(dice, depth - 1)).collect::<Vec<_>>();
    let mut two = parts(2).into_iter().map(Box::new);
    let (first, second) = (two.next().unwrap(), two.next().unwrap());
    let mut several = parts(2);
    several.push(*first.clone());
    several.truncate(2 + dice.below(2));
    match dice.below(8) {
        0..=2 => {
            let (early, late) = (dice.chance(60).then_some(first), dice.chance(60).then_some(second));
            Trigger::AfterEndOfWindow { early, late }
        }
        3 => Trigger::AfterAll(several),
        4 => Trigger::AfterAny(several),
        5 => Trigger::AfterEach(several),
        6 => Trigger::OrFinally(first, second),
        _ => Trigger::Repeat(first),
    }
}

fn leaf(dice: &mut Dice) -> Trigger {
    match dice.below(9) {
        0 => Trigger::Default,
        1 => Trigger::Always,
        2 => Trigger::Never,
        3 => Trigger::AfterEndOfWindow { early: None, late: None },
        4 => Trigger::AfterSynchronizedProcessingTime,
        5 | 6 => {
            let delay = TimestampTransform::Delay(Duration(dice.between(0, 2_000)));
            let period = Duration(dice.between(1, 2_000));
            let align = TimestampTransform::AlignTo { period, offset: Duration(dice.between(0, 9)) };
            Trigger::AfterProcessingTime(if dice.chance(50) { vec![delay] } else { vec![delay, align] })
        }
        _ => Trigger::ElementCount(dice.between(1, 6) as i32),
    }
}
