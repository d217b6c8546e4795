//! Harnesses that are local processes: how they are started, watched and ended. The programs here are shell scripts, so none
//! of them gets as far as a bundle.

use std::collections::BTreeMap;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use model::ShardId;
use prost::Message;
use proto::fnapi::GetProvisionInfoRequest;
use proto::fnapi::provision_service_client::ProvisionServiceClient;
use proto::job::artifact_retrieval_service_client::ArtifactRetrievalServiceClient;
use proto::job::{GetArtifactRequest, ResolveArtifactsRequest};
use proto::pipeline as pb;
use worker::{Error, Worker};
use worker_harness::{EnvironmentOptions, HarnessEnvironment, HarnessHost, HostOptions, ResolvedArtifact};

use crate::fake;
use crate::stage::*;

struct Setup {
    folder: std::path::PathBuf,
    host: HarnessHost,
    log: Arc<Log>,
}

fn setup(name: &str) -> Setup {
    let folder = std::env::temp_dir().join(format!("worker-harness-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let host = HarnessHost::start(HostOptions::loopback("test"), tokio::runtime::Handle::current()).unwrap();
    Setup { folder, host, log: Arc::default() }
}

impl Drop for Setup {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl Setup {
    fn options(&self, script: &str) -> EnvironmentOptions {
        let command = self.folder.join("boot");
        let mut file = std::fs::File::create(&command).unwrap();
        writeln!(file, "#!/bin/sh\n{script}").unwrap();
        file.set_permissions(std::fs::Permissions::from_mode(0o755)).unwrap();
        let env = BTreeMap::from([("FOLDER".to_owned(), self.folder.display().to_string())]);
        let payload = pb::ProcessPayload { command: command.display().to_string(), env, ..Default::default() };
        let environment = pb::Environment {
            urn: "beam:env:process:v1".to_owned(),
            payload: payload.encode_to_vec().into(),
            ..Default::default()
        };
        options(environment, self.log.clone())
    }

    fn environment(&self, script: &str) -> Arc<HarnessEnvironment> {
        self.host.environment(self.options(script)).unwrap()
    }

    fn read(&self, name: &str) -> Option<String> {
        std::fs::read_to_string(self.folder.join(name)).ok().filter(|text| text.ends_with('\n'))
    }
}

fn fails(environment: &HarnessEnvironment) -> String {
    let spec = stage(&[], &[]);
    let mut slot = environment.open(Arc::new(spec.clone()), ShardId(0)).unwrap();
    match start(&mut *slot, &spec, 1, vec![batch(&[b"a"])], vec![], Arc::default()).wait() {
        Err(Error::Infrastructure(what)) => what,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_ends_before_it_connects_says_why_at_once() {
    let setup = setup("ends");
    let began = Instant::now();
    let error = fails(&setup.environment("echo first; echo 'cannot import beam' >&2; exit 3"));
    assert!(began.elapsed() < Duration::from_secs(8), "the connect timeout is not waited for");
    for part in ["/boot", "exit status: 3", "first", "cannot import beam"] {
        assert!(error.contains(part), "{part:?} in {error}");
    }
    let printed: Vec<_> = setup.log.0.lock().unwrap().iter().map(|entry| entry.message.clone()).collect();
    assert!(printed.contains(&"cannot import beam".to_owned()), "{printed:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_cannot_be_started_is_named() {
    let setup = setup("absent");
    let options = setup.options("exit 0");
    std::fs::remove_file(setup.folder.join("boot")).unwrap();
    let error = fails(&setup.host.environment(options).unwrap());
    assert!(error.contains("cannot start") && error.contains("/boot"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_never_connects_is_killed_with_its_children() {
    let setup = setup("silent");
    let mut options = setup.options("sleep 1000 & echo $! > $FOLDER/child; wait");
    options.timeouts.connect = Duration::from_millis(500);
    let environment = setup.host.environment(options).unwrap();
    let error = fails(&environment);
    assert!(error.contains("did not connect within 0.5 s"), "{error}");
    let child: i32 = setup.read("child").unwrap().trim().parse().unwrap();
    fake::eventually("the child is gone", || !alive(child)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn closing_ends_a_stubborn_process_group() {
    let setup = setup("stubborn");
    let environment = setup.environment("trap '' TERM; sleep 1000 & echo $! > $FOLDER/child; wait; wait");
    let slot = environment.open(Arc::new(stage(&[], &[])), ShardId(0)).unwrap();
    fake::eventually("the process runs", || setup.read("child").is_some()).await;
    let child: i32 = setup.read("child").unwrap().trim().parse().unwrap();
    assert!(alive(child));
    environment.close();
    fake::eventually("the child is gone", || !alive(child)).await;
    drop(slot);
}

/// A killed child that nobody has waited for yet is a zombie, and gone as far as we care.
fn alive(process: i32) -> bool {
    let Ok(status) = std::fs::read_to_string(format!("/proc/{process}/stat")) else { return false };
    !status.rsplit(')').next().unwrap().trim_start().starts_with('Z')
}

#[tokio::test(flavor = "multi_thread")]
async fn flags_are_plain_and_lead_to_provisioning_and_artifacts() {
    let setup = setup("flags");
    let staged = setup.folder.join("staged");
    std::fs::write(&staged, vec![5u8; 3_000_000]).unwrap();
    let mut options = setup.options("for flag in \"$@\"; do echo \"$flag\"; done > $FOLDER/flags; sleep 1000");
    let info = pb::ArtifactInformation { type_urn: "beam:artifact:type:file:v1".to_owned(), ..Default::default() };
    options.artifacts = vec![ResolvedArtifact { info: info.clone(), path: staged }];
    let environment = setup.host.environment(options).unwrap();
    let slot = environment.open(Arc::new(stage(&[], &[])), ShardId(0)).unwrap();
    fake::eventually("the flags are written", || setup.read("flags").is_some_and(|text| text.contains("control"))).await;
    let flags = setup.read("flags").unwrap();
    let flag = |name: &str| flags.lines().find_map(|line| line.strip_prefix(&format!("--{name}="))).unwrap().to_owned();
    for name in ["provision", "logging", "artifact", "control"] {
        assert_eq!(flag(&format!("{name}_endpoint")), setup.host.endpoint());
    }

    let id = flag("id");
    let channel =
        tonic::transport::Channel::from_shared(format!("http://{}", setup.host.endpoint())).unwrap().connect().await.unwrap();
    let mut provision = ProvisionServiceClient::new(channel.clone());
    let provisioned = provision.get_provision_info(fake::with_id(GetProvisionInfoRequest {}, &id)).await.unwrap();
    let provisioned = provisioned.into_inner().info.unwrap();
    assert_eq!(provisioned.dependencies, std::slice::from_ref(&info));
    assert_eq!(provisioned.metadata["job_id"], "job");
    assert!(provisioned.control_endpoint.unwrap().authentication.is_none());

    let mut artifacts = ArtifactRetrievalServiceClient::new(channel);
    let request = ResolveArtifactsRequest { artifacts: provisioned.dependencies, preferred_urns: vec![] };
    let resolved = artifacts.resolve_artifacts(fake::with_id(request, &id)).await.unwrap().into_inner().replacements;
    let request = GetArtifactRequest { artifact: Some(resolved[0].clone()) };
    let mut pieces = artifacts.get_artifact(fake::with_id(request, &id)).await.unwrap().into_inner();
    let mut content = Vec::new();
    while let Some(piece) = pieces.message().await.unwrap() {
        content.extend_from_slice(&piece.data);
    }
    assert_eq!(content, vec![5u8; 3_000_000]);
    let other = pb::ArtifactInformation { type_payload: b"/etc/passwd".as_slice().into(), ..info };
    let request = GetArtifactRequest { artifact: Some(other) };
    let refused = artifacts.get_artifact(fake::with_id(request, &id)).await.unwrap_err();
    assert_eq!(refused.code(), tonic::Code::NotFound);
    drop(slot);
}

#[tokio::test(flavor = "multi_thread")]
async fn environments_that_cannot_be_run_are_refused_by_name() {
    let setup = setup("refused");
    let image = pb::DockerPayload { container_image: "apache/beam".to_owned() }.encode_to_vec();
    let cases = [
        ("beam:env:docker:v1", image, "apache/beam"),
        ("beam:env:process:v1", Vec::new(), "without a command"),
        ("beam:env:external:v1", Vec::new(), "without the endpoint"),
        ("beam:env:anyof:v1", Vec::new(), "beam:env:anyof:v1"),
    ];
    for (urn, payload, expected) in cases {
        let environment = pb::Environment { urn: urn.to_owned(), payload: payload.into(), ..Default::default() };
        let error = setup.host.environment(options(environment, setup.log.clone())).err().unwrap().to_string();
        assert!(error.contains(expected), "{error}");
    }
}
