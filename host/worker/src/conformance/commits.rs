//! The cases of user code that wants to hear of commits. Each is named for what must hold.

use std::sync::Arc;
use std::time::Duration;

use model::{BundleId, ShardId};

use super::behaviour::Behaviour;
use super::harness::{BUNDLE_TIMEOUT, Subject, batch, contents, run, single};
use crate::{Slot, StageSpec, Worker};

/// User code that wants to hear of commits, in one slot of its worker.
struct Heeding {
    worker: Arc<dyn Worker>,
    stage: Arc<StageSpec>,
    slot: Box<dyn Slot>,
}

impl Heeding {
    fn open(subject: &dyn Subject) -> Self {
        let (worker, stage) = (subject.worker(), single(subject, Behaviour::Heed));
        let slot = worker.open(stage.clone(), ShardId(0)).expect("the stage opens");
        Heeding { worker, stage, slot }
    }

    /// Runs a bundle of one element: for how many before it user code has heard.
    fn heard(&mut self, id: u64) -> u8 {
        let outcome = run(self.slot.as_mut(), &self.stage, id, vec![batch(&[b"a"])]).expect("the bundle succeeds");
        assert!(outcome.finalize, "the bundle asks to be finalized");
        contents(&outcome, 0)[0][0]
    }

    /// The bundle is durable.
    fn finalize(&mut self, id: u64) {
        self.slot.finalize(BundleId(id));
    }

    fn settle(&self) {
        assert_eq!(self.worker.settle(BUNDLE_TIMEOUT), Vec::<String>::new(), "everybody answers");
    }
}

/// However often it is told.
pub fn user_code_hears_of_a_commit_once(subject: &dyn Subject) {
    let mut heeding = Heeding::open(subject);
    assert_eq!(heeding.heard(1), 0);
    heeding.finalize(1);
    heeding.finalize(1);
    heeding.settle();
    assert_eq!(heeding.heard(2), 1);
    heeding.finalize(2);
    heeding.finalize(1);
    heeding.settle();
    assert_eq!(heeding.heard(3), 2);
}

/// Neither of bundles whose commit failed nor of those that never were.
pub fn user_code_hears_of_what_is_committed_only(subject: &dyn Subject) {
    let mut heeding = Heeding::open(subject);
    assert_eq!([heeding.heard(1), heeding.heard(2)], [0, 0]);
    heeding.finalize(99);
    heeding.finalize(2);
    heeding.settle();
    assert_eq!(heeding.heard(3), 1);
}

/// What was told is told: settling does not depend on the slot.
pub fn user_code_hears_of_commits_although_its_slot_is_gone(subject: &dyn Subject) {
    let mut heeding = Heeding::open(subject);
    assert_eq!(heeding.heard(1), 0);
    heeding.finalize(1);
    heeding.slot = heeding.worker.open(heeding.stage.clone(), ShardId(0)).expect("the stage opens again");
    heeding.settle();
    assert_eq!(heeding.heard(1), 1);
}

/// Telling it does nothing, and a worker that owes no answers has settled.
pub fn a_bundle_that_does_not_ask_is_not_told_of_its_commit(subject: &dyn Subject) {
    let (worker, stage) = (subject.worker(), single(subject, Behaviour::Identity));
    let mut slot = worker.open(stage.clone(), ShardId(0)).expect("the stage opens");
    assert_eq!(worker.settle(Duration::ZERO), Vec::<String>::new());
    assert!(!run(slot.as_mut(), &stage, 1, vec![batch(&[b"a"])]).expect("succeeds").finalize);
    slot.finalize(BundleId(1));
    assert_eq!(worker.settle(Duration::ZERO), Vec::<String>::new());
}

#[cfg(test)]
mod tests {
    use std::sync::{Mutex, mpsc};

    use model::batch::Row;

    use super::*;
    use crate::conformance::{Dofn, native};
    use crate::reference::{Emitter, NativeWorker};

    /// Its user code answers once for each message.
    struct Slow(Arc<Mutex<mpsc::Receiver<()>>>);

    impl Subject for Slow {
        fn worker(&self) -> Arc<dyn Worker> {
            let answers = self.0.clone();
            let dofn = move |_: Row<'_>, out: &mut Emitter| {
                let answers = answers.clone();
                out.after_commit(move || answers.lock().unwrap().recv().unwrap());
                Ok(())
            };
            Arc::new(NativeWorker::new().with("Heed", move || dofn.clone()).asynchronous())
        }

        fn dofn(&self, behaviour: Behaviour) -> Dofn {
            native(true).dofn(behaviour)
        }
    }

    #[test]
    fn settling_waits_for_the_answer_but_not_beyond_patience() {
        let (answers, receiver) = mpsc::channel();
        let subject = Slow(Arc::new(Mutex::new(receiver)));
        let (worker, stage) = (subject.worker(), single(&subject, Behaviour::Heed));
        let mut slot = worker.open(stage.clone(), ShardId(0)).unwrap();
        assert!(run(slot.as_mut(), &stage, 1, vec![batch(&[b"a"])]).unwrap().finalize);
        slot.finalize(BundleId(1));
        assert_eq!(worker.settle(Duration::from_millis(1)), ["conformance"]);
        answers.send(()).unwrap();
        assert_eq!(worker.settle(BUNDLE_TIMEOUT), Vec::<String>::new());
    }
}
