//! One stage for one shard, as the executor holds it. Nothing here waits: a bundle is a task.

use std::sync::{Arc, Mutex, Weak};

use model::BundleId;
use proto::fnapi::FinalizeBundleRequest;
use proto::fnapi::instruction_request::Request;
use tokio::sync::mpsc;
use worker::finalization::Finalizable;
use worker::{Bundle, Progress, Slot};

use crate::cache_token::Remembered;
use crate::descriptor::PreparedStage;
use crate::environment::Handle;
use crate::harness::{Harness, locked};
use crate::run::{Command, Heard, Run};

pub(crate) struct HarnessSlot {
    handle: Arc<Handle>,
    position: usize,
    stage: Arc<PreparedStage>,
    running: Option<Running>,
    finalizable: Arc<Mutex<Finalizable<Ran>>>,
    remembered: Arc<Mutex<Remembered>>,
}

struct Running {
    bundle: BundleId,
    commands: mpsc::UnboundedSender<Command>,
    heard: Arc<Mutex<Heard>>,
}

/// Where a bundle ran that asked to be finalised, and as which instruction.
pub(crate) struct Ran {
    pub(crate) harness: Weak<Harness>,
    pub(crate) instruction_id: String,
}

impl HarnessSlot {
    pub(crate) fn new(handle: Arc<Handle>, position: usize, stage: Arc<PreparedStage>) -> Self {
        HarnessSlot { handle, position, stage, running: None, finalizable: Arc::default(), remembered: Arc::default() }
    }

    fn command(&self, bundle: BundleId, command: Command) {
        if let Some(running) = self.running.as_ref().filter(|running| running.bundle == bundle) {
            // The bundle is over if this fails.
            let _ = running.commands.send(command);
        }
    }
}

impl Slot for HarnessSlot {
    fn start(&mut self, bundle: Bundle) {
        let (sender, commands) = mpsc::unbounded_channel();
        let heard = Arc::new(Mutex::new(Heard::nothing()));
        self.running = Some(Running { bundle: bundle.id, commands: sender, heard: heard.clone() });
        let run = Run {
            environment: self.handle.environment().clone(),
            position: self.position,
            stage: self.stage.clone(),
            heard,
            finalizable: self.finalizable.clone(),
            remembered: self.remembered.clone(),
            commands,
            wanted: None,
        };
        self.handle.environment().spawn(run.run(bundle));
    }

    fn split(&mut self, bundle: BundleId, fraction: f64) {
        self.command(bundle, Command::Split(fraction));
    }

    fn progress(&mut self, bundle: BundleId) -> Option<Progress> {
        let running = self.running.as_ref().filter(|running| running.bundle == bundle)?;
        Some(locked(&running.heard).progress())
    }

    fn abort(&mut self, bundle: BundleId) {
        self.command(bundle, Command::Abort);
    }

    fn finalize(&mut self, bundle: BundleId) {
        let Some(Ran { harness, instruction_id }) = locked(&self.finalizable).take(bundle) else { return };
        let Some(harness) = harness.upgrade().filter(|harness| !harness.is_dead()) else { return };
        let environment = self.handle.environment();
        let timeout = environment.timeouts().unresponsive;
        let told = environment.unanswered().tell(&harness.origin);
        environment.spawn(async move {
            let request = Request::FinalizeBundle(FinalizeBundleRequest { instruction_id });
            match harness.ask("finalize-", request, timeout).await {
                Ok(response) if response.error.is_empty() => {}
                Ok(response) => tracing::warn!(worker = harness.id, error = response.error, "finalisation of a bundle failed"),
                Err(error) => tracing::warn!(worker = harness.id, %error, "bundle was not finalised"),
            }
            drop(told);
        });
    }
}
