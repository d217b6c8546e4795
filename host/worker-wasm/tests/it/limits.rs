//! Guests that crash, hang or want too much: each failure says which, and harms nothing but its own bundle.

use std::time::Instant;

use model::Coder;
use worker_wasm::{Options, WasmEngine};

use crate::guests::guest;
use crate::running::{Fixture, Transform, batch, int, text, values};

fn open_with(options: Options, name: &str, input: Coder, outputs: &[(&str, Coder)]) -> Fixture {
    let engine = WasmEngine::new(options).expect("the engine is made");
    let component = engine.component(&guest("test-guest")).expect("the test guest is a component");
    Transform { name, config: b"", input, outputs }.open_in(&engine, component).expect("the stage opens")
}

#[test]
fn a_panic_names_message_row_and_functions() {
    let outputs = [("output", Coder::VarInt)];
    let mut fixture = Transform { name: "crash", config: b"", input: Coder::VarInt, outputs: &outputs }.open();
    let numbers = (0..100).map(|number| int(if number < 50 { number % 10 } else { number - 50 }));
    let message = fixture.fails(batch(numbers));
    assert!(
        message.starts_with("My step (`crash` of its component): panicked at host/worker-wasm/tests/guest/src/hostile.rs:"),
        "{message}"
    );
    assert!(message.contains("thirteen is not supported\ntrap: wasm `unreachable` instruction executed"), "{message}");
    assert!(message.contains("\nrow 63 of 100 in its batch, first bytes 0x0d\nguest backtrace:\n  0: "), "{message}");
    assert!(message.contains("test_guest::hostile::checked"), "{message}");
    assert_eq!(fixture.logs.lock().unwrap().len(), 1, "the search for the row is silent");
    assert_eq!(values(&fixture.ok(batch([int(1)])), 0), [int(50)], "the slot works on");
}

#[test]
fn a_guest_that_hangs_runs_out_of_time() {
    let mut fixture =
        open_with(Options { call_deadline_ms: 200, ..Options::default() }, "spin", Coder::Bytes, &[("output", Coder::Bytes)]);
    let began = Instant::now();
    let message = fixture.fails(batch([text("a"), text("spin")]));
    assert!(
        message.contains("out of time: one call took longer than 200 ms\nin a batch of 2 rows\nguest backtrace:"),
        "{message}"
    );
    assert!(began.elapsed().as_secs() < 60, "one deadline, not one for each row");
    assert_eq!(values(&fixture.ok(batch([text("a")])), 0), [text("a")]);
}

#[test]
fn a_guest_that_hangs_while_it_is_made_runs_out_of_time() {
    let mut fixture = open_with(Options { call_deadline_ms: 200, ..Options::default() }, "slow_setup", Coder::Bytes, &[]);
    let message = fixture.fails(batch([text("a")]));
    assert!(message.contains("out of time: one call took longer than 200 ms"), "{message}");
}

#[test]
fn memory_has_a_limit() {
    let options = Options { memory_bytes_max: 16 << 20, ..Options::default() };
    let mut fixture = open_with(options, "hog", Coder::VarInt, &[("output", Coder::VarInt)]);
    let message = fixture.fails(batch([int(1 << 20), int(100 << 20), int(0)]));
    assert!(
        message.contains("out of memory: ") && message.contains(" bytes of linear memory were asked for, the limit is 16777216"),
        "{message}"
    );
    assert!(message.contains("\nrow 1 of 3 in its batch"), "{message}");
    assert_eq!(values(&fixture.ok(batch([int(2)])), 0), [int(4)]);
}

#[test]
fn output_has_a_limit() {
    let options = || Options { output_bytes_max: 1 << 20, ..Options::default() };
    let mut flood = open_with(options(), "flood", Coder::VarInt, &[("output", Coder::Bytes)]);
    // Small enough to be copied, then counted; and too large to be copied at all.
    for bytes in [2 << 20, 100 << 20] {
        let message = flood.fails(batch([int(10), int(bytes)]));
        assert!(message.contains("too much output: one call made more than 1048576 bytes\nrow 1 of 2 in its batch"), "{message}");
    }
    let mut fan_out = open_with(options(), "fan_out", Coder::VarInt, &[("output", Coder::VarInt)]);
    let message = fan_out.fails(batch([int(i64::MAX)]));
    assert!(message.contains("too much output: one call made more than 1048576 bytes\nrow 0 of 1"), "{message}");
}

#[test]
fn much_output_of_little_input_is_handed_over_in_pieces() {
    let mut fixture =
        Transform { name: "fan_out", config: b"", input: Coder::VarInt, outputs: &[("output", Coder::VarInt)] }.open();
    let outcome = fixture.ok(batch([int(2), int(300_000), int(1)]));
    let expected = (0..2).chain(0..300_000).chain(0..1).map(int);
    assert!(values(&outcome, 0).into_iter().eq(expected));
}

#[test]
fn the_stack_has_a_limit() {
    let mut fixture =
        Transform { name: "recurse", config: b"", input: Coder::VarInt, outputs: &[("output", Coder::VarInt)] }.open();
    let message = fixture.fails(batch([int(10), int(100_000_000)]));
    assert!(message.contains("row 1 of 2 in its batch"), "{message}");
    assert!(message.contains("trap: "), "{message}");
    assert_eq!(values(&fixture.ok(batch([int(100)])), 0), [int(100)]);
}

#[test]
fn messages_have_a_limit() {
    let options = Options { log_messages_max: 3, log_message_bytes_max: 20, ..Options::default() };
    let mut fixture = open_with(options, "chatter", Coder::VarInt, &[]);
    fixture.ok(batch([int(10)]));
    let logs: Vec<String> = fixture.logs.lock().unwrap().iter().map(|(_, message)| message.clone()).collect();
    assert_eq!(
        logs,
        ["message 0 xxxxxxxxxx", "message 1 xxxxxxxxxx", "message 2 xxxxxxxxxx", "7 more messages of this bundle were dropped"]
    );
}

#[test]
fn a_guest_that_grows_is_replaced() {
    let options = Options { memory_bytes_max: 64 << 20, memory_watermark_bytes: 8 << 20, ..Options::default() };
    let mut fixture = open_with(options, "forget", Coder::VarInt, &[]);
    // Without a replacement the eighth of these bundles would be out of memory.
    for _ in 0..30 {
        fixture.ok(batch([int(10 << 20)]));
    }
}
