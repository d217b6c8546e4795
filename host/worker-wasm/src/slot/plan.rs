//! A stage resolved against its components: which transform of which component, and that the coders fit.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::{Batch, Coder, EnvironmentId, TransformId, WindowCoder, urn};
use worker::{Error, StageSpec, TransformSpec};

use crate::Component;
use crate::bindings::types;
use crate::columns::Reads;
use crate::host::cut;
use crate::manifest::{CoderManifest, StateManifest, TimeDomain, TransformManifest};
use crate::payload::DofnPayload;
use crate::trouble::Trouble;

pub(super) struct Plan {
    /// The components of the stage, each once.
    pub(super) components: Vec<Arc<Component>>,
    /// By transform; none for a Flatten.
    pub(super) nodes: Vec<Option<Node>>,
    /// The windows of all collections of the stage.
    pub(super) window_coder: WindowCoder,
}

/// A DoFn of the stage.
pub(super) struct Node {
    pub(super) id: TransformId,
    /// The user's name.
    label: String,
    /// Index into [`Plan::components`].
    pub(super) component: usize,
    /// The transform's name in the component.
    pub(super) name: String,
    pub(super) config: Vec<u8>,
    pub(super) reads: Reads,
    /// What it has besides, if it has state or timers.
    pub(super) keyed: Option<Keyed>,
    /// By the guest's number of an output: its index in the spec, or none where the pipeline does not use it.
    pub(super) outputs: Vec<Option<usize>>,
}

/// State and timers of a DoFn.
pub(super) struct Keyed {
    /// By the guest's number.
    pub(super) states: Arc<[StateManifest]>,
    /// By the guest's number of a timer family: its number in the stage.
    pub(super) families: Vec<usize>,
    /// Coder of the input.
    pub(super) input: Coder,
}

/// Longest message of a guest in an error, in bytes.
const MESSAGE_BYTES_MAX: usize = 32 << 10;
/// Longest code of a refused element in an error, in bytes.
const CODE_BYTES_MAX: usize = 64;

impl Plan {
    pub(super) fn of(stage: &StageSpec, components: &BTreeMap<EnvironmentId, Arc<Component>>) -> Result<Plan, Error> {
        let window_coder = stage.source.window_coder;
        let mut plan = Plan { components: Vec::new(), nodes: Vec::new(), window_coder };
        let mut coders = BTreeMap::from([(stage.source.collection.as_str(), stage.source.coder.clone())]);
        for transform in &stage.transforms {
            let input = coders.get(transform.input.as_str()).cloned();
            if transform.urn == urn::FLATTEN {
                if let (Some(coder), [(_, output)]) = (input, transform.outputs.as_slice()) {
                    coders.insert(output, coder);
                }
                plan.nodes.push(None);
                continue;
            }
            let (manifest, mut node) = plan.resolve(transform, components)?;
            node.keyed = node.keyed_of(&manifest, stage)?;
            if let Some(input) = input {
                node.check_coder("input", &manifest.input, &input)?;
            }
            for (output, spec) in manifest.outputs.iter().zip(&node.outputs) {
                if let Some(spec) = spec {
                    coders.insert(&transform.outputs[*spec].1, node.model_coder(&output.coder)?);
                }
            }
            plan.nodes.push(Some(node));
        }
        plan.check_sinks(stage, &coders)?;
        Ok(plan)
    }

    pub(super) fn node(&self, transform: usize) -> &Node {
        self.nodes[transform].as_ref().expect("a body does not run Flattens")
    }

    fn resolve(
        &mut self,
        transform: &TransformSpec,
        components: &BTreeMap<EnvironmentId, Arc<Component>>,
    ) -> Result<(TransformManifest, Node), Error> {
        let refuse = |reason: String| user_error(transform, &reason);
        if transform.urn != urn::PAR_DO || transform.dofn_urn != urn::DOFN_WASM {
            let what = if transform.dofn_urn.is_empty() { &transform.urn } else { &transform.dofn_urn };
            return Err(refuse(format!("{what} does not run in components")));
        }
        let payload = DofnPayload::decode(&transform.dofn_payload).map_err(|error| refuse(format!("payload: {error}")))?;
        let component = components.get(&transform.environment);
        let component = component.ok_or_else(|| {
            Error::Protocol(format!("{} of transform {} has no component", transform.environment, transform.id))
        })?;
        let Some(manifest) = component.manifest().transform(&payload.name).cloned() else {
            let names: Vec<&str> = component.manifest().transforms.iter().map(|transform| transform.name.as_str()).collect();
            return Err(refuse(format!("the component has no transform `{}`, only {}", payload.name, names.join(", "))));
        };
        let tags: Vec<&str> = manifest.outputs.iter().map(|output| output.tag.as_str()).collect();
        if let Some((tag, _)) = transform.outputs.iter().find(|(tag, _)| !tags.contains(&tag.as_str())) {
            return Err(refuse(format!("`{}` has no output `{tag}`, only {}", payload.name, tags.join(", "))));
        }
        let outputs = tags.iter().map(|tag| transform.outputs.iter().position(|(used, _)| used == tag)).collect();
        let known = self.components.iter().position(|known| Arc::ptr_eq(known, component));
        let index = known.unwrap_or(self.components.len());
        if known.is_none() {
            self.components.push(component.clone());
        }
        let node = Node {
            id: transform.id.clone(),
            label: transform.name.clone(),
            component: index,
            name: payload.name,
            config: payload.config,
            reads: Reads::of(&manifest),
            keyed: None,
            outputs,
        };
        Ok((manifest, node))
    }

