//! Artifact staging: the client opens a stream, and the server asks for what the prepared pipeline declares.
//!
//! ```text
//!  client                              server
//!  staging_token          ──►
//!                         ◄──          resolve_artifact(dependencies of an environment)      per environment
//!  replacements           ──►
//!                         ◄──          get_artifact(replacement)                             per replacement
//!  data, data + is_last   ──►          (appends first, then looks at is_last)
//!                         ◄──          end of stream: the preparation can be run
//! ```
//!
//! Headers go out at once, before anything is read: some clients wait for them. Embedded artifacts, and files whose declared
//! sha256 is in the store, are not asked for. Whatever the client says about types and paths is kept for the worker and never
//! used here.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use prost::Message;
use proto::job::artifact_request_wrapper::Request as Ask;
use proto::job::artifact_response_wrapper::Response as Answer;
use proto::job::artifact_staging_service_server::ArtifactStagingService;
use proto::job::{ArtifactRequestWrapper, ArtifactResponseWrapper, GetArtifactRequest, ResolveArtifactsRequest};
use proto::pipeline::{ArtifactFilePayload, ArtifactInformation, ArtifactUrlPayload, EmbeddedFilePayload};
use tokio::sync::mpsc;
use tokio_stream::Stream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Request, Response, Status, Streaming};

use crate::environments::{Staged, StagedArtifact, check_component};
use crate::jobs::Jobs;
use crate::jobs::preparation::Preparation;
use crate::refusal;
use crate::store::{Stored, is_digest};

const FILE: &str = "beam:artifact:type:file:v1";
const URL: &str = "beam:artifact:type:url:v1";
const EMBEDDED: &str = "beam:artifact:type:embedded:v1";

/// How long the server waits for an answer of the client.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(600);

/// The staging service.
pub struct Staging(pub Arc<Jobs>);

#[tonic::async_trait]
impl ArtifactStagingService for Staging {
    type ReverseArtifactRetrievalServiceStream = Pin<Box<dyn Stream<Item = Result<ArtifactRequestWrapper, Status>> + Send>>;

    async fn reverse_artifact_retrieval_service(
        &self,
        request: Request<Streaming<ArtifactResponseWrapper>>,
    ) -> Result<Response<Self::ReverseArtifactRetrievalServiceStream>, Status> {
        // One question is under way at a time.
        let (asks, asked) = mpsc::channel(1);
        let mut client = Client { answers: request.into_inner(), asks };
        let jobs = self.0.clone();
        tokio::spawn(async move {
            if let Err(status) = serve(&jobs, &mut client).await {
                // Whoever hung up does not want to know.
                let _ = client.asks.send(Err(status)).await;
            }
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(asked))))
    }
}

/// One client's stream, both ways.
struct Client {
    answers: Streaming<ArtifactResponseWrapper>,
    asks: mpsc::Sender<Result<ArtifactRequestWrapper, Status>>,
}

async fn serve(jobs: &Jobs, client: &mut Client) -> Result<(), Status> {
    let token = client.answer().await?.staging_token;
    let preparation = jobs.by_token(&token).ok_or_else(|| refusal::not_found("staging token", &token))?;
    preparation.begin_staging()?;
    // Ends the staging whatever happens to this task.
    let mut outcome = Outcome { preparation, staged: Err("the server gave up".into()) };
    let staged = stage(jobs, &outcome.preparation, client).await;
    outcome.staged = staged.clone().map_err(|status| status.message().to_string());
    staged.map(|_| ())
}

struct Outcome {
    preparation: Arc<Preparation>,
    staged: Result<Staged, String>,
}

impl Drop for Outcome {
    fn drop(&mut self) {
        self.preparation.end_staging(std::mem::replace(&mut self.staged, Ok(Staged::new())));
    }
}

async fn stage(jobs: &Jobs, preparation: &Preparation, client: &mut Client) -> Result<Staged, Status> {
    let mut staged = Staged::new();
    for (key, environment) in preparation.environments() {
        let replacements = client.resolve(&environment.dependencies).await?;
        if replacements.len() > jobs.config.artifacts_max {
            let (count, most) = (replacements.len(), jobs.config.artifacts_max);
            return Err(refusal::invalid_argument(format!(
                "environment {key:?} has {count} artifacts; at most {most} are taken"
            )));
        }
        let mut artifacts = Vec::new();
        for information in replacements {
            artifacts.push(fetch(jobs, client, information).await?);
        }
        check_component(&environment, &artifacts)
            .map_err(|what| refusal::invalid_argument(format!("environment {key:?}: {what}")))?;
        staged.insert(key, artifacts);
    }
    Ok(staged)
}

