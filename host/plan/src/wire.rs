//! Wire coders: what elements look like where the host handles them. Whatever the host or an SDK that touches a collection does
//! not know is wrapped in a length prefix (`FnApiRunner`'s rule; `beam-model` 4.8.3).
//!
//! Two collections between which bytes move unchanged must be given the same [`Known`] set, or their keys would differ.

use std::collections::{BTreeSet, HashMap};

use model::{Coder, WindowCoder};

use crate::coders::*;

/// Coders that the host reads, with how many components each has. `row` and `schema` are left to SDKs.
const STANDARD: [(&str, usize); 17] = [
    (BYTES, 0),
    ("beam:coder:string_utf8:v1", 0),
    ("beam:coder:bool:v1", 0),
    ("beam:coder:varint:v1", 0),
    (DOUBLE, 0),
    (KV, 2),
    (ITERABLE, 1),
    ("beam:coder:state_backed_iterable:v1", 1),
    (LENGTH_PREFIX, 1),
    ("beam:coder:nullable:v1", 1),
    (GLOBAL_WINDOW, 0),
    (INTERVAL_WINDOW, 0),
    (CUSTOM_WINDOW, 1),
    (WINDOWED_VALUE, 2),
    ("beam:coder:param_windowed_value:v1", 2),
    (TIMER, 2),
    ("beam:coder:sharded_key:v1", 1),
];

/// Known to every SDK, declared or not.
const BASE: [&str; 9] = [WINDOWED_VALUE, BYTES, GLOBAL_WINDOW, KV, ITERABLE, DOUBLE, TIMER, LENGTH_PREFIX, CUSTOM_WINDOW];

/// How many components a standard coder has.
pub(crate) fn components(urn: &str) -> Option<usize> {
    STANDARD.iter().find(|(standard, _)| *standard == urn).map(|(_, components)| *components)
}

/// The coders that need no length prefix in some collection.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Known(BTreeSet<&'static str>);

impl Known {
    /// What the host and all of these SDKs know; no SDK at all knows everything.
    pub(crate) fn common<'c>(capabilities: impl IntoIterator<Item = &'c [String]>) -> Self {
        let mut known: BTreeSet<&'static str> = STANDARD.iter().map(|(urn, _)| *urn).collect();
        for declared in capabilities {
            known.retain(|urn| BASE.contains(urn) || declared.iter().any(|capability| capability == urn));
        }
        Known(known)
    }
}

/// Wire forms, made once for each coder and known set.
#[derive(Default)]
pub(crate) struct Wire {
    made: HashMap<(CoderRef, Known), CoderRef>,
}

impl Wire {
    /// The wire form of an element coder. Recursion is bounded by [`CODER_DEPTH_MAX`].
    pub(crate) fn element(&mut self, coders: &mut Coders<'_>, coder: CoderRef, known: &Known) -> Result<CoderRef, CoderFault> {
        let memo = (coder, known.clone());
        if let Some(&made) = self.made.get(&memo) {
            return Ok(made);
        }
        let value = coders.value(coder).clone();
        let made = if value.urn == LENGTH_PREFIX {
            coder
        } else if !known.0.contains(value.urn.as_str()) {
            coders.make(LENGTH_PREFIX, &[coder])?
        } else {
            let mut wired = value;
            let has_window = [WINDOWED_VALUE, "beam:coder:param_windowed_value:v1", TIMER].contains(&wired.urn.as_str());
            for (index, component) in wired.components.iter_mut().enumerate() {
                *component = if has_window && index == 1 {
                    window(coders, *component)?.0
                } else {
                    self.element(coders, *component, known)?
                };
            }
            coders.add(wired, None)?
        };
        self.made.insert(memo, made);
        Ok(made)
    }
}

/// The wire form of a window coder, and how the host reads it.
pub(crate) fn window(coders: &mut Coders<'_>, coder: CoderRef) -> Result<(CoderRef, WindowCoder), CoderFault> {
    let value = coders.value(coder).clone();
    let inside = match value.urn.as_str() {
        GLOBAL_WINDOW => return Ok((coder, WindowCoder::Global)),
        INTERVAL_WINDOW => return Ok((coder, WindowCoder::Interval)),
        CUSTOM_WINDOW => value.components[0],
        _ => coder,
    };
    let delimited = match coders.value(inside).urn.as_str() {
        LENGTH_PREFIX => inside,
        _ => coders.make(LENGTH_PREFIX, &[inside])?,
    };
    Ok((coders.make(CUSTOM_WINDOW, &[delimited])?, WindowCoder::Custom))
}

/// The host's own form of a wire coder. None for what only an SDK understands, which on the wire is inside a length prefix.
pub(crate) fn host_form(coders: &Coders<'_>, coder: CoderRef) -> Option<Coder> {
    let value = coders.value(coder);
    let part = |index: usize| host_form(coders, value.components[index]).map(Box::new);
    Some(match value.urn.trim_start_matches("beam:coder:") {
        "bytes:v1" => Coder::Bytes,
        "string_utf8:v1" => Coder::StringUtf8,
        "bool:v1" => Coder::Bool,
        "varint:v1" => Coder::VarInt,
        "double:v1" => Coder::Double,
        "kv:v1" => Coder::Kv(part(0)?, part(1)?),
        "iterable:v1" => Coder::Iterable(part(0)?),
        "state_backed_iterable:v1" => Coder::StateBackedIterable(part(0)?),
        "length_prefix:v1" => Coder::LengthPrefix(part(0)),
        "nullable:v1" => Coder::Nullable(part(0)?),
        "global_window:v1" => Coder::GlobalWindow,
        "interval_window:v1" => Coder::IntervalWindow,
        "custom_window:v1" => Coder::CustomWindow(part(0)?),
        "windowed_value:v1" => Coder::WindowedValue(part(0)?, part(1)?),
        "param_windowed_value:v1" => Coder::ParamWindowedValue(part(0)?, part(1)?, value.payload.clone()),
        "timer:v1" => Coder::Timer(part(0)?, part(1)?),
        "sharded_key:v1" => Coder::ShardedKey(part(0)?),
        // Rows occur inside length prefixes only.
        "row:v1" => Coder::Row(crate::schema::from_payload(&value.payload)?),
        _ => return None,
    })
}
