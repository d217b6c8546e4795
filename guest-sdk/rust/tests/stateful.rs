//! Stateful DoFns without a host: states of all kinds, timers, and what a batch of rows hands over at once.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should panic")]

use purlin::keyed::Runs;
use purlin::prelude::*;
use purlin::runtime::{Column, DueTimers, Input, KeyedInput, Registered, Rows};
use purlin::state::ChangeKind;
use purlin::testing::TestDoFn;
use purlin::timers::NO_HOLD_MS;

/// Does with its states what its words say.
struct Keeper;

#[derive(States)]
struct Kept {
    last: ValueState<String>,
    words: BagState<String>,
    quiet: EventTimer,
    length: CombiningState<Sum>,
    counts: MapState<String, i64>,
    seen: SetState<String>,
    log: OrderedListState<String>,
    later: ProcessingTimer,
}

impl StatefulDoFn for Keeper {
    const NAME: &'static str = "keeper";
    const ON_WINDOW_EXPIRATION: bool = true;
    type Key<'a> = &'a str;
    type Value<'a> = &'a str;
    type Out = Output<String>;
    type State = Kept;

    fn setup(_config: &[u8]) -> purlin::Result<Self> {
        Ok(Keeper)
    }

    fn process(
        &mut self,
        (key, words): (&str, &str),
        cx: &Context<'_>,
        kept: &mut Kept,
        out: &mut Self::Out,
    ) -> purlin::Result<()> {
        for word in words.split(' ') {
            match word.split_once(':') {
                Some(("drop", word)) => {
                    kept.counts.remove(word);
                    kept.seen.remove(word);
                    kept.log.clear_range(cx.timestamp_ms()..cx.timestamp_ms() + 1);
                }
                Some(("set", at)) => kept.quiet.set(at.parse()?),
                Some(("tag", at)) => kept.quiet.tag(at).set(at.parse()?),
                Some(("after", delay)) => kept.later.set_after(delay.parse()?),
                Some(_) => return Err(format!("what is {word}?").into()),
                None if word == "clear" => clear(kept),
                None if word == "unset" => kept.quiet.clear(),
                None if word == "tell" => out.emit(format!("{key}: {}", told(kept))),
                None => keep(word, cx.timestamp_ms(), kept),
            }
        }
        Ok(())
    }

    fn on_timer(&mut self, key: &str, timer: &FiredTimer<'_>, kept: &mut Kept, out: &mut Self::Out) -> purlin::Result<()> {
        out.emit(format!("{key}: {}{} at {}", timer.family(), timer.tag(), timer.fire_ms()));
        if timer.tag() == "1" {
            kept.quiet.tag("2").clear();
        }
        Ok(())
    }

    fn on_window_expiration(
        &mut self,
        key: &str,
        window: Window<'_>,
        kept: &mut Kept,
        out: &mut Self::Out,
    ) -> purlin::Result<()> {
        out.emit(format!("{key}: over at {} with {}", window.max_timestamp_ms(), kept.length.read()));
        Ok(())
    }
}

fn keep(word: &str, timestamp_ms: i64, kept: &mut Kept) {
    kept.last.write_ref(word);
    kept.words.add_ref(word);
    kept.length.add(word.len() as i64);
    let count = kept.counts.get(word).unwrap_or(0);
    kept.counts.put(word.to_owned(), count + 1);
    kept.seen.add(word.to_owned());
    kept.log.add(timestamp_ms, word.to_owned());
}

fn clear(kept: &mut Kept) {
    kept.last.clear();
    kept.words.clear();
    kept.length.clear();
    kept.counts.clear();
    kept.seen.clear();
    kept.log.clear();
}

fn told(kept: &Kept) -> String {
    let words: Vec<String> = kept.words.read().collect();
    let (counts, seen, log) = (kept.counts.entries(), kept.seen.read(), kept.log.read());
    format!("{:?} {words:?} {} {counts:?} {seen:?} {log:?}", kept.last.read(), kept.length.read())
}

/// What the DoFn says after it was given these words, each as an element of its own, and all as one element.
fn check(elements: &[&str], expected: &str) {
    for at_once in [false, true] {
        let mut test = TestDoFn::<Keeper>::new(b"").unwrap();
        let all = elements.join(" ");
        let given = if at_once { vec![all.as_str()] } else { elements.to_vec() };
        given.iter().for_each(|words| test.process(("k", *words), 7).unwrap());
        assert_eq!(test.take_outputs(), [format!("k: {expected}")], "{elements:?}, at once: {at_once}");
    }
}

