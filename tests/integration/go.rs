//! The Go SDK's own integration tests, over LOOPBACK, with nothing left out: its runner `universal` filters nothing. The one that is
//! about draining gets its drain.

use std::process::Command;

use crate::server::{given, output, root};
use crate::verdicts;

/// Runs packages below the SDK's `go` folder and compares with the list. `tests`: how many run.
fn check(packages: &[&str], list: &str, tests: usize) {
    let folder = tempfile::tempdir().unwrap();
    let mut suite = Command::new(root().join("tests/beam/go/run_go_suite.sh"));
    suite.arg(given("PURLIN_BINARY")).arg(folder.path()).args(packages).env("DRAIN", "^TestDrain$");
    let said = output(&mut suite);
    verdicts::check(&folder.path().join("table.tsv"), list, tests, &said);
}

#[test]
fn primitives() {
    check(&["test/integration/primitives"], "go-primitives.txt", 64);
}

#[test]
fn pipelines() {
    let packages = ["test/integration/synthetic", "test/integration/wordcount", "test/regression", "pkg/beam/transforms/stats"];
    check(&packages, "go-pipelines.txt", 39);
}
