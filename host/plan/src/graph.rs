//! The pipeline as a graph of what is really executed: no composites, inputs told apart, ids resolved.

use std::collections::{BTreeMap, BTreeSet};

use model::EnvironmentId;
use proto::pipeline::{PTransform, ParDoPayload, SideInput};

use crate::Problems;
use crate::coders::CoderRef;

/// A transform of a [`Graph`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct NodeRef(pub(crate) usize);

/// A collection of a [`Graph`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct CollectionRef(pub(crate) usize);

/// Transforms and collections; indices are in order of the pipeline where it has one, so that plans are stable.
#[derive(Default)]
pub(crate) struct Graph {
    pub(crate) nodes: Vec<Node>,
    pub(crate) collections: Vec<Collection>,
    by_id: BTreeMap<String, CollectionRef>,
    /// Outputs of transforms that were refused: whoever reads them is not at fault.
    pub(crate) abandoned: BTreeSet<String>,
    /// All nodes, producers before consumers; by [`Graph::sort`].
    pub(crate) order: Vec<NodeRef>,
}

#[derive(Clone, Debug)]
pub(crate) struct Collection {
    pub(crate) id: String,
    pub(crate) unique_name: String,
    pub(crate) coder: CoderRef,
    /// The submitted coder id, for descriptors of stages that keep the collection to themselves.
    pub(crate) coder_id: String,
    pub(crate) strategy: String,
    pub(crate) unbounded: bool,
    pub(crate) producer: Option<NodeRef>,
    /// Who reads it as main input; one entry for each time.
    pub(crate) mains: Vec<NodeRef>,
    /// Who reads it as side input.
    pub(crate) sides: Vec<NodeRef>,
}

#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) id: String,
    /// The user's name, for problems.
    pub(crate) name: String,
    /// The same, or what part of it this is.
    pub(crate) label: String,
    pub(crate) kind: Kind,
    /// Exactly one, except for Impulse and TestStream (none) and Flatten (any number, with repetitions).
    pub(crate) mains: Vec<CollectionRef>,
    pub(crate) sides: Vec<Side>,
    /// Tag and collection.
    pub(crate) outputs: Vec<(String, CollectionRef)>,
}

#[derive(Clone, Debug)]
pub(crate) struct Side {
    pub(crate) tag: String,
    pub(crate) collection: CollectionRef,
    pub(crate) spec: SideInput,
}

#[derive(Clone, Debug)]
pub(crate) enum Kind {
    Impulse,
    /// A TestStream: an index into the lowering's scripts. Its outputs are as those of the script.
    Script(usize),
    GroupByKey,
    Flatten,
    /// Reshuffle and Redistribute.
    Redistribute {
        by_key: bool,
    },
    /// Executed by an SDK or a component.
    Sdk(Box<Sdk>),
}

/// What is special about a transform that a worker executes.
#[derive(Clone, Debug)]
pub(crate) struct Sdk {
    /// What goes into a descriptor: without subtransforms and display data, and with real inputs and outputs only.
    pub(crate) message: PTransform,
    /// The environment, once it is known. Nodes that pass the end of planning have one.
    pub(crate) environment: Option<EnvironmentId>,
    /// Of a ParDo and of the parts of a splittable DoFn.
    pub(crate) par_do: Option<ParDoPayload>,
    pub(crate) role: Role,
}

/// Parts of a splittable DoFn that are planned differently from other transforms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Ordinary,
    /// Second part: stays with the first one although both may have side inputs.
    Split,
    /// Third part.
    Process,
}

impl Sdk {
    pub(crate) fn is_stateful(&self) -> bool {
        self.par_do.as_ref().is_some_and(|par_do| !par_do.state_specs.is_empty() || !par_do.timer_family_specs.is_empty())
    }

    /// Whether equal keys have to meet in one place.
    pub(crate) fn is_keyed(&self) -> bool {
        self.is_stateful() || self.par_do.as_ref().is_some_and(|par_do| par_do.requires_time_sorted_input)
    }

    pub(crate) fn requires_stable_input(&self) -> bool {
        self.par_do.as_ref().is_some_and(|par_do| par_do.requires_stable_input)
    }
}

impl Node {
    pub(crate) fn sdk(&self) -> Option<&Sdk> {
        match &self.kind {
            Kind::Sdk(sdk) => Some(sdk),
            _ => None,
        }
    }

    /// The only main input of a node that is neither Impulse, TestStream nor Flatten.
    pub(crate) fn main(&self) -> CollectionRef {
        self.mains[0]
    }
}

