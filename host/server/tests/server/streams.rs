//! The rules of the two job streams on which Beam's clients rely (`beam-model` 1.2, traps 1 to 3).

use proto::job::*;
use server::run::{End, Importance};
use tonic::Code;

use crate::rig::*;

#[tokio::test(flavor = "multi_thread")]
async fn every_reader_gets_the_whole_sequence_and_the_end() {
    let mut rig = Rig::start(Behaviour::Obedient).await;
    let (job, started) = rig.submit("streams").await;
    let early = rig.jobs().await.get_message_stream(JobMessagesRequest { job_id: job.clone() }).await.unwrap().into_inner();
    started.observer.running();
    started.observer.message(Importance::Basic, "half way");
    let between = rig.jobs().await.get_message_stream(JobMessagesRequest { job_id: job.clone() }).await.unwrap().into_inner();
    started.finish(End::Done);

    let whole = ["STOPPED", "STARTING", "RUNNING", "3 half way", "DONE"];
    assert_eq!(within(read_story(early)).await, whole);
    assert_eq!(within(read_story(between)).await, whole);
    assert_eq!(rig.story(&job).await, whole, "after the end");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_cause_comes_before_the_failure_and_is_verbatim() {
    let mut rig = Rig::start(Behaviour::Obedient).await;
    let (job, started) = rig.submit("streams").await;
    started.observer.running();
    let cause = "ValueError: déjà vu\n  File \"x.py\", line 3\n [while running 'Work']";
    started.finish(End::Failed(cause.into()));
    let expected = ["STOPPED", "STARTING", "RUNNING", &format!("5 {cause}"), "FAILED"];
    assert_eq!(rig.story(&job).await, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_runner_says_after_the_end_is_not_heard() {
    let mut rig = Rig::start(Behaviour::Obedient).await;
    let (job, started) = rig.submit("streams").await;
    started.finish(End::Done);
    started.observer.message(Importance::Error, "too late");
    started.finish(End::Failed("again".into()));
    assert_eq!(rig.story(&job).await, ["STOPPED", "STARTING", "DONE"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_state_stream_begins_at_once_and_ends_after_the_end() {
    let mut rig = Rig::start(Behaviour::Obedient).await;
    let (job, started) = rig.submit("streams").await;
    let mut stream = rig.jobs().await.get_state_stream(GetJobStateRequest { job_id: job.clone() }).await.unwrap().into_inner();
    let mut states = Vec::new();
    for _ in 0..2 {
        states.push(within(stream.message()).await.unwrap().unwrap().state);
    }
    started.observer.running();
    started.finish(End::Done);
    while let Some(event) = within(stream.message()).await.unwrap() {
        states.push(event.state);
    }
    assert_eq!(states, [1, 9, 2, 3]);
}

#[tokio::test(flavor = "multi_thread")]
async fn ids_of_preparations_are_no_ids_of_jobs() {
    let rig = Rig::start(Behaviour::Obedient).await;
    let mut jobs = rig.jobs().await;
    let prepared = jobs.prepare(request("x", pipeline(vec![]))).await.unwrap().into_inner();
    let id = prepared.preparation_id.clone();
    let job = jobs.run(run_request(&prepared)).await.unwrap().into_inner().job_id;
    assert_ne!(job, id);
    let state = jobs.get_state_stream(GetJobStateRequest { job_id: id.clone() }).await.unwrap_err();
    let messages = jobs.get_message_stream(JobMessagesRequest { job_id: id }).await.unwrap_err();
    assert_eq!([state.code(), messages.code()], [Code::NotFound, Code::NotFound]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_messages_keeps_the_first_and_the_last_error() {
    let mut rig = Rig::start(Behaviour::Obedient).await;
    let (job, started) = rig.submit("streams").await;
    started.observer.running();
    for (importance, text) in [(Importance::Error, "first"), (Importance::Error, "second"), (Importance::Error, "last")] {
        started.observer.message(importance, text);
    }
    (0..12_000).for_each(|n| started.observer.message(Importance::Basic, &n.to_string()));
    started.finish(End::Done);
    let story = rig.story(&job).await;
    assert_eq!(story[..5], ["STOPPED", "STARTING", "RUNNING", "5 first", "5 last"]);
    assert_eq!(story[story.len() - 2..], ["3 11999", "DONE"]);
    assert_eq!(story.len(), 5 + 10_000 + 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn open_streams_end_when_the_server_does() {
    let mut rig = Rig::start(Behaviour::Deaf).await;
    let (job, _started) = rig.submit("streams").await;
    let mut stream = rig.jobs().await.get_state_stream(GetJobStateRequest { job_id: job }).await.unwrap().into_inner();
    rig.tell_to_stop();
    let end = within(async {
        loop {
            match stream.message().await {
                Ok(Some(_)) => {}
                end => return end,
            }
        }
    })
    .await;
    assert_eq!(end.unwrap_err().code(), Code::Unavailable);
    within(rig.served).await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_idle_streams_do_not_hinder_anyone() {
    let mut rig = Rig::start(Behaviour::Obedient).await;
    let (job, started) = rig.submit("streams").await;
    let mut client = rig.jobs().await;
    let mut streams = Vec::new();
    for _ in 0..1_000 {
        streams.push(within(client.get_state_stream(GetJobStateRequest { job_id: job.clone() })).await.unwrap().into_inner());
    }
    assert_eq!(within(client.get_jobs(GetJobsRequest {})).await.unwrap().into_inner().job_info.len(), 1);
    started.finish(End::Done);
    for mut stream in streams {
        let mut last = 0;
        while let Some(event) = within(stream.message()).await.unwrap() {
            last = event.state;
        }
        assert_eq!(last, 3);
    }
}
