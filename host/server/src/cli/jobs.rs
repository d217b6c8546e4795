//! `purlin jobs`: what a running server knows of its jobs, and the few things that can be done about them.

use std::io::Write;
use std::time::Duration;

use anyhow::{Context, anyhow};
use proto::inspect::inspect_client::InspectClient;
use proto::inspect::{DescribeRequest, Description, JobSummary, JobsRequest, JobsResponse, MessagesRequest};
use proto::job::job_message::MessageImportance;
use proto::job::job_messages_response::Response as StreamItem;
use proto::job::job_service_client::JobServiceClient;
use proto::job::{CancelJobRequest, DrainJobRequest, GetJobMetricsRequest, JobMessage, JobMessagesRequest, job_state};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};

use super::table::{Side, table};
use super::{describe, figures};
use crate::args::{Jobs, JobsAction};

/// How long to wait for a server to accept the connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Does what the arguments say and writes the answer. The error is a sentence for the user.
pub async fn jobs(arguments: &Jobs, out: &mut dyn Write) -> anyhow::Result<()> {
    let server = Server { endpoint: &arguments.endpoint, channel: connect(&arguments.endpoint).await? };
    match &arguments.action {
        JobsAction::List => server.list(out).await,
        JobsAction::Describe { id } => server.show(id, out).await,
        JobsAction::Logs { id, follow } => server.logs(id, *follow, out).await,
        JobsAction::Cancel { id } => server.cancel(id, out).await,
        JobsAction::Drain { id } => server.drain(id, out).await,
    }
}

async fn connect(endpoint: &str) -> anyhow::Result<Channel> {
    let address = Endpoint::from_shared(format!("http://{endpoint}")).map_err(|_| anyhow!("{endpoint:?} is not HOST:PORT"))?;
    let connected = address.connect_timeout(CONNECT_TIMEOUT).connect().await;
    connected.map_err(|_| {
        let port = endpoint.rsplit_once(':').map_or("8073", |(_, port)| port);
        anyhow!("no server listens on {endpoint}\nstart one with: purlin serve --job-port {port}\nor name another with: --endpoint HOST:PORT")
    })
}

struct Server<'a> {
    endpoint: &'a str,
    channel: Channel,
}

