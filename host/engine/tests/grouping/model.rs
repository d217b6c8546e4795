//! Grouping as plainly as it can be said: everything in memory, everything looked at again after each event.
//!
//! Written from `beam-model.md` 5.2 to 5.6, without cells, indexes, limits or sorting. Random tests hold the real one
//! against it.

use std::collections::{BTreeMap, BTreeSet};

use engine::grouping::Clocks;
use model::Timestamp;
use model::pane::{PaneInfo, Timing};
use model::windowing::{
    Accumulation, ClosingBehavior, Merging, OnTimeBehavior, OutputTime, TimestampTransform, Trigger, WindowingStrategy,
};

use crate::driver::{Element, Interval, Pane, assign};

const END_OF_TIME: i64 = 9_223_371_950_454_775;

pub(crate) struct Model {
    strategy: WindowingStrategy,
    /// Whether the trigger is asked after each row, not once for all of a key.
    by_row: bool,
    windows: BTreeMap<(String, Interval), Window>,
    active: BTreeMap<String, BTreeSet<Interval>>,
    pub(crate) dropped: u64,
}

#[derive(Clone)]
struct Window {
    values: Vec<String>,
    since_pane: usize,
    trigger: Node,
    pane: Option<PaneInfo>,
    element_hold: Option<i64>,
    extra_hold: Option<i64>,
    timers: Timers,
}

#[derive(Clone, Default)]
struct Timers {
    event: BTreeSet<i64>,
    processing: BTreeSet<i64>,
}

/// A trigger with what it remembers.
#[derive(Clone)]
struct Node {
    trigger: Trigger,
    finished: bool,
    count: u64,
    target: Option<i64>,
    parts: Vec<Node>,
}

#[derive(Clone, Copy)]
struct Now {
    end: i64,
    input: i64,
    output: i64,
    processing: i64,
    merging: bool,
}

impl Model {
    pub(crate) fn new(strategy: &WindowingStrategy, gathered: bool) -> Self {
        let by_row = !gathered && strategy.trigger.counts_elements();
        Model { strategy: strategy.clone(), by_row, windows: BTreeMap::new(), active: BTreeMap::new(), dropped: 0 }
    }

    pub(crate) fn hold(&self) -> Timestamp {
        let holds = |window: &Window| {
            window.element_hold.into_iter().chain(window.extra_hold).chain(window.timers.event.first().copied()).min()
        };
        Timestamp::from_millis(self.windows.values().filter_map(holds).min().unwrap_or(i64::MAX))
    }

    pub(crate) fn rows(&mut self, elements: &[Element], clocks: Clocks) -> Vec<Pane> {
        let mut panes = Vec::new();
        let keys: BTreeSet<_> = elements.iter().map(|element| element.key.clone()).collect();
        for key in keys {
            let batch: Vec<_> = elements.iter().filter(|element| element.key == key).collect();
            panes.extend(self.batch(&key, &batch, clocks));
        }
        panes.extend(self.timers(clocks));
        panes
    }

    pub(crate) fn timers(&mut self, clocks: Clocks) -> Vec<Pane> {
        let input = clocks.input_watermark.millis();
        let mut panes = Vec::new();
        let all: Vec<_> = self.windows.keys().cloned().collect();
        for (key, interval) in all {
            let place = (key.clone(), interval);
            let now = self.now(interval, clocks);
            let gc = self.gc(interval);
            let mut window = self.windows.remove(&place).unwrap();
            let before = window.timers.event.len() + window.timers.processing.len();
            window.timers.event.retain(|time| *time >= input);
            window.timers.processing.retain(|time| *time >= now.processing);
            let is_due = before > window.timers.event.len() + window.timers.processing.len();
            if !is_due {
                self.windows.insert(place, window);
                continue;
            }
            if input > gc {
                if !window.trigger.finished {
                    panes.extend(self.emit(&key, interval, &mut window, now, true));
                }
                continue;
            }
            if !window.trigger.finished && window.trigger.should_fire(now) {
                panes.extend(self.emit(&key, interval, &mut window, now, false));
            }
            if now.input > now.end && now.output <= now.end {
                window.timers.event.insert(gc);
            }
            self.windows.insert(place, window);
        }
        panes
    }

