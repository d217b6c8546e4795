//! The coders of a pipeline by value: equal coders are one, whatever ids they were given.
//!
//! A coder is a [`CoderRef`] into a table where children come before parents, so that cyclic and bottomless coders cannot be
//! represented. Wire forms are in `wire`.

use std::collections::{BTreeMap, HashMap};

use bytes::Bytes;
use proto::pipeline::{Coder, FunctionSpec};

/// How deep coders may nest. The rest of the host follows [`model::coder::DEPTH_MAX`] levels, and planning adds some.
pub(crate) const CODER_DEPTH_MAX: u32 = 48;
/// How many coders one coder may consist of when shared components are counted each time.
pub(crate) const CODER_PARTS_MAX: u64 = 4096;

pub(crate) const BYTES: &str = "beam:coder:bytes:v1";
pub(crate) const DOUBLE: &str = "beam:coder:double:v1";
pub(crate) const KV: &str = "beam:coder:kv:v1";
pub(crate) const ITERABLE: &str = "beam:coder:iterable:v1";
pub(crate) const LENGTH_PREFIX: &str = "beam:coder:length_prefix:v1";
pub(crate) const GLOBAL_WINDOW: &str = "beam:coder:global_window:v1";
pub(crate) const INTERVAL_WINDOW: &str = "beam:coder:interval_window:v1";
pub(crate) const CUSTOM_WINDOW: &str = "beam:coder:custom_window:v1";
pub(crate) const WINDOWED_VALUE: &str = "beam:coder:windowed_value:v1";
pub(crate) const TIMER: &str = "beam:coder:timer:v1";

/// A coder in [`Coders`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct CoderRef(u32);

/// What makes two coders equal.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct CoderValue {
    pub(crate) urn: String,
    pub(crate) payload: Bytes,
    pub(crate) components: Vec<CoderRef>,
}

/// Why a coder cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CoderFault {
    #[error("coder \"{0}\" does not exist")]
    Missing(String),
    #[error("coder \"{0}\" contains itself")]
    Cyclic(String),
    #[error("coder \"{0}\" nests deeper than {CODER_DEPTH_MAX} levels")]
    TooDeep(String),
    #[error("coder \"{0}\" consists of more than {CODER_PARTS_MAX} coders")]
    TooLarge(String),
    #[error("coder \"{id}\" ({urn}) has {found} components instead of {needed}")]
    Components { id: String, urn: String, found: usize, needed: usize },
}

/// The table. Ids made up here differ from all submitted ones.
pub(crate) struct Coders<'a> {
    submitted: &'a BTreeMap<String, Coder>,
    values: Vec<Entry>,
    by_value: HashMap<CoderValue, CoderRef>,
    by_id: HashMap<&'a str, Result<CoderRef, CoderFault>>,
    made_up: HashMap<String, CoderRef>,
}

struct Entry {
    value: CoderValue,
    depth: u32,
    parts: u64,
    /// The id to call it by: the first submitted one of this value, or a made-up one.
    id: String,
}

impl<'a> Coders<'a> {
    pub(crate) fn new(submitted: &'a BTreeMap<String, Coder>) -> Self {
        Coders { submitted, values: Vec::new(), by_value: HashMap::new(), by_id: HashMap::new(), made_up: HashMap::new() }
    }

