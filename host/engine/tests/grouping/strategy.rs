//! Windowing strategies from text, with Python's names: `Sessions(10)`, `AfterWatermark(early=AfterCount(2))`.

use model::windowing::{
    Accumulation, ClosingBehavior, Merging, OnTimeBehavior, OutputTime, TimestampTransform, Trigger, WindowFn, WindowingStrategy,
};
use model::{Duration, WindowCoder};

/// What Python sends when nothing is said.
pub(crate) fn python_default() -> WindowingStrategy {
    WindowingStrategy {
        accumulation: Accumulation::Accumulating,
        closing: ClosingBehavior::Always,
        on_time: OnTimeBehavior::Always,
        ..WindowingStrategy::global()
    }
}

/// Sets what assigns windows. Times are given in units of `unit` milliseconds.
pub(crate) fn set_windows(strategy: &mut WindowingStrategy, text: &str, unit: i64) {
    let call = parse(text);
    let time = |place: usize| Duration(call.number(place) * unit);
    let offset = Duration(0);
    strategy.window_fn = match call.name.as_str() {
        "GlobalWindows" => WindowFn::Global,
        // A Python function that differs from FixedWindows in a way that does not reach the runner.
        "FixedWindows" | "CustomTimestampingFixedWindowsWindowFn" => WindowFn::Fixed { size: time(0), offset },
        "SlidingWindows" => WindowFn::Sliding { size: time(0), period: time(1), offset },
        "Sessions" => WindowFn::Sessions { gap: time(0) },
        other => panic!("no window function {other}"),
    };
    strategy.window_coder = if strategy.window_fn == WindowFn::Global { WindowCoder::Global } else { WindowCoder::Interval };
    let sessions = matches!(strategy.window_fn, WindowFn::Sessions { .. });
    strategy.merging = if sessions { Merging::NeedsMerge } else { Merging::NonMerging };
}

/// A trigger. Spans of processing time are in units of `unit` milliseconds.
pub(crate) fn trigger(text: &str, unit: i64) -> Trigger {
    trigger_of(&parse(text), unit)
}

fn trigger_of(call: &Call, unit: i64) -> Trigger {
    let child = |place: usize| Box::new(trigger_of(&call.arguments[place].1, unit));
    let children = || call.arguments.iter().map(|(_, argument)| trigger_of(argument, unit)).collect();
    let named = |name: &str| call.named(name).map(|argument| Box::new(trigger_of(argument, unit)));
    match call.name.as_str() {
        "Default" | "DefaultTrigger" => Trigger::Default,
        "Always" => Trigger::Always,
        "Never" => Trigger::Never,
        "AfterCount" => Trigger::ElementCount(call.number(0) as i32),
        "AfterWatermark" => Trigger::AfterEndOfWindow { early: named("early"), late: named("late") },
        "AfterProcessingTime" => {
            let delay = TimestampTransform::Delay(Duration(call.number(0) * unit));
            let align = call.named("align").map(|period| {
                let period = Duration(period.name.parse::<i64>().unwrap() * unit);
                TimestampTransform::AlignTo { period, offset: Duration(0) }
            });
            Trigger::AfterProcessingTime([delay].into_iter().chain(align).collect())
        }
        "AfterSynchronizedProcessingTime" => Trigger::AfterSynchronizedProcessingTime,
        "AfterAll" => Trigger::AfterAll(children()),
        "AfterAny" => Trigger::AfterAny(children()),
        "AfterEach" => Trigger::AfterEach(children()),
        "OrFinally" => Trigger::OrFinally(child(0), child(1)),
        "Repeatedly" => Trigger::Repeat(child(0)),
        other => panic!("no trigger {other}"),
    }
}

pub(crate) fn accumulation(text: &str) -> Accumulation {
    match text {
        "accumulating" => Accumulation::Accumulating,
        "discarding" => Accumulation::Discarding,
        other => panic!("no accumulation mode {other}"),
    }
}

/// None for Python's output times that do not exist in the portable model.
pub(crate) fn output_time(text: &str) -> Option<OutputTime> {
    match text {
        "OUTPUT_AT_EOW" => Some(OutputTime::EndOfWindow),
        "OUTPUT_AT_EARLIEST" => Some(OutputTime::Earliest),
        "OUTPUT_AT_LATEST" => Some(OutputTime::Latest),
        "OUTPUT_AT_EARLIEST_TRANSFORMED" => None,
        other => panic!("no output time {other}"),
    }
}

/// `name(argument, key=argument)`; a number is a name.
#[derive(Debug)]
struct Call {
    name: String,
    arguments: Vec<(String, Call)>,
}

impl Call {
    fn number(&self, place: usize) -> i64 {
        self.arguments[place].1.name.parse().unwrap()
    }

    fn named(&self, name: &str) -> Option<&Call> {
        self.arguments.iter().find(|(argument, _)| argument == name).map(|(_, call)| call)
    }
}

fn parse(text: &str) -> Call {
    let Some((name, arguments)) = text.trim().split_once('(') else {
        return Call { name: text.trim().into(), arguments: Vec::new() };
    };
    let arguments = arguments.strip_suffix(')').unwrap_or_else(|| panic!("{text} has no end"));
    let mut depth = 0;
    let parts = arguments.split(|character| {
        depth += i32::from(character == '(') - i32::from(character == ')');
        character == ',' && depth == 0
    });
    let argument = |part: &str| match part.split_once('=') {
        Some((name, value)) if !name.contains('(') => (name.trim().to_string(), parse(value)),
        _ => (String::new(), parse(part)),
    };
    let arguments = parts.filter(|part| !part.trim().is_empty()).map(argument).collect();
    Call { name: name.trim().into(), arguments }
}
