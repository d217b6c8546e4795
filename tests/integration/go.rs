//! The Go SDK's own word count test, over LOOPBACK.

use std::process::Command;

use crate::server::{Server, output, root};

#[test]
fn word_count() {
    let server = Server::start(&[]);
    let folder = tempfile::tempdir().unwrap();
    let mut suite = Command::new(root().join("tests/beam/go/run_go_suite.sh"));
    suite.arg(server.endpoint()).arg(folder.path()).arg("test/integration/wordcount");
    let text = output(&mut suite);
    let table = std::fs::read_to_string(folder.path().join("test_integration_wordcount.tsv")).unwrap_or_default();
    assert!(table.contains("PASS") && !table.contains("FAIL") && !table.contains("TIMEOUT"), "{text}\n{table}");
}
