//! Random strategies, rows and clocks: the real grouping against the plain model, and runs against cells.
//!
//! A failure prints its seed; `PURLIN_SEED=n` runs that one alone.

use engine::grouping::Limits;
use model::windowing::{
    Accumulation, ClosingBehavior, Merging, OnTimeBehavior, OutputTime, TimestampTransform, Trigger, WindowFn, WindowingStrategy,
};
use model::{Duration, Timestamp, WindowCoder};

use crate::driver::{Driver, Element, Manner, Pane};
use crate::model::Model;

/// `PURLIN_SEEDS` asks for more or fewer.
const SEEDS: u64 = 1000;

#[test]
fn cells_agree_with_the_plain_model() {
    each_seed(|random| {
        let strategy = strategy(random);
        let manner = manner(random);
        let (mut real, mut plain) = (Driver::new(&strategy, manner), Model::new(&strategy, manner.gathered));
        let story = story(random);
        for event in &story {
            let before = (real.clocks, real.hold());
            let panes = play(&mut real, event);
            let mut clocks = real.clocks;
            // The model sees the output watermark that the real one fired at.
            clocks.output_watermark = before
                .0
                .output_watermark
                .max(clocks.input_watermark.min(if matches!(event, Event::Watermark(_)) { before.1 } else { Timestamp::MIN }));
            let expected = match event {
                Event::Rows(elements) => plain.rows(elements, clocks),
                _ => plain.timers(clocks),
            };
            let context = format!("{strategy:?}\n{story:?}\nat {event:?}");
            assert_eq!(sorted(panes), sorted(expected), "{context}");
            assert_eq!(real.dropped, plain.dropped, "{context}");
            if !is_runs(&strategy) {
                assert_eq!(real.hold(), plain.hold(), "{context}");
            }
        }
        assert!(real.store.cells().keys().all(|cell| cell[4] == b'n'), "only the number of buffers is left: {strategy:?}");
    });
}

#[test]
fn runs_agree_with_cells() {
    each_seed(|random| {
        let mut strategy = strategy(random);
        strategy.allowed_lateness = Duration(0);
        strategy.merging = Merging::NonMerging;
        let end = Trigger::AfterEndOfWindow { early: None, late: None };
        let (runs, cells) = match random.below(3) {
            0 => (Trigger::Default, Trigger::Repeat(Box::new(end))),
            1 => (end.clone(), Trigger::AfterAny(vec![end])),
            _ => (Trigger::Never, Trigger::Repeat(Box::new(Trigger::Never))),
        };
        let mut run = Driver::new(&WindowingStrategy { trigger: runs, ..strategy.clone() }, manner(random));
        let mut cell = Driver::new(&WindowingStrategy { trigger: cells, ..strategy.clone() }, manner(random));
        let story = story(random);
        for event in &story {
            let (panes, expected) = (play(&mut run, event), play(&mut cell, event));
            assert_eq!(sorted(panes), sorted(expected), "{strategy:?}\n{story:?}\nat {event:?}");
            assert_eq!(run.dropped, cell.dropped);
            assert_eq!(run.summary().rows, cell.summary().rows);
            // Runs hold for the earliest element of a window; see there. What one has let pass, both have.
            assert!(run.hold() <= cell.hold());
            let passed = run.clocks.output_watermark.min(cell.clocks.output_watermark);
            (run.clocks.output_watermark, cell.clocks.output_watermark) = (passed, passed);
        }
        assert!(run.store.cells().is_empty());
    });
}

fn each_seed(test: impl Fn(&mut Random)) {
    let number = |name| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let seeds = 0..number("PURLIN_SEEDS").unwrap_or(SEEDS);
    for seed in number("PURLIN_SEED").map_or(seeds, |seed| seed..seed + 1) {
        let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| test(&mut Random(seed))));
        if let Err(panic) = caught {
            println!("PURLIN_SEED={seed}");
            std::panic::resume_unwind(panic);
        }
    }
}

fn is_runs(strategy: &WindowingStrategy) -> bool {
    let once = match &strategy.trigger {
        Trigger::Default | Trigger::Never => true,
        Trigger::AfterEndOfWindow { early, .. } => early.as_deref().is_none_or(|early| *early == Trigger::Never),
        _ => false,
    };
    once && strategy.merging != Merging::NeedsMerge
        && (strategy.allowed_lateness == Duration(0) || strategy.window_coder == WindowCoder::Global)
}

#[derive(Debug)]
enum Event {
    Rows(Vec<Element>),
    Watermark(i64),
    Clock(i64),
}

fn play(driver: &mut Driver, event: &Event) -> Vec<Pane> {
    match event {
        Event::Rows(elements) => driver.rows(elements),
        Event::Watermark(millis) => driver.watermark(*millis),
        Event::Clock(now_ms) => driver.clock(*now_ms),
    }
}

