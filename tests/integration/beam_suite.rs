//! Beam's own portable suite, with nothing overridden or skipped by us.
//!
//! What does not pass yet is listed under `tests/beam/must-fail`, one test a line with its reason. A listed test that
//! passes fails the run, and so does a listed test that no longer exists. A name with `~` before it is of a test whose result
//! hangs on which elements happen to share a bundle, as its reason says: it may do either.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use crate::server::{given, root};

/// Runs one class of the suite with more options and compares with the list.
fn check(class: &str, environment: &str, options: &str, list: &str) {
    let folder = tempfile::tempdir().unwrap();
    let mut suite = Command::new(root().join("tests/beam/python/run_suite.sh"));
    suite.arg(given("PURLIN_BINARY")).args(["-m", "anyrunner_test", class]);
    suite.env("VENV", given("PURLIN_PYTHON").parent().unwrap().parent().unwrap());
    suite.env("ENV_TYPE", environment).env("SUITE_OPTS", options).env("OUT", folder.path()).env("TEST_TIMEOUT", "60");
    let said = suite.output().unwrap();
    let verdicts = verdicts(&folder.path().join("table.tsv"));
    assert!(!verdicts.is_empty(), "no test ran: {}", String::from_utf8_lossy(&said.stderr));
    let mut listed = must_fail(&root().join("tests/beam/must-fail").join(list));
    let mut problems = Vec::new();
    for (test, verdict) in &verdicts {
        let (known, either) = (listed.remove(test), listed.remove(&format!("~{test}")));
        match verdict.as_str() {
            "PASS" if known => problems.push(format!("{test} passes: take it off {list}")),
            "PASS" | "SKIP" => {}
            _ if known || either => {}
            verdict => problems.push(format!("{test}: {verdict}")),
        }
    }
    problems.extend(listed.into_iter().map(|test| format!("{test} is on {list} but did not run")));
    let log = std::fs::read_to_string(folder.path().join("log.txt")).unwrap_or_default();
    let log: Vec<&str> = log.lines().collect();
    assert!(problems.is_empty(), "{}\n{}", problems.join("\n"), log[log.len().saturating_sub(200)..].join("\n"));
    println!("{class} {environment} {options}: {} pass", verdicts.values().filter(|verdict| *verdict == "PASS").count());
}

/// Test and verdict, from the suite's table.
fn verdicts(table: &Path) -> BTreeMap<String, String> {
    let text = std::fs::read_to_string(table).unwrap_or_default();
    let verdict = |line: &str| {
        let mut columns = line.split('\t').skip(1);
        Some((columns.next()?.to_string(), columns.next()?.to_string()))
    };
    text.lines().filter_map(verdict).collect()
}

/// Names before the first blank of each line; `#` starts a remark.
fn must_fail(list: &Path) -> BTreeSet<String> {
    let text = std::fs::read_to_string(list).unwrap();
    let name = |line: &str| line.split('#').next().and_then(|line| line.split_whitespace().next()).map(str::to_string);
    text.lines().filter_map(name).collect()
}

#[test]
fn any_runner_over_loopback() {
    check("AnyRunnerTest", "LOOPBACK", "", "anyrunner.txt");
}

#[test]
fn any_runner_in_processes() {
    check("AnyRunnerTest", "PROCESS", "", "anyrunner-process.txt");
}

/// The same graphs without what Python's optimiser does to them.
#[test]
fn any_runner_unoptimised() {
    check("AnyRunnerTest", "LOOPBACK", "--experiments=pre_optimize=none", "anyrunner-unoptimised.txt");
}

#[test]
fn any_runner_streaming() {
    check("AnyRunnerTest", "LOOPBACK", "--streaming", "anyrunner-streaming.txt");
}

#[test]
fn unskipped() {
    check("AnyRunnerUnskippedTest", "LOOPBACK", "", "anyrunner-unskipped.txt");
}
