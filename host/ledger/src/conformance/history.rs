//! Random histories against a naive model: every poll, recovery and scan is compared with what the model says.
//!
//! A failing history prints its seed; [`check_histories`] runs it again.

use std::collections::{BTreeMap, BTreeSet};

use super::*;

checks![random_histories_match_the_model];

const SHARDS: u32 = 3;
const STAGES: u32 = 3;
const STEPS: usize = 250;

/// SplitMix64: small, and the same everywhere.
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Random(seed)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

fn random_histories_match_the_model(adapter: &mut dyn Adapter) {
    check_histories(adapter, 1..9);
}

/// Runs one history per seed, each in a job of its own.
pub fn check_histories(adapter: &mut dyn Adapter, seeds: std::ops::Range<u64>) {
    for seed in seeds {
        println!("ledger conformance: history with seed {seed}");
        let job = JobId::from(format!("history-{seed}"));
        adapter.ledger().create(JobRecord { job: job.clone(), shards: SHARDS, description: Bytes::new() }).expect("created");
        let mut history = History { random: Random::new(seed), job, model: Model::default(), owners: Vec::new(), written: 0 };
        history.open(adapter);
        for _ in 0..STEPS {
            history.step(adapter);
        }
        history.open(adapter);
        adapter.ledger().purge(&history.job).expect("purged");
    }
}

/// What one shard should hold. Entries are known by their first word, which is unique.
#[derive(Default)]
struct ShardModel {
    /// Words and remaining rows.
    entries: BTreeMap<String, (Vec<String>, BTreeSet<u32>)>,
    cells: BTreeMap<Bytes, Bytes>,
    reports: BTreeMap<(u32, u32), i64>,
    /// What has not arrived yet, by producing shard.
    expected: BTreeMap<u32, Vec<String>>,
    positions: BTreeMap<String, Position>,
}

#[derive(Default)]
struct Model {
    shards: BTreeMap<u32, ShardModel>,
    watermarks: BTreeMap<(u32, u32), i64>,
}

struct History {
    random: Random,
    job: JobId,
    model: Model,
    owners: Vec<Box<dyn ShardLedger>>,
    written: u64,
}

impl History {
    fn job(&self, adapter: &dyn Adapter) -> Arc<dyn JobLedger> {
        adapter.ledger().open(&self.job).expect("opened")
    }

    fn open(&mut self, adapter: &dyn Adapter) {
        self.owners.clear();
        for shard in 0..SHARDS {
            let owner = self.take_over(adapter, shard);
            self.owners.push(owner);
        }
    }

    fn step(&mut self, adapter: &mut dyn Adapter) {
        let shard = self.random.below(u64::from(SHARDS)) as u32;
        match self.random.below(100) {
            0..60 => self.commit(adapter, shard),
            60..90 => self.poll(shard),
            90..95 => self.scan(shard),
            95..99 => {
                let owner = self.take_over(adapter, shard);
                self.owners[shard as usize] = owner;
            }
            _ => {
                // What was staged dies with the process.
                let lost = self.job(adapter).stage(batch("lost")).expect("staged");
                self.owners.clear();
                adapter.crash();
                drop(lost);
                self.open(adapter);
            }
        }
    }

    fn take_over(&mut self, adapter: &dyn Adapter, shard: u32) -> Box<dyn ShardLedger> {
        let job = self.job(adapter);
        let (owner, found) = recovered(&*job, shard);
        let model = self.model.shards.entry(shard).or_default();
        model.expected.clear();
        let mut entries = BTreeMap::new();
        for header in &found.entries {
            let words: Vec<_> = words(&owner.fetch(header.position).expect("fetched")).split(' ').map(str::to_owned).collect();
            let known = model.positions.entry(words[0].clone()).or_insert(header.position);
            assert_eq!(*known, header.position, "an entry has moved");
            entries.insert(words[0].clone(), (words, header.remaining.iter().cloned().flatten().collect::<BTreeSet<_>>()));
        }
        assert_eq!(entries, model.entries, "entries of shard {shard}");
        let reports: BTreeMap<_, _> =
            found.reports.iter().map(|report| ((report.stage.0, report.shard.0), report.watermark.millis())).collect();
        assert_eq!(reports, model.reports, "reports of shard {shard}");
        owner
    }

    fn poll(&mut self, shard: u32) {
        let max = self.random.below(6) as usize;
        let owner = &mut self.owners[shard as usize];
        let model = self.model.shards.entry(shard).or_default();
        for arrival in owner.poll(max).expect("polled") {
            let (producer, text) = match arrival {
                Arrival::Watermark(report) => (report.shard.0, format!("{}@{}", report.stage.0, report.watermark)),
                Arrival::Entry(header) => {
                    let words = words(&owner.fetch(header.position).expect("fetched"));
                    let name = words.split(' ').next().unwrap_or_default().to_owned();
                    model.positions.insert(name.clone(), header.position);
                    (header.producer.1.0, name)
                }
            };
            let expected = model.expected.entry(producer).or_default();
            assert_eq!(expected.first(), Some(&text), "next from shard {producer} to shard {shard}");
            expected.remove(0);
        }
    }