    fn now(&self, interval: Interval, clocks: Clocks) -> Now {
        Now {
            end: end_of(interval),
            input: clocks.input_watermark.millis(),
            output: clocks.output_watermark.millis(),
            processing: clocks.now_ms,
            merging: self.strategy.merging == Merging::NeedsMerge,
        }
    }

    fn gc(&self, interval: Interval) -> i64 {
        end_of(interval).saturating_add(self.strategy.allowed_lateness.0).min(END_OF_TIME)
    }

    fn batch(&mut self, key: &str, batch: &[&Element], clocks: Clocks) -> Vec<Pane> {
        let mut by_window: BTreeMap<Interval, Vec<&Element>> = BTreeMap::new();
        for element in batch {
            for interval in assign(&self.strategy, element.time) {
                if self.gc(interval) < clocks.input_watermark.millis() {
                    self.dropped += 1;
                } else {
                    by_window.entry(interval).or_default().push(element);
                }
            }
        }
        if self.strategy.merging == Merging::NeedsMerge {
            by_window = self.merge(key, batch, by_window, clocks);
        }
        let (mut panes, mut left_over) = (Vec::new(), Vec::new());
        for (interval, elements) in by_window {
            let now = self.now(interval, clocks);
            let place = (key.to_string(), interval);
            let mut window = self.windows.remove(&place).unwrap_or_else(|| Window::new(&self.strategy.trigger));
            let was_closed = window.trigger.finished;
            for (number, element) in (1..).zip(&elements) {
                if window.trigger.finished {
                    if was_closed || !now.merging {
                        self.dropped += 1;
                    } else {
                        left_over.push(*element);
                    }
                    continue;
                }
                window.since_pane += 1;
                window.timers.event.insert(self.gc(interval));
                self.hold_for(&mut window, interval, element.time, now);
                window.values.push(element.value.clone());
                window.trigger.on_element(now, &mut window.timers);
                if (self.by_row || number == elements.len()) && window.trigger.should_fire(now) {
                    panes.extend(self.emit(key, interval, &mut window, now, false));
                }
            }
            self.windows.insert(place, window);
        }
        if !left_over.is_empty() {
            // What comes after a session has closed is of another one.
            let is_left = |element: &&&Element| left_over.iter().any(|left| std::ptr::eq(*left, **element));
            panes.extend(self.batch(key, &batch.iter().filter(is_left).copied().collect::<Vec<_>>(), clocks));
        }
        panes
    }

    fn hold_for(&self, window: &mut Window, interval: Interval, time: i64, now: Now) {
        let output_time = self.strategy.output_time;
        let hold = if output_time == OutputTime::EndOfWindow { now.end } else { time.min(now.end) };
        if hold < now.output || now.end < now.input {
            let gc = self.gc(interval);
            window.extra_hold = window.extra_hold.or((gc >= now.input).then_some(gc));
        } else {
            window.element_hold = Some(combine(output_time, window.element_hold, hold));
        }
    }

    fn emit(&mut self, key: &str, interval: Interval, window: &mut Window, now: Now, expired: bool) -> Option<Pane> {
        if !expired {
            window.trigger.on_fire(now);
        }
        let finished = expired || window.trigger.finished;
        let hold = window.element_hold.into_iter().chain(window.extra_hold).min();
        let timestamp = hold.unwrap_or(now.end).min(now.end);
        (window.element_hold, window.extra_hold) = (None, None);
        let gc = self.gc(interval);
        if !finished && self.strategy.closing == ClosingBehavior::Always && gc >= now.input {
            window.extra_hold = Some(gc);
        }
        let before = window.pane;
        let only_early = before.is_none_or(|pane| pane.timing == Timing::Early);
        let timing = if now.end < now.output || !only_early {
            Timing::Late
        } else if now.input <= now.end {
            Timing::Early
        } else {
            Timing::OnTime
        };
        let info = PaneInfo {
            is_first: before.is_none(),
            is_last: finished,
            timing,
            index: before.map_or(-1, |pane| pane.index) + 1,
            nonspeculative_index: if timing == Timing::Early {
                -1
            } else {
                before.map_or(-1, |pane| pane.nonspeculative_index) + 1
            },
        };
        let empty = std::mem::take(&mut window.since_pane) == 0;
        let wanted = !empty
            || (timing == Timing::OnTime && self.strategy.on_time == OnTimeBehavior::Always)
            || (finished && self.strategy.closing == ClosingBehavior::Always);
        let pane = wanted.then(|| Pane { key: key.into(), window: interval, values: window.values.clone(), timestamp, info });
        if wanted {
            window.pane = Some(info);
        }
        if finished || self.strategy.accumulation == Accumulation::Discarding {
            window.values.clear();
        }
        if finished {
            window.pane = None;
            window.trigger.clear();
            if let Some(active) = self.active.get_mut(key) {
                active.remove(&interval);
            }
        }
        pane
    }

