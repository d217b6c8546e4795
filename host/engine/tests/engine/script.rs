//! Scripts: `tests/scripts/*.test`, each run under every bundle policy.
//!
//! ```text
//! job shards=2 shard=0                      default: one shard
//! options rows=2 bytes=100 keys=5 restrictions=1 backlog=1000
//! stage NAME plain|restrictions|unbounded|fixed:SIZE|fixed:SIZE:LATENESS  [from NAME.. local:NAME..]
//! gate STAGE SIDE_INPUT by NAME,NAME global|same|fixed:SIZE:OFFSET|sliding:SIZE:PERIOD:OFFSET
//!
//! entry STAGE rows=3 ts=5 [end=9] [bytes=30] [not_before=100] [at=7] [remaining=0..1,2..3] [keys=a,b,a]
//! wm STAGE shardN TIME                      a report arrives
//! now MS                                    processing time from here on
//! run | finish STAGE [A..B ..] | commit STAGE | fail STAGE
//! only POLICIES EVENT                       for these policies only
//! drain                                     run and commit until nothing is ready
//! restart                                   a new engine goes on from what is durable
//! flow                                      the same, each consumed row becoming one of key k in every reader; reports arrive
//!
//! expect work|consumed|rows|reports|wake|finished|idle|fired|panes|status STAGE|held STAGE   TEXT
//! expect[greedy,one-key] ..                 for these policies only
//! ```
//!
//! Times are milliseconds, MIN, END (of the global window) or MAX. `rows` are totals that were consumed, per stage.
//! `PURLIN_REWRITE=1` writes what was seen into the files; read the difference.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::ops::Range;
use std::path::Path;

use engine::{BundlePolicy, Engine, Entry, EntryRows, GateMapping, Head, Options, Position, SideGate, StageShape, Topology, Upstream, Work};
use model::windowing::WindowFn;
use model::{Batch, Duration, ShardId, StageId, Timestamp, WindowCoder};

use crate::cells::{self, Cells, Overlay};
use crate::rows;

#[test]
fn scripts_hold_under_every_policy() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scripts");
    let mut files: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|file| file.unwrap().path()).collect();
    files.sort();
    assert!(files.len() >= 30, "only {} scripts", files.len());
    let rewrite = std::env::var_os("PURLIN_REWRITE").is_some();
    let mut failures = String::new();
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        let seen = BundlePolicy::ALL.map(|policy| {
            println!("{} {}", file.display(), name_of(policy));
            (policy, run(&text, policy, &file))
        });
        if rewrite {
            std::fs::write(&file, rewritten(&text, &seen)).unwrap();
        }
        let text = std::fs::read_to_string(&file).unwrap();
        let name = file.file_name().unwrap().to_string_lossy();
        for (policy, seen) in seen {
            for (index, actual) in seen {
                let line = text.lines().nth(index).unwrap();
                let expected = Expectation::parse(line).unwrap().text;
                if expected != actual {
                    writeln!(failures, "{name}:{} {}: {line}\n    saw: {actual}", index + 1, name_of(policy)).unwrap();
                }
            }
        }
    }
    assert!(failures.is_empty(), "\n{failures}");
}

fn name_of(policy: BundlePolicy) -> &'static str {
    match policy {
        BundlePolicy::Greedy => "greedy",
        BundlePolicy::OneKey => "one-key",
        BundlePolicy::OneElement => "one-element",
    }
}

/// `expect[policies] query text`
struct Expectation<'a> {
    policies: Option<&'a str>,
    query: String,
    text: String,
}

impl<'a> Expectation<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let rest = line.strip_prefix("expect")?;
        let (policies, rest) = match rest.strip_prefix('[') {
            Some(rest) => rest.split_once(']').map(|(policies, rest)| (Some(policies), rest))?,
            None => (None, rest),
        };
        let mut words = rest.split_whitespace();
        let mut query = words.next()?.to_string();
        if matches!(query.as_str(), "status" | "held") {
            query = format!("{query} {}", words.next()?);
        }
        Some(Expectation { policies, query, text: words.collect::<Vec<_>>().join(" ") })
    }

    fn concerns(&self, policy: BundlePolicy) -> bool {
        self.policies.is_none_or(|policies| policies.split(',').any(|name| name == name_of(policy)))
    }
}

