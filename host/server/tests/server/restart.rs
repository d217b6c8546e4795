//! What a durable server knows after a restart.

use std::path::PathBuf;

use proto::job::job_state::Enum as JobState;
use proto::job::*;
use server::config::Config;
use server::run::{End, Metrics};

use crate::rig::*;

fn durable() -> Config {
    // Only whether it is set matters to what is tested here: ledger and artifacts are given to the server by the rig.
    Config { data_dir: Some(PathBuf::from("given")), ..Config::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn running_jobs_are_resumed_and_finished_ones_listed() {
    let mut rig = Rig::with(Behaviour::Obedient, durable()).await;
    let mut jobs = rig.jobs().await;
    let request = PrepareJobRequest {
        pipeline_options: Some(options(&[("job_name", "long"), ("shards", "5"), ("metrics_step_names", "unique_name")])),
        ..request("job", pipeline(vec![file_artifact("x", "")]))
    };
    let prepared = jobs.prepare(request.clone()).await.unwrap().into_inner();
    StagingClient::open(&rig, &prepared.staging_session_token).await.serve(|_| b"contents".into()).await.unwrap();
    let long = jobs.run(run_request(&prepared)).await.unwrap().into_inner().job_id;
    rig.started().await.observer.running();

    let (done, started) = rig.submit("done").await;
    started.figures.lock().unwrap().metrics = Metrics { attempted: vec![], committed: vec![] };
    started.finish(End::Done);
    let (failed, started) = rig.submit("failed").await;
    started.observer.message(server::run::Importance::Error, "the first");
    started.observer.message(server::run::Importance::Error, "another");
    started.finish(End::Failed("the last".into()));
    for job in [&done, &failed] {
        rig.story(job).await;
    }
    let recorded = || async {
        let records = ledger::Ledger::jobs(&rig.ledger).unwrap();
        records.iter().filter(|record| server_record(&record.description).ended_ms.is_some()).count() == 2
    };
    until(recorded).await;
    let (ledger, folder) = rig.stop().await;

    let mut rig = Rig::on(Behaviour::Obedient, durable(), ledger, folder).await;
    let resumed = rig.started().await;
    assert!(resumed.submission.resumed);
    assert_eq!((resumed.submission.job.as_str(), resumed.submission.name.as_str()), (long.as_str(), "long"));
    assert_eq!(
        (resumed.submission.settings.shards, &resumed.submission.options),
        (5, request.pipeline_options.as_ref().unwrap())
    );
    assert_eq!(std::fs::read(&resumed.submission.artifacts[0][0].path).unwrap(), b"contents");
    assert_eq!(rig.state(&long).await, JobState::Starting);
    resumed.observer.running();
    assert_eq!(rig.state(&long).await, JobState::Running);
    assert_eq!(rig.story(&done).await, ["DONE"]);
    assert_eq!(rig.story(&failed).await, ["5 the first", "5 the last", "FAILED"]);
    let pipeline = rig.jobs().await.get_pipeline(GetJobPipelineRequest { job_id: done }).await.unwrap().into_inner().pipeline;
    assert_eq!(pipeline, Some(crate::rig::pipeline(vec![])));
    resumed.finish(End::Done);
    assert_eq!(rig.story(&long).await.last().unwrap(), "DONE");
}

fn server_record(description: &bytes::Bytes) -> server::jobs::record::Record {
    prost::Message::decode(description.clone()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_cannot_be_resumed_has_failed() {
    let mut rig = Rig::with(Behaviour::Obedient, durable()).await;
    let mut jobs = rig.jobs().await;
    let prepared = jobs.prepare(request("x", pipeline(vec![file_artifact("x", "")]))).await.unwrap().into_inner();
    StagingClient::open(&rig, &prepared.staging_session_token).await.serve(|_| b"contents".into()).await.unwrap();
    let job = jobs.run(run_request(&prepared)).await.unwrap().into_inner().job_id;
    let started = rig.started().await;
    let path = started.submission.artifacts[0][0].path.clone();
    drop(started);
    let (ledger, folder) = rig.stop().await;
    std::fs::remove_file(path).unwrap();

    let rig = Rig::on(Behaviour::Obedient, durable(), ledger, folder).await;
    let story = rig.story(&job).await;
    assert!(story[2].starts_with("5 the job could not be resumed after a restart of the server: artifact "), "{story:?}");
    assert_eq!(story[3], "FAILED");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_outlives_a_restart() {
    let config = || Config { shutdown_grace_ms: 50, ..durable() };
    let mut rig = Rig::with(Behaviour::Deaf, config()).await;
    let (job, _started) = rig.submit("drain").await;
    let state = rig.jobs().await.drain(DrainJobRequest { job_id: job.clone() }).await.unwrap().into_inner().state;
    assert_eq!(state, JobState::Draining as i32);
    let (ledger, folder) = rig.stop().await;

    let rig = Rig::on(Behaviour::Obedient, config(), ledger, folder).await;
    assert_eq!(rig.story(&job).await, ["STOPPED", "STARTING", "DRAINING", "DRAINED"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_not_durable_cancels_its_jobs() {
    let mut rig = Rig::start(Behaviour::Obedient).await;
    let (job, _started) = rig.submit("x").await;
    let stream = rig.jobs().await.get_message_stream(JobMessagesRequest { job_id: job }).await.unwrap().into_inner();
    let reading = tokio::spawn(read_story(stream));
    rig.stop().await;
    assert_eq!(within(reading).await.unwrap(), ["STOPPED", "STARTING", "CANCELLING", "CANCELLED"]);
}
