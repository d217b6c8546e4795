//! Environments in use: alternatives are chosen, equal ones are one, and what cannot be started here is refused.

use std::collections::BTreeMap;

use model::{EnvironmentId, urn};
use prost::Message;
use proto::pipeline::{self, AnyOfEnvironmentPayload};

use crate::{Capabilities, Environment};

/// How deep alternatives may nest.
const ALTERNATIVES_DEPTH_MAX: usize = 4;

pub(crate) struct Environments<'a> {
    submitted: &'a BTreeMap<String, pipeline::Environment>,
    capabilities: &'a Capabilities,
    by_id: BTreeMap<String, Result<EnvironmentId, String>>,
    in_use: Vec<Environment>,
}

impl<'a> Environments<'a> {
    pub(crate) fn new(submitted: &'a BTreeMap<String, pipeline::Environment>, capabilities: &'a Capabilities) -> Self {
        Environments { submitted, capabilities, by_id: BTreeMap::new(), in_use: Vec::new() }
    }

    /// The environment with a submitted id, which from now on counts as used. The error says what is wrong with it and what
    /// to do.
    pub(crate) fn in_use(&mut self, id: &str) -> Result<EnvironmentId, String> {
        if let Some(known) = self.by_id.get(id) {
            return known.clone();
        }
        let found = self.choose_and_add(id);
        self.by_id.insert(id.to_owned(), found.clone());
        found
    }

    fn choose_and_add(&mut self, id: &str) -> Result<EnvironmentId, String> {
        let submitted = self.submitted.get(id).ok_or_else(|| format!("environment \"{id}\" does not exist"))?;
        let chosen = self.choose(submitted, ALTERNATIVES_DEPTH_MAX)?;
        let serialized = pipeline::Environment { display_data: Vec::new(), ..chosen.clone() }.encode_to_vec();
        if let Some(equal) = self.in_use.iter().position(|environment| environment.serialized == serialized) {
            return Ok(EnvironmentId(equal as u32));
        }
        self.in_use.push(Environment {
            id: id.to_owned(),
            urn: chosen.urn,
            payload: chosen.payload,
            serialized: serialized.into(),
            capabilities: chosen.capabilities,
        });
        Ok(EnvironmentId(self.in_use.len() as u32 - 1))
    }

    fn choose(&self, submitted: &pipeline::Environment, depth: usize) -> Result<pipeline::Environment, String> {
        if submitted.urn != urn::ENV_ANY_OF {
            return if self.capabilities.can_start(&submitted.urn) {
                Ok(submitted.clone())
            } else {
                Err(refusal(&submitted.urn))
            };
        }
        let depth = depth.checked_sub(1).ok_or("alternatives of environments nest too deep")?;
        let payload = AnyOfEnvironmentPayload::decode(submitted.payload.clone())
            .map_err(|_| "the list of alternative environments is malformed".to_owned())?;
        let can: Vec<_> = payload.environments.iter().filter_map(|one| self.choose(one, depth).ok()).collect();
        let rank = |one: &pipeline::Environment| self.capabilities.startable.iter().position(|urn| *urn == one.urn);
        can.into_iter().min_by_key(rank).ok_or_else(|| {
            let urns: Vec<_> = payload.environments.iter().map(|one| one.urn.as_str()).collect();
            format!("none of the alternative environments can be started here: {}", urns.join(", "))
        })
    }

    /// What an environment can be called together with in one stage: WebAssembly components of all files are one.
    pub(crate) fn fusion_group(&self, environment: EnvironmentId) -> EnvironmentId {
        match self.is_wasm(environment) {
            false => environment,
            true => {
                let first = self.in_use.iter().position(|one| one.urn == urn::ENV_WASM);
                EnvironmentId(first.expect("the given one is one") as u32)
            }
        }
    }

    pub(crate) fn is_wasm(&self, environment: EnvironmentId) -> bool {
        self.get(environment).urn == urn::ENV_WASM
    }

    pub(crate) fn get(&self, environment: EnvironmentId) -> &Environment {
        &self.in_use[environment.0 as usize]
    }

    /// The message for an environment id that was used, for descriptors.
    pub(crate) fn message(&self, id: &str) -> Option<pipeline::Environment> {
        let environment = *self.by_id.get(id)?.as_ref().ok()?;
        pipeline::Environment::decode(self.get(environment).serialized.clone()).ok()
    }

    /// The only environment of the pipeline, if it has just one.
    pub(crate) fn only(&mut self) -> Option<EnvironmentId> {
        let mut ids = self.submitted.keys();
        let (only, None) = (ids.next()?.clone(), ids.next()) else { return None };
        self.in_use(&only).ok()
    }

    pub(crate) fn into_list(self) -> Vec<Environment> {
        self.in_use
    }
}

fn refusal(urn: &str) -> String {
    match urn {
        urn::ENV_DOCKER => "its SDK runs in a container and there is no container engine here; \
                            set environment_type to LOOPBACK, EXTERNAL or PROCESS"
            .into(),
        urn::ENV_DEFAULT => "its environment leaves the choice to the runner, which has no default; set environment_type".into(),
        _ if urn.starts_with("beam:env:embedded_python") || urn.starts_with("beam:env:harness_subprocess_python") => {
            format!("its environment {urn} exists inside the Python SDK only; set environment_type to LOOPBACK")
        }
        _ => format!("its environment {urn} is unknown here"),
    }
}
