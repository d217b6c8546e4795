//! Which transforms share a stage.
//!
//! A transform joins the stage of whatever makes its main input unless it has to start a stage of its own. Every transform with
//! side inputs starts one (the rule of Beam's Java fuser), so a stage depends on nothing but what its first transforms read,
//! and stages cannot wait for each other in a circle.

use std::collections::BTreeMap;

use model::{EnvironmentId, urn};

use crate::flow::Flow;
use crate::graph::*;
use crate::lower::Lowering;

/// A stage in the making.
#[derive(Debug)]
pub(crate) struct Draft {
    pub(crate) head: DraftHead,
    /// What arrives.
    pub(crate) input: CollectionRef,
    /// What the head hands over: the same, or groups of it.
    pub(crate) source: CollectionRef,
    /// What runs in a worker, in topological order.
    pub(crate) nodes: Vec<NodeRef>,
    /// Whether transforms that read the source may join.
    joinable: Option<EnvironmentId>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DraftHead {
    Plain,
    /// Elements with equal keys meet here.
    Keyed,
    Grouping(NodeRef),
    Restrictions,
    Script {
        /// Index into the plan's scripts.
        script: u32,
        /// Index into the script's outputs.
        output: u32,
    },
}

#[derive(Default)]
pub(crate) struct Drafts {
    pub(crate) list: Vec<Draft>,
    of_node: BTreeMap<NodeRef, usize>,
    /// Stages without a body that make the collection available: groupings, scripts, and gathered inputs.
    makes: BTreeMap<CollectionRef, usize>,
}

impl Drafts {
    /// The stage where a collection leaves. None for an Impulse that no side input needs.
    pub(crate) fn producer(&self, graph: &Graph, collection: CollectionRef) -> Option<usize> {
        let producer = || self.of_node.get(&graph.collection(collection).producer?).copied();
        self.makes.get(&collection).copied().or_else(producer)
    }

    fn add(&mut self, head: DraftHead, input: CollectionRef, source: CollectionRef, joinable: Option<EnvironmentId>) -> usize {
        self.list.push(Draft { head, input, source, nodes: Vec::new(), joinable });
        self.list.len() - 1
    }

    fn place(&mut self, node: NodeRef, stage: usize) {
        self.list[stage].nodes.push(node);
        self.of_node.insert(node, stage);
    }
}

impl Lowering<'_> {
    /// Puts every transform into exactly one stage.
    pub(crate) fn fuse(&self, flow: &Flow) -> Drafts {
        let mut drafts = Drafts::default();
        let origins = flow.origins();
        for &at in &self.graph.order {
            let node = self.graph.node(at);
            if !flow.live[at.0] {
                continue;
            }
            match &node.kind {
                Kind::Sdk(_) => {
                    let stage = self.stage_for(at, &mut drafts);
                    drafts.place(at, stage);
                }
                Kind::GroupByKey => {
                    let output = node.outputs[0].1;
                    let body = if origins.contains(&output) { None } else { self.common_body(output, flow) };
                    let stage = drafts.add(DraftHead::Grouping(at), node.main(), output, body);
                    drafts.makes.insert(output, stage);
                }
                Kind::Flatten => {
                    let output = node.outputs[0].1;
                    if flow.gathered.contains_key(&output) {
                        let stage = drafts.add(DraftHead::Plain, output, output, None);
                        drafts.makes.insert(output, stage);
                    }
                }
                Kind::Script(script) => {
                    for (index, (_, output)) in node.outputs.iter().enumerate() {
                        let head = DraftHead::Script { script: *script as u32, output: index as u32 };
                        let stage = drafts.add(head, *output, *output, None);
                        drafts.makes.insert(*output, stage);
                    }
                }
                Kind::Impulse | Kind::Redistribute { .. } => {}
            }
        }
        self.gather_side_inputs(flow, &mut drafts);
        drafts
    }