fn rewritten(text: &str, seen: &[(BundlePolicy, Vec<(usize, String)>)]) -> String {
    let mut lines: Vec<_> = text.lines().map(str::to_string).collect();
    for (_, seen) in seen.iter().rev() {
        for (index, actual) in seen {
            let line = text.lines().nth(*index).unwrap();
            let expectation = Expectation::parse(line).unwrap();
            let policies = expectation.policies.map_or(String::new(), |policies| format!("[{policies}]"));
            lines[*index] = format!("expect{policies} {} {actual}", expectation.query);
        }
    }
    lines.join("\n") + "\n"
}

/// Runs a script. Returns what was seen at each line that expects something under this policy.
fn run(text: &str, policy: BundlePolicy, file: &Path) -> Vec<(usize, String)> {
    let mut setting = Setting::new(policy);
    let mut play: Option<Play> = None;
    let mut seen = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let at = format!("{}:{}: {line}", file.display(), index + 1);
        let words: Vec<_> = line.split_whitespace().collect();
        match words.first() {
            None => continue,
            Some(word) if word.starts_with('#') => continue,
            Some(_) if play.is_none() && setting.takes(&words) => continue,
            Some(_) => {}
        }
        let play = play.get_or_insert_with(|| Play::new(setting.clone()));
        match Expectation::parse(line) {
            Some(expectation) if expectation.concerns(policy) => seen.push((index, play.answer(&expectation.query))),
            Some(_) => {}
            None if words[0] == "only" && !words[1].split(',').any(|name| name == name_of(policy)) => {}
            None if words[0] == "only" => play.event(&words[2..], &at),
            None => play.event(&words, &at),
        }
    }
    seen
}

/// What stands above the events of a script.
#[derive(Clone)]
struct Setting {
    names: Vec<String>,
    topology: Topology,
    options: Options,
}

impl Setting {
    fn new(policy: BundlePolicy) -> Self {
        let topology = Topology { shards: 1, shard: ShardId(0), stages: Vec::new() };
        Setting { names: Vec::new(), topology, options: Options { policy, ..Options::default() } }
    }

    fn stage(&self, name: &str) -> StageId {
        let index = self.names.iter().position(|known| known == name).unwrap_or_else(|| panic!("no stage {name}"));
        StageId(index as u32)
    }

    fn takes(&mut self, words: &[&str]) -> bool {
        match words[0] {
            "job" => {
                self.topology.shards = number(words, "shards").unwrap_or(1) as u32;
                self.topology.shard = ShardId(number(words, "shard").unwrap_or(0) as u32);
            }
            "options" => self.options(words),
            "stage" => self.add_stage(words),
            "gate" => self.add_gate(words),
            _ => return false,
        }
        true
    }

    fn options(&mut self, words: &[&str]) {
        let options = &mut self.options;
        options.rows_max = number(words, "rows").map_or(options.rows_max, |rows| rows as usize);
        options.bytes_max = number(words, "bytes").map_or(options.bytes_max, |bytes| bytes as u64);
        options.keys_max = number(words, "keys").map_or(options.keys_max, |keys| keys as usize);
        options.restrictions_max = number(words, "restrictions").map_or(options.restrictions_max, |rows| rows as usize);
        options.backlog_bytes_max = number(words, "backlog").map_or(options.backlog_bytes_max, |bytes| bytes as u64);
    }

    fn add_stage(&mut self, words: &[&str]) {
        let spans: Vec<_> = words[2].split(':').skip(1).map(|span| span.parse::<i64>().unwrap()).collect();
        let head = match words[2].split(':').next().unwrap() {
            "plain" => Head::Plain,
            "restrictions" => Head::Restrictions { unbounded: false },
            "unbounded" => Head::Restrictions { unbounded: true },
            "fixed" => Head::Grouping(Box::new(rows::fixed_windows(spans[0], spans.get(1).copied().unwrap_or(0)))),
            other => panic!("no head {other}"),
        };
        let inputs = words.iter().skip(4).map(|word| match word.strip_prefix("local:") {
            Some(name) => Upstream { stage: self.stage(name), local: true },
            None => Upstream { stage: self.stage(word), local: false },
        });
        let inputs = inputs.collect();
        let shape = StageShape {
            name: words[1].to_string(),
            head,
            inputs,
            gates: Vec::new(),
            input_coder: rows::coder(),
            window_coder: WindowCoder::Interval,
        };
        self.topology.stages.push(shape);
        self.names.push(words[1].to_string());
    }

