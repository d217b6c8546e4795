//! What components do with stages, beyond the conformance suite.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::{Batch, Coder, EnvironmentId, ShardId};
use worker_wasm::LogLevel;
use worker_wasm::payload::DofnPayload;

use crate::guests::guest;
use crate::running::{Fixture, Transform, batch, int, metric, test_guest, text, values};

#[test]
fn configuration_reaches_the_dofn() {
    let outputs = [("output", Coder::StringUtf8)];
    let mut fixture = Transform { name: "prefix", config: b"so-", input: Coder::StringUtf8, outputs: &outputs }.open();
    assert_eq!(values(&fixture.ok(batch([text("a"), text("b")])), 0), [text("so-a"), text("so-b")]);
}

#[test]
fn a_dofn_that_cannot_be_made_fails_its_bundles() {
    let mut fixture = Transform { name: "fail_setup", config: b"abc", input: Coder::Bytes, outputs: &[] }.open();
    for _ in 0..2 {
        assert_eq!(
            fixture.fails(batch([text("x")])),
            "My step (`fail_setup` of its component): setup: 3 bytes of configuration are not enough"
        );
    }
}

#[test]
fn columns_are_sent_to_those_that_read_them() {
    let outputs = [("output", Coder::VarInt), ("seen", Coder::StringUtf8)];
    let mut fixture = Transform { name: "at", config: b"", input: Coder::VarInt, outputs: &outputs }.open();
    let outcome = fixture.ok(batch([int(5), int(0)]));
    assert_eq!(values(&outcome, 0), [int(5), int(0)]);
    assert_eq!(values(&outcome, 1), [text("0 [00, 00, 00, 01] [0f]"), text("0 [00, 00, 00, 01] [0f]")]);
    let moved = outcome.outputs.iter().find(|output| output.input == 0).unwrap().payload.downcast_ref::<Batch>().unwrap();
    assert_eq!(moved.iter().map(|row| row.timestamp.millis()).collect::<Vec<_>>(), [5, 0]);
}

#[test]
fn two_components_share_a_stage() {
    let (engine, first) = test_guest();
    let second = engine.component(&guest("wordcount")).unwrap();
    let outputs = [("output", Coder::StringUtf8)];
    let mut stage = Transform { name: "split", config: b"", input: Coder::StringUtf8, outputs: &outputs }.stage();
    stage.transforms[0].outputs = vec![("output".to_owned(), "words".to_owned())];
    let mut greet = stage.transforms[0].clone();
    greet.id = "t2".into();
    greet.environment = EnvironmentId(1);
    greet.dofn_payload = DofnPayload { name: "greet".to_owned(), config: Vec::new() }.encode().into();
    greet.input = "words".to_owned();
    greet.outputs = vec![("output".to_owned(), "output".to_owned())];
    stage.transforms.push(greet);
    let worker = engine.worker(BTreeMap::from([(EnvironmentId(0), second), (EnvironmentId(1), first)]));
    let stage = Arc::new(stage);
    let mut fixture = Fixture { slot: worker.open(stage.clone(), ShardId(0)).unwrap(), stage, logs: Arc::default() };
    assert_eq!(values(&fixture.ok(batch([text("so we")])), 0), [text("hello so"), text("hello we")]);
}

#[test]
fn messages_reach_the_sink() {
    let outputs = [("output", Coder::StringUtf8)];
    let mut fixture = Transform { name: "greet", config: b"", input: Coder::StringUtf8, outputs: &outputs }.open();
    fixture.ok(batch([text("a"), text("b")]));
    let info = |message: &str| (LogLevel::Info, message.to_owned());
    assert_eq!(*fixture.logs.lock().unwrap(), [info("greeting a"), info("greeting b")]);
}

#[test]
fn metrics_are_in_the_namespace_of_the_transform() {
    let outputs = [("output", Coder::Bytes)];
    let mut fixture = Transform { name: "Measure", config: b"", input: Coder::Bytes, outputs: &outputs }.open();
    let outcome = fixture.ok(batch([text("a")]));
    assert!(metric(&outcome, |name| name.labels.get("NAMESPACE").is_some_and(|namespace| namespace == "Measure")).is_some());
}

#[test]
fn a_refused_element_is_named() {
    let outputs = [("output", Coder::VarInt)];
    let mut fixture = Transform { name: "refuse", config: b"", input: Coder::StringUtf8, outputs: &outputs }.open();
    let message = fixture.fails(batch([text("1"), text("x"), text("3"), text("y")]));
    let expected = "My step (`refuse` of its component): invalid digit found in string (user)\n\
                    row 1 of 4 in its batch, first bytes 0x0178; 1 more rows of the batch were refused";
    assert_eq!(message, expected);
    assert_eq!(values(&fixture.ok(batch([text("7")])), 0), [int(7)]);
}

#[test]
fn a_malformed_element_is_refused_by_the_guest() {
    let outputs = [("output", Coder::VarInt)];
    let mut fixture = Transform { name: "refuse", config: b"", input: Coder::StringUtf8, outputs: &outputs }.open();
    let message = fixture.fails(batch([b"\x09short".to_vec()]));
    assert!(message.contains("malformed input element: input ends inside a value (decode)\nrow 0 of 1"), "{message}");
}
