//! From the submitted pipeline to a [`Graph`]: composites are descended into or taken whole, splittable DoFns, combines and old
//! reads are expanded, and what cannot run here is noted.

mod combine;
mod par_do;
mod read;
pub(crate) mod test_stream;

use std::collections::BTreeSet;

use model::urn;
use proto::pipeline::{Components, PCollection, PTransform, Pipeline, is_bounded};

use crate::capabilities::Capabilities;
use crate::coders::{CoderRef, Coders};
use crate::environments::Environments;
use crate::graph::*;
use crate::windowing::Strategies;
use crate::{Origins, Problems};

const CREATE_VIEW: &str = "beam:transform:create_view:v1";
const EXECUTABLE_STAGE: &str = "beam:runner:executable_stage:v1";

/// Transforms that every SDK executes, whatever environment they name.
const SDK_TRANSFORMS: [&str; 10] = [
    urn::WINDOW_INTO,
    urn::COMBINE_GROUPED_VALUES,
    urn::COMBINE_PRECOMBINE,
    urn::COMBINE_MERGE_ACCUMULATORS,
    urn::COMBINE_EXTRACT_OUTPUTS,
    urn::COMBINE_CONVERT_TO_ACCUMULATORS,
    "beam:transform:map_windows:v1",
    urn::MERGE_WINDOWS,
    "beam:transform:to_string:v1",
    read::READ_FROM_IMPULSE,
];

/// Names of composites that no SDK can execute as such.
const COMPOSITES: [&str; 4] = [
    "beam:transform:pickled_python:v1",
    "beam:transform:generic_composite:v1",
    urn::COMBINE_GLOBALLY,
    "beam:transform:group_into_batches:v1",
];

/// The transform was refused or left out; the reason is among the problems.
pub(crate) struct Refused;

/// Everything that planning knows and makes on its way.
pub(crate) struct Lowering<'a> {
    pub(crate) components: &'a Components,
    pub(crate) coders: Coders<'a>,
    pub(crate) strategies: Strategies<'a>,
    pub(crate) environments: Environments<'a>,
    pub(crate) graph: Graph,
    pub(crate) scripts: Vec<test_stream::Script>,
    pub(crate) origins: Origins,
    pub(crate) problems: Problems,
}

impl<'a> Lowering<'a> {
    pub(crate) fn new(components: &'a Components, capabilities: &'a Capabilities) -> Self {
        Lowering {
            components,
            coders: Coders::new(&components.coders),
            strategies: Strategies::new(&components.windowing_strategies),
            environments: Environments::new(&components.environments, capabilities),
            graph: Graph::default(),
            scripts: Vec::new(),
            origins: Origins::default(),
            problems: Problems::default(),
        }
    }

    /// Walks down from the roots, in the order in which the SDK lists transforms.
    pub(crate) fn lower(&mut self, pipeline: &'a Pipeline) {
        let mut open: Vec<&'a str> = self.roots(pipeline);
        open.reverse();
        let mut seen = BTreeSet::new();
        while let Some(id) = open.pop() {
            if !seen.insert(id) {
                continue;
            }
            let Some(transform) = self.components.transforms.get(id) else {
                self.problems
                    .of_pipeline(format!("transform \"{id}\" is referred to but does not exist"), "the pipeline is incomplete");
                continue;
            };
            self.origins.names.insert(id.to_owned(), transform.unique_name.clone());
            match self.transform(id, transform) {
                Ok(Next::Done) => {}
                Ok(Next::Descend) => open.extend(transform.subtransforms.iter().rev().map(String::as_str)),
                Err(Refused) => self.graph.abandoned.extend(transform.outputs.values().cloned()),
            }
        }
    }

