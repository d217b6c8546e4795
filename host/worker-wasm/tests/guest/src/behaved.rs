//! DoFns that keep their contract. The first seven are those of the conformance suite.

use purlin::output::GLOBAL_WINDOW;
use purlin::prelude::*;

#[dofn(name = "Identity")]
pub(crate) fn identity(element: &[u8]) -> &[u8] {
    element
}

#[dofn(name = "Even")]
pub(crate) fn even(element: &[u8]) -> impl IntoIterator<Item = &[u8]> {
    element[0].is_multiple_of(2).then_some(element)
}

#[dofn(name = "Repeat")]
pub(crate) fn repeat(element: &[u8]) -> impl IntoIterator<Item = &[u8]> {
    std::iter::repeat_n(element, usize::from(element[0]))
}

#[dofn(name = "Route")]
pub(crate) fn route(element: &[u8], out: &mut Output<Vec<u8>>, odd: &mut Output<Vec<u8>>) {
    let output = if element[0].is_multiple_of(2) { out } else { odd };
    output.emit(element.to_vec());
}

#[dofn(name = "Poison")]
pub(crate) fn poison(element: &[u8]) -> &[u8] {
    assert!(element != b"poison", "this is poison");
    element
}

/// Says when bundles begin and end.
pub(crate) struct Edges {
    seen: u8,
}

impl DoFn for Edges {
    const NAME: &'static str = "Edges";
    type In<'a> = &'a [u8];
    type Out = Output<Vec<u8>>;

    fn setup(_config: &[u8]) -> purlin::Result<Self> {
        Ok(Edges { seen: 0 })
    }

    fn start_bundle(&mut self, out: &mut Self::Out) -> purlin::Result<()> {
        self.seen = 0;
        out.emit_windowed(b"start".to_vec(), 7, GLOBAL_WINDOW);
        Ok(())
    }

    fn process(&mut self, _element: &[u8], _cx: &Context<'_>, _out: &mut Self::Out) -> purlin::Result<()> {
        self.seen += 1;
        Ok(())
    }

    fn finish_bundle(&mut self, out: &mut Self::Out) -> purlin::Result<()> {
        out.emit_windowed([b"finish".as_slice(), &[self.seen]].concat(), 7, GLOBAL_WINDOW);
        Ok(())
    }
}

static SEEN: Counter = Counter::new("seen");
static SIZES: Distribution = Distribution::new("sizes");

#[dofn(name = "Measure")]
pub(crate) fn measure(element: &[u8]) -> &[u8] {
    SEEN.add(1);
    SIZES.add(element.len() as i64);
    element
}

#[dofn]
pub(crate) fn pass_text(element: &str) -> &str {
    element
}

/// Moves elements by their number of milliseconds, and says what it was given.
#[dofn]
pub(crate) fn at(element: i64, cx: &Context<'_>, out: &mut Output<i64>, seen: &mut Output<String>) {
    seen.emit(format!("{} {:02x?} {:02x?}", cx.timestamp_ms(), cx.windows(), cx.pane()));
    out.emit_at(element, cx.timestamp_ms() + element);
}

#[dofn]
pub(crate) fn greet(element: &str) -> String {
    purlin::info!("greeting {element}");
    purlin::debug!("nobody sees this");
    format!("hello {element}")
}

/// Puts its configuration before words.
pub(crate) struct Prefix {
    prefix: String,
}

impl DoFn for Prefix {
    const NAME: &'static str = "prefix";
    type In<'a> = &'a str;
    type Out = Output<String>;

    fn setup(config: &[u8]) -> purlin::Result<Self> {
        Ok(Prefix { prefix: String::from_utf8(config.to_vec())? })
    }

    fn process(&mut self, word: &str, _cx: &Context<'_>, out: &mut Self::Out) -> purlin::Result<()> {
        out.emit(format!("{}{word}", self.prefix));
        Ok(())
    }
}

#[dofn]
pub(crate) fn refuse(element: &str) -> Result<i64, std::num::ParseIntError> {
    element.parse()
}
