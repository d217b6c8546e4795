//! Beam's own portable suite, with nothing overridden or skipped by us.

use std::process::Command;

use crate::server::{given, root};
use crate::verdicts;

/// Runs one class of the suite with more options and compares with the list. `tests`: how many run.
fn check(class: &str, environment: &str, options: &str, list: &str, tests: usize) {
    let folder = tempfile::tempdir().unwrap();
    let mut suite = Command::new(root().join("tests/beam/python/run_suite.sh"));
    suite.arg(given("PURLIN_BINARY")).args(["-m", "anyrunner_test", class]);
    suite.env("VENV", given("PURLIN_PYTHON").parent().unwrap().parent().unwrap());
    suite.env("ENV_TYPE", environment).env("SUITE_OPTS", options).env("OUT", folder.path()).env("TEST_TIMEOUT", "60");
    let said = suite.output().unwrap();
    let log = format!("{}{}", String::from_utf8_lossy(&said.stderr), verdicts::end_of(&folder.path().join("log.txt")));
    verdicts::check(&folder.path().join("table.tsv"), list, tests, &log);
}

#[test]
fn any_runner_over_loopback() {
    check("AnyRunnerTest", "LOOPBACK", "", "anyrunner.txt", 71);
}

#[test]
fn any_runner_in_processes() {
    check("AnyRunnerTest", "PROCESS", "", "anyrunner-process.txt", 71);
}

/// Harnesses of a worker pool that is not ours to start.
#[test]
fn any_runner_in_a_pool() {
    check("AnyRunnerTest", "EXTERNAL", "", "anyrunner-process.txt", 71);
}

/// The same graphs without what Python's optimiser does to them.
#[test]
fn any_runner_unoptimised() {
    check("AnyRunnerTest", "LOOPBACK", "--experiments=pre_optimize=none", "anyrunner-unoptimised.txt", 71);
}

#[test]
fn any_runner_streaming() {
    check("AnyRunnerTest", "LOOPBACK", "--streaming", "anyrunner-streaming.txt", 71);
}

#[test]
fn unskipped() {
    check("AnyRunnerUnskippedTest", "LOOPBACK", "", "anyrunner-unskipped.txt", 10);
}
