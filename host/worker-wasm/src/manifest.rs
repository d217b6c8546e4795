//! What a component says of itself, in the form of its manifest section (JSON) and of `describe.transforms()`.

mod stateful;

use std::collections::BTreeSet;

use model::Coder;
use serde::{Deserialize, Serialize};

pub use stateful::{StateKind, StateManifest, TimeDomain, TimerManifest};

use crate::Error;
use crate::bindings::{describe, describe_keyed};

/// Version of the WIT package that manifests name.
pub const PACKAGE_VERSION: &str = "0.1.0";

/// How deep coders may nest.
const DEPTH_MAX: usize = 32;

/// All transforms of a component.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// [`PACKAGE_VERSION`]
    pub purlin: String,
    /// In the component's order.
    pub transforms: Vec<TransformManifest>,
}

/// One transform.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TransformManifest {
    /// Its name, unique in the component.
    pub name: String,
    /// `pardo`, or `keyed-pardo` with state and timers.
    pub role: String,
    /// Coder of input elements.
    pub input: CoderManifest,
    /// The main output first.
    pub outputs: Vec<OutputManifest>,
    /// Columns besides the values that it reads: `timestamps`, `windows`, `panes`.
    pub reads: BTreeSet<String>,
    /// States, by number.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub states: Vec<StateManifest>,
    /// Timer families, by number.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub timers: Vec<TimerManifest>,
    /// The timer family that stands for the end of windows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expiration: Option<String>,
}

/// One output of a transform.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OutputManifest {
    /// Its tag.
    pub tag: String,
    /// Coder of its elements.
    pub coder: CoderManifest,
}

/// A coder with its parts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CoderManifest {
    /// For example `beam:coder:kv:v1`.
    pub urn: String,
    /// Coders of the parts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<CoderManifest>,
}

impl Manifest {
    /// Reads a manifest section.
    pub fn from_json(bytes: &[u8]) -> Result<Manifest, Error> {
        let manifest: Manifest = serde_json::from_slice(bytes).map_err(|error| Error::Manifest(error.to_string()))?;
        manifest.checked()
    }

    /// The manifest section.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("a manifest has only strings and lists")
    }

    /// The transform with a name.
    pub fn transform(&self, name: &str) -> Option<&TransformManifest> {
        self.transforms.iter().find(|transform| transform.name == name)
    }

    /// From what a component returned.
    pub(crate) fn described(
        plain: Vec<describe::Transform>,
        keyed: Vec<describe_keyed::KeyedTransform>,
    ) -> Result<Manifest, Error> {
        let plain = plain.into_iter().map(|transform| Described::of(transform)?.into_manifest());
        let transforms = plain.chain(keyed.into_iter().map(stateful::described)).collect::<Result<_, _>>()?;
        Manifest { purlin: PACKAGE_VERSION.to_owned(), transforms }.checked()
    }

    fn checked(self) -> Result<Manifest, Error> {
        let refuse = |reason: String| Err(Error::Manifest(reason));
        if self.purlin != PACKAGE_VERSION {
            return refuse(format!("purlin:dofn {} is not supported, only {PACKAGE_VERSION}", self.purlin));
        }
        let mut names = BTreeSet::new();
        for transform in &self.transforms {
            let name = &transform.name;
            if name.is_empty() || !names.insert(name) {
                return refuse(format!("transform name `{name}` is empty or not unique"));
            }
            if transform.role != "pardo" && !transform.is_keyed() {
                return refuse(format!(
                    "role {} of transform {name} is not supported, only pardo and keyed-pardo",
                    transform.role
                ));
            }
            transform.check_keyed().map_err(|reason| Error::Manifest(format!("transform {name}: {reason}")))?;
            if let Some(column) =
                transform.reads.iter().find(|column| !["timestamps", "windows", "panes"].contains(&column.as_str()))
            {
                return refuse(format!("transform {name} reads `{column}`, which is not a column"));
            }
            let mut tags = BTreeSet::new();
            if let Some(output) = transform.outputs.iter().find(|output| output.tag.is_empty() || !tags.insert(&output.tag)) {
                return refuse(format!("output tag `{}` of transform {name} is empty or not unique", output.tag));
            }
            let coders = transform.outputs.iter().map(|output| &output.coder).chain([&transform.input]);
            for coder in coders {
                coder.model_coder().map_err(|error| Error::Manifest(format!("transform {name}: {error}")))?;
            }
        }
        Ok(self)
    }
}

