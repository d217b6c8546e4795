//! What stands above the events of a script, and how its words are read.

use std::collections::BTreeMap;
use std::ops::Range;

use engine::{BundlePolicy, GateMapping, Head, Options, SideGate, StageShape, Topology, Upstream};
use model::{Duration, ShardId, StageId, Timestamp, WindowCoder};

use crate::program::{self, Rule};
use crate::rows;

/// The job, its stages and the engine's options.
#[derive(Clone)]
pub(crate) struct Setting {
    pub(crate) names: Vec<String>,
    pub(crate) topology: Topology,
    pub(crate) options: Options,
    /// What keyed stages do.
    pub(crate) rules: BTreeMap<StageId, Vec<Rule>>,
}

impl Setting {
    pub(crate) fn new(policy: BundlePolicy) -> Self {
        let topology = Topology { shards: 1, shard: ShardId(0), stages: Vec::new() };
        Setting { names: Vec::new(), topology, options: Options { policy, ..Options::default() }, rules: BTreeMap::new() }
    }

    pub(crate) fn stage(&self, name: &str) -> StageId {
        let index = self.names.iter().position(|known| known == name).unwrap_or_else(|| panic!("no stage {name}"));
        StageId(index as u32)
    }

    pub(crate) fn takes(&mut self, words: &[&str]) -> bool {
        match words[0] {
            "job" => {
                self.topology.shards = number(words, "shards").unwrap_or(1) as u32;
                self.topology.shard = ShardId(number(words, "shard").unwrap_or(0) as u32);
            }
            "options" => self.options(words),
            "stage" => self.add_stage(words),
            "gate" => self.add_gate(words),
            "does" => self.rules.entry(self.stage(words[1])).or_default().push(Rule::new(&words[2..])),
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
        let spans: Vec<_> = words[2].split(':').skip(1).map_while(|span| span.parse::<i64>().ok()).collect();
        let windows = || rows::fixed_windows(spans[0], spans.get(1).copied().unwrap_or(0));
        let head = match words[2].split(':').next().unwrap() {
            "plain" => Head::Plain,
            "restrictions" => Head::Restrictions { unbounded: false },
            "unbounded" => Head::Restrictions { unbounded: true },
            "fixed" => Head::Grouping(Box::new(windows())),
            "keyed" => Head::Keyed(Box::new(program::keyed(windows(), words[2]))),
            "script" => Head::Script,
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
            timer_names: program::FAMILIES.map(str::to_string).to_vec(),
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

pub(crate) fn text<'a>(words: &[&'a str], key: &str) -> Option<&'a str> {
    words.iter().find_map(|word| word.strip_prefix(key)?.strip_prefix('='))
}

pub(crate) fn number(words: &[&str], key: &str) -> Option<i64> {
    text(words, key).map(|text| text.parse().unwrap_or_else(|_| panic!("{key}={text} is not a number")))
}

pub(crate) fn range<T: std::str::FromStr<Err: std::fmt::Debug>>(text: &str) -> Range<T> {
    let (start, end) = text.split_once("..").unwrap_or_else(|| panic!("{text} is not a range"));
    start.parse().unwrap()..end.parse().unwrap()
}

pub(crate) fn time(text: &str) -> Timestamp {
    match text {
        "MIN" => Timestamp::MIN,
        "MAX" => Timestamp::MAX,
        "END" => Timestamp::GLOBAL_WINDOW_END,
        millis => Timestamp::from_millis(millis.parse().unwrap_or_else(|_| panic!("{millis} is not a time"))),
    }
}
