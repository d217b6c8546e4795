//! The user states of a stage: their ids, how an SDK asks for them, and how their elements look on the wire.

use std::collections::BTreeSet;

use model::{Coder, TransformId};
use proto::pipeline::{StateSpec, state_spec};

use crate::fuse::Draft;
use crate::graph::*;
use crate::lower::Lowering;
use crate::plan::{StateKind, UserState};
use crate::wire::{Known, Wire};

/// Protocol of states that are read and written as one list.
const BAG: &str = "beam:user_state:bag:v1";

impl Lowering<'_> {
    pub(crate) fn user_states(&mut self, draft: &Draft) -> Vec<UserState> {
        let mut states = Vec::new();
        for &at in &draft.nodes {
            let node = self.graph.node(at);
            let (id, main) = (node.id.clone(), node.mains.first().copied());
            let specs = node.sdk().and_then(|sdk| sdk.par_do.as_ref()).map(|par_do| par_do.state_specs.clone());
            let (Some(main), Some(specs)) = (main, specs) else { continue };
            let known = self.known_to_states(at, main);
            for (state, spec) in &specs {
                if let Some(kind) = self.state_kind(spec, &known) {
                    states.push(UserState { transform: TransformId::from(&id), state: state.clone(), kind });
                }
            }
        }
        states
    }

    /// What the coders of a transform's states are made with. A component is given no descriptor that says so: it writes states
    /// as it declares them.
    fn known_to_states(&self, at: NodeRef, main: CollectionRef) -> Known {
        match self.graph.node(at).sdk().and_then(|sdk| sdk.environment) {
            Some(own) if self.environments.is_wasm(own) => Known::common([self.environments.get(own).capabilities.as_slice()]),
            _ => self.known_around(main),
        }
    }

    /// What the host and all SDKs that touch a collection know: the coders of states are made with it.
    pub(crate) fn known_around(&self, main: CollectionRef) -> Known {
        let collection = self.graph.collection(main);
        let environments = collection.mains.iter().chain(&collection.producer);
        let environments: BTreeSet<_> =
            environments.filter_map(|&at| self.graph.node(at).sdk().and_then(|sdk| sdk.environment)).collect();
        Known::common(environments.iter().map(|&environment| self.environments.get(environment).capabilities.as_slice()))
    }

    /// None for a kind of state that nobody knows.
    fn state_kind(&mut self, spec: &StateSpec, known: &Known) -> Option<StateKind> {
        use state_spec::Spec;
        let as_bag = spec.protocol.as_ref().is_some_and(|protocol| protocol.urn == BAG);
        Some(match spec.spec.as_ref()? {
            Spec::ReadModifyWriteSpec(spec) => StateKind::Bag { element: self.state_coder(&spec.coder_id, known) },
            Spec::BagSpec(spec) => StateKind::Bag { element: self.state_coder(&spec.element_coder_id, known) },
            Spec::CombiningSpec(spec) => StateKind::Bag { element: self.state_coder(&spec.accumulator_coder_id, known) },
            Spec::SetSpec(spec) if as_bag => StateKind::Bag { element: self.state_coder(&spec.element_coder_id, known) },
            // The members are the keys; what the one value of each is, only the SDK knows.
            Spec::SetSpec(_) => StateKind::Multimap { value: None },
            Spec::MapSpec(spec) => StateKind::Multimap { value: self.state_coder(&spec.value_coder_id, known) },
            Spec::MultimapSpec(spec) => StateKind::Multimap { value: self.state_coder(&spec.value_coder_id, known) },
            Spec::OrderedListSpec(_) => StateKind::OrderedList,
        })
    }

    fn state_coder(&mut self, id: &str, known: &Known) -> Option<Coder> {
        let coder = self.coders.lookup(id).ok()?;
        let wired = Wire::default().element(&mut self.coders, coder, known).ok()?;
        crate::wire::host_form(&self.coders, wired)
    }
}
