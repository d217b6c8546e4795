//! What happens to a trigger's slots: on elements, on merging windows, on firing.
//!
//! Each method treats one node and its subtree; the names are those of Beam's `TriggerStateMachine`. The depth of a tree
//! bounds the recursion. `clear` forgets what was counted and timed, `reset` also that a node has finished.

use std::collections::BTreeSet;

use model::Timestamp;
use model::windowing::TimestampTransform;

use super::{Kind, Slot, Tree};

/// When a trigger is asked, and about which window.
#[derive(Clone, Copy, Debug)]
pub(in crate::grouping) struct Moment {
    /// Last timestamp of the window.
    pub(in crate::grouping) end: Timestamp,
    pub(in crate::grouping) input_watermark: Timestamp,
    /// Processing time in milliseconds.
    pub(in crate::grouping) now_ms: i64,
}

/// When one key and window is to be looked at again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::grouping) struct Timers {
    /// When the input watermark has passed the window's end.
    pub(in crate::grouping) end: bool,
    /// When it has passed the time when the window expires.
    pub(in crate::grouping) expiry: bool,
    /// In the next call: a batch of elements has made the trigger ready, but the call had fired enough.
    pub(in crate::grouping) deferred: bool,
    /// When processing time has passed these milliseconds.
    pub(in crate::grouping) processing: BTreeSet<i64>,
}

/// A trigger at work on one key and window.
#[derive(Debug)]
pub(in crate::grouping) struct Machine<'a> {
    pub(in crate::grouping) tree: &'a Tree,
    pub(in crate::grouping) slots: &'a mut [Slot],
    pub(in crate::grouping) timers: &'a mut Timers,
    pub(in crate::grouping) at: Moment,
    /// Whether windows merge at this stage at all.
    pub(in crate::grouping) merging: bool,
}

const ROOT: usize = 0;

