//! Jobs of a real SDK that stand still: `purlin jobs describe` names the stage, what holds it, and who waits for that.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::server::{Server, given, output, root};

/// The SDK must have submitted and the job must stand by then.
const PATIENCE: Duration = Duration::from_secs(120);

/// A pipeline of `tests/beam/stalls.py` and the process that submitted it.
struct Stall<'a> {
    server: &'a Server,
    job: String,
    python: Child,
}

impl<'a> Stall<'a> {
    fn submit(server: &'a Server, name: &str) -> Self {
        let mut python = Command::new(given("PURLIN_PYTHON"));
        python.arg("-B").arg(root().join("tests/beam/stalls.py")).arg(server.endpoint()).arg(name);
        let python = python.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        Stall { server, job: name.replace('_', "-"), python }
    }

    fn jobs(&self, action: &str) -> Command {
        let mut purlin = Command::new(given("PURLIN_BINARY"));
        purlin.args(["jobs", "--endpoint", &self.server.endpoint(), action, &self.job]);
        purlin
    }

    /// Waits for a description with a line of which all parts are found in their order.
    fn is_described(&self, lines: &[&[&str]]) {
        let started = Instant::now();
        loop {
            let said = self.jobs("describe").output().unwrap();
            let text = format!("{}{}", String::from_utf8_lossy(&said.stdout), String::from_utf8_lossy(&said.stderr));
            if lines.iter().all(|parts| text.lines().any(|line| has_in_order(line, parts))) {
                println!("{text}");
                return;
            }
            assert!(started.elapsed() < PATIENCE, "{lines:?} are not described:\n{text}");
            std::thread::sleep(Duration::from_millis(200));
        }
    }
}

impl Drop for Stall<'_> {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            output(&mut self.jobs("cancel"));
        }
        // It ends by itself when its job is cancelled, unless it was about to submit one.
        let _ = self.python.kill();
        let _ = self.python.wait();
    }
}

fn has_in_order(line: &str, parts: &[&str]) -> bool {
    let mut rest = line;
    parts.iter().all(|part| rest.split_once(part).map(|(_, after)| rest = after).is_some())
}

#[test]
fn stalls_are_described() {
    let server = Server::start(&["--shards=2"]);
    let hanging = Stall::submit(&server, "hanging_bundle");
    let timer = Stall::submit(&server, "far_timer");
    let side_input = Stall::submit(&server, "endless_side_input");
    hanging.is_described(&[
        &["Hang", "shard ", "bundle ", "(rows or timers: 1", "is in the hands of harness ", " for "],
        &["Write", "waits for stage 0 \"Create", " on shard ", ", which is at MIN"],
    ]);
    timer.is_described(&[
        &["Wait", "held at ", "by key \"key\", which has timer \"", "tomorrow", " by the clock, in 23 h "],
        &["Write", "waits for stage ", "Wait"],
    ]);
    side_input.is_described(&[
        &["Poll", "by rows left of a restriction, which wait until ", " by the clock, in 59 min "],
        &["Join", "by rows of stage ", "Create", "which wait for side input ", "\"Join\"", "for stage ", "Poll", " on shard "],
    ]);
}