impl Graph {
    pub(crate) fn node(&self, node: NodeRef) -> &Node {
        &self.nodes[node.0]
    }

    pub(crate) fn collection(&self, collection: CollectionRef) -> &Collection {
        &self.collections[collection.0]
    }

    pub(crate) fn find(&self, id: &str) -> Option<CollectionRef> {
        self.by_id.get(id).copied()
    }

    pub(crate) fn add_collection(&mut self, collection: Collection) -> CollectionRef {
        let made = CollectionRef(self.collections.len());
        self.by_id.insert(collection.id.clone(), made);
        self.collections.push(collection);
        made
    }

    /// Adds a node and enters it at its collections. A collection with a producer already is a problem.
    pub(crate) fn add_node(&mut self, node: Node, problems: &mut Problems) -> NodeRef {
        let made = NodeRef(self.nodes.len());
        for (_, output) in &node.outputs {
            let collection = &mut self.collections[output.0];
            match collection.producer {
                None => collection.producer = Some(made),
                Some(first) if first == made => {}
                Some(first) => {
                    let other = &self.nodes[first.0].name;
                    let what = format!("its output \"{}\" is also an output of \"{other}\"", collection.id);
                    problems.at(&node.name, what, "a collection has exactly one producer");
                }
            }
        }
        for main in &node.mains {
            self.collections[main.0].mains.push(made);
        }
        for side in &node.sides {
            self.collections[side.collection.0].sides.push(made);
        }
        self.nodes.push(node);
        made
    }

    /// Main and side inputs, with repetitions.
    pub(crate) fn inputs_of(&self, node: NodeRef) -> impl Iterator<Item = CollectionRef> + '_ {
        let node = self.node(node);
        node.mains.iter().copied().chain(node.sides.iter().map(|side| side.collection))
    }

    /// Checks that every input is produced, and orders nodes: producers first, then as submitted.
    pub(crate) fn sort(&mut self, problems: &mut Problems) {
        let mut waits_for = vec![0usize; self.nodes.len()];
        for (index, waits_for) in waits_for.iter_mut().enumerate() {
            for input in self.inputs_of(NodeRef(index)) {
                let collection = self.collection(input);
                match collection.producer {
                    Some(_) => *waits_for += 1,
                    None if self.abandoned.contains(&collection.id) => {}
                    None => {
                        let what = format!("its input \"{}\" is produced by no transform", collection.id);
                        problems.at(&self.nodes[index].name, what, "the pipeline is incomplete");
                    }
                }
            }
        }
        let mut ready: BTreeSet<usize> = (0..self.nodes.len()).filter(|&index| waits_for[index] == 0).collect();
        self.order.clear();
        while let Some(index) = ready.pop_first() {
            self.order.push(NodeRef(index));
            let outputs: BTreeSet<CollectionRef> = self.nodes[index].outputs.iter().map(|(_, output)| *output).collect();
            for collection in outputs.iter().map(|output| &self.collections[output.0]) {
                if collection.producer != Some(NodeRef(index)) {
                    continue;
                }
                for consumer in collection.mains.iter().chain(&collection.sides) {
                    waits_for[consumer.0] -= 1;
                    if waits_for[consumer.0] == 0 {
                        ready.insert(consumer.0);
                    }
                }
            }
        }
        self.report_cycles(&waits_for, problems);
    }

    /// Follows unfinished producers from every unfinished node. A path that comes back to itself is a cycle; one that comes to
    /// where an earlier path was leads to a cycle that has been reported.
    fn report_cycles(&self, waits_for: &[usize], problems: &mut Problems) {
        let mut walked = vec![false; self.nodes.len()];
        for start in (0..self.nodes.len()).filter(|&node| waits_for[node] > 0) {
            let mut path = Vec::new();
            let mut next = Some(start);
            while let Some(node) = next.filter(|&node| !walked[node]) {
                walked[node] = true;
                path.push(node);
                let producers = self.inputs_of(NodeRef(node)).filter_map(|input| self.collection(input).producer);
                next = producers.map(|producer| producer.0).find(|&producer| waits_for[producer] > 0);
            }
            let Some(from) = path.iter().position(|&node| Some(node) == next) else { continue };
            let names: Vec<_> = path[from..].iter().rev().map(|&node| format!("\"{}\"", self.nodes[node].name)).collect();
            let what = format!("it depends on its own output, through {}", names.join(", "));
            problems.at(&self.nodes[path[from]].name, what, "a pipeline has no cycles");
        }
    }
}