    fn add_gate(&mut self, words: &[&str]) {
        let mapping: Vec<_> = words[5].split(':').collect();
        let span = |index: usize| Duration(mapping[index].parse().unwrap());
        let mapping = match mapping[0] {
            "global" => GateMapping::Global,
            "same" => GateMapping::Same,
            "fixed" => GateMapping::Fixed { size: span(1), offset: span(2) },
            "sliding" => GateMapping::Sliding { size: span(1), period: span(2), offset: span(3) },
            other => panic!("no mapping {other}"),
        };
        let producers = words[4].split(',').map(|name| self.stage(name)).collect();
        let stage = self.stage(words[1]).0 as usize;
        self.topology.stages[stage].gates.push(SideGate { name: words[2].to_string(), producers, mapping });
    }
}

/// An engine and what is around it.
struct Play {
    setting: Setting,
    engine: Engine,
    now_ms: i64,
    next_offset: u64,
    /// With the rows that are not consumed.
    entries: BTreeMap<Position, Entry>,
    reports: BTreeMap<(StageId, ShardId), Timestamp>,
    payloads: BTreeMap<Position, Batch>,
    running: BTreeMap<StageId, Running>,
    finished: Option<Vec<EntryRows>>,
    consumed: BTreeMap<StageId, usize>,
    cells: Cells,
    panes: Vec<rows::Pane>,
}

struct Running {
    work: Work,
    consumed: Option<Vec<EntryRows>>,
    panes: Vec<rows::Pane>,
    writes: BTreeMap<bytes::Bytes, Option<bytes::Bytes>>,
}

impl Play {
    fn new(setting: Setting) -> Self {
        Play {
            engine: Engine::new(setting.topology.clone(), setting.options.clone()),
            setting,
            now_ms: 0,
            next_offset: 0,
            entries: BTreeMap::new(),
            reports: BTreeMap::new(),
            payloads: BTreeMap::new(),
            running: BTreeMap::new(),
            finished: None,
            consumed: BTreeMap::new(),
            cells: Cells::new(),
            panes: Vec::new(),
        }
    }

    fn event(&mut self, words: &[&str], at: &str) {
        match words[0] {
            "entry" => self.entry(words),
            "wm" => {
                let shard = words[2].strip_prefix("shard").unwrap_or_else(|| panic!("{at}"));
                self.report(self.setting.stage(words[1]), ShardId(shard.parse().unwrap()), time(words[3]));
            }
            "now" => self.now_ms = words[1].parse().unwrap(),
            "run" => assert!(self.start().is_some(), "{at}: nothing runs"),
            "finish" => {
                let unprocessed: Vec<_> = words[2..].iter().map(|word| range::<usize>(word)).collect();
                self.finish(self.setting.stage(words[1]), &unprocessed);
            }
            "commit" => self.commit(self.setting.stage(words[1])).truncate(0),
            "fail" => {
                let running = self.running.remove(&self.setting.stage(words[1])).unwrap_or_else(|| panic!("{at}"));
                self.engine.failed(running.work.bundle);
            }
            "drain" => while self.turn().is_some() {},
            "restart" => self.restart(),
            "flow" => self.flow(),
            _ => panic!("{at}: what is this?"),
        }
    }

    fn entry(&mut self, words: &[&str]) {
        let stage = self.setting.stage(words[1]);
        let hold = time(text(words, "ts").expect("an entry has ts="));
        let offset = number(words, "at").map_or(self.next_offset, |at| at as u64);
        let position = Position { broadcast: false, offset };
        let keys: Vec<_> = text(words, "keys").map_or(Vec::new(), |keys| keys.split(',').collect());
        let rows = number(words, "rows").map_or(keys.len() as u32, |rows| rows as u32);
        let remaining = text(words, "remaining").map(|ranges| ranges.split(',').map(range::<u32>).collect());
        if !keys.is_empty() {
            self.payload(position, stage, hold, &keys);
        }
        self.feed(Entry {
            position,
            stage,
            remaining: remaining.unwrap_or_else(|| std::iter::once(0..rows).collect()),
            bytes: number(words, "bytes").map_or(u64::from(rows) * 10, |bytes| bytes as u64),
            rows,
            hold,
            window_end: text(words, "end").map_or(hold, time),
            not_before_ms: number(words, "not_before"),
        });
    }

    fn report(&mut self, stage: StageId, shard: ShardId, watermark: Timestamp) {
        self.reports.insert((stage, shard), watermark);
        self.engine.watermark(stage, shard, watermark);
    }

