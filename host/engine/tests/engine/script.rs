//! Scripts: `tests/scripts/*.test`, each run under every bundle policy.
//!
//! ```text
//! job shards=2 shard=0                      default: one shard
//! options rows=2 bytes=100 keys=5 restrictions=1 backlog=1000
//! stage NAME plain|restrictions|unbounded|script|fixed:SIZE[:LATENESS]|keyed:SIZE[:LATENESS][:sorted][:last]  [from NAME.. local:NAME..]
//! does STAGE ..                             what keyed stages do: see `program.rs`
//! gate STAGE SIDE_INPUT by NAME,NAME global|same|fixed:SIZE:OFFSET|sliding:SIZE:PERIOD:OFFSET
//!
//! entry STAGE rows=3 ts=5 [end=9] [bytes=30] [not_before=100] [at=7] [from=NAME[@SHARD]] [remaining=0..1,2..3] [keys=a,b,a [times=5,3,4]]
//! wm STAGE shardN TIME                      a report arrives
//! script STAGE TIME                         the script of a stage has come so far
//! now MS                                    processing time from here on
//! run | finish STAGE [A..B ..] | commit STAGE | fail STAGE
//! only POLICIES EVENT                       for these policies only
//! end_sources                               the engine drains from here on
//! drain                                     run and commit until nothing is ready
//! restart                                   a new engine goes on from what is durable
//! flow                                      the same, each consumed row becoming one of key k in every reader; reports arrive
//!
//! expect work|consumed|rows|reports|wake|finished|idle|fired|panes|ran|status STAGE|held STAGE   TEXT
//! expect[greedy,one-key] ..                 for these policies only
//! ```
//!
//! Times are milliseconds, MIN, END (of the global window) or MAX. `rows` are totals that were consumed, per stage.
//! `PURLIN_REWRITE=1` writes what was seen into the files; read the difference.

use std::fmt::Write as _;
use std::path::Path;

use engine::BundlePolicy;

use crate::play::Play;
use crate::setting::Setting;

#[test]
fn scripts_hold_under_every_policy() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scripts");
    let mut files: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|file| file.unwrap().path()).collect();
    files.sort();
    assert!(files.len() >= 60, "only {} scripts", files.len());
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
