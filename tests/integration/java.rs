//! A Java word count by the stock portable runner, over LOOPBACK.

use std::process::Command;

use crate::server::{Server, output, root};
use crate::words;

/// The characters of words in the Java pipeline.
const WORD: &str = "A-Za-z0-9";

#[test]
fn word_count() {
    let server = Server::start(&[]);
    let book = root().join("examples/data/kjv.txt");
    let folder = tempfile::tempdir().unwrap();
    let mut java = Command::new(root().join("tests/beam/java/run-wordcount.sh"));
    output(java.arg(server.endpoint()).arg(&book).arg(folder.path().join("counts")));
    words::assert_equal(&words::in_folder(folder.path(), "counts"), &words::by_coreutils(&book, WORD));
}
