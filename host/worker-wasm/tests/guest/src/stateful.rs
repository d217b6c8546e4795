//! DoFns with state and timers. The first two are those of the conformance suite.

use purlin::element::put_length_prefixed;
use purlin::prelude::*;

/// See the suite's behaviour of this name.
pub(crate) struct Remember;

#[derive(States)]
pub(crate) struct Remembered {
    members: BagState<Vec<u8>>,
}

impl StatefulDoFn for Remember {
    const NAME: &'static str = "Remember";
    type Key<'a> = &'a [u8];
    type Value<'a> = &'a [u8];
    type Out = Output<Vec<u8>>;
    type State = Remembered;

    fn setup(_config: &[u8]) -> purlin::Result<Self> {
        Ok(Remember)
    }

    fn process(
        &mut self,
        (_key, value): (&[u8], &[u8]),
        _cx: &Context<'_>,
        state: &mut Remembered,
        out: &mut Self::Out,
    ) -> purlin::Result<()> {
        match value[0] {
            b'+' => state.members.add_ref(&value[1..]),
            b'-' => state.members.clear(),
            b'?' => {
                let mut all = Vec::new();
                state.members.read().for_each(|member| put_length_prefixed(&mut all, &member));
                out.emit(all);
            }
            _ => {
                state.members.add_ref(&value[1..]);
                return Err("this is too much".into());
            }
        }
        Ok(())
    }
}

/// See the suite's behaviour of this name.
pub(crate) struct Remind;

#[derive(States)]
pub(crate) struct Reminders {
    reminders: EventTimer,
}

impl StatefulDoFn for Remind {
    const NAME: &'static str = "Remind";
    type Key<'a> = &'a [u8];
    type Value<'a> = &'a [u8];
    type Out = Output<Vec<u8>>;
    type State = Reminders;

    fn setup(_config: &[u8]) -> purlin::Result<Self> {
        Ok(Remind)
    }

    fn process(
        &mut self,
        (_key, value): (&[u8], &[u8]),
        cx: &Context<'_>,
        state: &mut Reminders,
        _out: &mut Self::Out,
    ) -> purlin::Result<()> {
        let mut timer = state.reminders.tag(std::str::from_utf8(&value[1..])?);
        match value[0] {
            b'+' => timer.set_without_hold(cx.timestamp_ms()),
            _ => timer.clear(),
        }
        Ok(())
    }

    fn on_timer(
        &mut self,
        _key: &[u8],
        timer: &FiredTimer<'_>,
        state: &mut Reminders,
        out: &mut Self::Out,
    ) -> purlin::Result<()> {
        out.emit_at(format!("fired {}", timer.tag()).into_bytes(), timer.fire_ms());
        state.reminders.tag(timer.tag()).set_with_output_time(timer.fire_ms() + 1, timer.hold_ms());
        Ok(())
    }
}

/// Does with states of all kinds what its words say.
pub(crate) struct Keeper;

#[derive(States)]
pub(crate) struct Kept {
    last: ValueState<String>,
    words: BagState<String>,
    length: CombiningState<Sum>,
    counts: MapState<String, i64>,
    seen: SetState<String>,
    log: OrderedListState<String>,
    later: ProcessingTimer,
    end: EventTimer,
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
        let words: Vec<&str> = words.split(' ').collect();
        match words[..] {
            ["keep", word] => keep(word, cx.timestamp_ms(), kept),
            ["drop", word] => {
                kept.counts.remove(word);
                kept.seen.remove(word);
                kept.log.clear_range(cx.timestamp_ms()..cx.timestamp_ms() + 1);
            }
            ["clear"] => clear(kept),
            ["tell"] => out.emit(format!("{key}: {}", told(kept))),
            ["count", word] => out.emit(format!("{:?} {}", kept.counts.get(word), kept.seen.contains(word))),
            ["wait", delay] => {
                kept.later.set_after(delay.parse()?);
                kept.end.set(cx.window().max_timestamp_ms());
            }
            _ => return Err(format!("what is {words:?}?").into()),
        }
        Ok(())
    }

    fn on_timer(&mut self, key: &str, timer: &FiredTimer<'_>, kept: &mut Kept, out: &mut Self::Out) -> purlin::Result<()> {
        out.emit(format!("{key}: {} at {}, last {:?}", timer.family(), timer.fire_ms(), kept.last.read()));
        Ok(())
    }

    fn on_window_expiration(
        &mut self,
        key: &str,
        window: Window<'_>,
        kept: &mut Kept,
        out: &mut Self::Out,
    ) -> purlin::Result<()> {
        out.emit(format!("{key}: over at {}, length {}", window.max_timestamp_ms(), kept.length.read()));
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
    format!(
        "{:?} {words:?} {} {:?} {:?} {:?}",
        kept.last.read(),
        kept.length.read(),
        kept.counts.entries(),
        kept.seen.read(),
        kept.log.read()
    )
}