    /// The listed roots; of a pipeline that lists none, the transforms that are no part of another one.
    fn roots(&self, pipeline: &'a Pipeline) -> Vec<&'a str> {
        if !pipeline.root_transform_ids.is_empty() {
            return pipeline.root_transform_ids.iter().map(String::as_str).collect();
        }
        let parts: BTreeSet<&str> =
            self.components.transforms.values().flat_map(|transform| &transform.subtransforms).map(String::as_str).collect();
        self.components.transforms.keys().map(String::as_str).filter(|id| !parts.contains(id)).collect()
    }

    fn transform(&mut self, id: &str, transform: &PTransform) -> Result<Next, Refused> {
        let urn = transform.spec.as_ref().map_or("", |spec| spec.urn.as_str());
        let is_leaf = transform.subtransforms.is_empty();
        match urn {
            urn::IMPULSE => self.impulse(id, transform),
            urn::FLATTEN if is_identity(transform) => Ok(Next::Done),
            urn::FLATTEN => self.flatten(id, transform),
            urn::GROUP_BY_KEY => self.one_to_one(id, transform, Kind::GroupByKey),
            urn::RESHUFFLE => self.reshuffle(id, transform),
            urn::REDISTRIBUTE_BY_KEY => self.one_to_one(id, transform, Kind::Redistribute { by_key: true }),
            urn::REDISTRIBUTE_ARBITRARILY => self.one_to_one(id, transform, Kind::Redistribute { by_key: false }),
            urn::PAR_DO | urn::SDF_PAIR | urn::SDF_SPLIT | urn::SDF_PROCESS | urn::SDF_TRUNCATE => self.par_do(id, transform),
            urn::COMBINE_PER_KEY => self.combine_per_key(id, transform),
            urn::READ if is_leaf => self.read(id, transform),
            urn::TEST_STREAM => self.test_stream(id, transform),
            CREATE_VIEW if is_leaf => Ok(Next::Done),
            EXECUTABLE_STAGE | urn::RUNNER_SOURCE | urn::RUNNER_SINK => {
                let what = format!("the client has already cut this pipeline into stages ({urn})");
                Err(self.refuse(transform, what, "leave the experiment pre_optimize=all away"))
            }
            _ if !is_leaf => Ok(Next::Descend),
            _ if SDK_TRANSFORMS.contains(&urn) => self.sdk(id, transform),
            _ if is_identity(transform) || (transform.outputs.is_empty() && transform.environment_id.is_empty()) => {
                Ok(Next::Done)
            }
            _ if COMPOSITES.contains(&urn) || urn.is_empty() => {
                let what = format!("it is a composite without parts (urn \"{urn}\")");
                Err(self.refuse(transform, what, "expand it before the pipeline is submitted"))
            }
            _ if transform.environment_id.is_empty() => {
                let what = format!("it is unknown here and names no environment that knows it (urn \"{urn}\")");
                Err(self.refuse(transform, what, "use a transform of Beam's model, or one that expands to such"))
            }
            _ => self.sdk(id, transform),
        }
    }

    fn impulse(&mut self, id: &str, transform: &PTransform) -> Result<Next, Refused> {
        let output = self.only_output(transform)?;
        self.add(id, transform, Kind::Impulse, Vec::new(), vec![output]);
        Ok(Next::Done)
    }

    fn flatten(&mut self, id: &str, transform: &PTransform) -> Result<Next, Refused> {
        let output = self.only_output(transform)?;
        let mut inputs = Vec::with_capacity(transform.inputs.len());
        for input in transform.inputs.values() {
            inputs.push(self.collection(input, transform)?);
        }
        self.add(id, transform, Kind::Flatten, inputs, vec![output]);
        Ok(Next::Done)
    }

    /// Python's Reshuffle keeps equal keys together where there are keys.
    fn reshuffle(&mut self, id: &str, transform: &PTransform) -> Result<Next, Refused> {
        let input = self.only_input(transform)?;
        let by_key = self.coders.kv(self.graph.collection(input).coder).is_some();
        self.one_to_one(id, transform, Kind::Redistribute { by_key })
    }

    fn one_to_one(&mut self, id: &str, transform: &PTransform, kind: Kind) -> Result<Next, Refused> {
        let input = self.only_input(transform)?;
        let output = self.only_output(transform)?;
        self.add(id, transform, kind, vec![input], vec![output]);
        Ok(Next::Done)
    }

    fn only_input(&mut self, transform: &PTransform) -> Result<CollectionRef, Refused> {
        match transform.inputs.len() {
            1 => self.collection(transform.inputs.values().next().expect("there is one"), transform),
            count => Err(self.refuse(transform, format!("it has {count} inputs instead of one"), "the pipeline is malformed")),
        }
    }

    fn only_output(&mut self, transform: &PTransform) -> Result<(String, CollectionRef), Refused> {
        match transform.outputs.len() {
            1 => {
                let (tag, output) = transform.outputs.iter().next().expect("there is one");
                Ok((tag.clone(), self.collection(output, transform)?))
            }
            count => Err(self.refuse(transform, format!("it has {count} outputs instead of one"), "the pipeline is malformed")),
        }
    }

    fn add(
        &mut self,
        id: &str,
        transform: &PTransform,
        kind: Kind,
        mains: Vec<CollectionRef>,
        outputs: Vec<(String, CollectionRef)>,
    ) {
        let (name, label) = (transform.unique_name.clone(), transform.unique_name.clone());
        let node = Node { id: id.to_owned(), name, label, kind, mains, sides: Vec::new(), outputs };
        self.graph.add_node(node, &mut self.problems);
    }

    /// A collection by its submitted id, checked when it is first mentioned.
    pub(crate) fn collection(&mut self, id: &str, user: &PTransform) -> Result<CollectionRef, Refused> {
        if let Some(known) = self.graph.find(id) {
            return Ok(known);
        }
        if self.graph.abandoned.contains(id) {
            return Err(Refused);
        }
        let made = match self.components.pcollections.get(id) {
            Some(message) => self.check_collection(id, message),
            None => Err(format!("collection \"{id}\" does not exist")),
        };
        match made {
            Ok(collection) => Ok(self.graph.add_collection(collection)),
            Err(what) => {
                self.graph.abandoned.insert(id.to_owned());
                Err(self.refuse(user, what, "correct what is named, or rebuild the pipeline with a released SDK"))
            }
        }
    }

    fn check_collection(&mut self, id: &str, message: &PCollection) -> Result<Collection, String> {
        let about = |what: String| format!("collection \"{id}\": {what}");
        let coder = self.coders.lookup(&message.coder_id).map_err(|fault| about(fault.to_string()))?;
        let strategy = &message.windowing_strategy_id;
        self.strategies
            .lookup(strategy, &mut self.coders, &mut self.environments)
            .map_err(|fault| about(format!("its windowing strategy \"{strategy}\" {fault}")))?;
        let unbounded = match is_bounded::Enum::try_from(message.is_bounded) {
            Ok(is_bounded::Enum::Bounded) => false,
            Ok(is_bounded::Enum::Unbounded) => true,
            Ok(is_bounded::Enum::Unspecified) | Err(_) => return Err(about("does not say whether it is bounded".into())),
        };
        Ok(Collection {
            id: id.to_owned(),
            unique_name: message.unique_name.clone(),
            coder,
            coder_id: message.coder_id.clone(),
            strategy: strategy.clone(),
            unbounded,
            producer: None,
            mains: Vec::new(),
            sides: Vec::new(),
        })
    }

    /// A collection that is made up, in the windows of another one.
    pub(crate) fn made_up_collection(
        &mut self,
        id: String,
        coder: CoderRef,
        like: CollectionRef,
        unbounded: bool,
    ) -> CollectionRef {
        let mut id = id;
        while self.components.pcollections.contains_key(&id) || self.graph.find(&id).is_some() {
            id.push('#');
        }
        self.origins.collections.insert(id.clone());
        self.graph.add_collection(Collection {
            unique_name: id.clone(),
            id,
            coder,
            coder_id: self.coders.id(coder).to_owned(),
            strategy: self.graph.collection(like).strategy.clone(),
            unbounded,
            producer: None,
            mains: Vec::new(),
            sides: Vec::new(),
        })
    }

    /// An id for a part of a submitted transform.
    pub(crate) fn made_up_id(&mut self, of: &str, part: &str) -> String {
        let mut id = format!("{of}/{part}");
        while self.components.transforms.contains_key(&id) || self.origins.transforms.contains_key(&id) {
            id.push('#');
        }
        self.origins.transforms.insert(id.clone(), of.to_owned());
        id
    }

    pub(crate) fn refuse(&mut self, transform: &PTransform, what: impl Into<String>, hint: impl Into<String>) -> Refused {
        self.problems.at(&transform.unique_name, what, hint);
        Refused
    }
}

/// What comes after a transform was looked at.
pub(crate) enum Next {
    Done,
    Descend,
}

/// Whether it only passes on what it is given.
fn is_identity(transform: &PTransform) -> bool {
    !transform.outputs.is_empty()
        && transform.outputs.values().all(|output| transform.inputs.values().any(|input| input == output))
}
