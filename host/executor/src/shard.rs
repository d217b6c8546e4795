//! One shard's loop: arrivals to the engine, work to workers, outcomes to the ledger.
//!
//! ```text
//!   step:  events ─▶ poll ledger ─▶ engine.next ─▶ worker ─▶ outcomes ─▶ one commit ─▶ engine.committed ─▶ reports
//! ```
//!
//! The engine hears of effects only after they are durable, and of the entries that a commit appended to this shard before
//! it hears that the bundle is committed: so no watermark can pass between the two.

mod asides;
mod committing;
mod draining;
mod ending;
mod recovery;
mod start;
mod watch;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;
use std::time::Duration;

use engine::{Engine, Entry};
use ledger::{Arrival, EntryHeader, Partition, ShardLedger};
use model::{BundleId, ShardId, StageId};
use worker::{Outcome, Slot};

use crate::aside::Aside;
use crate::job::{Failure, Shared};
use crate::merging::Merger;
use crate::quiescence::Standing;
use crate::running::{Finished, Running};
use crate::script::{Happened, Scripts};
use committing::PendingCommit;
use watch::LOOK_INTERVAL_MS;

/// Arrivals taken from the ledger at a time.
const POLL_ENTRIES_MAX: usize = 4_096;

/// What can happen to a shard from outside its thread.
pub enum Event {
    /// The ledger may have arrivals.
    Wake,
    /// A worker is done with a bundle.
    Done(BundleId, Result<Outcome, worker::Error>),
    /// The job stops.
    Stop,
}

/// What a step came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Something changed; step again.
    Progressed,
    /// Nothing to do until an event or this time.
    Idle {
        /// Processing time in milliseconds.
        until_ms: Option<i64>,
    },
    /// The shard's part of the job is done and durable.
    Finished,
}

/// See the file's head.
pub struct Shard {
    shared: Arc<Shared>,
    id: ShardId,
    engine: Engine,
    ledger: Box<dyn ShardLedger>,
    scripts: Option<Scripts>,
    slots: BTreeMap<StageId, Box<dyn Slot>>,
    mergers: BTreeMap<StageId, Merger>,
    truncations: BTreeMap<StageId, Aside>,
    draining: bool,
    events: Receiver<Event>,
    awake: Arc<AtomicBool>,
    running: BTreeMap<BundleId, Running>,
    finished: Vec<Finished>,
    reports: Vec<ledger::WatermarkReport>,
    pending: Option<PendingCommit>,
    /// Whether the job's first commit of this shard is durable; nothing may run or be reported before.
    begun: bool,
    tries: BTreeMap<StageId, u32>,
    looked_ms: i64,
}

impl Shard {
    /// Does what can be done now. Never blocks on a worker.
    pub fn step(&mut self, now_ms: i64) -> Result<Step, Failure> {
        let version = self.shared.quiescence.version();
        let mut progressed = self.take_events()?;
        progressed |= self.begin_draining();
        progressed |= self.intake()?;
        self.look_at_running(now_ms);
        if self.begun {
            progressed |= self.start_all(now_ms)?;
            progressed |= self.take_events()?;
            self.collect_reports();
        }
        progressed |= self.commit(now_ms)?;
        if progressed {
            self.shared.quiescence.busy(self.id);
            return Ok(Step::Progressed);
        }
        if self.settled() && self.engine.finished() {
            self.note_status(now_ms);
            self.shared.wake(&self.shared.quiescence.finished(self.id));
            return Ok(Step::Finished);
        }
        self.rest(version, now_ms)
    }

    fn settled(&self) -> bool {
        self.running.is_empty() && self.finished.is_empty() && self.pending.is_none() && self.reports.is_empty()
    }

    /// The time that the engine goes by.
    fn job_time(&self, now_ms: i64) -> i64 {
        self.scripts.as_ref().map_or(now_ms, Scripts::now_ms)
    }

    /// When nothing else can happen, the next event of a script does. Returns whether there was one.
    fn go_by_script(&mut self) -> Result<bool, Failure> {
        let Some(scripts) = &mut self.scripts else { return Ok(false) };
        match scripts.step(&mut self.engine, &*self.shared.spec.ledger)? {
            Happened::Elements(commit) => self.pending = Some(PendingCommit::new(*commit)),
            Happened::Told => {}
            Happened::Nothing => return Ok(scripts.jump(self.engine.wake_at_ms())),
        }
        Ok(true)
    }