    fn merge<'e>(
        &mut self,
        key: &str,
        batch: &[&'e Element],
        new: BTreeMap<Interval, Vec<&'e Element>>,
        clocks: Clocks,
    ) -> BTreeMap<Interval, Vec<&'e Element>> {
        let active = self.active.remove(key).unwrap_or_default();
        let mut now_active = active.clone();
        let mut results = BTreeMap::new();
        let mut rest: BTreeSet<Interval> = active.iter().chain(new.keys()).copied().collect();
        while let Some(first) = rest.pop_first() {
            let (mut result, mut sources) = (first, vec![first]);
            while let Some(next) = rest.first().copied().filter(|next| next.0 < result.1) {
                rest.pop_first();
                result.1 = result.1.max(next.1);
                sources.push(next);
            }
            if !sources.iter().any(|source| new.contains_key(source)) {
                continue;
            }
            let from: Vec<_> = sources.iter().filter(|source| active.contains(source)).copied().collect();
            if sources.len() > 1 && !from.is_empty() {
                self.merge_windows(key, &from, result, clocks);
            }
            sources.iter().for_each(|source| {
                now_active.remove(source);
            });
            let closed = self.windows.get(&(key.to_string(), result)).is_some_and(|window| window.trigger.finished);
            if !from.is_empty() || !closed {
                now_active.insert(result);
            }
            // In the order of the batch, whatever window a row had.
            let taken = |element: &&&Element| {
                assign(&self.strategy, element.time).iter().any(|window| sources.contains(window) && new.contains_key(window))
            };
            results.insert(result, batch.iter().filter(taken).copied().collect());
        }
        self.active.insert(key.into(), now_active);
        results
    }

    fn merge_windows(&mut self, key: &str, from: &[Interval], result: Interval, clocks: Clocks) {
        let now = self.now(result, clocks);
        let sources: Vec<_> = from.iter().map(|source| self.windows.remove(&(key.to_string(), *source)).unwrap()).collect();
        let mut merged = Window::new(&self.strategy.trigger);
        match from.iter().position(|source| *source == result) {
            Some(own) => {
                merged.trigger = sources[own].trigger.clone();
                merged.pane = sources[own].pane;
                merged.timers = sources[own].timers.clone();
            }
            None => {
                if let Some(closed) = self.windows.remove(&(key.to_string(), result)) {
                    merged.timers = closed.timers;
                }
            }
        }
        for source in &sources {
            merged.values.extend(source.values.iter().cloned());
            merged.since_pane += source.since_pane;
            if let Some(hold) = source.element_hold {
                merged.element_hold = Some(combine(self.strategy.output_time, merged.element_hold, hold));
            }
        }
        if self.strategy.output_time == OutputTime::EndOfWindow {
            merged.element_hold = Some(now.end);
        }
        let gc = self.gc(result);
        merged.extra_hold = (gc >= now.input).then_some(gc);
        let triggers: Vec<_> = sources.iter().map(|source| &source.trigger).collect();
        merged.trigger.on_merge(&triggers, now, &mut merged.timers);
        self.windows.insert((key.to_string(), result), merged);
    }
}

fn end_of(interval: Interval) -> i64 {
    (interval.1 - 1).min(END_OF_TIME)
}

fn combine(output_time: OutputTime, before: Option<i64>, hold: i64) -> i64 {
    match before {
        Some(before) if output_time == OutputTime::Latest => before.max(hold),
        Some(before) => before.min(hold),
        None => hold,
    }
}

impl Window {
    fn new(trigger: &Trigger) -> Self {
        Window {
            values: Vec::new(),
            since_pane: 0,
            trigger: Node::new(trigger),
            pane: None,
            element_hold: None,
            extra_hold: None,
            timers: Timers::default(),
        }
    }
}