/// Counts elements, for measuring.
pub(crate) struct Tally;

#[derive(States)]
pub(crate) struct Count {
    count: ValueState<i64>,
}

impl StatefulDoFn for Tally {
    const NAME: &'static str = "tally";
    const READS: Reads = Reads::NOTHING;
    type Key<'a> = &'a [u8];
    type Value<'a> = &'a [u8];
    type Out = Output<i64>;
    type State = Count;

    fn setup(_config: &[u8]) -> purlin::Result<Self> {
        Ok(Tally)
    }

    fn process(
        &mut self,
        _pair: (&[u8], &[u8]),
        _cx: &Context<'_>,
        state: &mut Count,
        out: &mut Self::Out,
    ) -> purlin::Result<()> {
        let count = state.count.read().unwrap_or(0) + 1;
        state.count.write(count);
        out.emit(count);
        Ok(())
    }
}

/// Asks for what is not there, or for too much; the value says what.
pub(crate) struct Greedy;

#[derive(States)]
pub(crate) struct Bag {
    bag: BagState<Vec<u8>>,
    timer: EventTimer,
}

impl StatefulDoFn for Greedy {
    const NAME: &'static str = "greedy";
    type Key<'a> = &'a str;
    type Value<'a> = &'a str;
    type Out = Output<i64>;
    type State = Bag;

    fn setup(_config: &[u8]) -> purlin::Result<Self> {
        Ok(Greedy)
    }

    fn process(
        &mut self,
        (_key, what): (&str, &str),
        _cx: &Context<'_>,
        state: &mut Bag,
        out: &mut Self::Out,
    ) -> purlin::Result<()> {
        match what {
            "add" => state.bag.add(vec![7; 1000]),
            "calls" => loop {
                std::hint::black_box(state.bag.is_empty());
            },
            "changes" => (0..1_000).for_each(|_| state.bag.add(vec![7; 1000])),
            "timers" => (0..1_000).for_each(|number| state.timer.tag(&number.to_string()).set(number)),
            "panic" => panic!("no state helps"),
            _ => lie(what),
        }
        out.emit(state.bag.read().count() as i64);
        Ok(())
    }
}

#[cfg(not(target_arch = "wasm32"))]
fn lie(_what: &str) {}

#[cfg(target_arch = "wasm32")]
fn lie(what: &str) {
    use purlin::bindings::purlin::dofn::state::{self, ChangeKind, Changes};
    use purlin::bindings::purlin::dofn::types::Rows;
    let none = || Rows { bytes: Vec::new(), ends: Vec::new() };
    let change = |run, state, part: &[u8]| Changes {
        runs: vec![run],
        states: vec![state],
        kinds: vec![ChangeKind::Append],
        parts: Rows { bytes: part.to_vec(), ends: vec![part.len() as u32] },
        elements: none(),
    };
    match what {
        "run" => drop(state::read(7, 0, &[], None)),
        "state" => drop(state::read(0, 7, &[], None)),
        "part" => drop(state::read(0, 0, b"part", None)),
        "keys" => drop(state::keys(0, 0, None)),
        "change" => state::apply(&change(0, 0, b"part")),
        "columns" => state::apply(&Changes { states: Vec::new(), ..change(0, 0, b"") }),
        "ends" => state::apply(&Changes { elements: Rows { bytes: vec![1], ends: vec![9] }, ..change(0, 0, b"") }),
        other => assert_eq!(other, "read"),
    }
}