    /// Rows for a grouping stage, all at one time.
    fn payload(&mut self, position: Position, stage: StageId, at: Timestamp, keys: &[&str]) {
        let Head::Grouping(strategy) = &self.setting.topology.stages[stage.0 as usize].head else { return };
        let WindowFn::Fixed { size, .. } = strategy.window_fn else { panic!("not fixed") };
        let values: Vec<_> = keys.iter().map(|key| (*key, "v", at)).collect();
        self.payloads.insert(position, rows::batch(&values, size.0));
    }

    fn feed(&mut self, entry: Entry) {
        self.next_offset = self.next_offset.max(entry.position.offset + 1);
        self.entries.insert(entry.position, entry.clone());
        self.engine.entry(entry);
    }

    /// Asks for work and, where it is for a grouping stage, groups.
    fn start(&mut self) -> Option<&Running> {
        let work = self.engine.next(self.now_ms)?;
        let stage = work.stage;
        let mut running = Running { work, consumed: None, panes: Vec::new(), writes: BTreeMap::new() };
        if let Head::Grouping(_) = self.setting.topology.stages[stage.0 as usize].head {
            let batches = rows::cut(&running.work.entries, |entry| self.payloads[&entry.position].clone());
            let mut overlay = Overlay::new(&self.cells);
            let panes = self.engine.group(&running.work, &batches, self.now_ms, &mut overlay).unwrap();
            running.panes = rows::panes(&panes);
            running.writes = overlay.writes;
        }
        self.running.insert(stage, running);
        self.running.get(&stage)
    }

    fn finish(&mut self, stage: StageId, unprocessed: &[Range<usize>]) {
        let running = self.running.get_mut(&stage).expect("something to finish");
        let consumed = self.engine.finish(running.work.bundle, unprocessed);
        running.consumed = Some(consumed.clone());
        self.finished = Some(consumed);
    }

    fn commit(&mut self, stage: StageId) -> Vec<Entry> {
        if self.running.get(&stage).expect("something to commit").consumed.is_none() {
            self.finish(stage, &[]);
        }
        let running = self.running.remove(&stage).expect("it was there");
        let consumed = running.consumed.expect("finished above");
        *self.consumed.entry(stage).or_default() += consumed.iter().map(|entry| count(&entry.rows)).sum::<usize>();
        for EntryRows { position, rows } in &consumed {
            let remaining = &mut self.entries.get_mut(position).expect("consumed rows are of an entry").remaining;
            *remaining = remaining.iter().flat_map(|range| without(range, rows)).collect();
        }
        cells::commit(&mut self.cells, running.writes);
        self.panes.extend(running.panes.clone());
        self.engine.committed(running.work.bundle);
        let kept = consumed.iter().map(|entry| (&self.entries[&entry.position], count(&entry.rows) as u32));
        let kept = kept.filter(|_| !matches!(self.setting.topology.stages[stage.0 as usize].head, Head::Grouping(_)));
        let passed = kept.map(|(entry, rows)| (rows, entry.hold, entry.window_end));
        let fired = running.panes.iter().map(|pane| (1, pane.timestamp, pane.window.max_timestamp()));
        let passed: Vec<_> = passed.chain(fired).collect();
        let output = |(rows, hold, window_end)| Entry {
            position: Position { broadcast: false, offset: 0 },
            stage,
            remaining: std::iter::once(0..rows).collect(),
            bytes: u64::from(rows) * 10,
            rows,
            hold,
            window_end,
            not_before_ms: None,
        };
        passed.into_iter().map(output).collect()
    }

    /// Starts a bundle and commits it. Returns its stage and what it put out.
    fn turn(&mut self) -> Option<(StageId, Vec<Entry>)> {
        let stage = self.start()?.work.stage;
        Some((stage, self.commit(stage)))
    }

    fn flow(&mut self) {
        loop {
            while let Some((stage, outputs)) = self.turn() {
                let readers = (0u32..).map(StageId).zip(self.setting.topology.stages.clone());
                for (reader, shape) in readers {
                    for _ in shape.inputs.iter().filter(|input| input.stage == stage) {
                        for output in outputs.clone() {
                            let position = Position { broadcast: false, offset: self.next_offset };
                            self.payload(position, reader, output.hold, &vec!["k"; output.rows as usize]);
                            self.feed(Entry { position, stage: reader, ..output });
                        }
                    }
                }
            }
            let reports = self.engine.reports();
            if reports.is_empty() {
                return;
            }
            for (stage, watermark) in reports {
                self.report(stage, self.setting.topology.shard, watermark);
            }
        }
    }

