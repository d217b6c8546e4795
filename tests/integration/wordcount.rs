//! Beam's own word count, through its harness and with components.

use std::process::Command;

use crate::server::{Server, given, output, root};
use crate::words;

/// The characters of words in Beam's example, for ASCII text.
const WORD: &str = "A-Za-z0-9_'";

fn check(pipeline: &mut Command, environment: &[&str], server: &[&str]) {
    let server = Server::start(server);
    let book = root().join("examples/data/kjv.txt");
    let folder = tempfile::tempdir().unwrap();
    pipeline.arg("--input").arg(&book).arg("--output").arg(folder.path().join("counts"));
    pipeline.arg("--runner=PortableRunner").arg(format!("--job_endpoint={}", server.endpoint())).args(environment);
    output(pipeline);
    words::assert_equal(&words::in_folder(folder.path(), "counts"), &words::by_coreutils(&book, WORD));
}

fn beams_own() -> Command {
    let mut python = Command::new(given("PURLIN_PYTHON"));
    python.args(["-m", "apache_beam.examples.wordcount"]);
    python
}

/// The command of a PROCESS environment.
pub(crate) fn process_command() -> String {
    let worker = root().join("examples/boot/python.sh");
    format!("--environment_options=process_command={}", worker.display())
}

#[test]
fn python_over_loopback() {
    check(&mut beams_own(), &["--environment_type=LOOPBACK"], &[]);
}

#[test]
fn python_over_loopback_on_one_shard() {
    check(&mut beams_own(), &["--environment_type=LOOPBACK"], &["--shards=1"]);
}

#[test]
fn python_in_a_process() {
    let venv = given("PURLIN_PYTHON").parent().unwrap().parent().unwrap().to_path_buf();
    check(
        &mut beams_own(),
        &[
            "--environment_type=PROCESS",
            &process_command(),
            &format!("--environment_options=process_variables=VIRTUAL_ENV={}", venv.display()),
        ],
        &[],
    );
}

#[test]
fn splitting_and_formatting_in_webassembly() {
    let mut python = Command::new(given("PURLIN_PYTHON"));
    python.arg(root().join("examples/wordcount/wordcount.py")).env("PYTHONPATH", root().join("guest-sdk/python"));
    python.arg("--component").arg(given("PURLIN_COMPONENTS").join("wordcount.wasm"));
    check(&mut python, &["--environment_type=LOOPBACK"], &[]);
}
