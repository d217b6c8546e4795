//! What is learnt once and used for many bundles: user state under its token, descriptors, names of metrics.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use model::metrics::MetricValue;
use model::{BundleId, ShardId};
use proto::fnapi::instruction_request::Request as Ask;
use proto::fnapi::instruction_response::Response as Answer;
use proto::fnapi::*;
use worker::{Error, Worker};

use crate::fake::Sdk;
use crate::setup::*;
use crate::stage::*;

#[tokio::test(flavor = "multi_thread")]
async fn user_state_may_be_kept_until_a_bundle_fails() {
    let (sender, receiver) = std::sync::mpsc::channel();
    let script = move |mut sdk: Sdk| {
        let sender = sender.clone();
        async move {
            while let Some((id, request)) = sdk.next_bundle().await {
                let [token] = &request.cache_tokens[..] else { panic!("one token, not {:?}", request.cache_tokens) };
                assert!(matches!(token.r#type, Some(process_bundle_request::cache_token::Type::UserState(_))));
                sender.send(token.token.clone()).unwrap();
                match request.elements.is_some() {
                    true => sdk.error(&id, "this time only"),
                    false => sdk.finish(&id, Default::default()),
                }
            }
        }
    };
    let setup = setup(&["control_request_elements_embedding:v1"], |_| {}, script);
    let spec = stage(&[], &[]);
    let mut slot = setup.slot(&spec);
    let large = vec![0; 1 << 20];
    // Only small bundles are embedded, and those fail here.
    let tokens: Vec<Bytes> = [true, true, false, true, true]
        .map(|succeeds| {
            let value: &[u8] = if succeeds { &large } else { b"small" };
            assert_eq!(run(&mut *slot, &spec, &[value]).is_ok(), succeeds);
            receiver.recv_timeout(Duration::from_secs(10)).unwrap()
        })
        .to_vec();
    assert!(tokens[0] == tokens[1] && tokens[1] == tokens[2], "{tokens:?}");
    assert!(tokens[3] != tokens[2] && tokens[3] == tokens[4], "{tokens:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn descriptors_have_ids_and_endpoints() {
    let (sender, receiver) = std::sync::mpsc::channel();
    let script = move |mut sdk: Sdk| {
        let sender = sender.clone();
        async move {
            while let Some((id, request)) = sdk.next_bundle().await {
                sender.send(sdk.descriptor(&request.process_bundle_descriptor_id).await).unwrap();
                sdk.error(&id, "seen");
            }
            assert_eq!(sdk.descriptor("other").await.unwrap_err().code(), tonic::Code::NotFound);
        }
    };
    let setup = setup(&[], |_| {}, script);
    let mut ids = Vec::new();
    for families in [&[][..], &["f"]] {
        let spec = stage(&["out"], families);
        let mut slot = setup.slot(&worker::StageSpec { stage: model::StageId(families.len() as u32), ..spec.clone() });
        run(&mut *slot, &spec, &[b"a"]).unwrap_err();
        let descriptor = receiver.recv_timeout(Duration::from_secs(10)).unwrap().unwrap();
        let endpoint = Some(setup.host.endpoint());
        assert_eq!(descriptor.state_api_service_descriptor.as_ref().map(|service| service.url.as_str()), endpoint);
        assert_eq!(descriptor.timer_api_service_descriptor.is_some(), !families.is_empty());
        for port in ["source", "out"] {
            let payload = descriptor.transforms[port].spec.as_ref().unwrap().payload.clone();
            let port = <RemoteGrpcPort as prost::Message>::decode(payload).unwrap();
            assert_eq!(port.api_service_descriptor.as_ref().map(|service| service.url.as_str()), endpoint);
            assert_eq!(port.coder_id, "wire");
        }
        ids.push(descriptor.id);
    }
    assert_ne!(ids[0], ids[1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stage_with_an_unusable_descriptor_is_refused() {
    let setup = setup(&[], |_| {}, |sdk| echo(sdk, "", &[]));
    let mut spec = stage(&["out"], &[]);
    spec.sinks[0].port.transform = "absent".into();
    let error = setup.environment.open(Arc::new(spec), ShardId(0)).err().unwrap();
    assert!(matches!(&error, Error::Protocol(what) if what.contains("absent")), "{error}");
}

fn monitoring(urn: &str, kind: &str, label: &str, payload: &'static [u8]) -> proto::pipeline::MonitoringInfo {
    proto::pipeline::MonitoringInfo {
        urn: urn.to_owned(),
        r#type: format!("beam:metrics:{kind}"),
        payload: Bytes::from_static(payload),
        labels: [("PTRANSFORM".to_owned(), label.to_owned())].into(),
        start_time: None,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_by_short_id_are_resolved_once_and_never_added_to_full_ones() {
    let script = |mut sdk: Sdk| async move {
        let mut data = sdk.data("").await;
        let (mut bundles, mut probes) = (0, 0);
        let mut bundle = String::new();
        while let Some((id, ask)) = sdk.next().await {
            match ask {
                Ask::ProcessBundle(_) => {
                    data.input(&id, 0).await;
                    bundle = id;
                    bundles += 1;
                    probes = 0;
                }
                Ask::ProcessBundleProgress(request) => {
                    assert_eq!(request.instruction_id, bundle);
                    assert_ne!(id, bundle);
                    let by_id = [("r", b"\x02".as_slice())];
                    let monitoring_data = by_id.map(|(id, value)| (id.to_owned(), Bytes::from_static(value))).into();
                    sdk.answer(
                        &id,
                        Answer::ProcessBundleProgress(ProcessBundleProgressResponse { monitoring_data, ..Default::default() }),
                    );
                    // The second question comes after the first answer has been taken.
                    probes += 1;
                    if probes == 1 {
                        continue;
                    }
                    let by_id = [("r", b"\x03".as_slice()), ("u", b"\x07"), ("e", b"\0")];
                    let monitoring_data = by_id.map(|(id, value)| (id.to_owned(), Bytes::from_static(value))).into();
                    let monitoring_infos = vec![monitoring("beam:metric:user:sum_int64:v1", "sum_int64:v1", "step", b"\x07")];
                    sdk.finish(&bundle, ProcessBundleResponse { monitoring_data, monitoring_infos, ..Default::default() });
                    data.send(&bundle, "out", Bytes::new(), true);
                }
                Ask::MonitoringInfos(request) => {
                    assert_eq!(bundles, 1, "what the first bundle was told is known to the second");
                    let known = [
                        ("r", monitoring("beam:metric:data_channel:read_index:v1", "sum_int64:v1", "source", b"")),
                        ("u", monitoring("beam:metric:user:sum_int64:v1", "sum_int64:v1", "step", b"")),
                        ("e", monitoring("beam:metric:user:distribution_int64:v1", "distribution_int64:v1", "step", b"")),
                    ];
                    let wanted = known.into_iter().filter(|(id, _)| request.monitoring_info_id.iter().any(|asked| asked == id));
                    let monitoring_info = wanted.map(|(id, info)| (id.to_owned(), info)).collect();
                    sdk.answer(&id, Answer::MonitoringInfos(MonitoringInfosMetadataResponse { monitoring_info }));
                }
                other => panic!("unexpected {other:?}"),
            }
        }
    };
    let setup = setup(&[], |_| {}, script);
    let spec = stage(&["out"], &[]);
    let mut slot = setup.slot(&spec);
    for round in 0..2 {
        let running = start(&mut *slot, &spec, round, vec![batch(&[b"a"])], vec![], Arc::default());
        let outcome = running.wait().unwrap();
        assert_eq!(outcome.metrics.len(), 2);
        let (name, value) = &outcome.metrics[1];
        assert_eq!((name.urn.as_str(), name.labels["PTRANSFORM"].as_str()), ("beam:metric:user:sum_int64:v1", "step"));
        assert_eq!(*value, MetricValue::SumInt(7));
        let progress = slot.progress(BundleId(round)).expect("it is the latest bundle");
        assert_eq!(progress.row, Some(2));
        assert!(progress.worker.is_some_and(|worker| worker.starts_with("harness ")), "it says where it runs");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn full_metrics_are_taken_from_sdks_without_short_ids() {
    let script = |mut sdk: Sdk| async move {
        while let Some((id, _)) = sdk.next_bundle().await {
            let monitoring_infos = vec![monitoring("beam:metric:user:sum_int64:v1", "sum_int64:v1", "step", b"\x07")];
            sdk.finish(&id, ProcessBundleResponse { monitoring_infos, ..Default::default() });
        }
    };
    let setup = setup(&[], |_| {}, script);
    let spec = stage(&[], &[]);
    let outcome = run(&mut *setup.slot(&spec), &spec, &[b"a"]).unwrap();
    assert_eq!(outcome.metrics[0].1, MetricValue::SumInt(7));
}