async fn fetch(jobs: &Jobs, client: &mut Client, information: ArtifactInformation) -> Result<StagedArtifact, Status> {
    let mut incoming = jobs.store.begin(jobs.config.artifact_bytes_max).await.map_err(store_status)?;
    let declared = declared_sha256(&information);
    let file = if information.type_urn == EMBEDDED {
        let payload = EmbeddedFilePayload::decode(information.type_payload.clone());
        let payload = payload.map_err(|error| refusal::invalid_argument(format!("malformed embedded artifact: {error}")))?;
        incoming.append(&payload.data).await.map_err(store_status)?;
        incoming.finish().await.map_err(store_status)?
    } else if let Some(known) = declared.as_deref().and_then(|sha256| jobs.store.get(sha256)) {
        known
    } else {
        client.ask(Ask::GetArtifact(GetArtifactRequest { artifact: Some(information.clone()) })).await?;
        loop {
            let (data, is_last) = client.piece().await?;
            incoming.append(&data).await.map_err(store_status)?;
            if is_last {
                break;
            }
        }
        incoming.finish().await.map_err(store_status)?
    };
    if let Some(declared) = declared.filter(|declared| *declared != file.sha256) {
        let text = format!("an artifact does not have the sha256 that was declared: {declared} was, {} is", file.sha256);
        return Err(refusal::status(Code::DataLoss, text));
    }
    Ok(StagedArtifact { information: stored_information(information, &file), file })
}

/// The digest that the client declares, if it looks like one.
fn declared_sha256(information: &ArtifactInformation) -> Option<String> {
    let payload = information.type_payload.clone();
    let sha256 = match information.type_urn.as_str() {
        FILE => ArtifactFilePayload::decode(payload).ok()?.sha256,
        URL => ArtifactUrlPayload::decode(payload).ok()?.sha256,
        _ => return None,
    };
    Some(sha256.to_ascii_lowercase()).filter(|sha256| is_digest(sha256))
}

/// A file of the store in the role that the client gave it.
fn stored_information(information: ArtifactInformation, file: &Stored) -> ArtifactInformation {
    let payload = ArtifactFilePayload { path: file.path.to_string_lossy().into_owned(), sha256: file.sha256.clone() };
    ArtifactInformation { type_urn: FILE.into(), type_payload: payload.encode_to_vec().into(), ..information }
}

fn store_status(error: crate::store::Error) -> Status {
    match error {
        crate::store::Error::TooLarge(_) => refusal::status(Code::ResourceExhausted, error.to_string()),
        crate::store::Error::Disk(_) => refusal::internal(error.to_string()),
    }
}

impl Client {
    async fn resolve(&mut self, dependencies: &[ArtifactInformation]) -> Result<Vec<ArtifactInformation>, Status> {
        let request = ResolveArtifactsRequest { artifacts: dependencies.to_vec(), preferred_urns: Vec::new() };
        self.ask(Ask::ResolveArtifact(request)).await?;
        match self.answer().await?.response {
            Some(Answer::ResolveArtifactResponse(response)) => Ok(response.replacements),
            _ => Err(refusal::invalid_argument("the client was asked to resolve artifacts and answered something else")),
        }
    }

    /// A piece of the artifact that was asked for, and whether it is the last one. An empty last message may carry no response.
    async fn piece(&mut self) -> Result<(Bytes, bool), Status> {
        let answer = self.answer().await?;
        match answer.response {
            Some(Answer::GetArtifactResponse(piece)) => Ok((piece.data, answer.is_last)),
            None if answer.is_last => Ok((Bytes::new(), true)),
            _ => Err(refusal::invalid_argument("the client was asked for an artifact and answered something else")),
        }
    }

    async fn ask(&mut self, request: Ask) -> Result<(), Status> {
        let sent = self.asks.send(Ok(ArtifactRequestWrapper { request: Some(request) })).await;
        sent.map_err(|_| Status::cancelled("the client closed the staging stream"))
    }

    async fn answer(&mut self) -> Result<ArtifactResponseWrapper, Status> {
        match tokio::time::timeout(ANSWER_TIMEOUT, self.answers.message()).await {
            Ok(Ok(Some(answer))) => Ok(answer),
            Ok(Ok(None)) => {
                Err(refusal::invalid_argument("the client ended the staging stream before all artifacts were staged"))
            }
            Ok(Err(status)) => {
                Err(refusal::status(status.code(), format!("the client's staging stream broke: {}", status.message())))
            }
            Err(_) => Err(refusal::status(Code::DeadlineExceeded, "the client did not answer in time")),
        }
    }
}