fn sorted(mut panes: Vec<Pane>) -> Vec<Pane> {
    // Stable: panes of one key and window stay in order.
    panes.sort_by(|a, b| (&a.key, a.window).cmp(&(&b.key, b.window)));
    panes
}

/// Times move on from about 0 to about 60; some elements are late, and in the end all is complete.
fn story(random: &mut Random) -> Vec<Event> {
    let (mut watermark, mut clock, mut number) = (-10, 0, 0);
    let mut events = Vec::new();
    for _ in 0..random.below(25) {
        events.push(match random.below(6) {
            0..3 => {
                let elements = (0..1 + random.below(5)).map(|_| {
                    number += 1;
                    let key = ["", "a", "bb"][random.below(3) as usize].to_string();
                    let time = watermark - 6 + random.below(25) as i64;
                    Element { key, time, value: number.to_string() }
                });
                Event::Rows(elements.collect())
            }
            3..5 => {
                watermark += random.below(9) as i64;
                Event::Watermark(watermark)
            }
            _ => {
                clock += random.below(8) as i64;
                Event::Clock(clock)
            }
        });
    }
    events.push(Event::Watermark(Timestamp::MAX.millis()));
    events
}

fn strategy(random: &mut Random) -> WindowingStrategy {
    let window_fn = match random.below(8) {
        0 => WindowFn::Global,
        1..4 => WindowFn::Fixed { size: Duration(10), offset: Duration(random.below(3) as i64) },
        4 => WindowFn::Sliding { size: Duration(10), period: Duration(4), offset: Duration(0) },
        _ => WindowFn::Sessions { gap: Duration(3 + random.below(5) as i64) },
    };
    let sessions = matches!(window_fn, WindowFn::Sessions { .. });
    WindowingStrategy {
        window_coder: if window_fn == WindowFn::Global { WindowCoder::Global } else { WindowCoder::Interval },
        merging: if sessions { Merging::NeedsMerge } else { Merging::NonMerging },
        window_fn,
        trigger: trigger(random, 3),
        accumulation: random.pick([Accumulation::Discarding, Accumulation::Accumulating]),
        output_time: random.pick([OutputTime::EndOfWindow, OutputTime::Latest, OutputTime::Earliest]),
        closing: random.pick([ClosingBehavior::Always, ClosingBehavior::IfNonEmpty]),
        on_time: random.pick([OnTimeBehavior::Always, OnTimeBehavior::IfNonEmpty]),
        allowed_lateness: Duration(random.pick([0, 4, 20, i64::MAX / 1000])),
    }
}

fn trigger(random: &mut Random, depth: u32) -> Trigger {
    let leaf = depth == 0;
    let child = |random: &mut Random| Box::new(trigger(random, depth.saturating_sub(1)));
    match random.below(if leaf { 6 } else { 14 }) {
        0 => Trigger::Default,
        1 => Trigger::Always,
        2 => Trigger::Never,
        3 => Trigger::ElementCount(1 + random.below(4) as i32),
        4 => {
            let delay = TimestampTransform::Delay(Duration(random.below(6) as i64));
            let align = TimestampTransform::AlignTo { period: Duration(4), offset: Duration(random.below(3) as i64) };
            Trigger::AfterProcessingTime(random.pick([vec![delay], vec![delay, align], vec![align]]))
        }
        5 => Trigger::AfterSynchronizedProcessingTime,
        6..9 => {
            let early = (random.below(2) == 0).then(|| child(random));
            Trigger::AfterEndOfWindow { early, late: (random.below(2) == 0).then(|| child(random)) }
        }
        9 => Trigger::AfterAll(vec![*child(random), *child(random)]),
        10 => Trigger::AfterAny(vec![*child(random), *child(random)]),
        11 => Trigger::AfterEach(vec![*child(random), *child(random)]),
        12 => Trigger::OrFinally(child(random), child(random)),
        _ => Trigger::Repeat(child(random)),
    }
}

fn manner(random: &mut Random) -> Manner {
    let gathered = random.below(2) == 0;
    // A call that has fired many bytes takes what is left of its rows together.
    let bytes_max = if gathered { random.pick([1, 20, u64::MAX]) } else { u64::MAX };
    Manner {
        limits: Limits { bytes_max, keys_max: random.pick([1, 2, usize::MAX]) },
        restored: random.below(2) == 0,
        failing: random.below(4) == 0,
        frozen: true,
        asked: random.below(2) == 0,
        gathered,
    }
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    fn pick<T, const N: usize>(&mut self, choices: [T; N]) -> T {
        let place = self.below(N as u64) as usize;
        choices.into_iter().nth(place).unwrap()
    }
}
