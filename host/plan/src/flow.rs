//! How bytes move between stages: the wire coder of every collection, and what feeds what.
//!
//! Flatten, Reshuffle and Redistribute are no stages: a consumer of theirs is fed by each collection behind them directly.
//! Where that collection's wire coder differs, the SDK that makes it turns it into the consumer's (`FnApiRunner` and Prism
//! transcode in the same way).

use std::collections::{BTreeMap, BTreeSet};

use model::EnvironmentId;

use crate::coders::{CoderFault, CoderRef};
use crate::facts::flatten_in_sdk;
use crate::graph::*;
use crate::lower::Lowering;
use crate::plan::Routing;
use crate::wire::{Known, Wire};

/// How many feeds a Flatten hands to each of its consumers. One with more is gathered in a stage of its own, since Flattens
/// of Flattens of one collection multiply.
pub(crate) const FEEDS_MAX: usize = 256;

/// One collection that arrives at an input, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Feed {
    pub(crate) origin: CollectionRef,
    pub(crate) routing: Routing,
}

pub(crate) struct Flow {
    /// The wire coder of each collection.
    pub(crate) wire: Vec<CoderRef>,
    /// Which nodes have any effect: runner transforms that nobody reads have none.
    pub(crate) live: Vec<bool>,
    /// Feeds of the outputs of Flattens and Redistributes that are read.
    feeds: BTreeMap<CollectionRef, Vec<Feed>>,
    /// Outputs of Flattens with more than [`FEEDS_MAX`] feeds.
    pub(crate) gathered: BTreeMap<CollectionRef, Vec<Feed>>,
}

impl Flow {
    /// What arrives at whoever reads this collection.
    pub(crate) fn feeds(&self, collection: CollectionRef) -> Vec<Feed> {
        let itself = || vec![Feed { origin: collection, routing: Routing::Local }];
        self.feeds.get(&collection).cloned().unwrap_or_else(itself)
    }

    /// Every collection that arrives somewhere through a Flatten or Redistribute.
    pub(crate) fn origins(&self) -> BTreeSet<CollectionRef> {
        self.feeds.values().chain(self.gathered.values()).flatten().map(|feed| feed.origin).collect()
    }
}

