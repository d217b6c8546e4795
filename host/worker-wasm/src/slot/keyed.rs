//! Calls with keys: rows and timers go in by run, and changes of timers come out.

use std::sync::Arc;

use bytes::Bytes;
use model::{Batch, FiredTimer, RawTime, TimerChange, pane};
use worker::Error;

use super::Running;
use super::plan::{Keyed, Node};
use crate::bindings::keyed;
use crate::columns;
use crate::instance::Answer;
use crate::runs::{self, Lowered, Runs};
use crate::state::{Reach, Slices};
use crate::trouble::Trouble;

impl Running<'_> {
    pub(super) fn process_keyed(&mut self, transform: usize, input: &Batch) -> Result<Vec<(usize, Batch)>, Error> {
        let (node, coder) = self.keyed_node(transform);
        let read = runs::of_rows(input, &coder.input, self.guests.plan.window_coder);
        let (batch, runs) = read.map_err(|reason| Error::Protocol(format!("input of {}: {reason}", node.id)))?;
        let reach = self.reach(transform, runs);
        let now = self.now_ms;
        let answer = self.enter(transform, |instance, node, handle| {
            let (rows, lowered) = (columns::Lowered::new(&batch, node.reads), Lowered::new(&reach.runs));
            instance.keyed(&reach, |guest, store| {
                let (batch, runs) = (rows.param(), lowered.param());
                guest.call_process(store, handle, keyed::KeyedBatch { batch, runs, run_of: lowered.of(), now })
            })
        })?;
        self.complete_keyed(transform, &reach.runs, &batch, Given::Rows, answer)
    }

    pub(super) fn call_timers(&mut self, transform: usize, due: &[FiredTimer]) -> Result<Vec<(usize, Batch)>, Error> {
        if self.guests.plan.node(transform).keyed.is_none() {
            return Err(Error::Protocol(format!("timers of {}, which has none", self.guests.plan.node(transform).id)));
        }
        let (_, declared) = self.keyed_node(transform);
        let family = |timer: &FiredTimer| declared.families.iter().position(|family| *family == timer.family);
        let families: Option<Vec<u32>> = due.iter().map(|timer| family(timer).map(|family| family as u32)).collect();
        let families = families.expect("a body gives a transform its own timers, and all of them are declared");
        let (batch, runs) = runs::of_timers(due);
        let tags = match due.iter().all(|timer| timer.tag.is_empty()) {
            true => (Vec::new(), Vec::new()),
            false => runs::arena(due.iter().map(|timer| &timer.tag)),
        };
        let millis = |time: fn(&FiredTimer) -> RawTime| due.iter().map(|timer| time(timer).0).collect::<Vec<_>>();
        let (fire, hold) = (millis(|timer| timer.fire), millis(|timer| timer.hold));
        let reach = self.reach(transform, runs);
        let now = self.now_ms;
        let answer = self.enter(transform, |instance, _, handle| {
            let lowered = Lowered::new(&reach.runs);
            instance.keyed(&reach, |guest, store| {
                let (run_of, tags) = (lowered.of(), runs::rows(&tags));
                let runs = lowered.param();
                let due = keyed::DueTimers { runs, run_of, families: &families, tags, fire: &fire, hold: &hold, now };
                guest.call_on_timers(store, handle, due)
            })
        })?;
        self.complete_keyed(transform, &reach.runs, &batch, Given::Timers, answer)
    }

    fn keyed_node(&self, transform: usize) -> (&Node, &Keyed) {
        let node = self.guests.plan.node(transform);
        (node, node.keyed.as_ref().expect("whoever calls has looked"))
    }

    fn reach(&self, transform: usize, runs: Runs) -> Reach {
        let (node, keyed) = self.keyed_node(transform);
        Reach { transform: node.id.clone(), states: keyed.states.clone(), runs: Arc::new(runs), access: self.state.clone() }
    }

    fn complete_keyed(
        &mut self,
        transform: usize,
        runs: &Runs,
        batch: &Batch,
        given: Given,
        answer: Answer<keyed::KeyedOutcome>,
    ) -> Result<Vec<(usize, Batch)>, Error> {
        let done = match answer {
            Ok(Ok(done)) => done,
            Ok(Err(failure)) => return Err(self.guests.plan.node(transform).failure(failure)),
            Err(trouble) => return Err(self.blame_keyed(transform, &trouble, batch, given)),
        };
        let (node, keyed) = self.keyed_node(transform);
        if let Some(rejection) = done.outcome.rejected.first().filter(|_| given == Given::Timers) {
            return Err(node.error(&format!("a timer: {} ({})", rejection.detail, rejection.code)));
        }
        let changes = timer_changes(&done.timers, runs, keyed).map_err(|reason| node.error(&reason))?;
        self.timers.extend(changes);
        self.collect(transform, done.outcome, Some(batch))
    }

    /// A state that failed fails the bundle as it is. The failing row is not looked for: trying would change state.
    fn blame_keyed(&mut self, transform: usize, trouble: &Trouble, batch: &Batch, given: Given) -> Error {
        let component = self.guests.plan.node(transform).component;
        let instance = self.guests.instances[component].as_mut().expect("it was called");
        if let Some(error) = instance.take_state_error() {
            return error;
        }
        let what = if given == Given::Rows { "rows" } else { "timers" };
        self.guests.plan.node(transform).trouble(trouble, &format!("\nin a batch of {} {what}", batch.rows()))
    }
}

/// What a call is about.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Given {
    Rows,
    Timers,
}

/// What a guest did to timers, with every claim checked; the error says what is wrong.
fn timer_changes(changes: &keyed::TimerChanges, runs: &Runs, declared: &Keyed) -> Result<Vec<TimerChange>, String> {
    let count = changes.runs.len();
    let columns = [changes.families.len(), changes.kinds.len(), changes.fire.len(), changes.hold.len()];
    let malformed = || "the component made changes of timers whose columns do not fit together".to_owned();
    let tags = Slices::new(&changes.tags, count).filter(|_| columns == [count; 4]).ok_or_else(malformed)?;
    let change = |at: usize| {
        let (run, family) = (changes.runs[at], changes.families[at]);
        let unknown = || format!("the component changed a timer of run {run} and family {family}, which is not there");
        let (key, window) = runs.get(run).ok_or_else(unknown)?;
        let family = *declared.families.get(family as usize).ok_or_else(unknown)?;
        let set = match changes.kinds[at] {
            keyed::TimerChangeKind::Clear => None,
            keyed::TimerChangeKind::Set => {
                let pane = Bytes::from_static(pane::NO_FIRING);
                Some((RawTime(changes.fire[at]), RawTime(changes.hold[at]), pane))
            }
        };
        let tag = Bytes::copy_from_slice(tags.get(at));
        Ok(TimerChange { family, tag, key: key.clone(), window: window.clone(), set })
    };
    (0..count).map(change).collect()
}
