//! States of all kinds, timers and the end of windows; and guests that ask for what is not there, or for too much.

use std::sync::Arc;

use bytes::Bytes;
use model::{Coder, FiredTimer, Timestamp, TransformId, WindowCoder, pane};
use worker::{Error, Outcome, TimerFamily};
use worker_wasm::{Options, WasmEngine};

use crate::guests::guest;
use crate::memory::Memory;
use crate::running::{Fixture, Transform, batch, int, test_guest, text, values};

fn kv() -> Coder {
    Coder::Kv(Box::new(Coder::StringUtf8), Box::new(Coder::StringUtf8))
}

/// A DoFn of the test guest that reads pairs of texts, with these timer families; those named `later` are of processing time.
fn open(engine: &WasmEngine, name: &str, output: Coder, families: &[&str]) -> Result<Fixture, Error> {
    let outputs = [("output", output)];
    let transform = Transform { name, config: b"", input: kv(), outputs: &outputs };
    let mut stage = transform.stage();
    let family = |family: &&str| TimerFamily {
        transform: TransformId::from("t1"),
        family: family.to_string(),
        event_time: *family != "later",
        key_coder: Coder::StringUtf8,
        window_coder: WindowCoder::Global,
    };
    stage.timer_families = families.iter().map(family).collect();
    let component = engine.component(&guest("test-guest")).expect("the test guest is a component");
    transform.open_stage(engine, component, stage)
}

fn pairs(key: &str, all: &[&str]) -> model::Batch {
    batch(all.iter().map(|words| [text(key), text(words)].concat()))
}

fn keeper() -> Fixture {
    open(test_guest().0, "keeper", Coder::StringUtf8, &["end", "later", "on_window_expiration"]).expect("the stage opens")
}

fn said(outcome: &Outcome) -> Vec<String> {
    // Texts of less than 128 bytes: one byte of length.
    let value = |value: Vec<u8>| String::from_utf8_lossy(&value[1..]).into_owned();
    values(outcome, 0).into_iter().map(value).collect()
}

/// What is said in the end of words, each in a bundle of its own, and of all in one bundle.
fn check(words: &[&str], expected: &[&str]) {
    let bundles: [Vec<&[&str]>; 2] = [words.chunks(1).collect(), vec![words]];
    for bundles in bundles {
        let (mut fixture, state) = (keeper(), Arc::new(Memory::default()));
        let mut all = Vec::new();
        for words in bundles {
            let outcome = fixture.run_keyed(vec![pairs("k", words)], Vec::new(), state.clone()).expect("the bundle succeeds");
            all.extend(said(&outcome));
        }
        assert_eq!(all, expected, "{words:?}");
    }
}

