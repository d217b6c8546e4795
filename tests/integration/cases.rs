//! Public reports and pipelines of people who do this job, each told again with its right answer.
//!
//! `tests/beam/cases` has one script a case. It checks itself: it ends with 0 where the answer is right, 1 where it is
//! wrong, 2 where none came in time, and 77 where a Python package is missing. Only 0 passes.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::server::{Server, given, root};

/// What a case must end within, in seconds; the slowest takes a fifth of it on two processors.
const CASE_S_MAX: u32 = 100;

#[test]
fn cases_have_the_right_answer() {
    let server = Server::start(&[]);
    let cases = cases(&root().join("tests/beam/cases"));
    assert!(!cases.is_empty(), "there are no cases");
    let wrong: Vec<String> = cases.iter().filter_map(|case| wrong(&server, case)).collect();
    assert!(wrong.is_empty(), "{} of {} cases:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
}

/// The names of all cases, in order.
fn cases(folder: &Path) -> Vec<String> {
    let files = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
    let scripts = files.filter(|file| file.extension().is_some_and(|kind| kind == "py"));
    let names = scripts.map(|script| script.file_stem().unwrap().to_str().unwrap().to_string());
    let mut cases: Vec<String> = names.filter(|name| !name.starts_with('_')).collect();
    cases.sort();
    cases
}

/// Runs one case; what is wrong with it, if anything is.
fn wrong(server: &Server, case: &str) -> Option<String> {
    let mut python = Command::new(given("PURLIN_PYTHON"));
    python.arg("-B").arg(root().join(format!("tests/beam/cases/{case}.py")));
    python.args(["--job_endpoint", &server.endpoint(), "--check_timeout", &CASE_S_MAX.to_string()]);
    let said = python.stdin(Stdio::null()).output().unwrap();
    let text = format!("{}{}", String::from_utf8_lossy(&said.stdout), String::from_utf8_lossy(&said.stderr));
    let verdict = text.lines().find(|line| line.contains(case)).unwrap_or(&text);
    println!("{verdict}");
    (!said.status.success() || !verdict.starts_with("RIGHT")).then(|| format!("{case} ({}): {text}", said.status))
}
