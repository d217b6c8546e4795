//! Environments of a submitted pipeline and the artifacts that each of them declares.
//!
//! An environment may be a choice among alternatives, each with artifacts of its own. All of them are staged; when the plan has
//! chosen, the artifacts of the chosen one are looked up. Alternatives are told apart by keys: `env`, or `0:env` and `1:env` for
//! the alternatives of `env`.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::urn;
use plan::Plan;
use prost::Message;
use proto::pipeline::{AnyOfEnvironmentPayload, ArtifactInformation, Environment, Pipeline};

use crate::run::Artifact;
use crate::store::Stored;

/// Artifacts that are in the store, by key of their environment, in the order of its dependencies.
pub type Staged = BTreeMap<String, Vec<StagedArtifact>>;

/// One artifact that is in the store.
#[derive(Clone, Debug)]
pub struct StagedArtifact {
    /// As a worker is to see it.
    pub information: ArtifactInformation,
    /// Its bytes.
    pub file: Arc<Stored>,
}

/// All environments of a pipeline by key, alternatives in place of the choice between them.
pub fn all(pipeline: &Pipeline) -> Vec<(String, Environment)> {
    let mut found = Vec::new();
    for (id, environment) in pipeline.components.iter().flat_map(|components| &components.environments) {
        collect(id.clone(), environment, &mut found);
    }
    found
}

fn collect(key: String, environment: &Environment, found: &mut Vec<(String, Environment)>) {
    if environment.urn != urn::ENV_ANY_OF {
        found.push((key, environment.clone()));
        return;
    }
    // Planning has refused a malformed list if anything uses it.
    let alternatives = AnyOfEnvironmentPayload::decode(environment.payload.clone()).unwrap_or_default();
    for (index, alternative) in alternatives.environments.iter().enumerate() {
        collect(format!("{index}:{key}"), alternative, found);
    }
}

/// Artifacts per environment of a plan. The error names an environment whose artifacts are missing.
pub fn artifacts(plan: &Plan, pipeline: &Pipeline, staged: &Staged) -> Result<Vec<Vec<Artifact>>, String> {
    let all = all(pipeline);
    plan.environments.iter().map(|chosen| artifacts_of(chosen, &all, staged)).collect()
}

fn artifacts_of(chosen: &plan::Environment, all: &[(String, Environment)], staged: &Staged) -> Result<Vec<Artifact>, String> {
    let is_chosen = |(key, environment): &&(String, Environment)| {
        let id = key.strip_suffix(chosen.id.as_str()).is_some_and(|index| index.is_empty() || index.ends_with(':'));
        id && Environment { display_data: Vec::new(), ..environment.clone() }.encode_to_vec() == chosen.serialized
    };
    let (key, environment) =
        all.iter().find(is_chosen).ok_or_else(|| format!("environment {:?} is not in the pipeline", chosen.id))?;
    match staged.get(key) {
        Some(artifacts) => Ok(artifacts.iter().map(artifact).collect()),
        None if environment.dependencies.is_empty() => Ok(Vec::new()),
        None => Err(format!("the artifacts of environment {:?} are missing", chosen.id)),
    }
}

fn artifact(staged: &StagedArtifact) -> Artifact {
    Artifact { information: staged.information.clone(), path: staged.file.path.clone(), sha256: staged.file.sha256.clone() }
}

/// Checks that the component of a wasm environment is the one that its payload names by sha256, as text or as bytes.
pub fn check_component(environment: &Environment, artifacts: &[StagedArtifact]) -> Result<(), String> {
    if environment.urn != urn::ENV_WASM || artifacts.iter().any(|artifact| names(&environment.payload, &artifact.file.sha256)) {
        return Ok(());
    }
    let found: Vec<_> = artifacts.iter().map(|artifact| artifact.file.sha256.as_str()).collect();
    Err(format!(
        "no artifact of the environment is the component that its payload names by sha256; staged were: [{}]",
        found.join(", ")
    ))
}

fn names(payload: &[u8], sha256: &str) -> bool {
    let bytes: Vec<u8> =
        (0..sha256.len() / 2).filter_map(|at| u8::from_str_radix(sha256.get(2 * at..2 * at + 2)?, 16).ok()).collect();
    let contains = |part: &[u8]| payload.windows(part.len()).any(|window| window.eq_ignore_ascii_case(part));
    contains(sha256.as_bytes()) || payload.windows(bytes.len()).any(|window| window == bytes)
}