impl Machine<'_> {
    /// Some elements of one batch have come in.
    pub(in crate::grouping) fn on_elements(&mut self, count: u64) {
        self.on_elements_at(ROOT, count);
    }

    /// Windows have merged into this one. `sources` are the slots of those that were active, this one's included if it
    /// was; the machine's own slots are those that the window had before, or new ones.
    pub(in crate::grouping) fn on_merge(&mut self, sources: &[Vec<Slot>]) {
        self.on_merge_at(ROOT, sources);
    }

    pub(in crate::grouping) fn should_fire(&self) -> bool {
        self.should_fire_at(ROOT)
    }

    pub(in crate::grouping) fn on_fire(&mut self) {
        self.on_fire_at(ROOT);
    }

    /// Forgets everything but what has finished.
    pub(in crate::grouping) fn clear(&mut self) {
        self.clear_at(ROOT);
    }

    fn end_of_window(&self) -> bool {
        self.at.input_watermark > self.at.end
    }

    fn set_end_timer(&mut self) {
        if !self.end_of_window() {
            self.timers.end = true;
        }
    }

    fn on_elements_at(&mut self, node: usize, count: u64) {
        let tree = self.tree;
        let Slot { value, .. } = &mut self.slots[node];
        match &tree.nodes[node].kind {
            Kind::Always | Kind::Never => {}
            Kind::Count(_) => *value = Some(value.unwrap_or(0).saturating_add_unsigned(count)),
            Kind::ProcessingTime(transforms) => {
                if value.is_none() {
                    let target = transforms.iter().fold(self.at.now_ms, transformed);
                    *value = Some(target);
                    self.timers.processing.insert(target);
                }
            }
            Kind::Default | Kind::AfterEnd => self.set_end_timer(),
            Kind::EarlyAndLate => {
                self.set_end_timer();
                self.on_elements_of_current(node, count);
            }
            Kind::Each => self.on_elements_of_current(node, count),
            Kind::All => {
                for &child in &tree.nodes[node].children {
                    if !self.slots[child].finished {
                        self.on_elements_at(child, count);
                    }
                }
            }
            Kind::Any | Kind::OrFinally | Kind::Repeat => {
                tree.nodes[node].children.iter().for_each(|&child| self.on_elements_at(child, count));
            }
        }
    }

    /// Children of a sequence: the first unfinished one sees elements; all do where a merge may revive one.
    fn on_elements_of_current(&mut self, node: usize, count: u64) {
        let tree = self.tree;
        if self.merging {
            tree.nodes[node].children.iter().for_each(|&child| self.on_elements_at(child, count));
        } else if let Some(child) = self.current(node) {
            self.on_elements_at(child, count);
        }
    }

    fn current(&self, node: usize) -> Option<usize> {
        self.tree.nodes[node].children.iter().copied().find(|&child| !self.slots[child].finished)
    }

    fn should_fire_at(&self, node: usize) -> bool {
        let children = &self.tree.nodes[node].children;
        match &self.tree.nodes[node].kind {
            Kind::Default | Kind::AfterEnd => self.end_of_window(),
            Kind::Always => true,
            Kind::Never => false,
            Kind::Count(count) => self.slots[node].value.unwrap_or(0) >= *count,
            Kind::ProcessingTime(_) => self.slots[node].value.is_some_and(|target| self.at.now_ms > target),
            Kind::EarlyAndLate => match (self.slots[children[0]].finished, children.get(1)) {
                (false, _) => self.end_of_window() || self.should_fire_at(children[0]),
                (true, Some(&late)) => self.should_fire_at(late),
                (true, None) => false,
            },
            Kind::All => children.iter().all(|&child| self.slots[child].finished || self.should_fire_at(child)),
            Kind::Any => children.iter().any(|&child| self.slots[child].finished || self.should_fire_at(child)),
            Kind::Each => self.current(node).is_some_and(|child| self.should_fire_at(child)),
            Kind::OrFinally | Kind::Repeat => children.iter().any(|&child| self.should_fire_at(child)),
        }
    }

    fn on_fire_at(&mut self, node: usize) {
        let tree = self.tree;
        let children = &tree.nodes[node].children;
        match &tree.nodes[node].kind {
            Kind::Default | Kind::Always | Kind::Never => {}
            Kind::AfterEnd => self.slots[node].finished = true,
            Kind::Count(_) | Kind::ProcessingTime(_) => self.slots[node] = Slot { finished: true, value: None },
            Kind::EarlyAndLate => self.on_fire_early_or_late(node),
            Kind::All => {
                children.iter().for_each(|&child| self.on_fire_at(child));
                self.slots[node].finished = true;
            }
            Kind::Any => {
                for &child in children {
                    // What a child that was not ready has counted was in the pane that is gone now.
                    if self.should_fire_at(child) { self.on_fire_at(child) } else { self.clear_at(child) }
                }
                self.slots[node].finished = true;
            }
            Kind::Each => {
                if let Some(child) = self.current(node) {
                    self.on_fire_at(child);
                }
                // All children have run for this pane where a merge may revive them.
                if self.merging {
                    children.iter().for_each(|&child| self.clear_at(child));
                }
                self.slots[node].finished = self.current(node).is_none();
            }
            Kind::OrFinally => {
                let (main, finally) = (children[0], children[1]);
                if self.should_fire_at(finally) {
                    self.on_fire_at(finally);
                    self.clear_at(main);
                } else {
                    self.on_fire_at(main);
                }
                self.slots[node].finished = self.slots[main].finished || self.slots[finally].finished;
            }
            Kind::Repeat => {
                self.on_fire_at(children[0]);
                if self.slots[children[0]].finished {
                    self.reset_at(children[0]);
                }
            }
        }
    }

    fn on_fire_early_or_late(&mut self, node: usize) {
        let children = &self.tree.nodes[node].children;
        let (early, late) = (children[0], children.get(1).copied());
        match late {
            _ if !self.slots[early].finished && !self.end_of_window() => self.fire_repeatedly(early),
            _ if !self.slots[early].finished => {
                if self.should_fire_at(early) {
                    self.on_fire_at(early);
                }
                self.clear_at(early);
                self.slots[early].finished = true;
                match late {
                    // It ran beside the early one where windows merge.
                    Some(late) => self.clear_at(late),
                    None => self.slots[node].finished = true,
                }
            }
            Some(late) => self.fire_repeatedly(late),
            None => self.slots[node].finished = true,
        }
    }

    /// Early and late triggers act as if they were repeated. Where such a trigger has parts that finish, Beam's Java only
    /// revives its root and then fires for every batch; here the parts are revived too, as in a repeated trigger.
    fn fire_repeatedly(&mut self, node: usize) {
        self.on_fire_at(node);
        if self.slots[node].finished { self.reset_at(node) } else { self.clear_at(node) }
    }

    fn on_merge_at(&mut self, node: usize, sources: &[Vec<Slot>]) {
        let tree = self.tree;
        let children = &tree.nodes[node].children;
        match &tree.nodes[node].kind {
            Kind::Always | Kind::Never => {}
            Kind::Default => self.set_end_timer(),
            Kind::AfterEnd => {
                self.set_end_timer();
                self.slots[node].finished = self.end_of_window() && finished_in_all(sources, node);
            }
            Kind::EarlyAndLate => {
                self.set_end_timer();
                let (early, late) = (children[0], children.get(1).copied());
                if self.end_of_window() && finished_in_all(sources, early) {
                    self.slots[early].finished = true;
                    late.into_iter().for_each(|late| self.on_merge_at(late, sources));
                } else {
                    self.on_merge_at(early, sources);
                    self.slots[early].finished = false;
                    late.into_iter().for_each(|late| self.reset_at(late));
                }
            }
            Kind::Count(_) => {
                if sources.iter().any(|slots| slots[node].finished) {
                    self.slots[node] = Slot { finished: true, value: None };
                } else {
                    let sum = sources.iter().filter_map(|slots| slots[node].value).fold(0, i64::saturating_add);
                    self.slots[node].value = Some(sum);
                }
            }
            Kind::ProcessingTime(_) => {
                let least = sources.iter().filter_map(|slots| slots[node].value).min();
                self.slots[node].value = least.filter(|_| !self.slots[node].finished);
                self.timers.processing.extend(self.slots[node].value);
            }
            Kind::Repeat => self.on_merge_at(children[0], sources),
            Kind::All => {
                children.iter().for_each(|&child| self.on_merge_at(child, sources));
                self.slots[node].finished = children.iter().all(|&child| self.slots[child].finished);
            }
            Kind::Any | Kind::OrFinally => {
                children.iter().for_each(|&child| self.on_merge_at(child, sources));
                self.slots[node].finished = children.iter().any(|&child| self.slots[child].finished);
            }
            Kind::Each => {
                let mut before_finished = true;
                for &child in children {
                    if before_finished {
                        self.on_merge_at(child, sources);
                        before_finished = self.slots[child].finished;
                    } else {
                        self.clear_at(child);
                    }
                }
                self.slots[node].finished = self.current(node).is_none();
            }
        }
    }

    fn clear_at(&mut self, node: usize) {
        self.slots[node..self.tree.nodes[node].end].iter_mut().for_each(|slot| slot.value = None);
    }

    fn reset_at(&mut self, node: usize) {
        self.slots[node..self.tree.nodes[node].end].fill(Slot::default());
    }
}

fn finished_in_all(sources: &[Vec<Slot>], node: usize) -> bool {
    sources.iter().all(|slots| slots[node].finished)
}

fn transformed(time_ms: i64, transform: &TimestampTransform) -> i64 {
    match transform {
        TimestampTransform::Delay(delay) => time_ms.saturating_add(delay.0),
        TimestampTransform::AlignTo { period, offset } => match time_ms.saturating_sub(offset.0).rem_euclid(period.0) {
            0 => time_ms,
            past => time_ms.saturating_add(period.0 - past),
        },
    }
}
