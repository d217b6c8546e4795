//! Harnesses that die, hang, are slow or come from nowhere; and what outlives what.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use model::ShardId;
use proto::fnapi::instruction_request::Request as Ask;
use proto::fnapi::instruction_response::Response as Answer;
use proto::fnapi::*;
use worker::{Error, Worker};
use worker_harness::{HarnessHost, HostOptions};

use crate::fake::{self, Sdk};
use crate::setup::*;
use crate::stage::*;

#[tokio::test(flavor = "multi_thread")]
async fn a_harness_that_dies_fails_its_bundles_and_is_replaced() {
    let lives = Arc::new(AtomicUsize::new(0));
    let script = move |mut sdk: Sdk| {
        let life = lives.fetch_add(1, Ordering::Relaxed);
        async move {
            if life == 0 {
                let (id, _) = sdk.next_bundle().await.unwrap();
                let mut data = sdk.data("").await;
                data.input(&id, 0).await;
                return;
            }
            echo(sdk, "", &["out"]).await;
        }
    };
    let setup = setup(&[], |_| {}, script);
    let spec = stage(&["out"], &[]);
    let mut slot = setup.slot(&spec);
    let error = run(&mut *slot, &spec, &[b"a"]).unwrap_err();
    let pool = setup.pool.address.to_string();
    assert!(matches!(&error, Error::Infrastructure(what) if what.contains(&pool) && what.contains("stream")), "{error}");
    assert_eq!(values(run(&mut *slot, &spec, &[b"a"]).unwrap()), encoded(&[b"a"]));
    let started = setup.pool.started.lock().unwrap().clone();
    assert_eq!(started.len(), 2);
    assert_ne!(started[0], started[1], "worker ids are not reused");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_harness_that_does_not_answer_has_failed() {
    let script = |mut sdk: Sdk| async move {
        let _data = sdk.data("").await;
        while sdk.next().await.is_some() {}
    };
    let setup = setup(&[], |timeouts| timeouts.unresponsive = Duration::from_millis(200), script);
    let spec = stage(&["out"], &[]);
    let error = run(&mut *setup.slot(&spec), &spec, &[b"a"]).unwrap_err();
    assert!(matches!(&error, Error::Infrastructure(what) if what.contains("does not answer")), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_harness_that_does_not_connect_has_failed() {
    // A pool that accepts connections and says nothing, and then one that is not there at all.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let host = HarnessHost::start(HostOptions::loopback("test"), tokio::runtime::Handle::current()).unwrap();
    let mut options = options(external(listener.local_addr().unwrap(), &[]), Arc::default());
    options.timeouts.connect = Duration::from_millis(200);
    let environment = host.environment(options).unwrap();
    let spec = stage(&["out"], &[]);
    let mut slot = environment.open(Arc::new(spec.clone()), ShardId(0)).unwrap();
    let error = run(&mut *slot, &spec, &[b"a"]).unwrap_err();
    assert!(matches!(&error, Error::Infrastructure(what) if what.contains("within 0.2 s")), "{error}");
    drop(listener);
    let error = run(&mut *slot, &spec, &[b"a"]).unwrap_err();
    assert!(matches!(&error, Error::Infrastructure(what) if what.contains("cannot start a worker")), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_bundle_does_not_hold_up_others() {
    let script = |mut sdk: Sdk| async move {
        let mut data = sdk.data("").await;
        let (slow, _) = sdk.next_bundle().await.unwrap();
        let (fast, _) = sdk.next_bundle().await.unwrap();
        data.input(&slow, 0).await;
        data.input(&fast, 0).await;
        data.send(&fast, "out", wire(&[b"fast"]), true);
        sdk.finish(&fast, Default::default());
        while let Some((id, ask)) = sdk.next().await {
            if let Ask::ProcessBundleProgress(_) = ask {
                sdk.answer(&id, Answer::ProcessBundleProgress(Default::default()));
            }
        }
    };
    let setup = setup(&[], |_| {}, script);
    let spec = stage(&["out"], &[]);
    let (mut slow, mut fast) = (setup.slot(&spec), setup.slot(&spec));
    let unfinished = start(&mut *slow, &spec, 1, vec![batch(&[b"slow"])], vec![], Arc::default());
    tokio::time::sleep(Duration::from_millis(100)).await;
    let finished = start(&mut *fast, &spec, 2, vec![batch(&[b"fast"])], vec![], Arc::default());
    assert_eq!(values(finished.wait().unwrap()), encoded(&[b"fast"]));
    // Closing ends what still runs, and tells the pool.
    setup.environment.close();
    let ended = unfinished.wait();
    assert!(matches!(ended, Err(Error::Aborted | Error::Infrastructure(_))), "the harness may be gone first: {ended:?}");
    let (stopped, started) = (setup.pool.stopped.clone(), setup.pool.started.clone());
    fake::eventually("the worker is stopped", || !stopped.lock().unwrap().is_empty()).await;
    assert_eq!(*stopped.lock().unwrap(), *started.lock().unwrap());
    setup.host.shutdown().await;
    assert!(setup.environment.open(Arc::new(spec), ShardId(0)).is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_say_whose_they_are() {
    let host = HarnessHost::start(HostOptions::loopback("test"), tokio::runtime::Handle::current()).unwrap();
    let channel = tonic::transport::Channel::from_shared(format!("http://{}", host.endpoint())).unwrap().connect().await.unwrap();
    let mut client = provision_service_client::ProvisionServiceClient::new(channel);
    let missing = client.get_provision_info(GetProvisionInfoRequest {}).await.unwrap_err();
    assert_eq!(missing.code(), tonic::Code::InvalidArgument);
    let unknown = client.get_provision_info(fake::with_id(GetProvisionInfoRequest {}, "nobody")).await.unwrap_err();
    assert_eq!(unknown.code(), tonic::Code::NotFound);
}

#[tokio::test(flavor = "multi_thread")]
async fn harnesses_end_with_the_last_slot_of_a_worker_that_was_dropped() {
    let Setup { host, environment, pool } = setup(&[], |_| {}, |sdk| echo(sdk, "", &["out"]));
    let spec = stage(&["out"], &[]);
    let [mut first, second] = [0, 1].map(|shard| environment.open(Arc::new(spec.clone()), ShardId(shard)).unwrap());
    drop(environment);
    drop(second);
    assert_eq!(values(run(&mut *first, &spec, &[b"a"]).unwrap()), encoded(&[b"a"]));
    assert!(pool.stopped.lock().unwrap().is_empty());
    drop(first);
    host.shutdown().await;
    assert_eq!(*pool.stopped.lock().unwrap(), *pool.started.lock().unwrap());
}
