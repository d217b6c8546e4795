//! Random keyed stages: rows, late ones too, timers, failures and restarts, each step checked against the naive model.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::panic::AssertUnwindSafe;

use bytes::Bytes;
use engine::{BundlePolicy, Engine, Entry, EntryRows, Head, Options, Position, Readied, StageShape, Topology, Upstream, Work};
use model::reader::put_varint;
use model::windowing::WindowingStrategy;
use model::{
    Batch, BatchBuilder, Duration, Keyed, RawTime, ShardId, StageId, TimeDomain, TimerChange, Timestamp, WindowCoder, pane,
    window,
};

use crate::cells::{self, Cells, Overlay};
use crate::dice::Dice;
use crate::keys::{self, Keys, Pair};
use crate::rows;

const SOURCE: StageId = StageId(0);
const STAGE: StageId = StageId(1);
const SHARD: ShardId = ShardId(0);
/// Steps in any order before the stage is brought to its end.
const STEPS: usize = 120;
/// Bundles after which a stage without new timers must have come to its end.
const LAST_BUNDLES_MAX: usize = 5000;
const SIZE_MS: i64 = 10;
const PERIOD_MS: i64 = 5;

#[test]
fn random_keyed_stages_do_what_the_naive_model_allows() {
    let count = std::env::var("PURLIN_SEEDS").map_or(250, |count| count.parse::<u64>().unwrap());
    (3_000_000..3_000_000 + count).for_each(run);
}

