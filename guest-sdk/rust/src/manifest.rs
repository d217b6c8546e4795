//! The manifest of a component, made at compile time, so that it can be read from the file without running it.
//!
//! ```text
//! {"purlin":"0.1.0","transforms":[{"name":"split","role":"pardo",
//!   "input":{"urn":"beam:coder:string_utf8:v1"},
//!   "outputs":[{"tag":"output","coder":{"urn":"beam:coder:string_utf8:v1"}}],
//!   "reads":[]}]}
//! ```
//!
//! Coders with parts have `"parts":[..]`; `reads` lists some of `panes`, `timestamps` and `windows`. The section's name is
//! `purlin:manifest`. It says the same as `describe.transforms()`.

use crate::output::OutputSpec;
use crate::{Coder, DoFn, Element, Outputs, Reads};

/// A transform as constants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Description {
    /// [`DoFn::NAME`]
    pub name: &'static str,
    /// Coder of input elements.
    pub input: &'static Coder,
    /// Outputs, the main one first.
    pub outputs: &'static [OutputSpec],
    /// [`DoFn::READS`]
    pub reads: Reads,
}

/// The description of a DoFn.
pub const fn description<D: DoFn>() -> Description {
    Description { name: D::NAME, input: <D::In<'static> as Element>::CODER, outputs: <D::Out as Outputs>::SPECS, reads: D::READS }
}

/// How many bytes [`json`] takes. Fails to compile when names repeat.
pub const fn json_length(transforms: &[Description]) -> usize {
    let mut one = 0;
    while one < transforms.len() {
        let mut other = 0;
        while other < one {
            assert!(!equal(transforms[one].name, transforms[other].name), "two transforms of a component have the same name");
            other += 1;
        }
        one += 1;
    }
    write::<0>(transforms).length
}

/// The manifest; `N` is what [`json_length`] says.
pub const fn json<const N: usize>(transforms: &[Description]) -> [u8; N] {
    let text = write::<N>(transforms);
    assert!(text.length == N, "the manifest has another length than was computed");
    text.bytes
}

/// Text that may be longer than its bytes: the first pass only counts.
struct Text<const N: usize> {
    bytes: [u8; N],
    length: usize,
}

impl<const N: usize> Text<N> {
    const fn put(&mut self, text: &str) {
        let bytes = text.as_bytes();
        let mut at = 0;
        while at < bytes.len() {
            if self.length < N {
                self.bytes[self.length] = bytes[at];
            }
            self.length += 1;
            at += 1;
        }
    }

    /// A name in quotes; names that would need escapes do not compile.
    const fn name(&mut self, name: &str) {
        let bytes = name.as_bytes();
        assert!(!bytes.is_empty(), "names of transforms and tags must not be empty");
        let mut at = 0;
        while at < bytes.len() {
            assert!(
                bytes[at] >= b' ' && bytes[at] != b'"' && bytes[at] != b'\\',
                "names of transforms and tags must not need escapes"
            );
            at += 1;
        }
        self.put("\"");
        self.put(name);
        self.put("\"");
    }

    const fn coder(&mut self, coder: &Coder) {
        self.put("{\"urn\":\"");
        self.put(coder.urn());
        self.put("\"");
        if let [Some(first), second] = coder.parts() {
            self.put(",\"parts\":[");
            self.coder(first);
            if let Some(second) = second {
                self.put(",");
                self.coder(second);
            }
            self.put("]");
        }
        self.put("}");
    }

    const fn reads(&mut self, reads: Reads) {
        let columns = [(reads.panes, "panes"), (reads.timestamps, "timestamps"), (reads.windows, "windows")];
        let mut column = 0;
        let mut first = true;
        while column < columns.len() {
            if columns[column].0 {
                if !first {
                    self.put(",");
                }
                self.name(columns[column].1);
                first = false;
            }
            column += 1;
        }
    }

    const fn transform(&mut self, transform: &Description) {
        self.put("{\"name\":");
        self.name(transform.name);
        self.put(",\"role\":\"pardo\",\"input\":");
        self.coder(transform.input);
        self.put(",\"outputs\":[");
        let mut output = 0;
        while output < transform.outputs.len() {
            self.put(if output == 0 { "{\"tag\":" } else { ",{\"tag\":" });
            self.name(transform.outputs[output].tag);
            self.put(",\"coder\":");
            self.coder(transform.outputs[output].coder);
            self.put("}");
            output += 1;
        }
        self.put("],\"reads\":[");
        self.reads(transform.reads);
        self.put("]}");
    }
}

const fn write<const N: usize>(transforms: &[Description]) -> Text<N> {
    let mut text = Text { bytes: [0; N], length: 0 };
    text.put("{\"purlin\":\"0.1.0\",\"transforms\":[");
    let mut transform = 0;
    while transform < transforms.len() {
        if transform > 0 {
            text.put(",");
        }
        text.transform(&transforms[transform]);
        transform += 1;
    }
    text.put("]}");
    text
}

const fn equal(a: &str, b: &str) -> bool {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    if a.len() != b.len() {
        return false;
    }
    let mut at = 0;
    while at < a.len() {
        if a[at] != b[at] {
            return false;
        }
        at += 1;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manifest_is_made_at_compile_time() {
        const TRANSFORMS: &[Description] = &[
            Description {
                name: "split",
                input: <&str>::CODER,
                outputs: &[OutputSpec { tag: "output", coder: <(String, i64)>::CODER }],
                reads: Reads::NOTHING,
            },
            Description {
                name: "sink",
                input: <Vec<f64>>::CODER,
                outputs: &[],
                reads: Reads { panes: true, windows: true, timestamps: false },
            },
        ];
        const MANIFEST: [u8; json_length(TRANSFORMS)] = json(TRANSFORMS);
        let expected = concat!(
            r#"{"purlin":"0.1.0","transforms":["#,
            r#"{"name":"split","role":"pardo","input":{"urn":"beam:coder:string_utf8:v1"},"#,
            r#""outputs":[{"tag":"output","coder":{"urn":"beam:coder:kv:v1","#,
            r#""parts":[{"urn":"beam:coder:string_utf8:v1"},{"urn":"beam:coder:varint:v1"}]}}],"reads":[]},"#,
            r#"{"name":"sink","role":"pardo","input":{"urn":"beam:coder:iterable:v1","parts":[{"urn":"beam:coder:double:v1"}]},"#,
            r#""outputs":[],"reads":["panes","windows"]}]}"#,
        );
        assert_eq!(std::str::from_utf8(&MANIFEST).unwrap(), expected);
    }
}
