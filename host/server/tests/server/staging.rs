//! Artifact staging (`beam-model` 1.6, traps 4 and 5).

use prost::Message;
use proto::job::*;
use proto::pipeline::*;
use sha2::{Digest, Sha256};
use tonic::Code;

use crate::rig::*;

fn sha256(data: &[u8]) -> String {
    Sha256::digest(data).iter().map(|byte| format!("{byte:02x}")).collect()
}

async fn prepare(rig: &Rig, pipeline: Pipeline) -> PrepareJobResponse {
    rig.jobs().await.prepare(request("staging", pipeline)).await.unwrap().into_inner()
}

#[tokio::test(flavor = "multi_thread")]
async fn artifacts_arrive_in_pieces_and_reach_the_runner() {
    let mut rig = Rig::start(Behaviour::Obedient).await;
    let prepared = prepare(&rig, pipeline(vec![file_artifact("a.jar", ""), file_artifact("b.jar", "")])).await;
    let endpoint = prepared.artifact_staging_endpoint.clone().unwrap();
    assert_eq!(endpoint.url, format!("localhost:{}", rig.address.port()));
    assert_eq!(endpoint.authentication, None);

    let mut client = StagingClient::open(&rig, &prepared.staging_session_token).await;
    let Some(artifact_request_wrapper::Request::ResolveArtifact(resolve)) = client.ask().await.unwrap() else {
        panic!("resolve first")
    };
    assert!(resolve.preferred_urns.is_empty());
    client.resolved(resolve.artifacts).await;
    // Python: pieces, then an empty message that is the last. Others: data in the last message.
    client.ask().await.unwrap();
    for (piece, is_last) in [("one ", false), ("two", false), ("", true)] {
        client.piece(piece.as_bytes(), is_last).await;
    }
    client.ask().await.unwrap();
    for (piece, is_last) in [("thr", false), ("ee", true)] {
        client.piece(piece.as_bytes(), is_last).await;
    }
    assert!(client.ask().await.unwrap().is_none(), "the server completes the stream");

    rig.jobs().await.run(run_request(&prepared)).await.unwrap();
    let started = rig.started().await;
    let [artifacts] = &started.submission.artifacts[..] else { panic!("one environment") };
    for (artifact, (name, contents)) in artifacts.iter().zip([("a.jar", "one two"), ("b.jar", "three")]) {
        assert_eq!(std::fs::read_to_string(&artifact.path).unwrap(), contents);
        assert_eq!(artifact.sha256, sha256(contents.as_bytes()));
        assert_eq!(artifact.information.type_urn, "beam:artifact:type:file:v1");
        let payload = ArtifactFilePayload::decode(artifact.information.type_payload.clone()).unwrap();
        assert_eq!(payload, ArtifactFilePayload { path: artifact.path.display().to_string(), sha256: artifact.sha256.clone() });
        let role = ArtifactStagingToRolePayload::decode(artifact.information.role_payload.clone()).unwrap();
        assert_eq!(
            (artifact.information.role_urn.as_str(), role.staged_name.as_str()),
            ("beam:artifact:role:staging_to:v1", name)
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_to_stage_ends_at_once() {
    let rig = Rig::start(Behaviour::Obedient).await;
    let prepared = prepare(&rig, pipeline(vec![])).await;
    let asked = StagingClient::open(&rig, &prepared.staging_session_token).await.serve(|_| vec![]).await.unwrap();
    assert_eq!(asked, [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_gets_headers_before_it_says_anything() {
    let rig = Rig::start(Behaviour::Obedient).await;
    let (_silent, receiver) = tokio::sync::mpsc::channel::<ArtifactResponseWrapper>(1);
    let stream = tokio_stream::wrappers::ReceiverStream::new(receiver);
    let mut client = rig.staging().await;
    assert!(within(client.reverse_artifact_retrieval_service(stream)).await.is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_tokens_are_not_found() {
    let rig = Rig::start(Behaviour::Obedient).await;
    let status = StagingClient::open(&rig, "nonsense").await.serve(|_| vec![]).await.unwrap_err();
    assert_eq!(status.code(), Code::NotFound);
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_with_equal_names_have_their_own_contents() {
    let mut rig = Rig::start(Behaviour::Obedient).await;
    let mut staged = Vec::new();
    for contents in ["mine", "yours"] {
        let prepared = prepare(&rig, pipeline(vec![file_artifact("/same/path", "")])).await;
        StagingClient::open(&rig, &prepared.staging_session_token).await.serve(|_| contents.into()).await.unwrap();
        staged.push((prepared, contents));
    }
    for (prepared, contents) in staged {
        rig.jobs().await.run(run_request(&prepared)).await.unwrap();
        let started = rig.started().await;
        assert_eq!(std::fs::read_to_string(&started.submission.artifacts[0][0].path).unwrap(), contents);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn names_of_clients_never_become_paths() {
    let rig = Rig::start(Behaviour::Obedient).await;
    let long = "x".repeat(1 << 20);
    let names = ["../../../../tmp/evil", "/etc/passwd", "", ".", "incoming-0", "a\0b", &long];
    let prepared = prepare(&rig, pipeline(names.iter().map(|name| file_artifact(name, "")).collect())).await;
    let asked =
        StagingClient::open(&rig, &prepared.staging_session_token).await.serve(|path| format!("of {path}").into_bytes()).await;
    assert_eq!(asked.unwrap().len(), 1 + names.len());
    let mut files: Vec<_> =
        std::fs::read_dir(rig.folder.path().join("artifacts")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    let mut expected: Vec<std::ffi::OsString> = names.iter().map(|name| sha256(format!("of {name}").as_bytes()).into()).collect();
    files.sort();
    expected.sort();
    assert_eq!(files, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_declared_digest_is_checked_and_spares_a_transfer() {
    let rig = Rig::start(Behaviour::Obedient).await;
    let digest = sha256(b"contents");
    let prepared = prepare(&rig, pipeline(vec![file_artifact("x", &digest)])).await;
    let wrong = StagingClient::open(&rig, &prepared.staging_session_token).await.serve(|_| b"others".into()).await.unwrap_err();
    assert_eq!(wrong.code(), Code::DataLoss);
    let refused = rig.jobs().await.run(run_request(&prepared)).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    assert!(refused.message().contains(&digest), "{}", refused.message());

    for expected in [&["resolve 1", "get x"][..], &["resolve 1"]] {
        let asked = StagingClient::open(&rig, &prepared.staging_session_token).await.serve(|_| b"contents".into()).await.unwrap();
        assert_eq!(asked, expected);
    }
    rig.jobs().await.run(run_request(&prepared)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn embedded_artifacts_are_not_asked_for() {
    let mut rig = Rig::start(Behaviour::Obedient).await;
    let payload = EmbeddedFilePayload { data: bytes::Bytes::from_static(b"inside") };
    let embedded = ArtifactInformation {
        type_urn: "beam:artifact:type:embedded:v1".into(),
        type_payload: payload.encode_to_vec().into(),
        ..file_artifact("role", "")
    };
    let prepared = prepare(&rig, pipeline(vec![embedded])).await;
    let asked = StagingClient::open(&rig, &prepared.staging_session_token).await.serve(|_| vec![]).await.unwrap();
    assert_eq!(asked, ["resolve 1"]);
    rig.jobs().await.run(run_request(&prepared)).await.unwrap();
    let started = rig.started().await;
    assert_eq!(std::fs::read(&started.submission.artifacts[0][0].path).unwrap(), b"inside");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_artifacts_of_the_chosen_alternative_reach_the_runner() {
    let mut rig = Rig::start(Behaviour::Obedient).await;
    let docker = Environment { urn: model::urn::ENV_DOCKER.into(), ..external(vec![file_artifact("image", "")]) };
    let choice = AnyOfEnvironmentPayload { environments: vec![docker, external(vec![file_artifact("local", "")])] };
    let environment =
        Environment { urn: model::urn::ENV_ANY_OF.into(), payload: choice.encode_to_vec().into(), ..Default::default() };
    let prepared = prepare(&rig, pipeline_in(environment)).await;
    let asked = StagingClient::open(&rig, &prepared.staging_session_token).await.serve(|path| path.into()).await.unwrap();
    assert_eq!(asked, ["resolve 1", "get image", "resolve 1", "get local"]);
    rig.jobs().await.run(run_request(&prepared)).await.unwrap();
    let started = rig.started().await;
    assert_eq!(std::fs::read(&started.submission.artifacts[0][0].path).unwrap(), b"local");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_component_is_the_one_that_its_environment_names() {
    let rig = Rig::start(Behaviour::Obedient).await;
    let wasm = |payload: String| Environment {
        urn: model::urn::ENV_WASM.into(),
        payload: payload.into_bytes().into(),
        ..external(vec![file_artifact("x.wasm", "")])
    };
    for (named, accepted) in [(sha256(b"component"), true), (sha256(b"another"), false)] {
        let prepared = prepare(&rig, pipeline_in(wasm(format!("world stateless {named}")))).await;
        let staged = StagingClient::open(&rig, &prepared.staging_session_token).await.serve(|_| b"component".into()).await;
        assert_eq!(staged.map_err(|status| status.code()).err(), (!accepted).then_some(Code::InvalidArgument));
        assert_eq!(rig.jobs().await.run(run_request(&prepared)).await.is_ok(), accepted);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_breaks_off_fails_its_preparation_only() {
    let rig = Rig::start(Behaviour::Obedient).await;
    let prepared = prepare(&rig, pipeline(vec![file_artifact("x", "")])).await;
    let run =
        async |prepared: PrepareJobResponse| rig.jobs().await.run(run_request(&prepared)).await.map_err(|status| status.code());
    assert_eq!(run(prepared.clone()).await.unwrap_err(), Code::FailedPrecondition, "nothing was staged");

    // It hangs up.
    let mut client = StagingClient::open(&rig, &prepared.staging_session_token).await;
    client.ask().await.unwrap();
    let second = StagingClient::open(&rig, &prepared.staging_session_token).await.serve(|_| vec![]).await;
    assert_eq!(second.unwrap_err().code(), Code::Aborted, "one at a time");
    drop(client);

    // It answers with something else. Staging may be tried again once the server has noticed that the first client is gone.
    let status = within(async {
        loop {
            let mut client = StagingClient::open(&rig, &prepared.staging_session_token).await;
            match client.ask().await {
                Err(status) if status.code() == Code::Aborted => tokio::time::sleep(std::time::Duration::from_millis(10)).await,
                asked => {
                    asked.unwrap();
                    client.piece(b"not what was asked for", true).await;
                    return client.ask().await.unwrap_err();
                }
            }
        }
    })
    .await;
    assert_eq!(status.code(), Code::InvalidArgument);
    assert_eq!(run(prepared.clone()).await.unwrap_err(), Code::FailedPrecondition);

    StagingClient::open(&rig, &prepared.staging_session_token).await.serve(|_| vec![]).await.unwrap();
    assert!(run(prepared).await.is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn artifacts_go_with_the_last_job_that_used_them() {
    let config = server::config::Config { finished_jobs_max: 1, preparations_run_max: 1, ..Default::default() };
    let mut rig = Rig::with(Behaviour::Obedient, config).await;
    for contents in ["one", "two", "three"] {
        let prepared = prepare(&rig, pipeline(vec![file_artifact("x", "")])).await;
        StagingClient::open(&rig, &prepared.staging_session_token).await.serve(|_| contents.into()).await.unwrap();
        rig.jobs().await.run(run_request(&prepared)).await.unwrap();
        rig.started().await.finish(server::run::End::Done);
    }
    let folder = rig.folder.path().join("artifacts");
    until(|| async { std::fs::read_dir(&folder).unwrap().count() == 1 }).await;
    assert!(folder.join(sha256(b"three")).exists());
}
