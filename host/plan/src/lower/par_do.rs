//! Transforms that a worker executes: ParDo, the parts of a splittable DoFn, and whatever else an SDK knows.

use model::urn;
use prost::Message;
use proto::pipeline::{PTransform, ParDoPayload, time_domain};

use super::{Lowering, Next, Refused};
use crate::coders::{DOUBLE, KV};
use crate::graph::*;

/// Inputs of a transform, told apart.
pub(super) struct Inputs {
    pub(super) main_tag: String,
    pub(super) main: CollectionRef,
    pub(super) sides: Vec<Side>,
}

impl Lowering<'_> {
    /// A transform that an SDK executes and that has no ParDo payload.
    pub(super) fn sdk(&mut self, id: &str, transform: &PTransform) -> Result<Next, Refused> {
        let inputs = self.inputs(transform, None)?;
        self.add_sdk(id, transform, None, Role::Ordinary, inputs)?;
        Ok(Next::Done)
    }

    pub(super) fn par_do(&mut self, id: &str, transform: &PTransform) -> Result<Next, Refused> {
        let spec = transform.spec.clone().unwrap_or_default();
        let Ok(payload) = ParDoPayload::decode(spec.payload.clone()) else {
            return Err(self.refuse(transform, "its ParDo payload is malformed", "the pipeline is malformed"));
        };
        self.check_par_do(transform, &payload)?;
        let inputs = self.inputs(transform, Some(&payload))?;
        let role = match spec.urn.as_str() {
            urn::SDF_SPLIT => Role::Split,
            urn::SDF_PROCESS => Role::Process,
            urn::PAR_DO if !payload.restriction_coder_id.is_empty() => return self.splittable(id, transform, payload, inputs),
            _ => Role::Ordinary,
        };
        self.add_sdk(id, transform, Some(payload), role, inputs)?;
        Ok(Next::Done)
    }

    /// Notes everything that is wrong with one ParDo in itself.
    fn check_par_do(&mut self, transform: &PTransform, payload: &ParDoPayload) -> Result<(), Refused> {
        let is_stateful = !payload.state_specs.is_empty() || !payload.timer_family_specs.is_empty();
        let mut malformed: Vec<String> = Vec::new();
        let expiration = &payload.on_window_expiration_timer_family_spec;
        if !expiration.is_empty() && !payload.timer_family_specs.contains_key(expiration) {
            malformed.push(format!("its window expiration callback names a timer family that does not exist ({expiration})"));
        }
        for (family, spec) in &payload.timer_family_specs {
            use time_domain::Enum::{EventTime, ProcessingTime};
            if !matches!(time_domain::Enum::try_from(spec.time_domain), Ok(EventTime | ProcessingTime)) {
                malformed.push(format!("its timer family {family} does not say in which time domain it is"));
            }
        }
        let mut refused = malformed.into_iter().map(|what| self.refuse(transform, what, "the pipeline is malformed")).last();
        if is_stateful && !payload.restriction_coder_id.is_empty() {
            let what = "state or timers in a splittable DoFn are supported by no runner";
            refused = Some(self.refuse(transform, what, "split it into two transforms"));
        }
        refused.map_or(Ok(()), Err)
    }

    /// Tells main and side inputs apart. Old SDKs listed timers among the inputs.
    pub(super) fn inputs(&mut self, transform: &PTransform, payload: Option<&ParDoPayload>) -> Result<Inputs, Refused> {
        let mut mains = Vec::new();
        let mut sides = Vec::new();
        for (tag, id) in &transform.inputs {
            if payload.is_some_and(|payload| payload.timer_family_specs.contains_key(tag)) {
                continue;
            }
            let collection = self.collection(id, transform)?;
            match payload.and_then(|payload| payload.side_inputs.get(tag)) {
                Some(spec) => sides.push(Side { tag: tag.clone(), collection, spec: spec.clone() }),
                None => mains.push((tag.clone(), collection)),
            }
        }
        for tag in payload.iter().flat_map(|payload| payload.side_inputs.keys()) {
            if !transform.inputs.contains_key(tag) {
                let what = format!("its side input \"{tag}\" is not among its inputs");
                return Err(self.refuse(transform, what, "the pipeline is malformed"));
            }
        }
        let what = match <[_; 1]>::try_from(mains) {
            Ok([(main_tag, main)]) => return Ok(Inputs { main_tag, main, sides }),
            Err(mains) if mains.is_empty() => "it has no main input and is not an Impulse or a read",
            Err(_) => "it has several main inputs",
        };
        Err(self.refuse(transform, what, "the pipeline is malformed"))
    }

    fn add_sdk(
        &mut self,
        id: &str,
        transform: &PTransform,
        payload: Option<ParDoPayload>,
        role: Role,
        inputs: Inputs,
    ) -> Result<(), Refused> {
        let mut outputs = Vec::with_capacity(transform.outputs.len());
        for (tag, output) in &transform.outputs {
            if !payload.as_ref().is_some_and(|payload| payload.timer_family_specs.contains_key(tag)) {
                outputs.push((tag.clone(), self.collection(output, transform)?));
            }
        }
        let environment = match transform.environment_id.as_str() {
            "" => None,
            id => match self.environments.in_use(id) {
                Ok(environment) => Some(environment),
                Err(fault) => return Err(self.refuse(transform, fault, "")),
            },
        };
        let message = PTransform {
            spec: transform.spec.clone(),
            unique_name: transform.unique_name.clone(),
            environment_id: transform.environment_id.clone(),
            annotations: transform.annotations.clone(),
            ..Default::default()
        };
        let sdk = Sdk { message, environment, par_do: payload, role };
        let node = Node {
            id: id.to_owned(),
            name: transform.unique_name.clone(),
            label: transform.unique_name.clone(),
            kind: Kind::Sdk(Box::new(sdk)),
            mains: vec![inputs.main],
            sides: inputs.sides,
            outputs,
        };
        self.graph.add_node(node.with_ports(&inputs.main_tag, &self.graph), &mut self.problems);
        Ok(())
    }

    /// Pair with a restriction, split and size, process (`beam-model` 4.5). All parts keep payload, environment and side
    /// inputs; only the main input changes.
    fn splittable(&mut self, id: &str, transform: &PTransform, payload: ParDoPayload, inputs: Inputs) -> Result<Next, Refused> {
        let main = self.graph.collection(inputs.main);
        let (element, unbounded_input) = (main.coder, main.unbounded);
        let unbounded = unbounded_input
            || transform.outputs.values().any(|output| {
                use proto::pipeline::is_bounded::Enum::Unbounded;
                self.components.pcollections.get(output).is_some_and(|message| message.is_bounded == Unbounded as i32)
            });
        let coders = (|| {
            let restriction = self.coders.lookup(&payload.restriction_coder_id)?;
            let paired = self.coders.make(KV, &[element, restriction])?;
            let double = self.coders.make(DOUBLE, &[])?;
            Ok::<_, crate::coders::CoderFault>((paired, self.coders.make(KV, &[paired, double])?))
        })();
        let (paired, sized) = match coders {
            Ok(coders) => coders,
            Err(fault) => return Err(self.refuse(transform, format!("its restrictions: {fault}"), "the pipeline is malformed")),
        };
        let paired = self.made_up_collection(format!("{id}/PairWithRestriction.out"), paired, inputs.main, unbounded);
        let sized = self.made_up_collection(format!("{id}/SplitAndSizeRestriction.out"), sized, inputs.main, unbounded);

        let part = |urn: &str, name: &str, last: bool| PTransform {
            spec: Some(proto::pipeline::FunctionSpec {
                urn: urn.to_owned(),
                payload: transform.spec.clone().unwrap_or_default().payload,
            }),
            unique_name: format!("{}/{name}", transform.unique_name),
            outputs: if last { transform.outputs.clone() } else { Default::default() },
            ..transform.clone()
        };
        let parts = [
            (urn::SDF_PAIR, "PairWithRestriction", Role::Ordinary, inputs.main, Some(paired)),
            (urn::SDF_SPLIT, "SplitAndSizeRestriction", Role::Split, paired, Some(sized)),
            (urn::SDF_PROCESS, "Process", Role::Process, sized, None),
        ];
        for (urn, name, role, main, output) in parts {
            let part_id = self.made_up_id(id, name);
            let mut message = part(urn, name, output.is_none());
            if let Some(output) = output {
                message.outputs.insert("out".into(), self.graph.collection(output).id.clone());
            }
            let inputs = Inputs { main_tag: inputs.main_tag.clone(), main, sides: inputs.sides.clone() };
            self.add_sdk(&part_id, &message, Some(payload.clone()), role, inputs)?;
            self.graph.nodes.last_mut().expect("it was just added").name = transform.unique_name.clone();
        }
        Ok(Next::Done)
    }
}

impl Node {
    /// Writes the node's real inputs and outputs into its message.
    pub(crate) fn with_ports(mut self, main_tag: &str, graph: &Graph) -> Node {
        let id = |collection: CollectionRef| graph.collection(collection).id.clone();
        let main = (main_tag.to_owned(), id(self.mains[0]));
        let inputs = self.sides.iter().map(|side| (side.tag.clone(), id(side.collection))).chain([main]).collect();
        let outputs = self.outputs.iter().map(|(tag, collection)| (tag.clone(), id(*collection))).collect();
        if let Kind::Sdk(sdk) = &mut self.kind {
            sdk.message.inputs = inputs;
            sdk.message.outputs = outputs;
        }
        self
    }
}
