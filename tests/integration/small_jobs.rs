//! Two hundred small jobs one after another: the second hundred leaves no thread behind and hardly any memory.

use std::process::Command;

use crate::server::{Server, given, output, root};

/// Jobs before the first measurement: as many finished ones as a server remembers, each with its pipeline and messages. Later
/// ones take the place of earlier ones.
const WARM_UP: u32 = 100;
/// Jobs that must not leave anything behind.
const JOBS: u32 = 100;
/// Memory that may be left over after all of them, in KiB. Allowed for: RocksDB's write buffers fill up with the jobs' rows
/// until they are written out (a few KiB a job, bounded by the ledger's options), and what an allocator cannot give back.
const LEFT_OVER_KIB_MAX: u64 = 4 * 1024;

#[test]
fn threads_and_memory_stay_flat() {
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
