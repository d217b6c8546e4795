//! The stock Java SDK: a word count, in the program that submits it and in processes, and Beam's own ValidatesRunner tests with no
//! category left out.

use std::process::Command;

use crate::server::{Server, output, root};
use crate::{verdicts, words};

/// The characters of words in the Java pipeline.
const WORD: &str = "A-Za-z0-9";

fn count_words(environment: &[&str]) {
    let server = Server::start(&[]);
    let book = root().join("examples/data/kjv.txt");
    let folder = tempfile::tempdir().unwrap();
    let mut java = Command::new(root().join("tests/beam/java/run-wordcount.sh"));
    output(java.arg(server.endpoint()).arg(&book).arg(folder.path().join("counts")).args(environment));
    words::assert_equal(&words::in_folder(folder.path(), "counts"), &words::by_coreutils(&book, WORD));
}

#[test]
fn word_count() {
    count_words(&["--defaultEnvironmentType=LOOPBACK"]);
}

/// Its jars are staged, and its harness is started from them.
#[test]
fn word_count_in_a_process() {
    let config = format!(r#"--defaultEnvironmentConfig={{"command": {:?}}}"#, root().join("examples/boot/java.sh"));
    count_words(&["--defaultEnvironmentType=PROCESS", &config]);
}

#[test]
fn validates_runner() {
    let server = Server::start(&[]);
    let folder = tempfile::tempdir().unwrap();
    let mut suite = Command::new(root().join("tests/beam/java/run-suite.sh"));
    let said = suite.arg(server.endpoint()).arg(folder.path()).output().unwrap();
    let log = format!("{}{}", String::from_utf8_lossy(&said.stderr), verdicts::end_of(&folder.path().join("log.txt")));
    verdicts::check(&folder.path().join("table.tsv"), "java.txt", 406, &log);
}
