//! Random pipelines: small, and with every kind of step often enough.

use model::windowing::OutputTime;

use super::keyed::ByKey;
use super::pipeline::{Element, Event, Function, Grouping, Op, Windowing, interpret};
use crate::dice::Dice;
use crate::dofns::Access;

/// A step that would make more elements is left out.
const ELEMENTS_MAX: usize = 120;
/// Times of sources are in `0..TIMES`, in milliseconds.
const TIMES: i64 = 200;

/// A pipeline with what it makes.
#[derive(Debug, Default)]
pub(crate) struct Pipeline {
    pub(crate) ops: Vec<Op>,
    /// Elements of each step.
    pub(crate) made: Vec<Vec<Element>>,
    /// Windows of each step.
    pub(crate) windowings: Vec<Windowing>,
}

impl Pipeline {
    pub(crate) fn generate(dice: &mut Dice) -> Pipeline {
        let mut pipeline = Pipeline::default();
        let scripted = dice.chance(25);
        for _ in 0..dice.between(1, 2) {
            let op = if scripted { Op::Script(script(dice)) } else { Op::Source(source(dice)) };
            pipeline.push(op, Windowing::Global);
        }
        for _ in 0..dice.between(2, 9) {
            pipeline.grow(dice);
        }
        pipeline
    }

    fn push(&mut self, op: Op, windowing: Windowing) -> Option<usize> {
        let made = interpret(&op, &self.made);
        if made.len() > ELEMENTS_MAX {
            return None;
        }
        self.ops.push(op);
        self.made.push(made);
        self.windowings.push(windowing);
        Some(self.ops.len() - 1)
    }

    fn grow(&mut self, dice: &mut Dice) {
        let input = self.some(dice);
        let windowing = self.windowings[input];
        let fused = dice.chance(50);
        match dice.below(11) {
            0 => drop(self.push(Op::Map { input, function: function(dice), fused }, windowing)),
            1 => drop(self.window(dice, input)),
            2 => drop(self.push(Op::Reshuffle { input }, windowing)),
            3 => {
                let right = self.some(dice);
                if self.windowings[right] == windowing {
                    self.push(Op::Flatten { left: input, right }, windowing);
                }
            }
            4 | 5 => self.group(dice, input),
            6 => self.side(dice, input),
            7..=9 => self.by_key(dice, input),
            _ => drop(self.push(Op::Restrictions { input, reshuffled: dice.chance(50) }, windowing)),
        }
    }

    /// A step, mostly a late one.
    fn some(&self, dice: &mut Dice) -> usize {
        let (a, b) = (dice.below(self.ops.len()), dice.below(self.ops.len()));
        a.max(b)
    }

    /// New windows, where elements are in one window each and at ordinary times.
    fn window(&mut self, dice: &mut Dice, input: usize) -> Option<usize> {
        let ordinary = self.made[input].iter().all(|element| element.time < 1_000_000);
        if !ordinary || matches!(self.windowings[input], Windowing::Sliding { .. }) {
            return None;
        }
        let windowing = match dice.below(4) {
            0 => Windowing::Global,
            1 => Windowing::Fixed { size: dice.between(1, 100), offset: dice.between(0, 10) },
            2 => {
                let period = dice.between(10, 60);
                Windowing::Sliding { size: dice.between(5, 100), period, offset: dice.between(0, 9) }
            }
            _ => Windowing::Sessions { gap: dice.between(1, 40) },
        };
        self.push(Op::Window { input, windowing, fused: dice.chance(50) }, windowing)
    }

    fn group(&mut self, dice: &mut Dice, input: usize) {
        let input = if dice.chance(60) { self.window(dice, input).unwrap_or(input) } else { input };
        let windowing = self.windowings[input];
        if windowing == Windowing::Merged {
            return;
        }
        let output_time =
            dice.one_of(&[OutputTime::EndOfWindow, OutputTime::EndOfWindow, OutputTime::Earliest, OutputTime::Latest]);
        let lateness_ms = if dice.chance(30) { dice.between(1, 50) } else { 0 };
        let grouping = Grouping { windowing, output_time, lateness_ms, spelled_out: dice.chance(40) };
        let op = Op::Group { input, grouping, one_stage: dice.chance(70) };
        let merged = matches!(windowing, Windowing::Sessions { .. });
        self.push(op, if merged { Windowing::Merged } else { windowing });
    }

    fn by_key(&mut self, dice: &mut Dice, input: usize) {
        let input = if dice.chance(60) { self.window(dice, input).unwrap_or(input) } else { input };
        let windowing = self.windowings[input];
        if !matches!(windowing, Windowing::Merged | Windowing::Sessions { .. }) {
            let by_key = ByKey::generate(dice, windowing);
            self.push(Op::ByKey { input, windowing, by_key }, windowing);
        }
    }

    fn side(&mut self, dice: &mut Dice, input: usize) {
        let side = self.some(dice);
        let windowing = self.windowings[side];
        let mapped = match windowing {
            Windowing::Global => true,
            Windowing::Fixed { .. } | Windowing::Sliding { .. } => self.windowings[input] != Windowing::Global,
            Windowing::Sessions { .. } | Windowing::Merged => false,
        };
        if mapped {
            let access = dice.one_of(&[Access::Elements, Access::Values, Access::Keys, Access::KeysAndValues]);
            self.push(Op::Side { input, side, access, windowing }, self.windowings[input]);
        }
    }
}

fn source(dice: &mut Dice) -> Vec<Element> {
    let mut element = || {
        let (key, value, time) = (dice.below(6) as u8, dice.below(1_000) as u64, dice.between(0, TIMES - 1));
        Element { key, value, time, window: None }
    };
    let elements: Vec<Element> = (0..40).map(|_| element()).collect();
    elements[dice.below(40)..].to_vec()
}

/// Elements in bundles, each not before the watermark, with watermarks and pauses in between.
fn script(dice: &mut Dice) -> Vec<Event> {
    let mut watermark = 0;
    let mut events = Vec::new();
    for _ in 0..dice.between(1, 8) {
        events.push(match dice.below(4) {
            0 => {
                watermark = dice.between(watermark, TIMES);
                Event::Watermark(watermark)
            }
            1 => Event::TimePasses(dice.between(1, 5_000)),
            _ => {
                let mut elements = source(dice);
                elements.truncate(8);
                elements.iter_mut().for_each(|element| element.time = element.time.max(watermark));
                Event::Elements(elements)
            }
        });
    }
    events
}

fn function(dice: &mut Dice) -> Function {
    match dice.below(4) {
        0 => Function::Add(dice.below(50) as u64),
        1 => Function::Filter(dice.between(2, 5) as u64),
        2 => Function::Twice,
        _ => Function::Rekey(dice.between(1, 8) as u64),
    }
}
