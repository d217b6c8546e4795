//! A guest that tells its host what is not true gets an error that says so.

use model::Coder;

use crate::running::{Transform, batch, text, values};

#[test]
fn lies_are_found() {
    let mut fixture =
        Transform { name: "liar", config: b"", input: Coder::StringUtf8, outputs: &[("output", Coder::StringUtf8)] }.open();
    assert_eq!(values(&fixture.ok(batch([text("truth")])), 0), [text("a")]);
    let mut check = |lie: &str, expected: &str| {
        let message = fixture.fails(batch([text(lie)]));
        assert!(message.contains(expected), "{lie}: {message}");
        assert_eq!(values(&fixture.ok(batch([text("truth")])), 0), [text("a")], "after {lie}");
    };
    check("output", "made something for output 7, which it does not have");
    check("origin", "malformed batch for output 0: origin 1000, but the input has 1 rows");
    check("ends", "malformed batch for output 0: malformed batch: rows do not fill the arena in order");
    check("time", "malformed batch for output 0: timestamp -9223372036854775808 is out of range");
    check("window", "malformed batch for output 0: windows: a set of 2139062143 windows");
    check("endless", "too much output: one call made more than 67108864 bytes");
}

#[test]
fn a_malformed_value_does_not_leave_the_stage() {
    let mut fixture =
        Transform { name: "liar", config: b"", input: Coder::StringUtf8, outputs: &[("output", Coder::StringUtf8)] }.open();
    let message = fixture.fails(batch([text("value")]));
    assert!(
        message
            .contains("t1 made a malformed element for collection output: input ends inside bytes (row 0, first bytes 0x0561)"),
        "{message}"
    );
}
