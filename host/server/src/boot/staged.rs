//! Artifacts of an environment, fetched into a folder.

use std::path::{Component, Path, PathBuf};

use anyhow::{Context, anyhow, bail, ensure};
use prost::Message;
use proto::job::artifact_retrieval_service_client::ArtifactRetrievalServiceClient;
use proto::job::{GetArtifactRequest, ResolveArtifactsRequest};
use proto::pipeline::{ArtifactInformation, ArtifactStagingToRolePayload};
use tokio::io::AsyncWriteExt;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::Channel;

use super::called_by;

/// A file with the name that its role gives it.
const STAGING_TO: &str = "beam:artifact:role:staging_to:v1";
/// What a Python environment installs before anything else.
const PIP_REQUIREMENTS: &str = "beam:artifact:role:pip_requirements_file:v1";
/// The program that is a Go harness.
pub(super) const GO_WORKER: &str = "beam:artifact:role:go_worker_binary:v1";

/// A fetched artifact.
#[derive(Clone, Debug)]
pub(super) struct File {
    /// Its name below the folder.
    pub(super) name: String,
    pub(super) path: PathBuf,
    pub(super) role: String,
}

/// Fetches artifacts into `folder`, in their order.
pub(super) async fn fetch(
    channel: Channel,
    caller: &MetadataValue<Ascii>,
    dependencies: Vec<ArtifactInformation>,
    folder: &Path,
) -> anyhow::Result<Vec<File>> {
    let mut service = ArtifactRetrievalServiceClient::new(channel).max_decoding_message_size(usize::MAX);
    let wanted = ResolveArtifactsRequest { artifacts: dependencies, ..Default::default() };
    let resolved = service.resolve_artifacts(called_by(caller, wanted)).await;
    let resolved = resolved.map_err(|status| anyhow!("artifacts cannot be resolved: {}", status.message()))?;
    let mut files = Vec::new();
    for (index, artifact) in resolved.into_inner().replacements.into_iter().enumerate() {
        let name = name(&artifact, index)?;
        let file = File { path: folder.join(&name), role: artifact.role_urn.clone(), name };
        let said = || format!("fetch artifact {:?}", file.name);
        fetch_one(&mut service, caller, artifact, &file.path).await.with_context(said)?;
        files.push(file);
    }
    Ok(files)
}

/// What an artifact is called below the folder. Names come from the client, and may not lead out of it.
fn name(artifact: &ArtifactInformation, index: usize) -> anyhow::Result<String> {
    let name = match artifact.role_urn.as_str() {
        STAGING_TO => ArtifactStagingToRolePayload::decode(artifact.role_payload.clone())?.staged_name,
        PIP_REQUIREMENTS => "requirements.txt".into(),
        GO_WORKER => "worker".into(),
        _ => format!("artifact-{index}"),
    };
    let plain = Path::new(&name).components().all(|part| matches!(part, Component::Normal(_)));
    ensure!(plain && !name.is_empty(), "an artifact is to be called {name:?}, which is no name below a folder");
    Ok(name)
}

async fn fetch_one(
    service: &mut ArtifactRetrievalServiceClient<Channel>,
    caller: &MetadataValue<Ascii>,
    artifact: ArtifactInformation,
    path: &Path,
) -> anyhow::Result<()> {
    let Some(folder) = path.parent() else { bail!("{} is no file", path.display()) };
    tokio::fs::create_dir_all(folder).await?;
    let mut file = tokio::fs::File::create(path).await?;
    let request = GetArtifactRequest { artifact: Some(artifact) };
    let pieces = service.get_artifact(called_by(caller, request)).await.map_err(|status| anyhow!("{}", status.message()))?;
    let mut pieces = pieces.into_inner();
    while let Some(piece) = pieces.message().await.map_err(|status| anyhow!("{}", status.message()))? {
        file.write_all(&piece.data).await?;
    }
    Ok(file.flush().await?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(role: &str, staged_name: &str, expected: Option<&str>) {
        let payload = ArtifactStagingToRolePayload { staged_name: staged_name.into() }.encode_to_vec();
        let artifact = ArtifactInformation { role_urn: role.into(), role_payload: payload.into(), ..Default::default() };
        assert_eq!(name(&artifact, 7).ok().as_deref(), expected);
    }

    #[test]
    fn names_stay_below_the_folder() {
        check(STAGING_TO, "a.jar", Some("a.jar"));
        check(STAGING_TO, "lib/a.jar", Some("lib/a.jar"));
        check(STAGING_TO, "../a.jar", None);
        check(STAGING_TO, "/etc/a", None);
        check(STAGING_TO, "", None);
        check(GO_WORKER, "x", Some("worker"));
        check("another", "../x", Some("artifact-7"));
    }
}
