//! What a starting harness asks for: its provisioning, and its artifacts. A harness gets its own and nobody else's.

use std::sync::Arc;

use bytes::Bytes;
use proto::fnapi::provision_service_server::ProvisionService;
use proto::fnapi::{GetProvisionInfoRequest, GetProvisionInfoResponse};
use proto::job::artifact_retrieval_service_server::ArtifactRetrievalService;
use proto::job::{GetArtifactRequest, GetArtifactResponse, ResolveArtifactsRequest, ResolveArtifactsResponse};
use tokio::io::AsyncReadExt;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};

use crate::host::Shared;

/// Artifacts travel in pieces of this size.
const ARTIFACT_PIECE_BYTES: usize = 1 << 20;
/// Pieces that wait for a slow reader.
const ARTIFACT_PIECES_QUEUED_MAX: usize = 2;

pub(crate) struct Provisioning(pub(crate) Arc<Shared>);

#[tonic::async_trait]
impl ProvisionService for Provisioning {
    async fn get_provision_info(
        &self,
        request: Request<GetProvisionInfoRequest>,
    ) -> Result<Response<GetProvisionInfoResponse>, Status> {
        let harness = self.0.harness(request.metadata())?;
        Ok(Response::new(GetProvisionInfoResponse { info: Some(harness.provision.clone()) }))
    }
}

#[tonic::async_trait]
impl ArtifactRetrievalService for Provisioning {
    type GetArtifactStream = ReceiverStream<Result<GetArtifactResponse, Status>>;

    /// Artifacts are resolved before any harness hears of them.
    async fn resolve_artifacts(
        &self,
        request: Request<ResolveArtifactsRequest>,
    ) -> Result<Response<ResolveArtifactsResponse>, Status> {
        self.0.harness(request.metadata())?;
        Ok(Response::new(ResolveArtifactsResponse { replacements: request.into_inner().artifacts }))
    }

    async fn get_artifact(&self, request: Request<GetArtifactRequest>) -> Result<Response<Self::GetArtifactStream>, Status> {
        let harness = self.0.harness(request.metadata())?;
        let wanted = request.into_inner().artifact.ok_or_else(|| Status::invalid_argument("no artifact is named"))?;
        // Roles may have been rewritten on the way; type and payload say which content is meant.
        let artifact = harness
            .artifacts
            .iter()
            .find(|artifact| artifact.info.type_urn == wanted.type_urn && artifact.info.type_payload == wanted.type_payload);
        let artifact = artifact.ok_or_else(|| Status::not_found(format!("worker {} has no such artifact", harness.id)))?;
        let path = artifact.path.clone();
        let broken = move |error: std::io::Error| Status::internal(format!("cannot read artifact {}: {error}", path.display()));
        let mut file = tokio::fs::File::open(&artifact.path).await.map_err(&broken)?;
        let (pieces, receiver) = mpsc::channel(ARTIFACT_PIECES_QUEUED_MAX);
        tokio::spawn(async move {
            loop {
                let mut piece = Vec::with_capacity(ARTIFACT_PIECE_BYTES);
                let read = (&mut file).take(ARTIFACT_PIECE_BYTES as u64).read_to_end(&mut piece).await;
                let piece = match read {
                    Ok(0) => return,
                    Ok(_) => Ok(GetArtifactResponse { data: Bytes::from(piece) }),
                    Err(error) => Err(broken(error)),
                };
                let last = piece.is_err();
                if pieces.send(piece).await.is_err() || last {
                    return;
                }
            }
        });
        Ok(Response::new(ReceiverStream::new(receiver)))
    }
}