#[test]
fn states_read_what_was_written_before_and_in_the_same_batch() {
    check(&["tell"], r#"None [] 0 [] [] []"#);
    check(
        &["a", "b", "a", "tell"],
        r#"Some("a") ["a", "b", "a"] 3 [("a", 2), ("b", 1)] ["a", "b"] [(7, "a"), (7, "b"), (7, "a")]"#,
    );
    check(&["a", "clear", "tell"], r#"None [] 0 [] [] []"#);
    check(&["a", "clear", "b", "tell"], r#"Some("b") ["b"] 1 [("b", 1)] ["b"] [(7, "b")]"#);
    check(&["a", "b", "drop:a", "tell"], r#"Some("b") ["a", "b"] 2 [("b", 1)] ["b"] []"#);
    check(&["a", "drop:a", "a", "tell"], r#"Some("a") ["a", "a"] 2 [("a", 1)] ["a"] [(7, "a")]"#);
    check(&["a", "clear", "drop:a", "tell"], r#"None [] 0 [] [] []"#);
}

#[test]
fn keys_and_windows_do_not_share_state() {
    let mut test = TestDoFn::<Keeper>::new(b"").unwrap();
    let interval = [&(1u64 << 63 | 10_000).to_be_bytes()[..], &[0x90, 0x4e]].concat();
    test.process(("k", "a"), 0).unwrap();
    test.process(("l", "b tell"), 0).unwrap();
    test.in_window(&interval).process(("k", "c tell"), 0).unwrap();
    let said = test.take_outputs();
    assert!(said[0].starts_with(r#"l: Some("b") ["b"] 1"#) && said[1].starts_with(r#"k: Some("c") ["c"] 1"#), "{said:?}");
    test.expire("k").unwrap();
    assert_eq!(test.take_outputs(), ["k: over at 9999 with 1"]);
    test.process(("k", "tell"), 0).unwrap();
    test.in_window(b"").process(("k", "tell"), 0).unwrap();
    let said = test.take_outputs();
    assert!(said[0].starts_with("k: None") && said[1].starts_with(r#"k: Some("a")"#), "{said:?}");
}

#[test]
fn timers_fire_in_order_by_their_clock() {
    let mut test = TestDoFn::<Keeper>::new(b"").unwrap();
    test.advance_clock_to(1_000).unwrap();
    test.process(("k", "set:50 set:30 tag:20 after:5"), 10).unwrap();
    test.process(("l", "set:40"), 10).unwrap();
    test.process(("m", "set:20 unset"), 10).unwrap();
    assert_eq!((test.timers("quiet"), test.timers("later")), (vec![20, 30, 40], vec![1_005]));
    test.advance_watermark_to(35).unwrap();
    assert_eq!(test.take_outputs(), ["k: quiet20 at 20", "k: quiet at 30"]);
    test.advance_watermark_to(100).unwrap();
    test.advance_clock_to(1_004).unwrap();
    assert_eq!(test.take_outputs(), ["l: quiet at 40"]);
    test.advance_clock_to(1_005).unwrap();
    assert_eq!(test.take_outputs(), ["k: later at 1005"]);
}

#[test]
fn an_error_says_what_was_wrong() {
    let mut test = TestDoFn::<Keeper>::new(b"").unwrap();
    assert_eq!(test.process(("k", "x:y"), 0).unwrap_err().0, "what is x:y?");
}

/// Rows with two keys, a call with all of them.
fn rows(pairs: &[(&str, &str)], keys: &[&str], mut call: impl FnMut(&KeyedInput<'_>)) {
    let (mut values, mut ends, mut key_bytes, mut key_ends) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for pair in pairs {
        pair.encode(&mut values);
        ends.push(values.len() as u32);
    }
    for key in keys {
        key.encode(&mut key_bytes);
        key_ends.push(key_bytes.len() as u32);
    }
    let run_of: Vec<u32> = pairs.iter().map(|pair| keys.iter().position(|key| *key == pair.0).unwrap() as u32).collect();
    let windows = Column { bytes: &[], ends: &[0], index: &[] };
    let runs = Runs { key_bytes: &key_bytes, key_ends: &key_ends, windows, run_of: &run_of };
    call(&KeyedInput { rows: Input { values: &values, ends: &ends, timestamps: &[5], ..Input::default() }, runs, now_ms: 100 });
}

#[test]
fn a_batch_hands_its_changes_over_at_once() {
    let mut instance = Registered::of_stateful::<Keeper>().open(b"", usize::MAX).unwrap();
    rows(&[("k", "a"), ("l", "b set:9"), ("k", "c set:8 set:9 after:1")], &["k", "l"], |input| {
        let done = instance.process_keyed(input).unwrap();
        let of_last =
            done.changes.states.iter().zip(&done.changes.runs).zip(&done.changes.kinds).filter(|((state, _), _)| **state == 0);
        let of_last: Vec<_> = of_last.map(|((_, run), kind)| (*run, *kind)).collect();
        assert_eq!(
            of_last,
            [(0, ChangeKind::Replace), (1, ChangeKind::Replace)],
            "one for each run, however often it was written"
        );
        let timers: Vec<_> = done.timers.iter().map(|change| (change.run, change.family, change.set)).collect();
        assert_eq!(timers, [(1, 0, Some((9, 9))), (0, 0, Some((9, 9))), (0, 1, Some((101, 5)))]);
        assert!(done.outcome.rejected.is_empty());
    });
}

#[test]
fn a_timer_that_an_earlier_one_cleared_does_not_fire() {
    let mut instance = Registered::of_stateful::<Keeper>().open(b"", usize::MAX).unwrap();
    let windows = Column { bytes: &[], ends: &[0], index: &[] };
    let runs = Runs { key_bytes: b"\x01k", key_ends: &[2], windows, run_of: &[0, 0, 0, 0] };
    let done = instance.on_timers(&DueTimers {
        runs,
        families: &[0, 0, 0, 2],
        tags: Rows { bytes: b"123", ends: &[1, 2, 3, 3] },
        fire: &[10, 20, 30, 40],
        hold: &[10, 20, NO_HOLD_MS, 40],
        now_ms: 0,
    });
    let done = done.unwrap();
    let values: Vec<&[u8]> = done.outcome.outputs.iter().map(|(_, segment)| segment.values.as_slice()).collect();
    let expected = ["k: quiet1 at 10", "k: quiet3 at 30", "k: over at 9223371950454775 with 0"];
    let mut encoded = Vec::new();
    expected.iter().for_each(|text| text.encode(&mut encoded));
    assert_eq!(values, [encoded.as_slice()]);
    assert_eq!(done.timers.len(), 1);
}
