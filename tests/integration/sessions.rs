//! The example of sessions: a pipeline in Python with a stateful DoFn in a component.

use std::process::Command;

use crate::server::{Server, given, output, root};

/// The sessions of the example's clicks. Clicks that are exactly a gap apart are in different ones.
const EXPECTED: [&str; 5] = [
    "ada: 1 clicks in 0 s, /",
    "ada: 3 clicks in 420 s, / /cart /checkout",
    "bob: 1 clicks in 0 s, /jobs",
    "bob: 2 clicks in 70 s, / /about",
    "cleo: 2 clicks in 500 s, / /help",
];

fn check(server: &[&str]) {
    let server = Server::start(server);
    let folder = tempfile::tempdir().unwrap();
    let mut python = Command::new(given("PURLIN_PYTHON"));
    python.arg(root().join("examples/sessions/sessions.py")).env("PYTHONPATH", root().join("guest-sdk/python"));
    python.arg("--component").arg(given("PURLIN_COMPONENTS").join("sessions.wasm"));
    python.arg("--output").arg(folder.path().join("sessions")).arg("--runner=PortableRunner");
    output(python.arg(format!("--job_endpoint={}", server.endpoint())).arg("--environment_type=LOOPBACK"));
    let mut lines = Vec::new();
    for entry in std::fs::read_dir(folder.path()).unwrap() {
        let text = std::fs::read_to_string(entry.unwrap().path()).unwrap();
        lines.extend(text.lines().map(str::to_owned));
    }
    lines.sort();
    assert_eq!(lines, EXPECTED);
}

#[test]
fn clicks_become_sessions() {
    check(&[]);
}

#[test]
fn clicks_become_sessions_on_one_shard() {
    check(&["--shards=1"]);
}