    fn scan(&mut self, shard: u32) {
        let (from, to) = (self.cell(), self.cell());
        let found = self.owners[shard as usize].state().scan(&from, &to, usize::MAX, usize::MAX).expect("scanned");
        let cells = &self.model.shards.entry(shard).or_default().cells;
        let expected = cells.iter().filter(|(cell, _)| from <= **cell && **cell < to);
        assert_eq!(found, expected.map(|(cell, value)| (cell.clone(), value.clone())).collect::<Vec<_>>());
    }

    fn cell(&mut self) -> Bytes {
        Bytes::from(format!("{:02}", self.random.below(40)))
    }

    fn commit(&mut self, adapter: &dyn Adapter, shard: u32) {
        let job = self.job(adapter);
        let mut commit = Commit::default();
        for _ in 0..self.random.below(3) {
            commit.consumed.extend(self.consume(shard));
        }
        for _ in 0..self.random.below(4) {
            let append = self.append(&*job, shard);
            commit.appends.push(append);
        }
        for _ in 0..self.random.below(4) {
            let value = (self.random.below(3) > 0).then(|| Bytes::from(self.random.next().to_string()));
            let cell = self.cell();
            let cells = &mut self.model.shards.entry(shard).or_default().cells;
            match &value {
                Some(value) => cells.insert(cell.clone(), value.clone()),
                None => cells.remove(&cell),
            };
            commit.state.push(StateWrite { cell, value });
        }
        if self.random.below(3) == 0 {
            commit.reports.push(self.report(shard));
        }
        self.owners[shard as usize].commit(&commit).expect("committed");
    }

    /// Some rows of some entry whose position is known.
    fn consume(&mut self, shard: u32) -> Option<Consumed> {
        let model = self.model.shards.entry(shard).or_default();
        let known: Vec<_> = model.entries.keys().filter(|name| model.positions.contains_key(*name)).cloned().collect();
        // Before it has arrived, nobody can name it.
        let waiting: BTreeSet<_> = model.expected.values().flatten().collect();
        let name = known.get(self.random.next() as usize % known.len().max(1)).filter(|name| !waiting.contains(name))?;
        let (_, remaining) = model.entries.get_mut(name)?;
        let rows: Vec<u32> = remaining.iter().copied().filter(|_| self.random.below(2) == 0).collect();
        rows.iter().for_each(|row| {
            remaining.remove(row);
        });
        let consumed = Consumed { position: model.positions[name], rows: rows.iter().map(|row| *row..row + 1).collect() };
        if remaining.is_empty() {
            model.entries.remove(name);
        }
        (!rows.is_empty()).then_some(consumed)
    }

    fn append(&mut self, job: &dyn JobLedger, shard: u32) -> Append {
        self.written += 1;
        let rows = 1 + self.random.below(6);
        let words: Vec<_> = (0..rows).map(|row| format!("{}-{row}", self.written)).collect();
        let to = match self.random.below(u64::from(SHARDS) + 1) as u32 {
            SHARDS => Destination::Broadcast,
            shard => Destination::Shard(ShardId(shard)),
        };
        for reader in
            (0..SHARDS).filter(|reader| matches!(to, Destination::Broadcast) || to == Destination::Shard(ShardId(*reader)))
        {
            let model = self.model.shards.entry(reader).or_default();
            model.expected.entry(shard).or_default().push(words[0].clone());
            model.entries.insert(words[0].clone(), (words.clone(), (0..rows as u32).collect()));
        }
        let rows = batch(&words.join(" "));
        let payload = if self.random.below(2) == 0 { Staged::in_memory(rows) } else { job.stage(rows).expect("staged") };
        append(to, payload)
    }

    /// Entries of the same commit are expected already: the report comes behind them.
    fn report(&mut self, shard: u32) -> WatermarkReport {
        let stage = self.random.below(u64::from(STAGES)) as u32;
        let before = self.model.watermarks.get(&(stage, shard)).copied();
        let millis = before.unwrap_or(0) + self.random.below(4) as i64 - 1;
        let report = WatermarkReport { stage: StageId(stage), shard: ShardId(shard), watermark: Timestamp::from_millis(millis) };
        if before.is_none_or(|before| millis > before) {
            self.model.watermarks.insert((stage, shard), millis);
            for reader in 0..SHARDS {
                let model = self.model.shards.entry(reader).or_default();
                model.expected.entry(shard).or_default().push(format!("{stage}@{}", report.watermark));
                model.reports.insert((stage, shard), millis);
            }
        }
        report
    }
}