impl CoderManifest {
    /// The coder as the host knows it. Fails with the reason for coders that do not cross the boundary.
    pub fn model_coder(&self) -> Result<Coder, String> {
        self.model_coder_within(DEPTH_MAX)
    }

    fn model_coder_within(&self, depth: usize) -> Result<Coder, String> {
        let depth = depth.checked_sub(1).ok_or_else(|| format!("coder nests deeper than {DEPTH_MAX} levels"))?;
        let part = |index: usize| self.parts[index].model_coder_within(depth).map(Box::new);
        let coder = match (self.urn.as_str(), self.parts.len()) {
            ("beam:coder:bytes:v1", 0) => Coder::Bytes,
            ("beam:coder:string_utf8:v1", 0) => Coder::StringUtf8,
            ("beam:coder:bool:v1", 0) => Coder::Bool,
            ("beam:coder:varint:v1", 0) => Coder::VarInt,
            ("beam:coder:double:v1", 0) => Coder::Double,
            ("beam:coder:kv:v1", 2) => Coder::Kv(part(0)?, part(1)?),
            ("beam:coder:iterable:v1", 1) => Coder::Iterable(part(0)?),
            ("beam:coder:nullable:v1", 1) => Coder::Nullable(part(0)?),
            (urn, parts) => return Err(format!("coder {urn} with {parts} parts is not supported in components")),
        };
        Ok(coder)
    }
}

impl std::fmt::Display for CoderManifest {
    /// Short: `kv<string_utf8, varint>`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = self.urn.strip_prefix("beam:coder:").and_then(|rest| rest.strip_suffix(":v1")).unwrap_or(&self.urn);
        f.write_str(name)?;
        for (index, part) in self.parts.iter().enumerate() {
            write!(f, "{}{part}", if index == 0 { "<" } else { ", " })?;
        }
        if self.parts.is_empty() { Ok(()) } else { f.write_str(">") }
    }
}

/// A described transform with its coders as trees.
struct Described {
    name: String,
    coders: Vec<CoderManifest>,
    transform: describe::Transform,
}

impl Described {
    fn of(transform: describe::Transform) -> Result<Self, Error> {
        let mut coders: Vec<CoderManifest> = Vec::new();
        let mut nodes = Vec::new();
        for coder in &transform.coders {
            // Parts come before their whole, so they are there, and cannot nest for ever; a tree from shared parts is bounded.
            let parts = coder.parts.iter().map(|part| coders.get(*part as usize).cloned());
            let parts = parts.collect::<Option<Vec<_>>>();
            let parts = parts.ok_or_else(|| {
                Error::Describe(format!("a coder of transform {} has a part that does not come before it", transform.name))
            })?;
            let count = 1 + coder.parts.iter().map(|part| nodes[*part as usize]).sum::<usize>();
            if count > NODES_MAX {
                return Err(Error::Describe(format!("a coder of transform {} has more than {NODES_MAX} parts", transform.name)));
            }
            if !coder.payload.is_empty() {
                return Err(Error::Describe(format!(
                    "coder {} of transform {} has a payload, which is not supported",
                    coder.urn, transform.name
                )));
            }
            nodes.push(count);
            coders.push(CoderManifest { urn: coder.urn.clone(), parts });
        }
        Ok(Described { name: transform.name.clone(), coders, transform })
    }

    fn coder(&self, index: u32) -> Result<CoderManifest, Error> {
        let missing = || Error::Describe(format!("transform {} names coder {index}, which it does not list", self.name));
        self.coders.get(index as usize).cloned().ok_or_else(missing)
    }

    fn into_manifest(self) -> Result<TransformManifest, Error> {
        let outputs = self.transform.outputs.iter();
        let outputs = outputs.map(|output| Ok(OutputManifest { tag: output.tag.clone(), coder: self.coder(output.coder)? }));
        let reads = &self.transform.reads;
        let reads = [(reads.timestamps, "timestamps"), (reads.windows, "windows"), (reads.panes, "panes")];
        Ok(TransformManifest {
            role: "pardo".to_owned(),
            input: self.coder(self.transform.input)?,
            outputs: outputs.collect::<Result<_, Error>>()?,
            reads: reads.into_iter().filter(|(read, _)| *read).map(|(_, column)| column.to_owned()).collect(),
            states: Vec::new(),
            timers: Vec::new(),
            expiration: None,
            name: self.name,
        })
    }
}

