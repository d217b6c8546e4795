//! An engine under a script: what feeds it, carries its work out and answers for it.

use std::collections::BTreeMap;
use std::ops::Range;

use bytes::Bytes;
use engine::grouping::NoMerger;
use engine::{Engine, Entry, EntryRows, Head, Position, Readied, Work};
use model::windowing::WindowFn;
use model::{Batch, Duration, ShardId, StageId, Timestamp};

use crate::cells::{self, Cells, Overlay};
use crate::program;
use crate::rows;
use crate::setting::{Setting, number, range, text, time};

/// See the file's head.
pub(crate) struct Play {
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
    /// Keys and what ran for them.
    ran: Vec<(String, String)>,
}

struct Running {
    work: Work,
    readied: Readied,
    consumed: Option<Vec<EntryRows>>,
    panes: Vec<rows::Pane>,
    writes: BTreeMap<Bytes, Option<Bytes>>,
}

impl Play {
    pub(crate) fn new(setting: Setting) -> Self {
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
            ran: Vec::new(),
        }
    }

    pub(crate) fn event(&mut self, words: &[&str], at: &str) {
        match words[0] {
            "entry" => self.entry(words),
            "wm" => {
                let shard = words[2].strip_prefix("shard").unwrap_or_else(|| panic!("{at}"));
                self.report(self.setting.stage(words[1]), ShardId(shard.parse().unwrap()), time(words[3]));
            }
            "script" => self.engine.script_watermark(self.setting.stage(words[1]), time(words[2])),
            "end_sources" => self.engine.drain(),
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
        let times = text(words, "times").map(|times| times.split(',').map(time).collect());
        if !keys.is_empty() {
            self.payload(position, stage, &keys, times.unwrap_or_else(|| vec![hold; keys.len()]));
        }
        self.feed(Entry {
            position,
            stage,
            producer: self.producer(stage, text(words, "from")),
            remaining: remaining.unwrap_or_else(|| std::iter::once(0..rows).collect()),
            bytes: number(words, "bytes").map_or(u64::from(rows) * 10, |bytes| bytes as u64),
            rows,
            hold,
            window_end: text(words, "end").map_or(hold, time),
            not_before_ms: number(words, "not_before"),
        });
    }

    /// `NAME` on this shard, `NAME@SHARD`; where nothing is said the first producer of the stage, if it has one.
    fn producer(&self, stage: StageId, from: Option<&str>) -> (StageId, ShardId) {
        let own = self.setting.topology.shard;
        let (name, shard) = match from.map(|from| from.split_once('@').unwrap_or((from, ""))) {
            Some((name, shard)) => (name, shard.parse().map_or(own, ShardId)),
            None => {
                let input = self.setting.topology.stages[stage.0 as usize].inputs.first();
                return (input.map_or(stage, |input| input.stage), own);
            }
        };
        (self.setting.stage(name), shard)
    }

    fn report(&mut self, stage: StageId, shard: ShardId, watermark: Timestamp) {
        self.reports.insert((stage, shard), watermark);
        self.engine.watermark(stage, shard, watermark);
    }

    /// Rows for a grouping or keyed stage.
    fn payload(&mut self, position: Position, stage: StageId, keys: &[&str], times: Vec<Timestamp>) {
        let strategy = match &self.setting.topology.stages[stage.0 as usize].head {
            Head::Grouping(strategy) => strategy.as_ref(),
            Head::Keyed(keyed) => &keyed.windowing,
            Head::Plain | Head::Restrictions { .. } | Head::Script => return,
        };
        let WindowFn::Fixed { size, .. } = strategy.window_fn else { panic!("not fixed") };
        let values: Vec<_> = keys.iter().zip(times).map(|(key, at)| (*key, "v", at)).collect();
        self.payloads.insert(position, rows::batch(&values, size.0));
    }

    fn feed(&mut self, entry: Entry) {
        self.next_offset = self.next_offset.max(entry.position.offset + 1);
        self.entries.insert(entry.position, entry.clone());
        self.engine.entry(entry);
    }

    /// Asks for work and, where it is for a grouping or keyed stage, makes it ready.
    fn start(&mut self) -> Option<&Running> {
        let work = self.engine.next(self.now_ms)?;
        let stage = work.stage;
        let batches = || rows::cut(&work.entries, |entry| self.payloads[&entry.position].clone());
        let mut overlay = Overlay::new(&self.cells);
        let (mut panes, mut readied) = (Vec::new(), Readied::default());
        match self.setting.topology.stages[stage.0 as usize].head {
            Head::Grouping(_) => {
                let fired = self.engine.group(&work, &batches(), self.now_ms, &mut overlay, &mut NoMerger).unwrap();
                panes = rows::panes(&fired);
            }
            Head::Keyed(_) => readied = self.engine.key(&work, &batches(), self.now_ms, &mut overlay).unwrap(),
            Head::Plain | Head::Restrictions { .. } | Head::Script => {}
        }
        let running = Running { work, readied, consumed: None, panes, writes: overlay.writes };
        self.running.insert(stage, running);
        self.running.get(&stage)
    }

    fn finish(&mut self, stage: StageId, unprocessed: &[Range<usize>]) {
        let running = self.running.get_mut(&stage).expect("something to finish");
        if let Some(rules) = self.setting.rules.get(&stage) {
            let mut overlay = Overlay { committed: &self.cells, writes: std::mem::take(&mut running.writes) };
            let changes = program::changes(rules, &running.readied);
            self.engine.timers(running.work.bundle, changes, Duration(0), &mut overlay).unwrap();
            running.writes = overlay.writes;
        }
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
        self.ran.extend(program::shown(&running.readied));
        self.engine.committed(running.work.bundle);
        let kept = consumed.iter().map(|entry| (&self.entries[&entry.position], count(&entry.rows) as u32));
        let kept = kept.filter(|_| !matches!(self.setting.topology.stages[stage.0 as usize].head, Head::Grouping(_)));
        let passed = kept.map(|(entry, rows)| (rows, entry.hold, entry.window_end));
        let fired = running.panes.iter().map(|pane| (1, pane.timestamp, pane.window.max_timestamp()));
        let passed: Vec<_> = passed.chain(fired).collect();
        let output = |(rows, hold, window_end)| Entry {
            position: Position { broadcast: false, offset: 0 },
            stage,
            producer: (stage, self.setting.topology.shard),
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
                            let rows = output.rows as usize;
                            self.payload(position, reader, &vec!["k"; rows], vec![output.hold; rows]);
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

    pub(crate) fn answer(&mut self, query: &str) -> String {
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
            "ran" => {
                let mut ran = std::mem::take(&mut self.ran);
                ran.sort_by(|(a, _), (b, _)| a.cmp(b));
                list(ran.into_iter().map(|(key, what)| format!("{key}:{what}")))
            }
            "fired" => self.panes.len().to_string(),
            _ => {
                let (query, stage) = query.split_once(' ').unwrap_or_else(|| panic!("what is {query}?"));
                let status = self.engine.status().swap_remove(self.setting.stage(stage).0 as usize);
                match query {
                    "status" => status.to_string(),
                    _ => status.held(&engine::stuck::Plain),
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
