//! The example's component runs its bundles.

use model::Coder;

use crate::guests::guest;
use crate::running::{Fixture, Transform, batch, int, test_guest, text, values};

fn open(name: &str, input: Coder) -> Fixture {
    let (engine, _) = test_guest();
    let component = engine.component(&guest("wordcount")).expect("the example is a component");
    Transform { name, config: b"", input, outputs: &[("output", Coder::StringUtf8)] }
        .open_in(engine, component)
        .expect("the stage opens")
}

#[test]
fn lines_are_split_and_counts_formatted() {
    let mut split = open("split", Coder::StringUtf8);
    let lines = ["KING LEAR\t(a king)", "", "we'll 'tis"].map(text);
    assert_eq!(values(&split.ok(batch(lines)), 0), ["KING", "LEAR", "a", "king", "we'll", "'tis"].map(text));
    let mut format = open("format", Coder::Kv(Box::new(Coder::StringUtf8), Box::new(Coder::VarInt)));
    let pairs = [[text("king"), int(311)].concat(), [text("a"), int(1)].concat()];
    assert_eq!(values(&format.ok(batch(pairs)), 0), ["king: 311", "a: 1"].map(text));
}
