//! Many small jobs one after another: no thread may be left, and no more memory than is known to be.

use std::process::Command;

use crate::server::{Server, given, output, root};

/// Jobs before the first measurement, so that caches and pools are filled.
const WARM_UP: u32 = 40;
/// Jobs that must not leave anything behind.
const JOBS: u32 = 160;
/// Memory that may be left over after all of them, in KiB. Known to be wrong: it is not flat yet. Measured are about 310 KiB a
/// job, of which 100 go when a job is no longer remembered; where the rest stays is not known. This bound keeps it from
/// getting worse and must come down to a few MiB.
const LEFT_OVER_KIB_MAX: u64 = 96 * 1024;

#[test]
fn threads_stay_flat_and_memory_grows_no_faster_than_known() {
    let server = Server::start(&[]);
    run(&server, WARM_UP);
    let (memory_before, threads_before) = usage(&server);
    run(&server, JOBS);
    let (memory, threads) = usage(&server);
    assert!(threads <= threads_before + 2, "{threads_before} threads became {threads}");
    let growth = memory.saturating_sub(memory_before);
    assert!(growth < LEFT_OVER_KIB_MAX, "memory grew by {growth} KiB from {memory_before} KiB in {JOBS} jobs");
}

fn run(server: &Server, jobs: u32) {
    let mut python = Command::new(given("PURLIN_PYTHON"));
    output(python.arg(root().join("tests/beam/small_jobs.py")).arg(server.endpoint()).arg(jobs.to_string()));
}

/// Resident memory in KiB and number of threads.
fn usage(server: &Server) -> (u64, u64) {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.id())).unwrap();
    let field = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    };
    (field("VmRSS:"), field("Threads:"))
}