fn run(seed: u64) {
    let mut trial = Trial::new(Dice::new(seed));
    let outcome = std::panic::catch_unwind(AssertUnwindSafe(|| {
        (0..STEPS).for_each(|_| trial.step());
        trial.complete();
    }));
    if let Err(panic) = outcome {
        let status = std::panic::catch_unwind(AssertUnwindSafe(|| trial.engine.status()[1].to_string()));
        println!("seed {seed}\n{:?}\n{:?}\n{}\n{status:?}", trial.options, trial.keys.keyed, trial.trace);
        std::panic::resume_unwind(panic);
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Windows {
    Global,
    Fixed,
    Sliding,
}

struct Trial {
    dice: Dice,
    windows: Windows,
    topology: Topology,
    options: Options,
    engine: Engine,
    cells: Cells,
    keys: Keys,
    /// What the input watermark was when it was last noted in state.
    saved_input: Timestamp,
    reported: Timestamp,
    entries: BTreeMap<Position, (Entry, Batch)>,
    next_offset: u64,
    next_value: u64,
    running: Option<Running>,
    trace: String,
}

struct Running {
    work: Work,
    readied: Readied,
    input: Timestamp,
    /// The model as it is if the bundle is committed.
    keys: Keys,
    writes: BTreeMap<Bytes, Option<Bytes>>,
    consumed: Vec<EntryRows>,
}

impl Trial {
    fn new(mut dice: Dice) -> Self {
        let windows = *dice.one_of(&[Windows::Global, Windows::Fixed, Windows::Sliding]);
        let window_coder = if windows == Windows::Global { WindowCoder::Global } else { WindowCoder::Interval };
        let expires = dice.chance(50);
        let lateness = dice.between(0, 1) * dice.between(0, 12);
        let mut timer_families = vec![TimeDomain::Event, TimeDomain::Processing];
        timer_families.extend(expires.then_some(TimeDomain::Event));
        let keyed = Keyed {
            windowing: WindowingStrategy { allowed_lateness: Duration(lateness), ..WindowingStrategy::global() },
            timer_families,
            expiration_family: expires.then_some(2),
            time_sorted: dice.chance(40),
        };
        let stage = |name: &str, head, inputs| StageShape {
            name: name.to_string(),
            head,
            inputs,
            gates: Vec::new(),
            timer_names: Vec::new(),
            input_coder: rows::coder(),
            window_coder,
        };
        let head = Head::Keyed(Box::new(keyed.clone()));
        let input = Upstream { stage: SOURCE, local: false };
        let stages = vec![stage("source", Head::Script, vec![]), stage("keyed", head, vec![input])];
        let topology = Topology { shards: 1, shard: SHARD, stages };
        let options = Options {
            rows_max: dice.between(1, 8) as usize,
            bytes_max: dice.between(0, 200) as u64,
            keys_max: dice.between(1, 4) as usize,
            policy: *dice.one_of(&BundlePolicy::ALL),
            ..Options::default()
        };
        Trial {
            dice,
            windows,
            engine: Engine::new(topology.clone(), options.clone()),
            topology,
            options,
            cells: Cells::new(),
            keys: Keys::new(keyed, window_coder),
            saved_input: Timestamp::MIN,
            reported: Timestamp::MIN,
            entries: BTreeMap::new(),
            next_offset: 0,
            next_value: 0,
            running: None,
            trace: String::new(),
        }
    }

    fn note(&mut self, text: impl std::fmt::Display) {
        writeln!(self.trace, "{text}").unwrap();
    }

    fn step(&mut self) {
        match self.dice.below(20) {
            0..4 => self.entry(),
            4..7 => self.advance(),
            7 => {
                self.keys.now_ms += self.dice.between(0, 6);
                if let Some(running) = &mut self.running {
                    running.keys.now_ms = self.keys.now_ms;
                }
            }
            8 if self.dice.chance(15) => self.restart(),
            8 if self.dice.chance(8) => self.drain(),
            9 if self.running.is_some() => self.fail(),
            _ if self.running.is_some() => self.commit(true),
            _ => drop(self.start()),
        }
        self.compare();
    }

    /// To the end: no timers are set any more.
    fn complete(&mut self) {
        if self.running.is_some() {
            self.commit(false);
        }
        self.set_upstream(Timestamp::MAX);
        self.compare();
        for _ in 0..LAST_BUNDLES_MAX {
            if self.start() {
                self.commit(false);
            } else if let Some(wake_ms) = self.engine.wake_at_ms() {
                assert!(wake_ms > self.keys.now_ms, "nothing runs, though it was to at {wake_ms}");
                self.keys.now_ms = wake_ms;
            } else {
                break;
            }
            self.compare();
        }
        assert!(self.keys.is_empty(), "something was never done: {:?}", self.keys);
        assert_eq!(self.engine.status()[1].output_watermark, Timestamp::MAX);
        assert!(self.entries.is_empty());
    }

    fn set_upstream(&mut self, watermark: Timestamp) {
        self.note(format_args!("upstream {watermark}"));
        self.keys.upstream = watermark;
        if let Some(running) = &mut self.running {
            running.keys.upstream = watermark;
        }
        self.engine.watermark(SOURCE, SHARD, watermark);
    }

    fn advance(&mut self) {
        let by = Duration(self.dice.between(0, 6));
        let next = match self.keys.upstream {
            Timestamp::MIN => Timestamp::from_millis(0),
            _ if self.dice.chance(3) => Timestamp::MAX,
            before => before.plus(by),
        };
        self.set_upstream(next);
    }

    fn entry(&mut self) {
        let around = self.keys.upstream.millis().clamp(0, 1_000);
        let (mut builder, count) = (BatchBuilder::new(), self.dice.between(1, 5));
        for _ in 0..count {
            let timestamp = Timestamp::from_millis(around + self.dice.between(-12, 15));
            let key = *self.dice.one_of(&["", "a", "b", "cc"]);
            let value = self.next_value.to_string();
            self.next_value += 1;
            let windows = keys::set_of(&self.windows_of(timestamp));
            builder.push_with(timestamp, &windows, pane::NO_FIRING, |out| {
                for text in [key, &value] {
                    put_varint(out, text.len() as u64);
                    out.extend_from_slice(text.as_bytes());
                }
            });
        }
        let batch = builder.finish();
        let position = Position { broadcast: false, offset: self.next_offset };
        self.next_offset += 1;
        let rows = batch.rows() as u32;
        let entry = Entry {
            position,
            stage: STAGE,
            producer: (SOURCE, SHARD),
            remaining: std::iter::once(0..rows).collect(),
            bytes: batch.value_bytes() as u64,
            rows,
            hold: batch.min_timestamp(),
            window_end: Timestamp::GLOBAL_WINDOW_END,
            not_before_ms: None,
        };
        self.note(format_args!("entry {position} at {}: {rows} rows", entry.hold));
        self.engine.entry(entry.clone());
        self.entries.insert(position, (entry, batch));
    }

    fn windows_of(&self, timestamp: Timestamp) -> Vec<Vec<u8>> {
        let interval = |from: i64| {
            let mut bytes = Vec::new();
            let start = Timestamp::from_millis(from);
            window::IntervalWindow { start, end: start.plus(Duration(SIZE_MS)) }.encode(&mut bytes);
            bytes
        };
        let last = |period: i64| timestamp.millis() - timestamp.millis().rem_euclid(period);
        match self.windows {
            Windows::Global => vec![Vec::new()],
            Windows::Fixed => vec![interval(last(SIZE_MS))],
            Windows::Sliding => vec![interval(last(PERIOD_MS)), interval(last(PERIOD_MS) - PERIOD_MS)],
        }
    }

    fn start(&mut self) -> bool {
        assert!(self.running.is_none());
        let rows_pending = !self.entries.is_empty();
        let (due, may_postpone) = (self.keys.is_due(), self.keys.may_postpone());
        let Some(work) = self.engine.next(self.keys.now_ms) else {
            assert!(!due && !rows_pending, "nothing runs, though something is ready");
            return false;
        };
        assert_eq!(work.stage, STAGE);
        let batches = rows::cut(&work.entries, |entry| self.entries[&entry.position].1.clone());
        let mut overlay = Overlay::new(&self.cells);
        let readied = self.engine.key(&work, &batches, self.keys.now_ms, &mut overlay).unwrap();
        let writes = overlay.writes;
        self.note(format_args!("run {:?}\n  {readied:?}", work.entries));
        let mut keys = self.keys.clone();
        if work.entries.is_empty() {
            let nothing = readied.input.is_empty() && readied.timers.is_empty() && readied.expired.is_empty();
            assert!(!nothing || may_postpone, "a bundle does nothing");
            self.check_limits(&readied);
            keys.fire(&readied);
        } else {
            assert!(!keys.is_due_before(self.least_hold()), "rows before what comes before them");
            keys.absorb(&batches, &readied);
        }
        self.running = Some(Running { work, readied, input: self.keys.input, keys, writes, consumed: Vec::new() });
        true
    }

    fn check_limits(&self, readied: &Readied) {
        let items = readied.timers.len() + readied.input.iter().map(Batch::rows).sum::<usize>();
        let input = readied.input.iter().flat_map(|batch| batch.iter());
        let keys = input.map(|row| rows::key_of(row.value)).chain(readied.timers.iter().map(|timer| timer.key.clone()));
        let keys = keys.chain(readied.expired.iter().map(|(key, _)| key.clone())).collect::<std::collections::BTreeSet<_>>();
        let (items_max, keys_max) = match self.options.policy {
            BundlePolicy::Greedy => (self.options.rows_max, self.options.keys_max),
            BundlePolicy::OneKey => (self.options.rows_max, 1),
            BundlePolicy::OneElement => (1, 1),
        };
        assert!(items <= items_max && keys.len() <= keys_max, "{items} items of {} keys", keys.len());
    }

    /// Ends the bundle; it may have set and cleared timers.
    fn commit(&mut self, timers: bool) {
        let mut running = self.running.take().expect("there is a bundle");
        let changes = if timers { self.changes(&running) } else { Vec::new() };
        if !changes.is_empty() || self.dice.chance(50) {
            let ahead = Duration(self.dice.one_of(&[0, 0, 5, -3]).to_owned());
            self.note(format_args!("timers {changes:?}, ahead {ahead:?}"));
            (running.keys.input, running.keys.output) = (self.keys.input, self.keys.output);
            running.keys.change(&changes, ahead, &running.readied.expired);
            let mut overlay = Overlay::new(&self.cells);
            overlay.writes = running.writes;
            self.engine.timers(running.work.bundle, changes, ahead, &mut overlay).unwrap();
            running.writes = overlay.writes;
        }
        running.consumed = self.engine.finish(running.work.bundle, &[]);
        if self.dice.chance(10) {
            self.running = Some(running);
            return self.fail();
        }
        self.note("commit");
        for EntryRows { position, rows } in &running.consumed {
            let (entry, _) = self.entries.get_mut(position).expect("consumed rows are of an entry");
            let first = rows.first().expect("some rows").start;
            let last = rows.last().expect("some rows").end;
            assert_eq!(entry.remaining[0].start, first, "rows are taken in order");
            entry.remaining = if last < entry.rows { std::iter::once(last..entry.rows).collect() } else { Vec::new() };
        }
        self.entries.retain(|_, (entry, _)| !entry.remaining.is_empty());
        cells::commit(&mut self.cells, running.writes);
        self.engine.committed(running.work.bundle);
        self.saved_input = running.input;
        (running.keys.input, running.keys.output) = (self.keys.input, self.keys.output);
        self.keys = running.keys;
    }

    fn changes(&mut self, running: &Running) -> Vec<TimerChange> {
        let input = running.readied.input.iter().flat_map(|batch| batch.iter()).flat_map(|row| {
            let key = rows::key_of(row.value);
            let windows = self.keys.window_coder.windows_of(row.windows).unwrap();
            windows.into_iter().map(move |window| (key.clone(), Bytes::copy_from_slice(window)))
        });
        let fired = running.readied.timers.iter().map(|timer| (timer.key.clone(), timer.window.clone()));
        let pairs: Vec<Pair> = input.chain(fired).collect();
        let count = if pairs.is_empty() { 0 } else { self.dice.below(5) };
        (0..count).map(|_| self.change(&pairs)).collect()
    }

    fn change(&mut self, pairs: &[Pair]) -> TimerChange {
        let (key, window) = self.dice.one_of(pairs).clone();
        let family = self.dice.below(2);
        let tag = Bytes::from_static(self.dice.one_of(&["", "x", "yy"]).as_bytes());
        let around = match self.keys.keyed.timer_families[family] {
            TimeDomain::Event => self.keys.input.millis().clamp(0, 1_000),
            TimeDomain::Processing => self.keys.now_ms,
        };
        let fire = Timestamp::from_millis(around + self.dice.between(-5, 12));
        let fire = if self.dice.chance(3) { Timestamp::GLOBAL_WINDOW_END } else { fire };
        let hold = match self.dice.below(5) {
            0 => Timestamp::MAX.into(),
            1 => RawTime::NO_HOLD,
            _ => RawTime(self.keys.input.millis().clamp(0, 1_000) + self.dice.between(-3, 10)),
        };
        let set = self.dice.chance(80).then(|| (fire.into(), hold, Bytes::from_static(b"pane")));
        TimerChange { family, tag, key, window, set }
    }

    fn fail(&mut self) {
        self.note("fail");
        let running = self.running.take().expect("there is a bundle");
        self.engine.failed(running.work.bundle);
    }

    fn restart(&mut self) {
        self.note("restart");
        self.running = None;
        self.engine = Engine::new(self.topology.clone(), self.options.clone());
        self.engine.restore(&Overlay::new(&self.cells)).unwrap();
        for (entry, _) in self.entries.values() {
            self.engine.entry(entry.clone());
        }
        self.engine.watermark(SOURCE, SHARD, self.keys.upstream);
        self.engine.watermark(STAGE, SHARD, self.reported);
        if self.keys.draining {
            self.engine.drain();
        }
        self.keys.output = self.reported;
        self.keys.input = self.saved_input.max(self.reported);
    }

    fn drain(&mut self) {
        self.note("drain");
        self.engine.drain();
        self.keys.draining = true;
        if let Some(running) = &mut self.running {
            running.keys.draining = true;
        }
    }

    fn least_hold(&self) -> Timestamp {
        self.entries.values().map(|(entry, _)| entry.hold).min().unwrap_or(Timestamp::MAX)
    }

    /// Watermarks, after every step.
    fn compare(&mut self) {
        let reports = self.engine.reports();
        let rows = self.least_hold();
        self.keys.settle(rows);
        let status = &self.engine.status()[1];
        assert_eq!((status.input_watermark, status.output_watermark), (self.keys.input, self.keys.output), "{status}");
        for (stage, watermark) in reports.into_iter().filter(|(stage, _)| *stage == STAGE) {
            self.reported = watermark;
            self.engine.watermark(stage, SHARD, watermark);
        }
    }
}