    /// The coder with a submitted id. Walks with its own stack, children first.
    pub(crate) fn lookup(&mut self, id: &str) -> Result<CoderRef, CoderFault> {
        let missing = || CoderFault::Missing(id.to_owned());
        let (root, _) = self.submitted.get_key_value(id).ok_or_else(missing)?;
        let mut open: Vec<(&'a str, usize)> = vec![(root, 0)];
        let mut on_path = std::collections::HashSet::from([root.as_str()]);
        while let Some((id, next)) = open.last_mut() {
            let id = *id;
            if !self.by_id.contains_key(id) {
                let coder = &self.submitted[id];
                if let Some(child) = coder.component_coder_ids.get(*next) {
                    *next += 1;
                    match self.submitted.get_key_value(child) {
                        None => drop(self.by_id.insert(id, Err(CoderFault::Missing(child.clone())))),
                        Some((child, _)) if self.by_id.contains_key(child.as_str()) => {}
                        Some((child, _)) if on_path.insert(child) => open.push((child, 0)),
                        Some((child, _)) => drop(self.by_id.insert(id, Err(CoderFault::Cyclic(child.clone())))),
                    }
                    continue;
                }
                let built = self.build(id, coder);
                self.by_id.insert(id, built);
            }
            on_path.remove(id);
            open.pop();
        }
        self.by_id[root.as_str()].clone()
    }

    /// All components have been looked up.
    fn build(&mut self, id: &str, coder: &Coder) -> Result<CoderRef, CoderFault> {
        let mut components = Vec::with_capacity(coder.component_coder_ids.len());
        for child in &coder.component_coder_ids {
            components.push(self.by_id[child.as_str()].clone()?);
        }
        let FunctionSpec { urn, payload } = coder.spec.clone().unwrap_or_default();
        if let Some(needed) = crate::wire::components(&urn)
            && needed != components.len()
        {
            return Err(CoderFault::Components { id: id.to_owned(), urn, found: components.len(), needed });
        }
        self.add(CoderValue { urn, payload, components }, Some(id))
    }

    /// A coder that was not submitted, without payload.
    pub(crate) fn make(&mut self, urn: &str, components: &[CoderRef]) -> Result<CoderRef, CoderFault> {
        self.add(CoderValue { urn: urn.to_owned(), payload: Bytes::new(), components: components.to_vec() }, None)
    }

    /// The same for what is derived from coders that were within the limits.
    pub(crate) fn make_unlimited(&mut self, urn: &str, components: &[CoderRef]) -> CoderRef {
        let value = CoderValue { urn: urn.to_owned(), payload: Bytes::new(), components: components.to_vec() };
        match self.by_value.get(&value) {
            Some(&known) => known,
            None => self.insert(value, None),
        }
    }

    pub(crate) fn add(&mut self, value: CoderValue, id: Option<&str>) -> Result<CoderRef, CoderFault> {
        if let Some(&known) = self.by_value.get(&value) {
            return Ok(known);
        }
        let (depth, parts) = self.measure(&value);
        let name = || id.unwrap_or(&value.urn).to_owned();
        if depth > CODER_DEPTH_MAX {
            return Err(CoderFault::TooDeep(name()));
        }
        if parts > CODER_PARTS_MAX {
            return Err(CoderFault::TooLarge(name()));
        }
        Ok(self.insert(value, id))
    }

    /// Levels, and coders with repetitions.
    fn measure(&self, value: &CoderValue) -> (u32, u64) {
        let entry = |coder: &CoderRef| &self.values[coder.0 as usize];
        let depth = 1 + value.components.iter().map(|c| entry(c).depth).max().unwrap_or(0);
        let parts = value.components.iter().map(|c| entry(c).parts).fold(1, u64::saturating_add);
        (depth, parts)
    }

    fn insert(&mut self, value: CoderValue, id: Option<&str>) -> CoderRef {
        let (depth, parts) = self.measure(&value);
        let made_up = id.is_none();
        let id = id.map_or_else(|| self.made_up_id(&value.urn), str::to_owned);
        let made = CoderRef(u32::try_from(self.values.len()).expect("a pipeline has fewer than 2^32 coders"));
        self.by_value.insert(value.clone(), made);
        if made_up {
            self.made_up.insert(id.clone(), made);
        }
        self.values.push(Entry { value, depth, parts, id });
        made
    }

    fn made_up_id(&self, urn: &str) -> String {
        let tail = urn.trim_start_matches("beam:coder:").trim_end_matches(":v1");
        let mut id = format!("{tail}#{}", self.values.len());
        while self.submitted.contains_key(&id) {
            id.push('#');
        }
        id
    }

    pub(crate) fn value(&self, coder: CoderRef) -> &CoderValue {
        &self.values[coder.0 as usize].value
    }

    /// The id that descriptors use for it.
    pub(crate) fn id(&self, coder: CoderRef) -> &str {
        &self.values[coder.0 as usize].id
    }

    /// Key and value coder of a `kv`.
    pub(crate) fn kv(&self, coder: CoderRef) -> Option<(CoderRef, CoderRef)> {
        match self.value(coder) {
            CoderValue { urn, components, .. } if urn == KV => Some((components[0], components[1])),
            _ => None,
        }
    }

    /// The coders with these ids and everything that they refer to.
    pub(crate) fn closure<'i>(&self, ids: impl IntoIterator<Item = &'i str>) -> BTreeMap<String, Coder> {
        let mut closure = BTreeMap::new();
        let mut open: Vec<String> = ids.into_iter().map(str::to_owned).collect();
        while let Some(id) = open.pop() {
            if closure.contains_key(&id) {
                continue;
            }
            let coder = match (self.submitted.get(&id), self.made_up.get(&id)) {
                (Some(coder), _) => coder.clone(),
                (None, Some(&made_up)) => self.message(self.value(made_up)),
                (None, None) => continue,
            };
            open.extend(coder.component_coder_ids.iter().cloned());
            closure.insert(id, coder);
        }
        closure
    }

    fn message(&self, value: &CoderValue) -> Coder {
        Coder {
            spec: Some(FunctionSpec { urn: value.urn.clone(), payload: value.payload.clone() }),
            component_coder_ids: value.components.iter().map(|&component| self.id(component).to_owned()).collect(),
        }
    }
}
