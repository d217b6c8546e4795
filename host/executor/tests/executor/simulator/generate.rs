//! Random pipelines: small, and with every kind of step often enough.

use model::windowing::OutputTime;

use super::firing::{Firing, lateness};
use super::grouping::TIMES_END;
use super::keyed::ByKey;
use super::pipeline::{Element, Event, Function, Op, interpret};
use super::steps::Steps;
use super::windows::{Grouping, LOOSE, Windowing};
use crate::dice::Dice;
use crate::dofns::Access;

/// A step that would make more elements is left out.
const ELEMENTS_MAX: usize = 120;
/// Times of sources are in `0..TIMES`, in milliseconds.
const TIMES: i64 = 200;

/// A pipeline with what it makes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pipeline {
    pub(crate) ops: Vec<Op>,
    /// Elements of each step.
    pub(crate) made: Vec<Vec<Element>>,
    /// Windows of each step.
    pub(crate) windowings: Vec<Windowing>,
    standings: Vec<Standing>,
}

/// How the elements of a step stand to the watermark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// None is late.
    Punctual,
    /// Some of those of one script are late, by as much as its watermark says.
    Late(usize),
    /// Some may not be there.
    Uncertain,
    /// Nothing reads them.
    Leaf,
}

impl Pipeline {
    /// Small ones come more often.
    pub(crate) fn generate(dice: &mut Dice) -> Pipeline {
        let mut pipeline = Pipeline::default();
        let scripted = dice.chance(35);
        for index in 0..dice.between(1, 2) as usize {
            let late = scripted && dice.chance(60);
            let op = if scripted { Op::Script(script(dice, late)) } else { Op::Source(source(dice)) };
            pipeline.push(op, Windowing::Global, if late { Standing::Late(index) } else { Standing::Punctual });
        }
        let steps_max = dice.one_of(&[1, 2, 3, 4, 9]);
        for _ in 0..dice.between(1, steps_max) {
            pipeline.grow(dice);
        }
        pipeline
    }

    /// As if only so many events of its scripts had happened, which take turns.
    pub(crate) fn cut(&self, events: usize) -> Pipeline {
        let mut cut = Pipeline { made: Vec::new(), ..self.clone() };
        let mut scripts: Vec<(usize, &mut Vec<Event>)> = Vec::new();
        for op in &mut cut.ops {
            if let Op::Script(events) = op {
                scripts.push((0, events));
            }
        }
        for _ in 0..events {
            let open = scripts.iter_mut().filter(|(passed, events)| *passed <= events.len());
            let next = open.min_by_key(|(passed, _)| *passed);
            next.into_iter().for_each(|(passed, _)| *passed += 1);
        }
        scripts.into_iter().for_each(|(passed, events)| events.truncate(passed));
        for op in &cut.ops {
            let made = interpret(op, &cut.made);
            cut.made.push(made);
        }
        cut
    }

    /// Events of all scripts.
    pub(crate) fn events(&self) -> usize {
        self.ops.iter().map(|op| if let Op::Script(events) = op { events.len() + 1 } else { 0 }).sum()
    }

    fn push(&mut self, op: Op, windowing: Windowing, standing: Standing) -> Option<usize> {
        let made = interpret(&op, &self.made);
        if made.len() > ELEMENTS_MAX {
            return None;
        }
        self.ops.push(op);
        self.made.push(made);
        self.windowings.push(windowing);
        self.standings.push(standing);
        Some(self.ops.len() - 1)
    }

    fn grow(&mut self, dice: &mut Dice) {
        let input = self.some(dice);
        let (windowing, standing) = (self.windowings[input], self.standings[input]);
        match (dice.below(15), standing) {
            (0, _) => {
                let op = Op::Map { input, function: function(dice), fused: dice.chance(50) };
                self.push(op, windowing, standing);
            }
            (1, _) => drop(self.window(dice, input)),
            (2, _) => drop(self.push(Op::Reshuffle { input }, windowing, standing)),
            (3 | 4, _) => self.flatten(dice, input),
            (5..=7, Standing::Punctual | Standing::Late(_)) => self.panes(dice, input),
            (8..=10, Standing::Punctual | Standing::Late(_)) => self.by_key(dice, input),
            (11, Standing::Punctual) => self.group(dice, input),
            (12, Standing::Punctual) => self.side(dice, input),
            (13, Standing::Punctual) => {
                self.push(Op::Restrictions { input, reshuffled: dice.chance(50) }, windowing, standing);
            }
            (14, Standing::Punctual) => {
                let steps = Steps { reshuffled: dice.chance(50), unbounded: dice.chance(50), truncates: dice.chance(60) };
                self.push(Op::Steps { input, steps }, windowing, Standing::Leaf);
            }
            _ => {}
        }
    }

