//! Bundles whose user code wants to hear of their commit.

use std::sync::{Arc, mpsc};
use std::time::Duration;

use model::BundleId;
use proto::fnapi::instruction_request::Request as Ask;
use proto::fnapi::instruction_response::Response as Answer;
use proto::fnapi::*;
use tokio::sync::Semaphore;
use worker::Worker;

use crate::fake::Sdk;
use crate::setup::*;
use crate::stage::*;

/// Longer than anything takes, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// Asks for every bundle to hear of its commit; answers that it has when it may, in `answers`.
async fn heed(mut sdk: Sdk, answers: Option<Arc<Semaphore>>, heard: mpsc::Sender<String>) {
    while let Some((id, ask)) = sdk.next().await {
        match ask {
            Ask::ProcessBundle(_) => {
                sdk.finish(&id, ProcessBundleResponse { requires_finalization: true, ..Default::default() });
            }
            Ask::FinalizeBundle(request) => {
                heard.send(request.instruction_id).unwrap();
                if let Some(answers) = &answers {
                    answers.acquire().await.unwrap().forget();
                }
                sdk.answer(&id, Answer::FinalizeBundle(Default::default()));
            }
            _ => {}
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn bundles_are_finalised_once_when_they_asked_for_it() {
    let (heard, receiver) = mpsc::channel();
    let setup = setup(&[], |_| {}, move |sdk| heed(sdk, None, heard.clone()));
    let spec = stage(&[], &[]);
    let mut slot = setup.slot(&spec);
    assert!(run(&mut *slot, &spec, &[b"a"]).unwrap().finalize);
    for _ in 0..2 {
        slot.finalize(BundleId(1));
    }
    assert!(receiver.recv_timeout(PATIENCE).unwrap().starts_with("bundle-"));
    assert!(receiver.recv_timeout(Duration::from_millis(200)).is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn settling_waits_for_the_answer_but_not_beyond_patience() {
    let (answers, (heard, _receiver)) = (Arc::new(Semaphore::new(0)), mpsc::channel());
    let script = {
        let answers = answers.clone();
        move |sdk| heed(sdk, Some(answers.clone()), heard.clone())
    };
    let setup = setup(&[], |_| {}, script);
    let spec = stage(&[], &[]);
    let mut slot = setup.slot(&spec);
    for _ in 0..2 {
        assert!(run(&mut *slot, &spec, &[b"a"]).unwrap().finalize);
        slot.finalize(BundleId(1));
        let names = setup.environment.settle(Duration::from_millis(50));
        let [name] = &names[..] else { panic!("one harness has not answered, not {names:?}") };
        assert!(name.starts_with("worker test-job-") && name.ends_with(" (bundles: 1)"), "{name}");
        answers.add_permits(1);
        assert_eq!(setup.environment.settle(PATIENCE), Vec::<String>::new());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_waits_for_a_harness_that_is_gone() {
    let (heard, receiver) = mpsc::channel();
    let script = move |mut sdk: Sdk| {
        let heard = heard.clone();
        async move {
            while let Some((id, ask)) = sdk.next().await {
                if let Ask::FinalizeBundle(request) = ask {
                    return heard.send(request.instruction_id).unwrap();
                }
                sdk.finish(&id, ProcessBundleResponse { requires_finalization: true, ..Default::default() });
            }
        }
    };
    let setup = setup(&[], |_| {}, script);
    let spec = stage(&[], &[]);
    let mut slot = setup.slot(&spec);
    assert!(run(&mut *slot, &spec, &[b"a"]).unwrap().finalize);
    slot.finalize(BundleId(1));
    receiver.recv_timeout(PATIENCE).unwrap();
    assert_eq!(setup.environment.settle(PATIENCE), Vec::<String>::new());
}
