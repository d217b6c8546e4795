//! Prepare, Run, and what can be asked and done about a job.

use proto::job::job_state::Enum as JobState;
use proto::job::*;
use proto::pipeline::Pipeline;
use server::config::Config;
use server::run::{End, Settings};
use tonic::Code;

use crate::rig::*;

#[tokio::test(flavor = "multi_thread")]
async fn a_job_reaches_the_runner_as_it_was_submitted() {
    let mut rig = Rig::with(Behaviour::Obedient, Config { shards: 3, ..Config::default() }).await;
    let given = options(&[("job_name", "Word Count/1"), ("retries", "2"), ("experiments", "a"), ("whatever", "x")]);
    let request = PrepareJobRequest { pipeline_options: Some(given.clone()), ..request("job", pipeline(vec![])) };
    let mut jobs = rig.jobs().await;
    let prepared = jobs.prepare(request).await.unwrap().into_inner();
    let id = jobs.run(run_request(&prepared)).await.unwrap().into_inner().job_id;
    assert!(id.starts_with("word-count-1-") && id.len() == "word-count-1-".len() + 8, "{id}");

    let submission = rig.started().await.submission;
    assert_eq!((submission.job.as_str(), submission.name.as_str()), (id.as_str(), "Word Count/1"));
    assert_eq!((&*submission.pipeline, &submission.options), (&pipeline(vec![]), &given));
    let settings = Settings { shards: 3, retries: 2, harnesses: 0, experiments: vec!["a".into()], streaming: false };
    assert_eq!((submission.settings, submission.resumed), (settings, false));

    let info = jobs.get_jobs(GetJobsRequest {}).await.unwrap().into_inner().job_info;
    let expected = JobInfo {
        job_id: id.clone(),
        job_name: "Word Count/1".into(),
        pipeline_options: Some(given),
        state: JobState::Starting as i32,
    };
    assert_eq!(info, [expected]);
    let submitted = jobs.get_pipeline(GetJobPipelineRequest { job_id: id }).await.unwrap().into_inner().pipeline;
    assert_eq!(submitted, Some(pipeline(vec![])));
}