impl Server<'_> {
    fn inspect(&self) -> InspectClient<Channel> {
        InspectClient::new(self.channel.clone()).max_decoding_message_size(usize::MAX)
    }

    fn job_service(&self) -> JobServiceClient<Channel> {
        JobServiceClient::new(self.channel.clone()).max_decoding_message_size(usize::MAX)
    }

    async fn list(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        let answer = self.inspect().jobs(JobsRequest {}).await.map_err(|status| self.sentence(status))?;
        write_list(&answer.into_inner(), out)
    }

    async fn describe(&self, id: &str) -> anyhow::Result<Description> {
        let answer = self.inspect().describe(DescribeRequest { job_id: id.into() }).await;
        Ok(answer.map_err(|status| self.sentence(status))?.into_inner())
    }

    async fn show(&self, id: &str, out: &mut dyn Write) -> anyhow::Result<()> {
        let description = self.describe(id).await?;
        let job_id = description.job.clone().unwrap_or_default().job_id;
        let metrics = self.job_service().get_job_metrics(GetJobMetricsRequest { job_id }).await;
        // It may have been forgotten in between.
        let metrics = metrics.ok().and_then(|answer| answer.into_inner().metrics).unwrap_or_default();
        describe::write(&description, &metrics, out)
    }

    async fn full_id(&self, id: &str) -> anyhow::Result<String> {
        self.describe(id).await?.job.map(|job| job.job_id).context("the server's answer names no job")
    }

    async fn logs(&self, id: &str, follow: bool, out: &mut dyn Write) -> anyhow::Result<()> {
        if !follow {
            let answer =
                self.inspect().messages(MessagesRequest { job_id: id.into() }).await.map_err(|status| self.sentence(status))?;
            return answer.into_inner().messages.iter().try_for_each(|message| write_message(message, out));
        }
        let job_id = self.full_id(id).await?;
        let stream = self.job_service().get_message_stream(JobMessagesRequest { job_id }).await;
        let mut stream = stream.map_err(|status| self.sentence(status))?.into_inner();
        while let Some(item) = stream.message().await.map_err(|status| self.sentence(status))? {
            match item.response {
                Some(StreamItem::MessageResponse(message)) => write_message(&message, out)?,
                Some(StreamItem::StateResponse(event)) => writeln!(out, "-- {}", state_name(event.state))?,
                None => {}
            }
            out.flush()?;
        }
        Ok(())
    }

    async fn cancel(&self, id: &str, out: &mut dyn Write) -> anyhow::Result<()> {
        let job_id = self.full_id(id).await?;
        let answer = self.job_service().cancel(CancelJobRequest { job_id: job_id.clone() }).await;
        let state = answer.map_err(|status| self.sentence(status))?.into_inner().state;
        Ok(writeln!(out, "{job_id}  {}", state_name(state))?)
    }

    async fn drain(&self, id: &str, out: &mut dyn Write) -> anyhow::Result<()> {
        let job_id = self.full_id(id).await?;
        let answer = self.job_service().drain(DrainJobRequest { job_id: job_id.clone() }).await;
        let state = answer.map_err(|status| self.sentence(status))?.into_inner().state;
        Ok(writeln!(out, "{job_id}  {}", state_name(state))?)
    }

    fn sentence(&self, status: Status) -> anyhow::Error {
        match status.code() {
            Code::NotFound => anyhow!("{}\nlist all with: purlin jobs list --endpoint {}", status.message(), self.endpoint),
            Code::Unimplemented if status.message().is_empty() => {
                anyhow!("what listens on {} is not a purlin server", self.endpoint)
            }
            Code::Unavailable => anyhow!("the server on {} went away: {}", self.endpoint, status.message()),
            _ => anyhow!("{}", status.message()),
        }
    }
}

fn write_list(jobs: &JobsResponse, out: &mut dyn Write) -> anyhow::Result<()> {
    if jobs.jobs.is_empty() {
        return Ok(writeln!(out, "no jobs so far")?);
    }
    let columns = [
        ("ID", Side::Left),
        ("NAME", Side::Left),
        ("STATE", Side::Left),
        ("AGE", Side::Right),
        ("ELEMENTS/S", Side::Right),
        ("WATERMARK DELAY", Side::Right),
        ("BACKLOG", Side::Right),
    ];
    let rows: Vec<_> = jobs.jobs.iter().map(|job| row(job, jobs.now_ms)).collect();
    Ok(write!(out, "{}", table(&columns, &rows))?)
}

fn row(job: &JobSummary, now_ms: i64) -> Vec<String> {
    vec![
        job.job_id.clone(),
        printable(&job.job_name),
        state_name(job.state),
        figures::age(job.ended_ms.unwrap_or(now_ms) - job.submitted_ms),
        figures::count(job.elements_per_second.round() as u64),
        figures::delay(job.watermark_delay_ms),
        figures::count(job.backlog),
    ]
}

pub(super) fn write_message(message: &JobMessage, out: &mut dyn Write) -> anyhow::Result<()> {
    let importance = match MessageImportance::try_from(message.importance) {
        Ok(MessageImportance::JobMessageError) => "ERROR",
        Ok(MessageImportance::JobMessageWarning) => "WARNING",
        Ok(MessageImportance::JobMessageDebug) => "DEBUG",
        Ok(MessageImportance::JobMessageDetailed) => "DETAILED",
        _ => "BASIC",
    };
    Ok(writeln!(out, "{} {importance:8} {}", message.time, message.message_text)?)
}

pub(super) fn state_name(state: i32) -> String {
    job_state::Enum::try_from(state).map_or_else(|_| format!("state {state}"), |state| state.as_str_name().to_string())
}

/// A name of the user's on one line.
pub(super) fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}