    fn restart(&mut self) {
        self.engine = Engine::new(self.setting.topology.clone(), self.setting.options.clone());
        self.running.clear();
        self.engine.restore(&Overlay::new(&self.cells)).unwrap();
        for entry in self.entries.values().filter(|entry| !entry.remaining.is_empty()) {
            self.engine.entry(entry.clone());
        }
        for ((stage, shard), watermark) in &self.reports {
            self.engine.watermark(*stage, *shard, *watermark);
        }
    }

    fn answer(&mut self, query: &str) -> String {
        match query {
            "work" => match self.start() {
                None => "none".to_string(),
                Some(running) => {
                    let (stage, entries) = (running.work.stage, running.work.entries.clone());
                    let rows = if entries.is_empty() { "-".to_string() } else { list(entries.iter().map(show_rows)) };
                    format!("{} {rows}", self.setting.names[stage.0 as usize])
                }
            },
            "consumed" => list(self.finished.take().expect("something was finished").iter().map(show_rows)),
            "rows" => list(self.consumed.iter().map(|(stage, rows)| format!("{}={rows}", self.setting.names[stage.0 as usize]))),
            "reports" => {
                let names = self.setting.names.clone();
                list(self.engine.reports().iter().map(|(stage, time)| format!("{}={time}", names[stage.0 as usize])))
            }
            "wake" => self.engine.wake_at_ms().map_or("none".to_string(), |ms| ms.to_string()),
            "finished" => self.engine.finished().to_string(),
            "idle" => self.engine.idle().to_string(),
            "panes" => self.show_panes(),
            "fired" => self.panes.len().to_string(),
            _ => {
                let (query, stage) = query.split_once(' ').unwrap_or_else(|| panic!("what is {query}?"));
                let status = self.engine.status().swap_remove(self.setting.stage(stage).0 as usize);
                match query {
                    "status" => status.to_string(),
                    _ => status.held_by.to_string(),
                }
            }
        }
    }

    /// Values per key and window since the last question, whatever bundles fired them.
    fn show_panes(&mut self) -> String {
        let mut values: BTreeMap<_, usize> = BTreeMap::new();
        for pane in std::mem::take(&mut self.panes) {
            *values.entry((pane.window, pane.key, pane.timestamp)).or_default() += pane.values.len();
        }
        list(values.iter().map(|((window, key, at), count)| format!("{key}x{count}@{at}[{},{})", window.start, window.end)))
    }
}

fn show_rows(entry: &EntryRows) -> String {
    let ranges: Vec<_> = entry.rows.iter().map(|range| format!("{}..{}", range.start, range.end)).collect();
    format!("{}:{}", entry.position, ranges.join(","))
}

fn list(words: impl Iterator<Item = String>) -> String {
    let words: Vec<_> = words.collect();
    if words.is_empty() { "none".to_string() } else { words.join(" ") }
}

/// What is left of a range without others.
fn without(range: &Range<u32>, others: &[Range<u32>]) -> Vec<Range<u32>> {
    let mut left = Vec::new();
    let mut start = range.start;
    for other in others.iter().filter(|other| other.start < range.end && range.start < other.end) {
        left.push(start..other.start);
        start = other.end;
    }
    left.push(start..range.end);
    left.retain(|range| range.start < range.end);
    left
}

fn count(ranges: &[Range<u32>]) -> usize {
    ranges.iter().map(|range| range.len()).sum()
}

fn text<'a>(words: &[&'a str], key: &str) -> Option<&'a str> {
    words.iter().find_map(|word| word.strip_prefix(key)?.strip_prefix('='))
}

fn number(words: &[&str], key: &str) -> Option<i64> {
    text(words, key).map(|text| text.parse().unwrap_or_else(|_| panic!("{key}={text} is not a number")))
}

fn range<T: std::str::FromStr<Err: std::fmt::Debug>>(text: &str) -> Range<T> {
    let (start, end) = text.split_once("..").unwrap_or_else(|| panic!("{text} is not a range"));
    start.parse().unwrap()..end.parse().unwrap()
}

fn time(text: &str) -> Timestamp {
    match text {
        "MIN" => Timestamp::MIN,
        "MAX" => Timestamp::MAX,
        "END" => Timestamp::GLOBAL_WINDOW_END,
        millis => Timestamp::from_millis(millis.parse().unwrap_or_else(|_| panic!("{millis} is not a time"))),
    }
}