    /// Where a transform goes: to its producer, to a sibling, or into a new stage.
    fn stage_for(&self, at: NodeRef, drafts: &mut Drafts) -> usize {
        let node = self.graph.node(at);
        let main = node.main();
        let Some(sdk) = node.sdk() else { unreachable!("only SDK transforms are placed") };
        let starts = self.starts_stage(node);
        let group = self.group(node);
        let producer = self.graph.collection(main).producer.expect("the graph is complete");
        if !starts {
            let made_in = match self.graph.node(producer).kind {
                Kind::Sdk(_) if self.group(self.graph.node(producer)) == group => Some(drafts.of_node[&producer]),
                _ => None,
            };
            let reading = || drafts.list.iter().position(|draft| draft.source == main && draft.joinable == Some(group));
            if let Some(stage) = made_in.or_else(reading) {
                return stage;
            }
        }
        let head = match (sdk.role, sdk.is_keyed()) {
            (Role::Process, _) => DraftHead::Restrictions,
            (_, true) => DraftHead::Keyed,
            _ => DraftHead::Plain,
        };
        drafts.add(head, main, main, (!starts).then_some(group))
    }

    /// Whether it has to be the first of a stage.
    fn starts_stage(&self, node: &Node) -> bool {
        let Some(sdk) = node.sdk() else { return true };
        let follows_pair = sdk.role == Role::Split && {
            let producer = self.graph.collection(node.main()).producer.map(|producer| self.graph.node(producer));
            let pair = producer.and_then(Node::sdk).and_then(|sdk| sdk.message.spec.as_ref());
            pair.is_some_and(|spec| spec.urn == urn::SDF_PAIR)
        };
        sdk.role == Role::Process || sdk.is_keyed() || sdk.requires_stable_input() || (!node.sides.is_empty() && !follows_pair)
    }

    fn group(&self, node: &Node) -> EnvironmentId {
        let environment = node.sdk().and_then(|sdk| sdk.environment).expect("planning ends earlier without one");
        self.environments.fusion_group(environment)
    }

    /// Where all consumers of groups can run together with the grouping, if they can.
    fn common_body(&self, groups: CollectionRef, flow: &Flow) -> Option<EnvironmentId> {
        let collection = self.graph.collection(groups);
        // Flattens and Redistributes are looked through: what they take from here is among the origins.
        let looked_at = |node: &NodeRef| flow.live[node.0] && self.is_reader(*node);
        let consumers: Vec<&Node> =
            collection.mains.iter().filter(|node| looked_at(node)).map(|&node| self.graph.node(node)).collect();
        let apart = |consumer: &&Node| consumer.sdk().is_none() || self.starts_stage(consumer);
        if !collection.sides.is_empty() || consumers.iter().any(apart) {
            return None;
        }
        let group = self.group(consumers.first()?);
        consumers.iter().all(|consumer| self.group(consumer) == group).then_some(group)
    }

    /// A side input is read from what stages have written; what no stage writes, or what counts twice, gets one.
    fn gather_side_inputs(&self, flow: &Flow, drafts: &mut Drafts) {
        for (index, collection) in self.graph.collections.iter().enumerate() {
            let at = CollectionRef(index);
            if collection.sides.is_empty() || drafts.makes.contains_key(&at) {
                continue;
            }
            let mut origins: Vec<CollectionRef> = flow.feeds(at).iter().map(|feed| feed.origin).collect();
            let from_impulse = origins.iter().any(|&origin| drafts.producer(&self.graph, origin).is_none());
            let count = origins.len();
            origins.sort();
            origins.dedup();
            if from_impulse || origins.len() < count {
                let stage = drafts.add(DraftHead::Plain, at, at, None);
                drafts.makes.insert(at, stage);
            }
        }
    }
}

impl Draft {
    /// Whether it needs a worker.
    pub(crate) fn has_body(&self) -> bool {
        !self.nodes.is_empty()
    }
}
