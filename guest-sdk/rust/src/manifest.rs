//! The manifest of a component, made at compile time, so that it can be read from the file without running it.
//!
//! ```text
//! {"purlin":"0.1.0","transforms":[{"name":"split","role":"pardo",
//!   "input":{"urn":"beam:coder:string_utf8:v1"},
//!   "outputs":[{"tag":"output","coder":{"urn":"beam:coder:string_utf8:v1"}}],
//!   "reads":[]}]}
//! ```
//!
//! Coders with parts have `"parts":[..]`; `reads` lists some of `panes`, `timestamps` and `windows`. A stateful DoFn has role
//! `keyed-pardo` and, in addition,
//!
//! ```text
//!   "states":[{"name":"pages","kind":"map","key":{..coder},"coder":{..}},{"name":"count","kind":"value","coder":{..}}],
//!   "timers":[{"name":"gap","domain":"event-time"}],"expiration":"on_window_expiration"
//! ```
//!
//! with `key` for maps only, no lists without members, and `expiration`, one of the timers, where the end of windows is asked for.
//! The section's name is `purlin:manifest`. It says the same as `describe.transforms()` and `describe-keyed.transforms()` one after the other.

use crate::output::OutputSpec;
use crate::state::{FieldKind, FieldSpec, States};
use crate::stateful::EXPIRATION_FAMILY;
use crate::{Coder, DoFn, Element, Outputs, Reads, StatefulDoFn};

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
    /// What a stateful DoFn has besides.
    pub keyed: Option<KeyedDescription>,
}

/// States and timers as constants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyedDescription {
    /// States and timers in the order of their numbers.
    pub fields: &'static [FieldSpec],
    /// [`StatefulDoFn::ON_WINDOW_EXPIRATION`]
    pub expiration: bool,
}

/// The description of a DoFn.
pub const fn description<D: DoFn>() -> Description {
    let (input, outputs) = (<D::In<'static> as Element>::CODER, <D::Out as Outputs>::SPECS);
    Description { name: D::NAME, input, outputs, reads: D::READS, keyed: None }
}

/// The description of a stateful DoFn. Fails to compile when it has no state and no timer.
pub const fn keyed_description<D: StatefulDoFn>() -> Description {
    let (input, outputs) = (<(D::Key<'static>, D::Value<'static>) as Element>::CODER, <D::Out as Outputs>::SPECS);
    let keyed = KeyedDescription { fields: <D::State as States>::FIELDS, expiration: D::ON_WINDOW_EXPIRATION };
    assert!(!keyed.fields.is_empty() || keyed.expiration, "a stateful DoFn without state and timers is a DoFn");
    Description { name: D::NAME, input, outputs, reads: D::READS, keyed: Some(keyed) }
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
        self.put(if transform.keyed.is_some() { ",\"role\":\"keyed-pardo\"" } else { ",\"role\":\"pardo\"" });
        self.put(",\"input\":");
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
        self.put("]");
        if let Some(keyed) = &transform.keyed {
            self.keyed(keyed);
        }
        self.put("}");
    }

    /// Lists without members are left out.
    const fn keyed(&mut self, keyed: &KeyedDescription) {
        let (mut field, mut first) = (0, true);
        while field < keyed.fields.len() {
            if let Some((kind, key, element)) = keyed.fields[field].kind.state() {
                self.put(if first { ",\"states\":[{\"name\":" } else { ",{\"name\":" });
                self.state(keyed.fields[field].name, kind, key, element);
                first = false;
            }
            field += 1;
        }
        self.put(if first { "" } else { "]" });
        (field, first) = (0, true);
        while field < keyed.fields.len() {
            if keyed.fields[field].kind.is_timer() {
                let processing = matches!(keyed.fields[field].kind, FieldKind::ProcessingTimer);
                self.timer(keyed.fields[field].name, if processing { "processing-time" } else { "event-time" }, first);
                first = false;
            }
            field += 1;
        }
        if keyed.expiration {
            self.timer(EXPIRATION_FAMILY, "event-time", first);
            first = false;
        }
        self.put(if first { "" } else { "]" });
        if keyed.expiration {
            self.put(",\"expiration\":");
            self.name(EXPIRATION_FAMILY);
        }
    }

    const fn state(&mut self, name: &str, kind: &str, key: Option<&Coder>, element: &Coder) {
        self.name(name);
        self.put(",\"kind\":");
        self.name(kind);
        if let Some(key) = key {
            self.put(",\"key\":");
            self.coder(key);
        }
        self.put(",\"coder\":");
        self.coder(element);
        self.put("}");
    }

    const fn timer(&mut self, name: &str, domain: &str, first: bool) {
        self.put(if first { ",\"timers\":[{\"name\":" } else { ",{\"name\":" });
        self.name(name);
        self.put(",\"domain\":");
        self.name(domain);
        self.put("}");
    }
}