impl Node {
    fn new(trigger: &Trigger) -> Self {
        let parts = match trigger {
            Trigger::AfterEndOfWindow { early: None, late: None } => vec![],
            Trigger::AfterEndOfWindow { early, late } => {
                let early = early.as_deref().unwrap_or(&Trigger::Never);
                [early].into_iter().chain(late.as_deref()).map(Node::new).collect()
            }
            Trigger::AfterAll(parts) | Trigger::AfterAny(parts) | Trigger::AfterEach(parts) => {
                parts.iter().map(Node::new).collect()
            }
            Trigger::OrFinally(main, finally) => vec![Node::new(main), Node::new(finally)],
            Trigger::Repeat(part) => vec![Node::new(part)],
            _ => vec![],
        };
        Node { trigger: trigger.clone(), finished: false, count: 0, target: None, parts }
    }

    fn unfinished(&mut self) -> Option<&mut Node> {
        self.parts.iter_mut().find(|part| !part.finished)
    }

    fn on_element(&mut self, now: Now, timers: &mut Timers) {
        match &self.trigger {
            Trigger::Never | Trigger::Always => {}
            Trigger::ElementCount(_) => self.count += 1,
            Trigger::AfterProcessingTime(_) | Trigger::AfterSynchronizedProcessingTime if self.target.is_some() => {}
            Trigger::AfterProcessingTime(transforms) => {
                let mut target = now.processing;
                for transform in transforms {
                    match transform {
                        TimestampTransform::Delay(delay) => target += delay.0,
                        TimestampTransform::AlignTo { period, offset } => {
                            while (target - offset.0) % period.0 != 0 {
                                target += 1;
                            }
                        }
                    }
                }
                self.target = Some(target);
                timers.processing.insert(target);
            }
            Trigger::AfterSynchronizedProcessingTime => {
                self.target = Some(now.processing);
                timers.processing.insert(now.processing);
            }
            Trigger::Default => set_end(now, timers),
            Trigger::AfterEndOfWindow { .. } | Trigger::AfterEach(_) => {
                if matches!(self.trigger, Trigger::AfterEndOfWindow { .. }) {
                    set_end(now, timers);
                }
                if now.merging {
                    self.parts.iter_mut().for_each(|part| part.on_element(now, timers));
                } else if let Some(part) = self.unfinished() {
                    part.on_element(now, timers);
                }
            }
            Trigger::AfterAll(_) => {
                self.parts.iter_mut().filter(|part| !part.finished).for_each(|part| part.on_element(now, timers));
            }
            Trigger::AfterAny(_) | Trigger::OrFinally(..) | Trigger::Repeat(_) => {
                self.parts.iter_mut().for_each(|part| part.on_element(now, timers));
            }
        }
    }

    fn should_fire(&self, now: Now) -> bool {
        let ended = now.input > now.end;
        match &self.trigger {
            Trigger::Never => false,
            Trigger::Always => true,
            Trigger::ElementCount(count) => self.count >= *count as u64,
            Trigger::AfterProcessingTime(_) | Trigger::AfterSynchronizedProcessingTime => {
                self.target.is_some_and(|target| now.processing > target)
            }
            Trigger::Default => ended,
            Trigger::AfterEndOfWindow { .. } => match &self.parts[..] {
                [] => ended,
                [early, ..] if !early.finished => ended || early.should_fire(now),
                [_, late] => late.should_fire(now),
                _ => false,
            },
            Trigger::AfterAll(_) => self.parts.iter().all(|part| part.finished || part.should_fire(now)),
            Trigger::AfterAny(_) => self.parts.iter().any(|part| part.finished || part.should_fire(now)),
            Trigger::AfterEach(_) => self.parts.iter().find(|part| !part.finished).is_some_and(|part| part.should_fire(now)),
            Trigger::OrFinally(..) => self.parts[0].should_fire(now) || self.parts[1].should_fire(now),
            Trigger::Repeat(_) => self.parts[0].should_fire(now),
        }
    }