impl Lowering<'_> {
    /// Adds transcoding to the graph, which has to be sorted again afterwards.
    pub(crate) fn flow(&mut self, nearest: &[Option<EnvironmentId>]) -> Result<Flow, CoderFault> {
        let live = self.live();
        let known = self.known(&live);
        let mut wire = Wire::default();
        let coders = self.graph.collections.iter().zip(&known);
        let wire = coders
            .map(|(collection, known)| wire.element(&mut self.coders, collection.coder, known))
            .collect::<Result<_, _>>()?;
        let mut flow = Flow { wire, live, feeds: BTreeMap::new(), gathered: BTreeMap::new() };
        self.follow(&mut flow);
        self.transcode(&mut flow, nearest);
        Ok(flow)
    }

    /// SDK transforms always have effects; others only if somebody reads them.
    fn live(&self) -> Vec<bool> {
        let mut live = vec![false; self.graph.nodes.len()];
        for &at in self.graph.order.iter().rev() {
            let node = self.graph.node(at);
            let mut outputs = node.outputs.iter().map(|(_, output)| self.graph.collection(*output));
            live[at.0] = node.sdk().is_some()
                || outputs.any(|output| !output.sides.is_empty() || output.mains.iter().any(|consumer| live[consumer.0]));
        }
        live
    }

    /// The known set of each collection: what is common to all environments that touch it or any collection whose bytes become
    /// its own. Grouped and flattened keys must be equal bytes, so those collections share one set.
    fn known(&self, live: &[bool]) -> Vec<Known> {
        let mut leader: Vec<usize> = (0..self.graph.collections.len()).collect();
        for (index, node) in self.graph.nodes.iter().enumerate() {
            if node.sdk().is_none() && live[index] {
                for pair in node.mains.iter().chain(node.outputs.iter().map(|(_, output)| output)).collect::<Vec<_>>().windows(2)
                {
                    let (left, right) = (find(&mut leader, pair[0].0), find(&mut leader, pair[1].0));
                    leader[left.max(right)] = left.min(right);
                }
            }
        }
        let mut touching: BTreeMap<usize, BTreeSet<EnvironmentId>> = BTreeMap::new();
        for node in &self.graph.nodes {
            let Some(environment) = node.sdk().and_then(|sdk| sdk.environment) else { continue };
            let sides = node.sides.iter().map(|side| side.collection);
            for collection in node.outputs.iter().map(|(_, output)| *output).chain(node.mains.iter().copied()).chain(sides) {
                touching.entry(find(&mut leader, collection.0)).or_default().insert(environment);
            }
        }
        let set = |environments: &BTreeSet<EnvironmentId>| {
            Known::common(environments.iter().map(|&environment| self.environments.get(environment).capabilities.as_slice()))
        };
        let sets: BTreeMap<usize, Known> = touching.iter().map(|(&leader, environments)| (leader, set(environments))).collect();
        let all = Known::common([]);
        (0..leader.len()).map(|index| sets.get(&find(&mut leader, index)).unwrap_or(&all).clone()).collect()
    }

    /// Finds the feeds of all Flattens and Redistributes, upstream first.
    fn follow(&self, flow: &mut Flow) {
        for &at in &self.graph.order {
            let node = self.graph.node(at);
            let [(_, output)] = node.outputs[..] else { continue };
            if !flow.live[at.0] {
                continue;
            }
            match node.kind {
                Kind::Flatten => {
                    let feeds: Vec<Feed> = node.mains.iter().flat_map(|&main| flow.feeds(main)).collect();
                    let place = if feeds.len() > FEEDS_MAX { &mut flow.gathered } else { &mut flow.feeds };
                    place.insert(output, feeds);
                }
                Kind::Redistribute { by_key } => {
                    let routing = if by_key { Routing::ByKey } else { Routing::RoundRobin };
                    let feeds = flow.feeds(node.main()).into_iter().map(|feed| Feed { routing, ..feed }).collect();
                    flow.feeds.insert(output, feeds);
                }
                Kind::Impulse | Kind::Script(_) | Kind::GroupByKey | Kind::Sdk(_) => {}
            }
        }
    }

    /// Replaces feeds whose bytes are not those of the collection that they arrive at. Collections in between are skipped.
    fn transcode(&mut self, flow: &mut Flow, nearest: &[Option<EnvironmentId>]) {
        flow.feeds.retain(|&collection, _| {
            let collection = self.graph.collection(collection);
            !collection.sides.is_empty() || collection.mains.iter().any(|consumer| self.is_reader(*consumer))
        });
        let mut made: BTreeMap<(CollectionRef, CoderRef), CollectionRef> = BTreeMap::new();
        let mut lists: Vec<(CollectionRef, &mut Vec<Feed>)> = Vec::new();
        lists.extend(flow.gathered.iter_mut().map(|(collection, feeds)| (*collection, feeds)));
        lists.extend(flow.feeds.iter_mut().map(|(collection, feeds)| (*collection, feeds)));
        for (collection, feeds) in lists {
            let wanted = flow.wire[collection.0];
            let has_keys = self.coders.kv(wanted).is_some();
            for feed in feeds {
                if feed.routing == Routing::ByKey && !has_keys {
                    feed.routing = Routing::RoundRobin;
                }
                if flow.wire[feed.origin.0] == wanted {
                    continue;
                }
                feed.origin = match made.get(&(feed.origin, wanted)) {
                    Some(&transcoded) => transcoded,
                    None => {
                        let transcoded = self.add_transcoding(feed.origin, collection, nearest);
                        made.insert((feed.origin, wanted), transcoded);
                        flow.wire.push(wanted);
                        flow.live.push(true);
                        transcoded
                    }
                };
            }
        }
    }

    /// Whether a node needs its main input to arrive in the input's own coder.
    pub(crate) fn is_reader(&self, node: NodeRef) -> bool {
        matches!(self.graph.node(node).kind, Kind::GroupByKey | Kind::Sdk(_))
    }

    /// Adds a single-input Flatten from `origin` to a new collection with the coder of `like`.
    fn add_transcoding(
        &mut self,
        origin: CollectionRef,
        like: CollectionRef,
        nearest: &[Option<EnvironmentId>],
    ) -> CollectionRef {
        let producer = self.graph.collection(like).producer.expect("the graph is complete");
        let (of, name) = (self.graph.node(producer).id.clone(), self.graph.node(producer).name.clone());
        let made_by = self.graph.collection(origin).producer.and_then(|producer| nearest[producer.0]);
        let environment = made_by.or_else(|| self.environments.only());
        match environment {
            Some(environment) if !self.environments.is_wasm(environment) => {}
            _ => {
                let what = format!("its input \"{}\" has another coder than its output, and no SDK there converts it", {
                    &self.graph.collection(origin).unique_name
                });
                self.problems.at(&name, what, "give all inputs of a Flatten the same type");
            }
        }
        let (coder, unbounded) = (self.graph.collection(like).coder, self.graph.collection(origin).unbounded);
        let origin_id = self.graph.collection(origin).id.clone();
        let output = self.made_up_collection(format!("{of}/Transcode/{origin_id}.out"), coder, origin, unbounded);
        let id = self.made_up_id(&of, &format!("Transcode/{origin_id}"));
        let label = format!("{name}/Transcode");
        let sdk = flatten_in_sdk(&label, environment.unwrap_or(EnvironmentId(0)));
        let kind = Kind::Sdk(Box::new(sdk));
        let node = Node { id, name, label, kind, mains: vec![origin], sides: Vec::new(), outputs: vec![("out".into(), output)] };
        let node = node.with_ports("in", &self.graph);
        self.graph.add_node(node, &mut self.problems);
        output
    }
}

/// The leader of a set of collections, with the path to it shortened.
fn find(leader: &mut [usize], mut index: usize) -> usize {
    while leader[index] != index {
        leader[index] = leader[leader[index]];
        index = leader[index];
    }
    index
}
