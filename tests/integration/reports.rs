//! Public bug reports against other portable runners, told as small pipelines with a right answer and a time limit.
//!
//! `tests/beam/reports` has them, and a table of all that says where each is kept. Rows that the table gives to another
//! test are not looked at here.

use std::collections::BTreeSet;
use std::process::{Command, Stdio};

use crate::server::{Server, given, root};

/// Rows of the table.
const ROWS: u32 = 40;

#[test]
fn reports_stay_mended() {
    // A worker that ends is a failed bundle, so one row needs a retry.
    let server = Server::start(&["--retries=2"]);
    let folder = root().join("tests/beam/reports");
    let mut python = Command::new(given("PURLIN_PYTHON"));
    python.current_dir(&folder).args(["-B", "-m", "pytest", "-c", "pytest.ini"]);
    python.args(["--job_endpoint", &server.endpoint(), "--server_id", &server.id().to_string()]);
    let said = python.stdin(Stdio::null()).output().unwrap();
    let text = format!("{}{}", String::from_utf8_lossy(&said.stdout), String::from_utf8_lossy(&said.stderr));
    assert!(said.status.success(), "{text}");
    let passed: BTreeSet<u32> = text.lines().filter_map(passed).collect();
    assert_eq!(passed, rows_here(&std::fs::read_to_string(folder.join("README.md")).unwrap()), "{text}");
}

/// The number in `PASSED rows_timers.py::row_16_a_cleared_event_timer`.
fn passed(line: &str) -> Option<u32> {
    line.strip_prefix("PASSED ")?.split_once("::row_")?.1.split('_').next()?.parse().ok()
}

/// The rows of the table whose test is in its folder.
fn rows_here(table: &str) -> BTreeSet<u32> {
    let rows: Vec<Vec<&str>> = table.lines().map(|line| line.split('|').map(str::trim).collect()).collect();
    let numbered = rows.iter().filter_map(|row| Some((row.get(1)?.parse::<u32>().ok()?, row.get(4)?)));
    let numbered: Vec<(u32, &&str)> = numbered.collect();
    assert!(numbered.iter().map(|(row, _)| *row).eq(1..=ROWS), "the table does not have every row once");
    numbered.into_iter().filter(|(_, place)| place.starts_with("here")).map(|(row, _)| row).collect()
}