    fn on_fire(&mut self, now: Now) {
        match &self.trigger {
            Trigger::Never | Trigger::Always | Trigger::Default => {}
            Trigger::ElementCount(_) | Trigger::AfterProcessingTime(_) | Trigger::AfterSynchronizedProcessingTime => {
                self.clear();
                self.finished = true;
            }
            Trigger::AfterEndOfWindow { .. } => self.fire_around_end(now),
            Trigger::AfterAll(_) => {
                self.parts.iter_mut().for_each(|part| part.on_fire(now));
                self.finished = true;
            }
            Trigger::AfterAny(_) => {
                for part in &mut self.parts {
                    if part.should_fire(now) {
                        part.on_fire(now);
                    } else {
                        part.clear();
                    }
                }
                self.finished = true;
            }
            Trigger::AfterEach(_) => {
                if let Some(part) = self.unfinished() {
                    part.on_fire(now);
                }
                if now.merging {
                    self.parts.iter_mut().for_each(Node::clear);
                }
                self.finished = self.parts.iter().all(|part| part.finished);
            }
            Trigger::OrFinally(..) => {
                if self.parts[1].should_fire(now) {
                    self.parts[1].on_fire(now);
                    self.parts[0].clear();
                } else {
                    self.parts[0].on_fire(now);
                }
                self.finished = self.parts.iter().any(|part| part.finished);
            }
            Trigger::Repeat(part) => {
                let fresh = Node::new(part);
                self.parts[0].on_fire(now);
                if self.parts[0].finished {
                    self.parts[0] = fresh;
                }
            }
        }
    }

    fn fire_around_end(&mut self, now: Now) {
        let ended = now.input > now.end;
        let repeat = |part: &mut Node| {
            part.on_fire(now);
            if part.finished {
                *part = Node::new(&part.trigger);
            } else {
                part.clear();
            }
        };
        match &mut self.parts[..] {
            [] => self.finished = true,
            [early, ..] if !early.finished && !ended => repeat(early),
            [early, late @ ..] if !early.finished => {
                if early.should_fire(now) {
                    early.on_fire(now);
                }
                early.clear();
                early.finished = true;
                self.finished = late.is_empty();
                late.iter_mut().for_each(Node::clear);
            }
            [_, late] => repeat(late),
            _ => self.finished = true,
        }
    }

    fn on_merge(&mut self, from: &[&Node], now: Now, timers: &mut Timers) {
        let ended = now.input > now.end;
        let part_of = |place: usize| from.iter().map(|node| &node.parts[place]).collect::<Vec<_>>();
        match &self.trigger {
            Trigger::Never | Trigger::Always => {}
            Trigger::ElementCount(_) => {
                if from.iter().any(|node| node.finished) {
                    self.finished = true;
                    self.count = 0;
                } else {
                    self.count = from.iter().map(|node| node.count).sum();
                }
            }
            Trigger::AfterProcessingTime(_) | Trigger::AfterSynchronizedProcessingTime => {
                self.target = if self.finished { None } else { from.iter().filter_map(|node| node.target).min() };
                timers.processing.extend(self.target);
            }
            Trigger::Default => set_end(now, timers),
            Trigger::AfterEndOfWindow { .. } => {
                set_end(now, timers);
                if self.parts.is_empty() {
                    self.finished = ended && from.iter().all(|node| node.finished);
                } else if ended && part_of(0).iter().all(|early| early.finished) {
                    self.parts[0].finished = true;
                    if let Some(late) = self.parts.get_mut(1) {
                        late.on_merge(&part_of(1), now, timers);
                    }
                } else {
                    self.parts[0].on_merge(&part_of(0), now, timers);
                    self.parts[0].finished = false;
                    if let Some(late) = self.parts.get_mut(1) {
                        *late = Node::new(&late.trigger);
                    }
                }
            }
            Trigger::AfterEach(_) => {
                let mut going = true;
                for (place, part) in self.parts.iter_mut().enumerate() {
                    if going {
                        part.on_merge(&part_of(place), now, timers);
                        going = part.finished;
                    } else {
                        part.clear();
                    }
                }
                self.finished = self.parts.iter().all(|part| part.finished);
            }
            Trigger::AfterAll(_) | Trigger::AfterAny(_) | Trigger::OrFinally(..) | Trigger::Repeat(_) => {
                for (place, part) in self.parts.iter_mut().enumerate() {
                    part.on_merge(&part_of(place), now, timers);
                }
                match self.trigger {
                    Trigger::AfterAll(_) => self.finished = self.parts.iter().all(|part| part.finished),
                    Trigger::Repeat(_) => {}
                    _ => self.finished = self.parts.iter().any(|part| part.finished),
                }
            }
        }
    }

    fn clear(&mut self) {
        self.count = 0;
        self.target = None;
        self.parts.iter_mut().for_each(Node::clear);
    }
}

fn set_end(now: Now, timers: &mut Timers) {
    if now.input <= now.end {
        timers.event.insert(now.end);
    }
}