#[tokio::test(flavor = "multi_thread")]
async fn one_preparation_can_be_run_more_than_once() {
    let mut rig = Rig::start(Behaviour::Obedient).await;
    let mut jobs = rig.jobs().await;
    let prepared = jobs.prepare(request("twice", pipeline(vec![]))).await.unwrap().into_inner();
    let one = jobs.run(run_request(&prepared)).await.unwrap().into_inner().job_id;
    let other = jobs.run(run_request(&prepared)).await.unwrap().into_inner().job_id;
    assert_ne!(one, other);
    rig.started().await;
    rig.started().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pipeline_is_refused_with_all_problems_at_once() {
    let rig = Rig::start(Behaviour::Obedient).await;
    let mut bad = pipeline(vec![]);
    bad.requirements = vec!["beam:requirement:unheard:of:v1".into()];
    bad.components.as_mut().unwrap().transforms.get_mut("t1").unwrap().inputs.insert("side".into(), "nowhere".into());
    let request = PrepareJobRequest { pipeline_options: Some(options(&[("shards", "many")])), ..request("bad", bad) };
    let status = rig.jobs().await.prepare(request).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    for part in ["this job cannot run here:", "unheard", "nowhere", "option shards is \"many\""] {
        assert!(status.message().contains(part), "{part} is not in: {}", status.message());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_refusal_still_reaches_the_client() {
    let rig = Rig::start(Behaviour::Obedient).await;
    let requirements = (0..1_000).map(|n| format!("urn:é:{n}")).collect();
    let status = rig.jobs().await.prepare(request("bad", Pipeline { requirements, ..pipeline(vec![]) })).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    assert!(status.message().contains("urn:é:0"), "{}", status.message());
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_ids_are_not_found_everywhere() {
    let rig = Rig::start(Behaviour::Obedient).await;
    let mut jobs = rig.jobs().await;
    for id in ["", "nonsense", &"x".repeat(1 << 20)] {
        let job_id = id.to_string();
        let codes = [
            jobs.run(RunJobRequest { preparation_id: job_id.clone(), ..Default::default() }).await.unwrap_err().code(),
            jobs.get_state(GetJobStateRequest { job_id: job_id.clone() }).await.unwrap_err().code(),
            jobs.get_pipeline(GetJobPipelineRequest { job_id: job_id.clone() }).await.unwrap_err().code(),
            jobs.cancel(CancelJobRequest { job_id: job_id.clone() }).await.unwrap_err().code(),
            jobs.drain(DrainJobRequest { job_id: job_id.clone() }).await.unwrap_err().code(),
            jobs.get_state_stream(GetJobStateRequest { job_id: job_id.clone() }).await.unwrap_err().code(),
            jobs.get_message_stream(JobMessagesRequest { job_id: job_id.clone() }).await.unwrap_err().code(),
            jobs.get_job_metrics(GetJobMetricsRequest { job_id }).await.unwrap_err().code(),
        ];
        assert_eq!(codes, [Code::NotFound; 8]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn cancelling_is_idempotent_and_leaves_ended_jobs_alone() {
    let mut rig = Rig::start(Behaviour::Obedient).await;
    let (job, started) = rig.submit("cancel").await;
    started.observer.running();
    let mut jobs = rig.jobs().await;
    for _ in 0..2 {
        let state = jobs.cancel(CancelJobRequest { job_id: job.clone() }).await.unwrap().into_inner().state;
        assert_eq!(state, JobState::Cancelled as i32);
    }
    assert_eq!(rig.story(&job).await, ["STOPPED", "STARTING", "RUNNING", "CANCELLING", "CANCELLED"]);

    let (job, started) = rig.submit("done").await;
    started.finish(End::Done);
    let state = jobs.cancel(CancelJobRequest { job_id: job.clone() }).await.unwrap().into_inner().state;
    assert_eq!(state, JobState::Done as i32);
    let state = jobs.drain(DrainJobRequest { job_id: job }).await.unwrap().into_inner().state;
    assert_eq!(state, JobState::Done as i32);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_does_not_stop_is_given_up() {
    let mut rig = Rig::with(Behaviour::Deaf, Config { cancel_grace_ms: 100, ..Config::default() }).await;
    let (job, _started) = rig.submit("deaf").await;
    let state = rig.jobs().await.cancel(CancelJobRequest { job_id: job.clone() }).await.unwrap().into_inner().state;
    assert_eq!(state, JobState::Cancelling as i32);
    let story = rig.story(&job).await;
    let warning = "4 the job did not stop within 0.1 s of being cancelled and was given up";
    assert_eq!(story, ["STOPPED", "STARTING", "CANCELLING", warning, "CANCELLED"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn drained_jobs_end_drained_and_may_still_be_cancelled() {
    let mut rig = Rig::start(Behaviour::Obedient).await;
    let (job, _started) = rig.submit("drain").await;
    let mut jobs = rig.jobs().await;
    jobs.drain(DrainJobRequest { job_id: job.clone() }).await.unwrap();
    // Perhaps the runner's handle came after the call; the request is not lost then.
    assert_eq!(rig.story(&job).await, ["STOPPED", "STARTING", "DRAINING", "DRAINED"]);
    let state = jobs.drain(DrainJobRequest { job_id: job }).await.unwrap().into_inner().state;
    assert_eq!(state, JobState::Drained as i32);

    let mut rig = Rig::with(Behaviour::Deaf, Config { cancel_grace_ms: 100, ..Config::default() }).await;
    let (job, _started) = rig.submit("deaf").await;
    let mut jobs = rig.jobs().await;
    for _ in 0..2 {
        let state = jobs.drain(DrainJobRequest { job_id: job.clone() }).await.unwrap().into_inner().state;
        assert_eq!(state, JobState::Draining as i32);
    }
    let state = jobs.cancel(CancelJobRequest { job_id: job.clone() }).await.unwrap().into_inner().state;
    assert_eq!(state, JobState::Cancelling as i32);
    let state = jobs.drain(DrainJobRequest { job_id: job }).await.unwrap().into_inner().state;
    assert_eq!(state, JobState::Cancelling as i32);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_runner_that_refuses_or_panics_fails_the_job_only() {
    for (behaviour, cause) in [
        (Behaviour::Refuses, "5 the runner does not feel like it"),
        (Behaviour::PanicsAtStart, "5 internal error, please report it: the runner panicked: deliberate panic at start"),
    ] {
        let rig = Rig::start(behaviour).await;
        let mut jobs = rig.jobs().await;
        let prepared = jobs.prepare(request("x", pipeline(vec![]))).await.unwrap().into_inner();
        let job = jobs.run(run_request(&prepared)).await.unwrap().into_inner().job_id;
        assert_eq!(rig.story(&job).await, ["STOPPED", "STARTING", cause, "FAILED"]);
        assert_eq!(rig.state(&job).await, JobState::Failed);
    }
    let mut rig = Rig::start(Behaviour::PanicsLater).await;
    let (job, _started) = rig.submit("x").await;
    until(|| async {
        let request = GetJobMetricsRequest { job_id: job.clone() };
        rig.jobs().await.get_job_metrics(request).await.unwrap();
        rig.state(&job).await == JobState::Failed
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn finished_jobs_are_remembered_within_a_bound() {
    let mut rig = Rig::with(Behaviour::Obedient, Config { finished_jobs_max: 12, ..Config::default() }).await;
    let mut ids = Vec::new();
    for n in 0..15 {
        let (job, started) = rig.submit(&format!("j{n}")).await;
        started.finish(End::Done);
        rig.story(&job).await;
        ids.push(job);
    }
    let known = || async { rig.jobs().await.get_jobs(GetJobsRequest {}).await.unwrap().into_inner().job_info };
    until(|| async { known().await.len() == 12 }).await;
    let mut known: Vec<_> = known().await.into_iter().map(|info| info.job_id).collect();
    known.sort();
    let mut expected = ids[3..].to_vec();
    expected.sort();
    assert_eq!(known, expected);
    until(|| async { ledger::Ledger::jobs(&rig.ledger).unwrap().len() == 12 }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn options_are_announced() {
    let rig = Rig::with(Behaviour::Obedient, Config { shards: 7, ..Config::default() }).await;
    let options =
        rig.jobs().await.describe_pipeline_options(DescribePipelineOptionsRequest {}).await.unwrap().into_inner().options;
    let told: Vec<_> =
        options.iter().map(|option| (option.name.as_str(), option.r#type, option.default_value.as_str())).collect();
    let (text, integer) = (pipeline_option_type::Enum::String as i32, pipeline_option_type::Enum::Integer as i32);
    assert_eq!(told, [("shards", integer, "7"), ("retries", integer, "0"), ("metrics_step_names", text, "unique_name")]);
    assert!(options.iter().all(|option| !option.description.is_empty()));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_server_ends_and_a_busy_one_does_not() {
    let config = Config { idle_shutdown_ms: Some(3_000), ..Config::default() };
    let mut rig = Rig::with(Behaviour::Obedient, config).await;
    let (_job, started) = rig.submit("busy").await;
    tokio::time::sleep(std::time::Duration::from_millis(4_500)).await;
    assert!(!rig.served.is_finished());
    started.finish(End::Done);
    within(rig.served).await.unwrap().unwrap();
}
