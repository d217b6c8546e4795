//! The `ProcessBundleDescriptor` of a stage, without id and endpoints (`beam-model` 3.2).
//!
//! Collections that cross the stage's border have their wire coder, so that what an SDK encodes for itself (residuals, state
//! keys, timers) has the bytes that the host sees. Collections inside keep the coder they were submitted with.

use std::collections::{BTreeMap, BTreeSet};

use model::TransformId;
use prost::Message;
use proto::fnapi::{ProcessBundleDescriptor, RemoteGrpcPort};
use proto::pipeline::{
    CombinePayload, Environment, FunctionSpec, PCollection, PTransform, ParDoPayload, StateSpec, WindowingStrategy, is_bounded,
    state_spec,
};

use crate::coders::{CoderRef, TIMER, WINDOWED_VALUE};
use crate::flow::Flow;
use crate::fuse::Draft;
use crate::graph::*;
use crate::lower::Lowering;
use crate::plan::Sink;
use crate::wire::{Known, Wire};

impl Lowering<'_> {
    pub(crate) fn descriptor(
        &mut self,
        draft: &Draft,
        flow: &Flow,
        source: &TransformId,
        leaving: &[CollectionRef],
        sinks: &[Sink],
    ) -> Vec<u8> {
        let mut coder_ids = BTreeSet::new();
        let mut transforms = BTreeMap::new();
        for &at in &draft.nodes {
            let message = self.transform_message(at, flow, &mut coder_ids);
            transforms.insert(self.graph.node(at).id.clone(), message);
        }
        let port = self.port(model::urn::RUNNER_SOURCE, draft.source, flow, &mut coder_ids);
        let outputs = [("out".to_owned(), self.graph.collection(draft.source).id.clone())].into();
        transforms.insert(source.to_string(), PTransform { outputs, unique_name: source.to_string(), ..port });
        for (&collection, sink) in leaving.iter().zip(sinks) {
            let port = self.port(model::urn::RUNNER_SINK, collection, flow, &mut coder_ids);
            let inputs = [("in".to_owned(), sink.collection.clone())].into();
            transforms.insert(sink.transform.to_string(), PTransform { inputs, unique_name: sink.transform.to_string(), ..port });
        }

        let pcollections = self.collection_messages(draft, flow, leaving);
        coder_ids.extend(pcollections.values().map(|message| message.coder_id.clone()));
        let strategies = self.strategy_messages(&pcollections);
        coder_ids.extend(strategies.values().map(|message| message.window_coder_id.clone()));
        let descriptor = ProcessBundleDescriptor {
            environments: self.environment_messages(&transforms, &strategies),
            transforms,
            pcollections,
            windowing_strategies: strategies,
            coders: self.coders.closure(coder_ids.iter().map(String::as_str)),
            ..Default::default()
        };
        descriptor.encode_to_vec()
    }

    fn port(&mut self, urn: &str, collection: CollectionRef, flow: &Flow, coder_ids: &mut BTreeSet<String>) -> PTransform {
        let window = self.strategies.get(&self.graph.collection(collection).strategy).coder;
        self.port_of(urn, flow.wire[collection.0], window, coder_ids)
    }

    /// A source or sink for elements of a wire coder in windows of another, without inputs, outputs or a name.
    pub(crate) fn port_of(
        &mut self,
        urn: &str,
        element: CoderRef,
        window: CoderRef,
        coder_ids: &mut BTreeSet<String>,
    ) -> PTransform {
        let windowed = self.made(WINDOWED_VALUE, &[element, window]);
        let coder_id = self.coders.id(windowed).to_owned();
        coder_ids.insert(coder_id.clone());
        let payload = RemoteGrpcPort { coder_id, ..Default::default() }.encode_to_vec().into();
        PTransform { spec: Some(FunctionSpec { urn: urn.to_owned(), payload }), ..Default::default() }
    }

    pub(crate) fn made(&mut self, urn: &str, components: &[CoderRef]) -> CoderRef {
        // A wire coder is at most a few levels deeper than a submitted one, which the limits were checked with.
        self.coders.make_unlimited(urn, components)
    }

    fn transform_message(&mut self, at: NodeRef, flow: &Flow, coder_ids: &mut BTreeSet<String>) -> PTransform {
        let node = self.graph.node(at);
        let sdk = node.sdk().expect("a body has SDK transforms only");
        let (main, mut message, par_do) = (node.main(), sdk.message.clone(), sdk.par_do.clone());
        if let Some(environment) = sdk.environment {
            message.environment_id = self.environments.get(environment).id.clone();
        }
        let Some(spec) = message.spec.as_mut() else { return message };
        match par_do {
            Some(mut par_do) => {
                if self.rewrite_coders(&mut par_do, main, flow, coder_ids) {
                    spec.payload = par_do.encode_to_vec().into();
                }
                coder_ids.insert(par_do.restriction_coder_id);
            }
            // Only combines have coders in other payloads; what happens to parse as one adds at most a coder too many.
            None => {
                if let Ok(combine) = CombinePayload::decode(spec.payload.clone()) {
                    coder_ids.insert(combine.accumulator_coder_id);
                }
            }
        }
        message
    }

    /// Gives state and timers wire coders, so that the host can read keys and timers. Returns whether there was any.
    fn rewrite_coders(
        &mut self,
        par_do: &mut ParDoPayload,
        main: CollectionRef,
        flow: &Flow,
        coder_ids: &mut BTreeSet<String>,
    ) -> bool {
        let known = self.known_around(main);
        for spec in par_do.state_specs.values_mut() {
            for id in coder_ids_of(spec) {
                self.rewrite_coder(id, &known);
                coder_ids.insert(id.clone());
            }
        }
        let window = self.strategies.get(&self.graph.collection(main).strategy).coder;
        let key = self.coders.kv(flow.wire[main.0]).map(|(key, _)| key);
        for spec in par_do.timer_family_specs.values_mut() {
            if let Some(key) = key {
                let timer = self.made(TIMER, &[key, window]);
                spec.timer_family_coder_id = self.coders.id(timer).to_owned();
            }
            coder_ids.insert(spec.timer_family_coder_id.clone());
        }
        !par_do.state_specs.is_empty() || !par_do.timer_family_specs.is_empty()
    }

    fn rewrite_coder(&mut self, id: &mut String, known: &Known) {
        let wired = self.coders.lookup(id).and_then(|coder| Wire::default().element(&mut self.coders, coder, known));
        if let Ok(wired) = wired {
            *id = self.coders.id(wired).to_owned();
        }
    }

    fn collection_messages(&self, draft: &Draft, flow: &Flow, leaving: &[CollectionRef]) -> BTreeMap<String, PCollection> {
        let mut crossing: BTreeSet<CollectionRef> = leaving.iter().copied().collect();
        crossing.insert(draft.source);
        let mut all = crossing.clone();
        for node in draft.nodes.iter().map(|&at| self.graph.node(at)) {
            crossing.extend(node.sides.iter().map(|side| side.collection));
            all.extend(node.mains.iter().copied());
            all.extend(node.outputs.iter().map(|(_, output)| *output));
        }
        all.extend(&crossing);
        let message = |at: CollectionRef| {
            let collection = self.graph.collection(at);
            let coder_id = match crossing.contains(&at) {
                true => self.coders.id(flow.wire[at.0]).to_owned(),
                false => collection.coder_id.clone(),
            };
            let message = PCollection {
                unique_name: collection.unique_name.clone(),
                coder_id,
                is_bounded: if collection.unbounded { is_bounded::Enum::Unbounded } else { is_bounded::Enum::Bounded } as i32,
                windowing_strategy_id: collection.strategy.clone(),
                display_data: Vec::new(),
            };
            (collection.id.clone(), message)
        };
        all.into_iter().map(message).collect()
    }

    fn strategy_messages(&self, pcollections: &BTreeMap<String, PCollection>) -> BTreeMap<String, WindowingStrategy> {
        let ids: BTreeSet<&String> = pcollections.values().map(|message| &message.windowing_strategy_id).collect();
        ids.into_iter().filter_map(|id| Some((id.clone(), self.strategies.message(id)?.clone()))).collect()
    }

    /// The environments that transforms and window functions name, as submitted but for display data and alternatives.
    fn environment_messages(
        &self,
        transforms: &BTreeMap<String, PTransform>,
        strategies: &BTreeMap<String, WindowingStrategy>,
    ) -> BTreeMap<String, Environment> {
        let of_transforms = transforms.values().map(|message| message.environment_id.as_str());
        let named = of_transforms.chain(strategies.values().map(|message| message.environment_id.as_str()));
        let named: BTreeSet<&str> = named.filter(|id| !id.is_empty()).collect();
        named.into_iter().filter_map(|id| Some((id.to_owned(), self.environments.message(id)?))).collect()
    }
}

fn coder_ids_of(spec: &mut StateSpec) -> Vec<&mut String> {
    match spec.spec.as_mut() {
        None => Vec::new(),
        Some(state_spec::Spec::ReadModifyWriteSpec(spec)) => vec![&mut spec.coder_id],
        Some(state_spec::Spec::BagSpec(spec)) => vec![&mut spec.element_coder_id],
        Some(state_spec::Spec::CombiningSpec(spec)) => vec![&mut spec.accumulator_coder_id],
        Some(state_spec::Spec::MapSpec(spec)) => vec![&mut spec.key_coder_id, &mut spec.value_coder_id],
        Some(state_spec::Spec::SetSpec(spec)) => vec![&mut spec.element_coder_id],
        Some(state_spec::Spec::OrderedListSpec(spec)) => vec![&mut spec.element_coder_id],
        Some(state_spec::Spec::MultimapSpec(spec)) => vec![&mut spec.key_coder_id, &mut spec.value_coder_id],
    }
}
