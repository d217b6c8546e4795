//! Triggers as trees of small state machines. See `beam-model.md` 5.6 and Beam's `TriggerStateMachine`s.
//!
//! A tree is compiled once per stage into a list, parents before children. What a trigger remembers for one key and
//! window is a [`Slot`] per node; [`machine`] moves slots. Trees come from outside: their size is bounded here, so that
//! walking them needs no further care.

mod machine;

use model::reader::put_varint;
use model::windowing::{TimestampTransform, Trigger};
use model::{DecodeError, Reader};

pub(super) use machine::{Machine, Moment, Timers};

/// Levels of a tree.
const DEPTH_MAX: usize = 32;
/// Nodes of a tree.
const NODES_MAX: usize = 256;

/// A compiled trigger; node 0 is its root.
#[derive(Clone, Debug)]
pub(super) struct Tree {
    nodes: Vec<Node>,
}

#[derive(Clone, Debug)]
struct Node {
    kind: Kind,
    children: Vec<usize>,
    /// Behind the last node of the subtree.
    end: usize,
}

#[derive(Clone, Debug)]
enum Kind {
    Default,
    Always,
    Never,
    Count(i64),
    /// Without early and late firings.
    AfterEnd,
    /// Children: early, and perhaps late.
    EarlyAndLate,
    ProcessingTime(Vec<TimestampTransform>),
    All,
    Any,
    Each,
    /// Children: main, finally.
    OrFinally,
    Repeat,
}

/// What one node remembers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Slot {
    pub(super) finished: bool,
    /// Elements counted, or the processing time to fire after, in milliseconds.
    pub(super) value: Option<i64>,
}

impl Tree {
    /// Compiles a trigger, or says what is wrong with it.
    pub(super) fn new(trigger: &Trigger) -> Result<Self, String> {
        let mut tree = Tree { nodes: Vec::new() };
        tree.add(trigger, DEPTH_MAX)?;
        Ok(tree)
    }

    fn add(&mut self, trigger: &Trigger, depth: usize) -> Result<usize, String> {
        let depth = depth.checked_sub(1).ok_or(format!("triggers that nest deeper than {DEPTH_MAX} levels"))?;
        if self.nodes.len() >= NODES_MAX {
            return Err(format!("triggers of more than {NODES_MAX} parts"));
        }
        let (kind, children) = parts(trigger)?;
        let node = self.nodes.len();
        self.nodes.push(Node { kind, children: Vec::new(), end: 0 });
        for child in children {
            let child = self.add(child, depth)?;
            self.nodes[node].children.push(child);
        }
        self.nodes[node].end = self.nodes.len();
        Ok(node)
    }

    /// The slots of a new window.
    pub(super) fn slots(&self) -> Vec<Slot> {
        vec![Slot::default(); self.nodes.len()]
    }

    pub(super) fn decode(&self, reader: &mut Reader<'_>) -> Result<Vec<Slot>, DecodeError> {
        self.nodes.iter().map(|_| Slot::decode(reader)).collect()
    }
}

/// A trigger without its children, and those.
fn parts(trigger: &Trigger) -> Result<(Kind, Vec<&Trigger>), String> {
    let several = |kind, children: &'_ Vec<Trigger>| match children.is_empty() {
        true => Err("a trigger that is made of no others".to_string()),
        false => Ok(kind),
    };
    Ok(match trigger {
        Trigger::Default => (Kind::Default, vec![]),
        Trigger::Always => (Kind::Always, vec![]),
        Trigger::Never => (Kind::Never, vec![]),
        Trigger::ElementCount(count) => (Kind::Count(i64::from(*count)), vec![]),
        Trigger::AfterEndOfWindow { early, late } => match (early.as_deref(), late.as_deref()) {
            (None | Some(Trigger::Never), None) => (Kind::AfterEnd, vec![]),
            (early, None) => (Kind::EarlyAndLate, vec![early.unwrap_or(&Trigger::Never)]),
            (early, Some(late)) => (Kind::EarlyAndLate, vec![early.unwrap_or(&Trigger::Never), late]),
        },
        Trigger::AfterProcessingTime(transforms) => {
            let aligned = |transform: &_| matches!(transform, TimestampTransform::AlignTo { period, .. } if period.0 <= 0);
            if transforms.iter().any(aligned) {
                return Err("a trigger that aligns to a period that is not positive".into());
            }
            (Kind::ProcessingTime(transforms.clone()), vec![])
        }
        // What every open-source runner does: processing time without delay.
        Trigger::AfterSynchronizedProcessingTime => (Kind::ProcessingTime(vec![]), vec![]),
        Trigger::AfterAll(children) => (several(Kind::All, children)?, children.iter().collect()),
        Trigger::AfterAny(children) => (several(Kind::Any, children)?, children.iter().collect()),
        Trigger::AfterEach(children) => (several(Kind::Each, children)?, children.iter().collect()),
        Trigger::OrFinally(main, finally) => (Kind::OrFinally, vec![&**main, &**finally]),
        Trigger::Repeat(child) => (Kind::Repeat, vec![&**child]),
    })
}

impl Slot {
    pub(super) fn encode(self, out: &mut Vec<u8>) {
        out.push(u8::from(self.finished) | u8::from(self.value.is_some()) << 1);
        if let Some(value) = self.value {
            put_varint(out, value as u64);
        }
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let flags = reader.u8()?;
        let value = if flags & 2 != 0 { Some(reader.varint()? as i64) } else { None };
        Ok(Slot { finished: flags & 1 != 0, value })
    }
}