    /// When the engine will have more by itself; never, where time passes by a script.
    fn wake_at_ms(&self) -> Option<i64> {
        if self.scripts.is_some() { None } else { self.engine.wake_at_ms() }
    }

    /// Nothing to do for now: for how long, or for ever?
    fn rest(&mut self, version: u64, now_ms: i64) -> Result<Step, Failure> {
        if self.settled() && self.go_by_script()? {
            return Ok(Step::Progressed);
        }
        let look = (!self.running.is_empty()).then_some(now_ms + LOOK_INTERVAL_MS);
        let retry = self.pending.as_ref().map(|pending| pending.not_before_ms);
        let until_ms = [self.wake_at_ms(), look, retry].into_iter().flatten().min();
        if look.is_none() {
            // Nobody looks until something happens.
            self.note_status(now_ms);
        }
        if until_ms.is_none() {
            match self.shared.quiescence.idle(self.id, version) {
                Standing::Busy => {}
                Standing::Behind(shards) => self.shared.wake(&shards),
                Standing::Stuck => return Err(Failure::Stuck(self.shared.progress.report(now_ms))),
            }
        }
        Ok(Step::Idle { until_ms })
    }

    /// Blocks until an event or `until_ms`.
    pub fn wait(&mut self, until_ms: Option<i64>) {
        let now_ms = self.shared.spec.clock.now_ms();
        let event = match until_ms {
            Some(until_ms) => {
                let pause = Duration::from_millis(until_ms.saturating_sub(now_ms).max(0) as u64);
                self.events.recv_timeout(pause).ok()
            }
            None => self.events.recv().ok(),
        };
        if let Some(event) = event {
            // Failures show in the next step.
            self.take(event);
        }
    }

    fn take_events(&mut self) -> Result<bool, Failure> {
        let mut any = false;
        while let Ok(event) = self.events.try_recv() {
            // A wake counts, too: whoever takes it must look at the ledger before it rests, as no other comes until then.
            any = true;
            self.take(event);
        }
        if self.shared.stopping() {
            let running: Vec<_> = self.running.iter().map(|(bundle, running)| (*bundle, running.stage)).collect();
            for (bundle, stage) in running {
                if let Some(slot) = self.slots.get_mut(&stage) {
                    slot.abort(bundle);
                }
            }
            return Err(Failure::Cancelled);
        }
        Ok(any)
    }

    fn take(&mut self, event: Event) {
        if let Event::Done(bundle, result) = event {
            // A bundle that is not running was aborted.
            let Some(running) = self.running.remove(&bundle) else { return };
            self.shared.progress.at_rest(self.id, running.stage);
            if let Err(failure) = self.done(bundle, running, result) {
                self.shared.stop(failure);
            }
        }
    }

    fn name(&self, stage: StageId) -> &str {
        &self.shared.stages[stage.0 as usize].name
    }

    /// Takes in everything that the ledger has for this shard.
    fn intake(&mut self) -> Result<bool, Failure> {
        self.awake.store(false, Ordering::SeqCst);
        let mut any = false;
        loop {
            let arrivals = self.ledger.poll(POLL_ENTRIES_MAX).map_err(Failure::storage)?;
            if arrivals.is_empty() {
                return Ok(any);
            }
            any = true;
            for arrival in arrivals {
                match arrival {
                    Arrival::Entry(header) => self.arrived(header),
                    Arrival::Watermark(report) => self.engine.watermark(report.stage, report.shard, report.watermark),
                }
            }
        }
    }

    fn arrived(&mut self, header: EntryHeader) {
        if header.position.partition == Partition::Broadcast {
            return self.shared.side_inputs.add(&header);
        }
        self.engine.entry(Entry {
            position: engine::Position { broadcast: false, offset: header.position.offset },
            stage: header.stage,
            producer: header.producer,
            remaining: header.remaining,
            bytes: header.bytes,
            rows: header.rows,
            hold: header.hold,
            window_end: header.window_end,
            not_before_ms: header.not_before_ms,
        });
    }

    fn collect_reports(&mut self) {
        let shard = self.id;
        let moved = self.engine.reports();
        self.reports.extend(moved.into_iter().map(|(stage, watermark)| ledger::WatermarkReport { stage, shard, watermark }));
    }
}