/// Those without state first: each interface of the component lists one kind.
const fn write<const N: usize>(transforms: &[Description]) -> Text<N> {
    let mut text = Text { bytes: [0; N], length: 0 };
    text.put("{\"purlin\":\"0.1.0\",\"transforms\":[");
    let (mut turn, mut written) = (0, 0);
    while turn < 2 * transforms.len() {
        let transform = &transforms[turn % transforms.len()];
        if transform.keyed.is_some() == (turn >= transforms.len()) {
            if written > 0 {
                text.put(",");
            }
            text.transform(transform);
            written += 1;
        }
        turn += 1;
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
                keyed: None,
            },
            Description {
                name: "sink",
                input: <Vec<f64>>::CODER,
                outputs: &[],
                reads: Reads { panes: true, windows: true, timestamps: false },
                keyed: None,
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

    #[test]
    fn states_and_timers_are_listed_by_kind_and_stateful_dofns_last() {
        const FIELDS: &[FieldSpec] = &[
            FieldSpec { name: "quiet", kind: FieldKind::EventTimer },
            FieldSpec { name: "pages", kind: FieldKind::Map(<&str>::CODER, i64::CODER) },
            FieldSpec { name: "poll", kind: FieldKind::ProcessingTimer },
            FieldSpec { name: "last", kind: FieldKind::Value(i64::CODER) },
        ];
        const PLAIN: Description =
            Description { name: "plain", input: i64::CODER, outputs: &[], reads: Reads::NOTHING, keyed: None };
        const KEYED: Description = Description {
            name: "keyed",
            input: <(i64, i64)>::CODER,
            keyed: Some(KeyedDescription { fields: FIELDS, expiration: true }),
            ..PLAIN
        };
        const TRANSFORMS: &[Description] = &[KEYED, PLAIN];
        const MANIFEST: [u8; json_length(TRANSFORMS)] = json(TRANSFORMS);
        let expected = concat!(
            r#"{"purlin":"0.1.0","transforms":["#,
            r#"{"name":"plain","role":"pardo","input":{"urn":"beam:coder:varint:v1"},"outputs":[],"reads":[]},"#,
            r#"{"name":"keyed","role":"keyed-pardo","input":{"urn":"beam:coder:kv:v1","#,
            r#""parts":[{"urn":"beam:coder:varint:v1"},{"urn":"beam:coder:varint:v1"}]},"outputs":[],"reads":[],"states":["#,
            r#"{"name":"pages","kind":"map","key":{"urn":"beam:coder:string_utf8:v1"},"coder":{"urn":"beam:coder:varint:v1"}},"#,
            r#"{"name":"last","kind":"value","coder":{"urn":"beam:coder:varint:v1"}}],"timers":["#,
            r#"{"name":"quiet","domain":"event-time"},{"name":"poll","domain":"processing-time"},"#,
            r#"{"name":"on_window_expiration","domain":"event-time"}],"expiration":"on_window_expiration"}]}"#,
        );
        assert_eq!(std::str::from_utf8(&MANIFEST).unwrap(), expected);
    }
}