/// Most nodes of one coder's tree.
const NODES_MAX: usize = 1_000;

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"{"purlin":"0.1.0","transforms":[{"name":"count","role":"pardo","input":{"urn":"beam:coder:kv:v1","parts":[{"urn":"beam:coder:string_utf8:v1"},{"urn":"beam:coder:iterable:v1","parts":[{"urn":"beam:coder:varint:v1"}]}]},"outputs":[{"tag":"output","coder":{"urn":"beam:coder:bytes:v1"}}],"reads":["panes"]}]}"#;

    #[test]
    fn manifests_are_json() {
        let manifest = Manifest::from_json(GOOD.as_bytes()).unwrap();
        assert_eq!(manifest.to_json(), GOOD);
        assert_eq!(manifest.transforms[0].input.to_string(), "kv<string_utf8, iterable<varint>>");
        let iterable = Coder::Iterable(Box::new(Coder::VarInt));
        assert_eq!(manifest.transforms[0].input.model_coder(), Ok(Coder::Kv(Box::new(Coder::StringUtf8), Box::new(iterable))));
    }

    /// Changes a good manifest in one place: the error says what is wrong with it.
    fn assert_refused(good: &str, from: &str, to: &str, expected: &str) {
        let changed = good.replacen(from, to, 1);
        assert_ne!(changed, good);
        let error = Manifest::from_json(changed.as_bytes()).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }

    #[test]
    fn what_is_not_supported_is_named() {
        let check = |from: &str, to: &str, expected: &str| assert_refused(GOOD, from, to, expected);
        check("0.1.0", "0.2.0", "purlin:dofn 0.2.0 is not supported");
        check("pardo", "combine", "role combine of transform count is not supported");
        check(
            "beam:coder:bytes:v1",
            "beam:coder:row:v1",
            "transform count: coder beam:coder:row:v1 with 0 parts is not supported",
        );
        check("panes", "colors", "transform count reads `colors`");
        check("\"output\"", "\"\"", "output tag `` of transform count");
        check("\"reads\"", "\"state\"", "unknown field `state`");
        check("\"count\"", "\"\"", "transform name `` is empty");
        check("\"reads\"", "\"expiration\":\"end\",\"reads\"", "transform count: role pardo has no state and no timers");
    }

    const KEYED: &str = r#"{"purlin":"0.1.0","transforms":[{"name":"visits","role":"keyed-pardo","input":{"urn":"beam:coder:kv:v1","parts":[{"urn":"beam:coder:bytes:v1"},{"urn":"beam:coder:varint:v1"}]},"outputs":[],"reads":[],"states":[{"name":"pages","kind":"map","key":{"urn":"beam:coder:bytes:v1"},"coder":{"urn":"beam:coder:varint:v1"}},{"name":"log","kind":"ordered-list","coder":{"urn":"beam:coder:varint:v1"}}],"timers":[{"name":"end","domain":"event-time"},{"name":"poll","domain":"processing-time"}],"expiration":"end"}]}"#;

    #[test]
    fn states_and_timers_are_checked() {
        assert_eq!(Manifest::from_json(KEYED.as_bytes()).unwrap().to_json(), KEYED);
        let check = |from: &str, to: &str, expected: &str| assert_refused(KEYED, from, to, expected);
        check("\"ordered-list\"", "\"heap\"", "unknown variant `heap`");
        check("\"map\"", "\"bag\"", "transform visits: state `pages` is a bag, and only maps have a coder of keys");
        check("\"ordered-list\"", "\"map\"", "state `log` is a map, and only maps");
        check("\"log\"", "\"poll\"", "state or timer name `poll` is empty or not unique");
        check(
            "\"expiration\":\"end\"",
            "\"expiration\":\"poll\"",
            "there is no timer of event time `poll` for the end of windows",
        );
        check("beam:coder:kv:v1", "beam:coder:pair:v1", "its input has coder pair<bytes, varint>");
        check("\"keyed-pardo\"", "\"pardo\"", "role pardo has no state and no timers");
    }
}
