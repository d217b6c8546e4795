//! Bundles, from their request to their outcome, and everything that may go wrong on the way.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use model::{BundleId, RawTime, Timestamp, pane};
use proto::fnapi::instruction_request::Request as Ask;
use proto::fnapi::instruction_response::Response as Answer;
use proto::fnapi::process_bundle_split_response::ChannelSplit;
use proto::fnapi::*;
use worker::{Error, FiredTimer};

use crate::fake::{self, Input, Sdk};
use crate::setup::*;
use crate::stage::*;

#[tokio::test(flavor = "multi_thread")]
async fn elements_come_back_from_every_sink() {
    let setup = setup(&[], |_| {}, |sdk| echo(sdk, "", &["one", "two"]));
    let spec = stage(&["one", "two"], &[]);
    let mut slot = setup.slot(&spec);
    for _ in 0..3 {
        let outcome = run(&mut *slot, &spec, &[b"a", b"", b"ccc"]).unwrap();
        assert_eq!(values(outcome), encoded(&[b"a", b"", b"ccc", b"a", b"", b"ccc"]));
    }
    assert!(run(&mut *slot, &spec, &[]).unwrap().outputs.is_empty());
    assert_eq!(setup.pool.started.lock().unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn output_may_be_embedded_in_the_response() {
    let script = |mut sdk: Sdk| async move {
        let mut data = None;
        while let Some((id, _)) = sdk.next_bundle().await {
            if data.is_none() {
                data = Some(sdk.data("").await);
            }
            let input = data.as_mut().unwrap().input(&id, 0).await;
            // Payload and end may be one entry in this direction.
            let rows = elements::Data {
                instruction_id: id.clone(),
                transform_id: "out".to_owned(),
                data: input.data[0].clone(),
                is_last: true,
            };
            let elements = Some(Elements { data: vec![rows], timers: vec![] });
            sdk.finish(&id, ProcessBundleResponse { elements, ..Default::default() });
        }
    };
    let setup = setup(&[], |_| {}, script);
    let spec = stage(&["out"], &[]);
    assert_eq!(values(run(&mut *setup.slot(&spec), &spec, &[b"a", b"b"]).unwrap()), encoded(&[b"a", b"b"]));
}

#[tokio::test(flavor = "multi_thread")]
async fn input_is_embedded_for_sdks_that_take_it_so() {
    let script = |mut sdk: Sdk| async move {
        while let Some((id, request)) = sdk.next_bundle().await {
            let elements = request.elements.expect("a small bundle is embedded");
            assert_eq!(elements.data.iter().map(|data| data.is_last).collect::<Vec<_>>(), [false, true]);
            let rows = elements::Data { is_last: true, transform_id: "out".to_owned(), ..elements.data[0].clone() };
            let elements = Some(Elements { data: vec![rows], timers: vec![] });
            sdk.finish(&id, ProcessBundleResponse { elements, ..Default::default() });
        }
    };
    let setup = setup(&["control_request_elements_embedding:v1"], |_| {}, script);
    let spec = stage(&["out"], &[]);
    assert_eq!(values(run(&mut *setup.slot(&spec), &spec, &[b"a", b"b"]).unwrap()), encoded(&[b"a", b"b"]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_response_before_its_output_completes_nothing() {
    let script = |mut sdk: Sdk| async move {
        let (id, _) = sdk.next_bundle().await.unwrap();
        let mut data = sdk.data("").await;
        let input = data.input(&id, 0).await;
        sdk.finish(&id, Default::default());
        tokio::time::sleep(Duration::from_millis(200)).await;
        data.send(&id, "out", input.data[0].clone(), true);
        sdk.next_bundle().await;
    };
    let setup = setup(&[], |_| {}, script);
    let spec = stage(&["out"], &[]);
    assert_eq!(values(run(&mut *setup.slot(&spec), &spec, &[b"a"]).unwrap()), encoded(&[b"a"]));
}

#[tokio::test(flavor = "multi_thread")]
async fn large_bundles_travel_in_pieces_on_a_stream_of_their_own() {
    let setup = setup(&["named_data_streams:v1"], |_| {}, |sdk| echo(sdk, "large-0", &["out"]));
    let spec = stage(&["out"], &[]);
    let value = vec![7u8; 1 << 20];
    let input: Vec<&[u8]> = vec![&value; 20];
    let outcome = run(&mut *setup.slot(&spec), &spec, &input).unwrap();
    assert_eq!(values(outcome), encoded(&input));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_element_of_100_megabytes_passes() {
    let setup = setup(&[], |_| {}, |sdk| echo(sdk, "", &["out"]));
    let spec = stage(&["out"], &[]);
    let large: Vec<u8> = (0..100_000_000u32).map(|index| index as u8).collect();
    let outcome = run(&mut *setup.slot(&spec), &spec, &[b"a", &large, b"b"]).unwrap();
    assert!(values(outcome) == encoded(&[b"a", &large, b"b"]));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_sdks_error_comes_through_verbatim_and_the_slot_goes_on() {
    let script = |mut sdk: Sdk| async move {
        let data = sdk.data("").await;
        let mut first = true;
        while let Some((id, _)) = sdk.next_bundle().await {
            if std::mem::replace(&mut first, false) {
                data.send(&id, "out", wire(&[b"never seen"]), false);
                sdk.error(&id, "Traceback\n  ValueError: no [while running 'Step']");
                // Late output of a dead bundle is nobody's business, and neither is output of one that never was.
                data.send(&id, "out", wire(&[b"late"]), true);
                data.send("bundle-99999", "nowhere", Bytes::from_static(b"garbage"), true);
                continue;
            }
            data.send(&id, "out", wire(&[b"fine"]), true);
            sdk.finish(&id, Default::default());
        }
    };
    let setup = setup(&[], |_| {}, script);
    let spec = stage(&["out"], &[]);
    let mut slot = setup.slot(&spec);
    let error = run(&mut *slot, &spec, &[b"a"]).unwrap_err();
    assert!(
        matches!(error, Error::User { transform: None, message } if message == "Traceback\n  ValueError: no [while running 'Step']")
    );
    assert_eq!(values(run(&mut *slot, &spec, &[b"a"]).unwrap()), encoded(&[b"fine"]));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_no_sdk_may_send_fails_the_bundle_by_name() {
    type Sends = fn(&Sdk, &fake::Data, &str);
    let cases: [(&str, Sends); 7] = [
        ("malformed element", |_, data, id| data.send(id, "out", Bytes::from_static(b"\x80\0\0\0"), false)),
        ("unknown sink", |_, data, id| data.send(id, "elsewhere", wire(&[b"a"]), false)),
        ("after its end", |_, data, id| {
            data.send(id, "out", Bytes::new(), true);
            data.send(id, "out", wire(&[b"a"]), false);
        }),
        ("unknown family", |_, data, id| {
            let timers =
                elements::Timers { instruction_id: id.to_owned(), timer_family_id: "g".to_owned(), ..Default::default() };
            data.sender.send(Elements { data: vec![], timers: vec![timers] }).unwrap();
        }),
        ("malformed timer", |_, data, id| {
            let timers = elements::Timers {
                instruction_id: id.to_owned(),
                transform_id: "dofn".to_owned(),
                timer_family_id: "f".to_owned(),
                timers: Bytes::from_static(b"\x09"),
                is_last: false,
            };
            data.sender.send(Elements { data: vec![], timers: vec![timers] }).unwrap();
        }),
        ("something else", |sdk, _, id| sdk.answer(id, Answer::FinalizeBundle(Default::default()))),
        ("twice", |sdk, _, id| {
            sdk.finish(id, Default::default());
            sdk.finish(id, Default::default());
        }),
    ];
    for (expected, sends) in cases {
        let script = move |mut sdk: Sdk| async move {
            let data = sdk.data("").await;
            while let Some((id, _)) = sdk.next_bundle().await {
                sends(&sdk, &data, &id);
            }
        };
        let setup = setup(&[], |_| {}, script);
        let spec = stage(&["out"], &["f"]);
        let error = run(&mut *setup.slot(&spec), &spec, &[b"a"]).unwrap_err();
        let named = |what: &str| what.contains(expected) && what.contains("test-job-") && what.contains("Test/Stage");
        assert!(matches!(&error, Error::Protocol(what) if named(what)), "{expected}: {error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_terminators_are_noticed() {
    let script = |mut sdk: Sdk| async move {
        let (id, _) = sdk.next_bundle().await.unwrap();
        let data = sdk.data("").await;
        data.send(&id, "one", Bytes::new(), true);
        sdk.finish(&id, Default::default());
        sdk.next_bundle().await;
    };
    let setup = setup(&[], |timeouts| timeouts.output_after_response = Duration::from_millis(100), script);
    let spec = stage(&["one", "two"], &[]);
    let error = run(&mut *setup.slot(&spec), &spec, &[b"a"]).unwrap_err();
    assert!(matches!(&error, Error::Protocol(what) if what.contains("missing: two")), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn state_is_served_in_order_and_in_pages() {
    let script = |mut sdk: Sdk| async move {
        let (id, _) = sdk.next_bundle().await.unwrap();
        let mut state = sdk.state().await;
        let key = |key: &'static [u8]| {
            state_key::Type::BagUserState(state_key::BagUserState {
                transform_id: "dofn".to_owned(),
                user_state_id: "bag".to_owned(),
                window: Bytes::new(),
                key: Bytes::from_static(key),
            })
        };
        let append = |data: &'static [u8]| state_request::Request::Append(StateAppendRequest { data: Bytes::from_static(data) });
        let get = |continuation_token: Bytes| state_request::Request::Get(StateGetRequest { continuation_token });
        let mut read = Vec::new();
        assert!(matches!(state.ask(&id, key(b"k"), append(b"old")).await.response, Some(state_response::Response::Append(_))));
        let clear = state_request::Request::Clear(StateClearRequest {});
        assert!(matches!(state.ask(&id, key(b"k"), clear).await.response, Some(state_response::Response::Clear(_))));
        for data in [b"1", b"2", b"3"] {
            state.ask(&id, key(b"k"), append(data)).await;
        }
        let mut token = Bytes::new();
        loop {
            let Some(state_response::Response::Get(page)) = state.ask(&id, key(b"k"), get(token)).await.response else {
                panic!()
            };
            read.extend_from_slice(&page.data);
            token = page.continuation_token;
            if token.is_empty() {
                break;
            }
        }
        let unknown = state.ask("bundle-777", key(b"k"), get(Bytes::new())).await;
        assert!(unknown.error.contains("bundle-777") && unknown.response.is_none());
        let data = sdk.data("").await;
        data.send(&id, "out", wire(&[&read]), true);
        sdk.finish(&id, Default::default());

        let (id, _) = sdk.next_bundle().await.unwrap();
        let broken = state.ask(&id, key(b"broken"), get(Bytes::new())).await;
        assert_eq!(broken.error, "the disk is gone");
        sdk.error(&id, "RuntimeError: the disk is gone");
        sdk.next_bundle().await;
    };
    let setup = setup(&[], |_| {}, script);
    let spec = stage(&["out"], &[]);
    let mut slot = setup.slot(&spec);
    assert_eq!(values(run(&mut *slot, &spec, &[b"a"]).unwrap()), encoded(&[b"123"]));
    // The store's failure is the infrastructure's, though the SDK made a user error of it.
    let error = run(&mut *slot, &spec, &[b"a"]).unwrap_err();
    assert!(matches!(&error, Error::Infrastructure(what) if what == "the disk is gone"), "{error}");
}

fn fired(family: usize, key: &'static [u8]) -> FiredTimer {
    FiredTimer {
        family,
        tag: Bytes::from_static(b"tag"),
        key: Bytes::from_static(key),
        window: Bytes::new(),
        fire: RawTime(5),
        hold: RawTime::NO_HOLD,
        pane: Bytes::from_static(pane::NO_FIRING),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn timers_go_there_and_back() {
    let script = |mut sdk: Sdk| async move {
        let mut data = sdk.data("").await;
        while let Some((id, _)) = sdk.next_bundle().await {
            let Input { timers, .. } = data.input(&id, 2).await;
            // Sent back as set, and every family is ended.
            let ends = ["f", "g"].map(|family| elements::Timers {
                instruction_id: id.clone(),
                transform_id: "dofn".to_owned(),
                timer_family_id: family.to_owned(),
                timers: Bytes::new(),
                is_last: true,
            });
            data.sender.send(Elements { data: vec![], timers: timers.into_iter().chain(ends).collect() }).unwrap();
            sdk.finish(&id, Default::default());
        }
    };
    let setup = setup(&[], |_| {}, script);
    let spec = stage(&[], &["f", "g"]);
    let mut slot = setup.slot(&spec);
    let timers = vec![fired(1, b"\x01b"), fired(0, b"\x01a"), fired(1, b"\0")];
    let outcome = start(&mut *slot, &spec, 1, vec![], timers, Arc::default()).wait().unwrap();
    let keys: Vec<_> = outcome.timers.iter().map(|timer| (timer.family, timer.key.as_ref())).collect();
    assert_eq!(keys, [(0, b"\x01a".as_slice()), (1, b"\x01b"), (1, b"\0")]);
    let expected = Some((fired(0, b"").fire, fired(0, b"").hold, Bytes::from_static(pane::NO_FIRING)));
    assert!(outcome.timers.iter().all(|timer| timer.set == expected && timer.tag == "tag"));
}

/// Answers a split request, finishes the bundle, and only then lets the answer out.
#[tokio::test(flavor = "multi_thread")]
async fn a_split_gives_rows_and_residuals_back_even_when_its_answer_is_late() {
    let script = |mut sdk: Sdk| async move {
        let mut data = sdk.data("").await;
        let (id, _) = sdk.next_bundle().await.unwrap();
        data.input(&id, 0).await;
        let (split, request) = loop {
            match sdk.next().await.unwrap() {
                (split, Ask::ProcessBundleSplit(request)) => break (split, request),
                (progress, Ask::ProcessBundleProgress(_)) => {
                    sdk.answer(&progress, Answer::ProcessBundleProgress(Default::default()))
                }
                (_, other) => panic!("unexpected {other:?}"),
            }
        };
        assert_eq!(request.instruction_id, id);
        let desired = &request.desired_splits["source"];
        assert_eq!((desired.fraction_of_remainder, desired.estimated_input_elements), (0.25, 4));
        data.send(&id, "out", wire(&[b"a"]), true);
        let root = |element| BundleApplication { element, ..Default::default() };
        let delayed = |element| DelayedBundleApplication { application: Some(root(element)), requested_time_delay: None };
        sdk.finish(&id, ProcessBundleResponse { residual_roots: vec![delayed(wire(&[b"self"]))], ..Default::default() });
        tokio::time::sleep(Duration::from_millis(200)).await;
        let channel = ChannelSplit { transform_id: "source".to_owned(), last_primary_element: 0, first_residual_element: 2 };
        let answer = ProcessBundleSplitResponse {
            primary_roots: vec![],
            residual_roots: vec![delayed(wire(&[b"rest"]))],
            channel_splits: vec![channel],
        };
        sdk.answer(&split, Answer::ProcessBundleSplit(answer));
        sdk.next_bundle().await;
    };
    let setup = setup(&[], |_| {}, script);
    let spec = stage(&["out"], &[]);
    let mut slot = setup.slot(&spec);
    let running = start(&mut *slot, &spec, 1, vec![batch(&[b"a", b"b"]), batch(&[b"c", b"d"])], vec![], Arc::default());
    // Asked for at once, though the harness may not have connected yet.
    slot.split(BundleId(1), 0.25);
    let outcome = running.wait().unwrap();
    assert_eq!(outcome.unprocessed, std::slice::from_ref(&(2..4)));
    let residuals: Vec<_> = outcome.residuals.iter().map(|residual| residual.batch.value(0)).collect();
    assert_eq!(residuals, [b"\x04rest".as_slice(), b"\x04self"]);
    assert!(outcome.residuals.iter().all(|residual| residual.hold == Timestamp::MIN && residual.delay_ms == 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_aborted_bundle_gets_its_terminators_and_has_no_effect() {
    let (sender, receiver) = std::sync::mpsc::channel();
    let script = move |mut sdk: Sdk| {
        let sender = sender.clone();
        async move {
            let (id, _) = sdk.next_bundle().await.unwrap();
            sender.send("begun").unwrap();
            tokio::time::sleep(Duration::from_millis(300)).await;
            let mut data = sdk.data("").await;
            data.input(&id, 0).await;
            sender.send("ended").unwrap();
            data.send(&id, "out", wire(&[b"late"]), true);
            sdk.finish(&id, Default::default());
            while sdk.next().await.is_some() {}
        }
    };
    let setup = setup(&[], |_| {}, script);
    let spec = stage(&["out"], &[]);
    let mut slot = setup.slot(&spec);
    let value = vec![1u8; 3 << 20];
    let running = start(&mut *slot, &spec, 1, vec![batch(&[value.as_slice(); 8])], vec![], Arc::default());
    assert_eq!(receiver.recv_timeout(Duration::from_secs(10)).unwrap(), "begun");
    slot.abort(BundleId(1));
    assert!(matches!(running.wait(), Err(Error::Aborted)));
    assert_eq!(receiver.recv_timeout(Duration::from_secs(10)).unwrap(), "ended");
}
