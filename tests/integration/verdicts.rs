//! What a suite of Beam's has said, test by test, against the list of what is known not to pass.
//!
//! A suite leaves a table, one line a test: group, test and verdict, then whatever helps a reader; of two lines about one test the
//! later counts. A list under `tests/beam/must-fail` has one test a line, `GROUP.TEST`, with its reason; `#` starts a remark. A listed
//! test that passes is wrong, and so is one that did not run. A name with `~` before it is of a test that may do either, as its
//! reason says.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::server::root;

/// Verdicts by `GROUP.TEST`.
type Verdicts = BTreeMap<String, String>;

/// Compares the table of a run with a list. `tests`: how many must have run, skipped ones not counted. Panics with all that is
/// different, and `log` below it.
pub(crate) fn check(table: &Path, list: &str, tests: usize, log: &str) {
    let verdicts = verdicts(&std::fs::read_to_string(table).unwrap_or_default());
    let listed = listed(&std::fs::read_to_string(root().join("tests/beam/must-fail").join(list)).unwrap());
    let problems = problems(&verdicts, listed, tests);
    assert!(problems.is_empty(), "{list}:\n{}\n{log}", problems.join("\n"));
    println!("{list}: {} of {tests} pass", verdicts.values().filter(|verdict| *verdict == "PASS").count());
}

/// The end of a file, for a reader of a failure.
pub(crate) fn end_of(file: &Path) -> String {
    let text = std::fs::read(file).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(200)..].join("\n")
}

fn problems(verdicts: &Verdicts, mut listed: BTreeSet<String>, tests: usize) -> Vec<String> {
    let mut problems = Vec::new();
    for (test, verdict) in verdicts {
        let (known, either) = (listed.remove(test), listed.remove(&format!("~{test}")));
        match verdict.as_str() {
            "PASS" if known => problems.push(format!("{test} passes: take it off the list")),
            "PASS" => {}
            "SKIP" if known || either => problems.push(format!("{test} is skipped: take it off the list")),
            "SKIP" => {}
            _ if known || either => {}
            verdict => problems.push(format!("{test}: {verdict}")),
        }
    }
    problems.extend(listed.into_iter().map(|test| format!("{test} is on the list but did not run")));
    let ran = verdicts.values().filter(|verdict| *verdict != "SKIP").count();
    if ran != tests {
        problems.push(format!("{ran} tests ran, not {tests}"));
    }
    problems
}

fn verdicts(table: &str) -> Verdicts {
    let verdict = |line: &str| {
        let mut columns = line.split('\t');
        let (group, test) = (columns.next()?, columns.next()?);
        Some((format!("{group}.{test}"), columns.next()?.to_string()))
    };
    table.lines().filter_map(verdict).collect()
}

/// Names before the first blank of each line.
fn listed(list: &str) -> BTreeSet<String> {
    let name = |line: &str| line.split('#').next().and_then(|line| line.split_whitespace().next()).map(str::to_string);
    list.lines().filter_map(name).collect()
}

#[test]
fn every_difference_is_a_problem() {
    let check = |table: &str, list: &str, tests: usize, expected: &[&str]| {
        assert_eq!(problems(&verdicts(table), listed(list), tests), expected, "{table:?} {list:?}");
    };
    check("A\tone\tPASS\t0.1\nA\ttwo\tFAIL\t0.1\tbecause\n", "# a remark\nA.two  # as is known\n", 2, &[]);
    check("A\tone\tPASS\n", "A.one # no longer\n", 1, &["A.one passes: take it off the list"]);
    check("A\tone\tFAIL\n", "", 1, &["A.one: FAIL"]);
    check("A\tone\tPASS\nB\tone\tFAIL\n", "~A.one # either\n~B.one # either\n", 2, &[]);
    check("A\tone\tSKIP\n", "A.one # skipped\n", 0, &["A.one is skipped: take it off the list"]);
    check("A\tone\tPASS\n", "A.two # gone\n", 1, &["A.two is on the list but did not run"]);
    check("A\tone\tSKIP\n", "", 1, &["0 tests ran, not 1"]);
    check("A\tone\tSTARTED\nA\tone\tPASS\nA\ttwo\tSTARTED\n", "", 2, &["A.two: STARTED"]);
}