    /// A step that can be read, mostly a late one.
    fn some(&self, dice: &mut Dice) -> usize {
        let open: Vec<usize> = (0..self.ops.len()).filter(|index| self.standings[*index] != Standing::Leaf).collect();
        let (a, b) = (dice.one_of(&open), dice.one_of(&open));
        a.max(b)
    }

    fn is_ordinary(&self, input: usize) -> bool {
        self.made[input].iter().all(|element| element.time < TIMES_END)
    }

    /// New windows, where elements are in one window each and at ordinary times.
    fn window(&mut self, dice: &mut Dice, input: usize) -> Option<usize> {
        if !self.is_ordinary(input) || matches!(self.windowings[input], Windowing::Sliding { .. }) {
            return None;
        }
        let windowing = match dice.below(5) {
            0 => Windowing::Global,
            1 => Windowing::Fixed { size: dice.between(1, 100), offset: dice.between(0, 10) },
            2 => {
                let period = dice.between(10, 60);
                Windowing::Sliding { size: dice.between(5, 100), period, offset: dice.between(0, 9) }
            }
            3 => Windowing::Sessions { gap: dice.between(1, 40) },
            _ => Windowing::Custom { gap: dice.between(2 * LOOSE, 40) },
        };
        self.push(Op::Window { input, windowing, fused: dice.chance(50) }, windowing, self.standings[input])
    }

    /// Of steps with the same windows; some may be the same.
    fn flatten(&mut self, dice: &mut Dice, input: usize) {
        let (windowing, standing) = (self.windowings[input], self.standings[input]);
        let mut inputs = vec![input];
        for _ in 0..dice.between(1, 3) {
            let other = self.some(dice);
            if self.windowings[other] == windowing && self.standings[other] == standing {
                inputs.push(other);
            }
        }
        if inputs.len() > 1 {
            self.push(Op::Flatten { inputs }, windowing, standing);
        }
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
        let windowing = if windowing.merges().is_some() { Windowing::Merged } else { windowing };
        self.push(op, windowing, Standing::Punctual);
    }

    fn panes(&mut self, dice: &mut Dice, input: usize) {
        let input = if dice.chance(80) { self.window(dice, input).unwrap_or(input) } else { input };
        let windowing = self.windowings[input];
        if windowing != Windowing::Merged && self.is_ordinary(input) {
            let firing = Firing::generate(dice, windowing);
            self.push(Op::Panes { input, firing, one_stage: dice.chance(70) }, windowing, Standing::Leaf);
        }
    }

    fn by_key(&mut self, dice: &mut Dice, input: usize) {
        let input = if dice.chance(60) { self.window(dice, input).unwrap_or(input) } else { input };
        let windowing = self.windowings[input];
        if windowing == Windowing::Merged || windowing.merges().is_some() {
            return;
        }
        let late = self.standings[input] != Standing::Punctual;
        let by_key = ByKey::generate(dice, windowing, late);
        // What a loop does after the end of its window is not told here.
        let lateness_ms = if matches!(by_key, ByKey::Loop { .. }) { 0 } else { lateness(dice).0 };
        let standing = if late { Standing::Uncertain } else { Standing::Punctual };
        self.push(Op::ByKey { input, windowing, lateness_ms, by_key }, windowing, standing);
    }

    fn side(&mut self, dice: &mut Dice, input: usize) {
        let side = self.some(dice);
        let windowing = self.windowings[side];
        let mapped = match windowing {
            Windowing::Global => true,
            Windowing::Fixed { .. } | Windowing::Sliding { .. } => self.windowings[input] != Windowing::Global,
            Windowing::Sessions { .. } | Windowing::Custom { .. } | Windowing::Merged => false,
        };
        if mapped && self.standings[side] == Standing::Punctual {
            let access = dice.one_of(&[Access::Elements, Access::Values, Access::Keys, Access::KeysAndValues]);
            self.push(Op::Side { input, side, access, windowing }, self.windowings[input], Standing::Punctual);
        }
    }
}

fn source(dice: &mut Dice) -> Vec<Element> {
    let mut element = || {
        let (key, value, time) = (dice.below(6) as u8, dice.below(1_000) as u64, dice.between(0, TIMES - 1));
        Element::new(key, value, time)
    };
    let elements: Vec<Element> = (0..40).map(|_| element()).collect();
    elements[dice.below(40)..].to_vec()
}

/// Elements in bundles, with watermarks and pauses in between. Unless some are `late`, none is before the watermark.
fn script(dice: &mut Dice, late: bool) -> Vec<Event> {
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
                for element in &mut elements {
                    match late {
                        true => element.watermark = watermark,
                        false => element.time = element.time.max(watermark),
                    }
                }
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
