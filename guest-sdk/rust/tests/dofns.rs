//! Every form of DoFn, called natively as a host calls it.

use purlin::manifest::{description, json, json_length};
use purlin::output::GLOBAL_WINDOW;
use purlin::prelude::*;
use purlin::runtime::{Column, Failure, Input, Outcome, Registered};

/// Words of a line.
#[dofn]
fn split(line: &str, out: &mut Output<String>) {
    for word in line.split_whitespace() {
        out.emit_ref(word);
    }
}

#[dofn]
fn borrow(line: &str) -> impl Iterator<Item = &str> {
    line.split(' ')
}

#[dofn(name = "swap pair")]
fn swap((key, value): (&str, i64)) -> (i64, String) {
    (value, key.to_owned())
}

#[dofn]
fn parse(text: &str) -> Result<i64, std::num::ParseIntError> {
    text.parse()
}

#[dofn]
fn route(n: i64, cx: &Context<'_>, out: &mut Output<i64>, late: &mut Output<(i64, i64)>) -> purlin::Result<()> {
    match cx.timestamp_ms() {
        time if time < 0 => late.emit((n, time)),
        0 => return Err("no time".into()),
        time => out.emit_at(n, time + 1),
    }
    Ok(())
}

#[dofn]
fn quiet(bytes: &[u8]) {
    assert!(bytes.len() < 100);
}

#[dofn]
fn sum((_key, values): (&[u8], Vec<i64>)) -> i64 {
    values.iter().sum()
}

#[dofn]
fn positive(n: i64) -> impl IntoIterator<Item = i64> {
    (n > 0).then_some(n)
}

struct Buffer {
    size: usize,
    kept: Vec<String>,
}

impl DoFn for Buffer {
    const NAME: &'static str = "buffer";
    type In<'a> = &'a str;
    type Out = Output<String>;

    fn setup(config: &[u8]) -> purlin::Result<Self> {
        Ok(Buffer { size: std::str::from_utf8(config)?.parse()?, kept: Vec::new() })
    }

    fn start_bundle(&mut self, _out: &mut Self::Out) -> purlin::Result<()> {
        self.kept.clear();
        Ok(())
    }

    fn process(&mut self, word: &str, _cx: &Context<'_>, out: &mut Self::Out) -> purlin::Result<()> {
        self.kept.push(word.to_owned());
        if self.kept.len() == self.size {
            out.emit(self.kept.drain(..).collect::<Vec<_>>().join("+"));
        }
        Ok(())
    }

    fn finish_bundle(&mut self, out: &mut Self::Out) -> purlin::Result<()> {
        if self.kept == ["stray"] {
            out.emit("nowhere to inherit from".into());
        }
        out.emit_windowed(self.kept.join("+"), 7, GLOBAL_WINDOW);
        Ok(())
    }
}

purlin::component!(split, borrow, swap, parse, route, quiet, sum, positive, Buffer);

fn rows<T: Element>(values: &[T]) -> (Vec<u8>, Vec<u32>) {
    let (mut bytes, mut ends) = (Vec::new(), Vec::new());
    for value in values {
        value.encode(&mut bytes);
        ends.push(bytes.len() as u32);
    }
    (bytes, ends)
}

/// Calls `process` of a new instance once.
fn process<D: DoFn, T: Element>(values: &[T], timestamps: &[i64]) -> Outcome {
    let mut instance = Registered::of::<D>().open(b"", usize::MAX).expect("opens");
    instance.start_bundle().expect("starts");
    let (values, ends) = rows(values);
    let nothing = Column::default();
    instance.process(&Input { values: &values, ends: &ends, timestamps, windows: nothing, panes: nothing }).expect("processes")
}

fn check<D: DoFn, T: Element>(input: &[T], output: &[impl Element], origin: &[u32]) {
    let outcome = process::<D, T>(input, &[]);
    let (values, ends) = rows(output);
    assert_eq!(outcome.outputs.len(), 1);
    assert_eq!((&outcome.outputs[0].1.values, &outcome.outputs[0].1.ends), (&values, &ends));
    assert_eq!(outcome.outputs[0].1.origin, origin);
}

#[test]
fn functions_of_every_form() {
    check::<split, _>(&["a b", "", "c"], &["a", "b", "c"], &[0, 0, 2]);
    check::<borrow, _>(&["a b", "c"], &["a", "b", "c"], &[0, 0, 1]);
    check::<swap, _>(&[("a", 1), ("b", 2)], &[(1, "a"), (2, "b")], &[]);
    check::<sum, _>(&[(&b"k"[..], vec![1i64, 2, 3])], &[6], &[]);
    check::<positive, _>(&[1, -1, 2], &[1, 2], &[0, 2]);
    assert!(process::<quiet, _>(&[&b"x"[..]], &[]).outputs.is_empty());
}

