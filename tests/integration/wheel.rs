//! Tests that ship in Beam's Python wheel and take whatever runner they are given, with nothing left out by us.
//!
//! Trigger transcripts, strict and weak, everything that is marked as a test of runners, and whole files.

use std::process::Command;

use crate::server::{given, root};
use crate::verdicts;

/// Runs files of the wheel and compares with the list. `tests`: how many run.
fn check(files: &[&str], variables: &[(&str, &str)], list: &str, tests: usize) {
    let folder = tempfile::tempdir().unwrap();
    let mut suite = Command::new(root().join("tests/beam/python/run_wheel.sh"));
    suite.arg(given("PURLIN_BINARY")).arg(folder.path()).args(files).envs(variables.iter().copied());
    suite.env("VENV", given("PURLIN_PYTHON").parent().unwrap().parent().unwrap());
    let said = suite.output().unwrap();
    let log = format!("{}{}", String::from_utf8_lossy(&said.stdout), verdicts::end_of(&folder.path().join("log.txt")));
    verdicts::check(&folder.path().join("table.tsv"), list, tests, &log);
}

#[test]
fn trigger_tests() {
    check(&["transforms/trigger_test.py"], &[], "wheel-triggers.txt", 114);
}

#[test]
fn marked() {
    let files = [
        "metrics/metric_test.py",
        "pipeline_test.py",
        "runners/dataflow/dataflow_exercise_streaming_metrics_pipeline_test.py",
        "runners/portability/fn_api_runner/fn_runner_test.py",
        "runners/portability/fn_api_runner/translations_test.py",
        "transforms/combinefn_lifecycle_test.py",
        "transforms/combiners_test.py",
        "transforms/deduplicate_test.py",
        "transforms/dofn_lifecycle_test.py",
        "transforms/ptransform_test.py",
        "transforms/sideinputs_test.py",
        "transforms/util_test.py",
    ];
    check(&files, &[("MARK", "it_validatesrunner")], "wheel-marked.txt", 44);
}

/// These are tests of Python's transforms before they are tests of runners: some expect that a handful of elements share one
/// bundle, or that the values of a key come in the order of the input. So they have one shard.
#[test]
fn files() {
    let files = [
        "testing/test_stream_test.py",
        "transforms/combiners_test.py",
        "transforms/create_test.py",
        "transforms/dofn_lifecycle_test.py",
        "transforms/periodicsequence_test.py",
        "transforms/ptransform_test.py",
        "transforms/sideinputs_test.py",
        "transforms/stats_test.py",
        "transforms/userstate_test.py",
        "transforms/util_test.py",
        "transforms/window_test.py",
    ];
    check(&files, &[("SERVER_OPTS", "--shards=1")], "wheel-files.txt", 628);
}
