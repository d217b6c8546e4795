//! What goes wrong in a simulated job, and how often what happened.

use std::sync::{Arc, Mutex};

use ledger::memory::{Attempt, Fault, Faults};

use crate::dice::Dice;

/// How often what happened, so that a test can say that it has tested something.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Figures {
    pub(crate) turns: usize,
    pub(crate) commits: u64,
    pub(crate) refused_commits: u64,
    pub(crate) crashes_before: u64,
    pub(crate) crashes_after: u64,
    pub(crate) crashes_between: u64,
    /// Kinds of elements, panes and positions that were counted.
    pub(crate) results: usize,
    pub(crate) stages: usize,
    pub(crate) keyed: usize,
    pub(crate) scripts: usize,
    pub(crate) panes: usize,
    pub(crate) steps: usize,
    /// Elements that come too late in any case.
    pub(crate) late: usize,
    pub(crate) drained: usize,
}

impl Figures {
    pub(crate) fn add(&mut self, other: Figures) {
        self.turns += other.turns;
        self.commits += other.commits;
        self.refused_commits += other.refused_commits;
        self.crashes_before += other.crashes_before;
        self.crashes_after += other.crashes_after;
        self.crashes_between += other.crashes_between;
        self.results += other.results;
        self.stages += other.stages;
        self.keyed += other.keyed;
        self.scripts += other.scripts;
        self.panes += other.panes;
        self.steps += other.steps;
        self.late += other.late;
        self.drained += other.drained;
    }

    /// All kinds of trouble occurred.
    pub(crate) fn check(&self) {
        assert!(
            self.refused_commits > 0 && self.crashes_before > 0 && self.crashes_after > 0 && self.crashes_between > 0,
            "{self:?}"
        );
        assert!(self.results > 0 && self.keyed > 0 && self.scripts > 0, "{self:?}");
        assert!(self.panes > 0 && self.steps > 0 && self.late > 0 && self.drained > 0, "{self:?}");
    }
}

/// What decides about commits, and what it has done.
#[derive(Debug)]
pub(super) struct Trouble {
    pub(super) dice: Dice,
    pub(super) crashes_left: u32,
    pub(super) crash_percent: usize,
    pub(super) figures: Figures,
}

impl Trouble {
    fn judge(&mut self, _attempt: &Attempt<'_>) -> Option<Fault> {
        if self.crashes_left > 0 && self.dice.below(1_000) < self.crash_percent {
            self.crashes_left -= 1;
            let before = self.dice.chance(50);
            *(if before { &mut self.figures.crashes_before } else { &mut self.figures.crashes_after }) += 1;
            return Some(if before { Fault::CrashBefore } else { Fault::CrashAfter });
        }
        if self.dice.chance(4) {
            self.figures.refused_commits += 1;
            return Some(Fault::Retry);
        }
        self.figures.commits += 1;
        None
    }
}

/// As a ledger takes it.
pub(super) fn faults(trouble: &Arc<Mutex<Trouble>>) -> Faults {
    let trouble = trouble.clone();
    Arc::new(move |attempt| trouble.lock().unwrap().judge(attempt))
}