#[test]
fn functions_are_still_functions() {
    let mut out = Output::new();
    split("so we", &mut out);
    assert_eq!(out.into_values(), ["so", "we"]);
    assert_eq!(swap(("a", 1)), (1, "a".to_owned()));
}

#[test]
fn an_error_refuses_its_row_only() {
    let outcome = process::<parse, _>(&["1", "x", "3"], &[]);
    assert_eq!(outcome.rejected.len(), 1);
    assert_eq!((outcome.rejected[0].row, outcome.rejected[0].code), (1, "user"));
    assert_eq!(outcome.rejected[0].detail, "invalid digit found in string");
    assert_eq!(outcome.outputs[0].1.origin, [0, 2]);
}

#[test]
fn malformed_rows_are_refused() {
    let mut instance = Registered::of::<split>().open(b"", usize::MAX).expect("opens");
    let nothing = Column::default();
    let input = Input { values: b"\x01a\x05b\x01cc", ends: &[2, 4, 7], timestamps: &[], windows: nothing, panes: nothing };
    let outcome = instance.process(&input).expect("processes");
    let refused: Vec<_> = outcome.rejected.iter().map(|rejection| (rejection.row, rejection.detail.as_str())).collect();
    let kind = "malformed input element";
    assert_eq!(
        refused,
        [(1, format!("{kind}: input ends inside a value").as_str()), (2, format!("{kind}: bytes are left over").as_str())]
    );
}

#[test]
fn outputs_by_tag_and_time() {
    let outcome = process::<route, _>(&[5, 6, 7], &[10, -3, 0]);
    assert_eq!(outcome.outputs.len(), 2);
    let (main, late) = (&outcome.outputs[0], &outcome.outputs[1]);
    assert_eq!((main.0, main.1.origin.as_slice(), main.1.timestamps.as_slice()), (0, &[0][..], &[11][..]));
    assert_eq!((late.0, late.1.origin.as_slice(), late.1.values.len()), (1, &[1][..], 11));
    assert_eq!(outcome.rejected[0].detail, "no time");
    assert_eq!(<<route as DoFn>::Out as Outputs>::SPECS[1].tag, "late");
    assert_eq!(<route as DoFn>::READS, Reads::ALL);
}

#[test]
fn a_struct_keeps_elements_within_a_bundle() {
    let registered = Registered::of::<Buffer>();
    let failure = registered.open(b"two", usize::MAX).err();
    assert_eq!(failure, Some(Failure("setup: invalid digit found in string".into())));
    let mut instance = registered.open(b"2", usize::MAX).expect("opens");
    for round in 0..2 {
        instance.start_bundle().expect("starts");
        let (values, ends) = rows(&["a", "b", "c"]);
        let outcome = instance.process(&Input { values: &values, ends: &ends, ..Input::default() }).expect("processes");
        assert_eq!(outcome.outputs[0].1.values, b"\x03a+b", "round {round}");
        let outcome = instance.finish_bundle().expect("finishes");
        assert_eq!(outcome.outputs[0].1.values, b"\x01c", "round {round}");
        assert_eq!(outcome.outputs[0].1.timestamps, [7]);
        assert_eq!(outcome.outputs[0].1.window_bytes, GLOBAL_WINDOW);
    }
    instance.start_bundle().expect("starts");
    let (values, ends) = rows(&["stray"]);
    instance.process(&Input { values: &values, ends: &ends, ..Input::default() }).expect("processes");
    let failure = instance.finish_bundle().expect_err("inherits from nothing");
    assert_eq!(failure.0, "finish_bundle: there is no input element to inherit from, use emit_windowed");
}

#[test]
fn functions_take_no_configuration() {
    assert_eq!(Registered::of::<split>().open(b"x", 0).err(), Some(Failure("setup: split takes no configuration".into())));
}

#[test]
fn names_can_be_given() {
    const TRANSFORMS: &[purlin::manifest::Description] = &[description::<swap>()];
    const MANIFEST: [u8; json_length(TRANSFORMS)] = json(TRANSFORMS);
    assert!(std::str::from_utf8(&MANIFEST).is_ok_and(|text| text.contains(r#""name":"swap pair""#)));
}