#[test]
fn all_kinds_of_state_are_kept() {
    check(&["tell"], &[r#"k: None [] 0 [] [] []"#]);
    check(
        &["keep a", "keep b", "keep a", "tell"],
        &[r#"k: Some("a") ["a", "b", "a"] 3 [("a", 2), ("b", 1)] ["a", "b"] [(0, "a"), (0, "b"), (0, "a")]"#],
    );
    check(
        &["keep a", "keep b", "drop a", "tell", "count a", "count b"],
        &[r#"k: Some("b") ["a", "b"] 2 [("b", 1)] ["b"] []"#, "None false", "Some(1) true"],
    );
    check(
        &["keep a", "clear", "tell", "keep c", "tell"],
        &[r#"k: None [] 0 [] [] []"#, r#"k: Some("c") ["c"] 1 [("c", 1)] ["c"] [(0, "c")]"#],
    );
}

#[test]
fn keys_do_not_share_state() {
    let (mut fixture, state) = (keeper(), Arc::new(Memory::default()));
    let input = vec![pairs("k", &["keep a"]), pairs("l", &["keep b", "tell"]), pairs("k", &["tell"])];
    let outcome = fixture.run_keyed(input, Vec::new(), state).expect("the bundle succeeds");
    let said = said(&outcome);
    assert!(said[0].starts_with(r#"l: Some("b") ["b"]"#) && said[1].starts_with(r#"k: Some("a") ["a"]"#), "{said:?}");
}

fn due(family: usize, fire: Timestamp) -> FiredTimer {
    FiredTimer {
        family,
        tag: Bytes::new(),
        key: text("k").into(),
        window: Bytes::new(),
        fire: fire.into(),
        hold: fire.into(),
        pane: Bytes::from_static(pane::NO_FIRING),
    }
}

#[test]
fn timers_go_by_the_stages_numbers_and_the_bundles_clock() {
    let (mut fixture, state) = (keeper(), Arc::new(Memory::default()));
    let set = fixture.run_keyed(vec![pairs("k", &["keep a", "wait 50"])], Vec::new(), state.clone()).expect("it succeeds");
    let changes: Vec<_> = set.timers.iter().map(|change| (change.family, change.set.clone().map(|set| set.0.0))).collect();
    // The clock of the tests stands at 1000.
    assert_eq!(changes, [(1, Some(1_050)), (0, Some(Timestamp::GLOBAL_WINDOW_END.millis()))]);
    let timers = vec![due(1, Timestamp::from_millis(1_050)), due(2, Timestamp::GLOBAL_WINDOW_END)];
    let outcome = fixture.run_keyed(Vec::new(), timers, state).expect("it succeeds");
    assert_eq!(said(&outcome), [r#"k: later at 1050, last Some("a")"#, "k: over at 9223371950454775, length 1"]);
}

#[test]
fn families_must_be_those_of_the_component() {
    let check = |families: &[&str], expected: &str| {
        let error = open(test_guest().0, "keeper", Coder::StringUtf8, families).err().expect("it is refused").to_string();
        assert!(error.contains(expected), "{error}");
    };
    check(&["later", "end"], "the pipeline does not name its timer family `on_window_expiration`");
    check(&["later", "end", "on_window_expiration", "new"], "the pipeline names a timer family `new` that it does not have");
}

/// What a greedy guest is stopped with.
fn stopped(engine: &WasmEngine, what: &[&str]) -> String {
    let mut fixture = open(engine, "greedy", Coder::VarInt, &["timer"]).expect("the stage opens");
    let failed = fixture
        .run_keyed(vec![pairs("k", what)], Vec::new(), Arc::new(Memory::default()))
        .expect_err("it is stopped")
        .to_string();
    let fresh =
        fixture.run_keyed(vec![pairs("k", &["add"])], Vec::new(), Arc::new(Memory::default())).expect("the slot works on");
    assert_eq!(values(&fresh, 0), [int(1)], "nothing is left of the bundle before");
    failed
}

#[test]
fn state_and_timers_have_limits() {
    let few = Options {
        state_calls_max: 100,
        state_read_bytes_max: 100_000,
        state_change_bytes_max: 100_000,
        timer_changes_max: 100,
        ..Options::default()
    };
    let engine = WasmEngine::new(few).expect("the engine is made");
    let check = |what: &[&str], expected: &str| {
        let message = stopped(&engine, what);
        assert!(message.contains(expected), "{message}");
    };
    check(&["calls"], "too many requests for state: more than 100 in one bundle\nin a batch of 1 rows");
    check(&["changes"], "too many changes of state: more than 100000 bytes in one bundle");
    check(&["timers"], "too many changes of timers: more than 100 in one call");
    let mut fixture = open(&engine, "greedy", Coder::VarInt, &["timer"]).expect("the stage opens");
    let state = Arc::new(Memory::default());
    fixture.run_keyed(vec![pairs("k", &["add"; 30])], Vec::new(), state.clone()).expect("as much as it may");
    fixture.run_keyed(vec![pairs("k", &["read"; 2])], Vec::new(), state.clone()).expect("as much as it may");
    let message = fixture.run_keyed(vec![pairs("k", &["read"; 4])], Vec::new(), state).expect_err("it is stopped").to_string();
    assert!(message.contains("too much state read: more than 100000 bytes in one bundle"), "{message}");
}

#[test]
fn guests_reach_only_what_is_theirs() {
    let check = |what: &str, expected: &str| {
        let message = stopped(test_guest().0, &["add", what]);
        assert!(message.contains(expected), "{what}: {message}");
    };
    check("run", "the component broke its interface: state of run 7 was asked for, which is not there");
    check("state", "the component broke its interface: state 7 was asked for, which was not declared");
    check("part", "state `bag` was asked for a part that a bag does not have");
    check("keys", "state `bag` was asked for a part that a bag does not have");
    check("change", "state `bag` was asked for a part that a bag does not have");
    check("columns", "changes of state whose columns do not fit together");
    check("ends", "changes of state whose columns do not fit together");
    check("panic", "no state helps");
}