    fn check_sinks(&self, stage: &StageSpec, coders: &BTreeMap<&str, Coder>) -> Result<(), Error> {
        for sink in &stage.sinks {
            if sink.port.window_coder != self.window_coder {
                return Err(Error::Protocol(format!("sink {} has other windows than the stage's input", sink.port.transform)));
            }
            let made = coders.get(sink.port.collection.as_str());
            if made.is_some_and(|coder| *coder != sink.port.coder) {
                let message = format!(
                    "collection {} is declared with coder {:?}, but what makes it has coder {:?}",
                    sink.port.collection, sink.port.coder, made
                );
                return Err(Error::User { transform: None, message });
            }
        }
        Ok(())
    }
}

fn user_error(transform: &TransformSpec, reason: &str) -> Error {
    Error::User { transform: Some(transform.id.clone()), message: format!("{}: {reason}", transform.name) }
}

impl Node {
    /// Resolves state and timers. The stage's timer families of this transform must be those that the component declares.
    fn keyed_of(&self, manifest: &TransformManifest, stage: &StageSpec) -> Result<Option<Keyed>, Error> {
        let family =
            |name: &str| stage.timer_families.iter().position(|family| family.transform == self.id && family.family == *name);
        let mut mine = stage.timer_families.iter().filter(|family| family.transform == self.id);
        if let Some(stray) = mine.find(|it| !manifest.timers.iter().any(|timer| timer.name == it.family)) {
            return Err(self.error(&format!("the pipeline names a timer family `{}` that it does not have", stray.family)));
        }
        if !manifest.is_keyed() {
            return Ok(None);
        }
        let families = manifest.timers.iter().map(|timer| {
            let missing = || self.error(&format!("the pipeline does not name its timer family `{}`", timer.name));
            let number = family(&timer.name).ok_or_else(missing)?;
            match stage.timer_families[number].event_time == (timer.domain == TimeDomain::EventTime) {
                true => Ok(number),
                false => Err(self.error(&format!("the pipeline names its timer family `{}` in another time domain", timer.name))),
            }
        });
        let families = families.collect::<Result<_, _>>()?;
        let (states, input) = (manifest.states.clone().into(), self.model_coder(&manifest.input)?);
        Ok(Some(Keyed { states, families, input }))
    }

    fn check_coder(&self, what: &str, declared: &CoderManifest, given: &Coder) -> Result<(), Error> {
        if self.model_coder(declared)? == *given {
            return Ok(());
        }
        Err(self.error(&format!("its {what} must have coder {declared}, but the collection has {given:?}")))
    }

    fn model_coder(&self, coder: &CoderManifest) -> Result<Coder, Error> {
        coder.model_coder().map_err(|reason| self.error(&reason))
    }

    /// An error of this DoFn. It begins with the user's name for it; what a guest says has a limit.
    pub(super) fn error(&self, reason: &str) -> Error {
        let message = format!("{} (`{}` of its component): {}", self.label, self.name, cut(reason, MESSAGE_BYTES_MAX));
        Error::User { transform: Some(self.id.clone()), message }
    }

    pub(super) fn trouble(&self, trouble: &Trouble, place: &str) -> Error {
        let stack = if trouble.backtrace.is_empty() { "" } else { "\nguest backtrace:" };
        self.error(&format!("{}{place}{stack}{}", trouble.message, trouble.backtrace))
    }

    pub(super) fn failure(&self, failure: types::Failure) -> Error {
        match failure {
            types::Failure::Permanent(reason) => self.error(&reason),
            types::Failure::Retry(reason) => {
                let reason = cut(&reason, MESSAGE_BYTES_MAX);
                Error::Infrastructure(format!(
                    "{} (`{}` of its component) asks to be tried again: {reason}",
                    self.label, self.name
                ))
            }
        }
    }

    pub(super) fn opened(&self, answer: crate::instance::Answer<u32>) -> Result<u32, Error> {
        match answer {
            Ok(Ok(handle)) => Ok(handle),
            Ok(Err(failure)) => Err(self.failure(failure)),
            Err(trouble) => Err(self.trouble(&trouble, "")),
        }
    }

    pub(super) fn rejected(&self, rejection: &types::Rejection, count: usize, input: Option<&Batch>) -> Error {
        let row = rejection.row as usize;
        let place = match input {
            Some(input) if row < input.rows() => {
                format!("row {row} of {} in its batch, first bytes {}", input.rows(), worker::body::hex(input.value(row)))
            }
            _ => return self.error(&format!("the component refused row {row}, which it was not given")),
        };
        let more = if count > 1 { format!("; {} more rows of the batch were refused", count - 1) } else { String::new() };
        self.error(&format!(
            "{} ({})\n{place}{more}",
            cut(&rejection.detail, MESSAGE_BYTES_MAX / 2),
            cut(&rejection.code, CODE_BYTES_MAX)
        ))
    }
}
