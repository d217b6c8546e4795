//! `purlin boot LANGUAGE`: the program between an environment of kind PROCESS and an SDK's harness. It does what the entry
//! points of Beam's containers do, on a machine that has the SDK.
//!
//! ```text
//!  --id, endpoints ─► provisioning: options, endpoints, artifacts ─► files in FOLDER/staged ─► the harness, until it ends
//! ```
//!
//! It is a client like any other: it works with every runner that speaks Beam's provisioning and artifact services.

mod harness;
mod staged;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, anyhow};
use clap::{Args, ValueEnum};
use prost_types::value::Kind;
use prost_types::{Struct, Value};
use proto::fnapi::provision_service_client::ProvisionServiceClient;
use proto::fnapi::{GetProvisionInfoRequest, ProvisionInfo};
use proto::pipeline::ApiServiceDescriptor;
use tokio::process::Child;
use tokio::signal::unix::{SignalKind, signal};
use tonic::Request;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Channel, Endpoint};

/// Whose harness is started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Language {
    /// `python -m apache_beam.runners.worker.sdk_worker_main`, by $VIRTUAL_ENV or else by `python3` on the path.
    Python,
    /// `java org.apache.beam.fn.harness.FnHarness` on the staged jars, by $JAVA_HOME or else by `java` on the path.
    Java,
    /// The staged program itself.
    Go,
}

/// Flags of `purlin boot`: those with which a runner starts the entry point of a container.
#[derive(Debug, Args)]
pub struct Boot {
    /// The SDK of the harness.
    pub language: Language,
    /// What the runner calls the harness.
    #[arg(long)]
    id: String,
    /// Where the harness is told its options and endpoints.
    #[arg(long, value_name = "HOST:PORT")]
    provision_endpoint: String,
    /// Where logs go, unless provisioning says it.
    #[arg(long, value_name = "HOST:PORT")]
    logging_endpoint: Option<String>,
    /// Where artifacts come from, unless provisioning says it.
    #[arg(long, value_name = "HOST:PORT")]
    artifact_endpoint: Option<String>,
    /// Where instructions come from, unless provisioning says it.
    #[arg(long, value_name = "HOST:PORT")]
    control_endpoint: Option<String>,
    /// Where the files of the harness are put [default: a new temporary folder, which goes away with the harness]
    #[arg(long, value_name = "FOLDER")]
    semi_persist_dir: Option<PathBuf>,
}

/// What a harness is to be started with.
#[derive(Debug)]
struct Provided {
    id: String,
    /// Pipeline options as JSON.
    options: String,
    control: String,
    logging: String,
    status: String,
    artifacts: String,
    runner_capabilities: Vec<String>,
}

/// Starts the harness and waits until it has ended. The result is how it ended.
pub async fn boot(flags: &Boot) -> anyhow::Result<ExitCode> {
    // Some runners quote the id for a shell that is not there.
    let id = flags.id.trim_matches(['\'', '"']).to_string();
    let caller: MetadataValue<Ascii> = id.parse().with_context(|| format!("--id {id:?} cannot be sent"))?;
    let info = provisioning(&flags.provision_endpoint, &caller).await?;
    let provided = provided(flags, id, &info);
    // Goes away when this function ends, which is when the harness has ended.
    let temporary = tempfile::Builder::new().prefix("purlin-boot-").tempdir().context("make a temporary folder")?;
    let folder = flags.semi_persist_dir.as_deref().unwrap_or(temporary.path());
    tokio::fs::create_dir_all(folder).await.with_context(|| format!("make {}", folder.display()))?;
    let files = match info.dependencies.is_empty() {
        true => Vec::new(),
        false => staged::fetch(connect(&provided.artifacts).await?, &caller, info.dependencies, &folder.join("staged")).await?,
    };
    let mut command = match flags.language {
        Language::Python => harness::python(&provided, folder, &files).await?,
        Language::Java => harness::java(&provided, folder, &files)?,
        Language::Go => harness::go(&provided, folder, &files)?,
    };
    wait(command.spawn().with_context(|| format!("start {:?}", command.as_std().get_program()))?).await
}

async fn provisioning(endpoint: &str, caller: &MetadataValue<Ascii>) -> anyhow::Result<ProvisionInfo> {
    let mut service = ProvisionServiceClient::new(connect(endpoint).await?);
    let answer = service.get_provision_info(called_by(caller, GetProvisionInfoRequest {})).await;
    let answer = answer.map_err(|status| anyhow!("{endpoint} gives no provisioning: {}", status.message()))?;
    answer.into_inner().info.with_context(|| format!("{endpoint} gives empty provisioning"))
}

async fn connect(endpoint: &str) -> anyhow::Result<Channel> {
    let address = Endpoint::from_shared(format!("http://{endpoint}")).map_err(|_| anyhow!("{endpoint:?} is not HOST:PORT"))?;
    address.connect().await.with_context(|| format!("connect to {endpoint}"))
}

/// A request that says which harness it is for.
fn called_by<T>(caller: &MetadataValue<Ascii>, message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.metadata_mut().insert("worker_id", caller.clone());
    request
}

fn provided(flags: &Boot, id: String, info: &ProvisionInfo) -> Provided {
    let endpoint = |provided: &Option<ApiServiceDescriptor>, flag: &Option<String>| match provided {
        Some(descriptor) if !descriptor.url.is_empty() => descriptor.url.clone(),
        _ => flag.clone().unwrap_or_default(),
    };
    Provided {
        id,
        options: json(info.pipeline_options.clone().unwrap_or_default()).to_string(),
        control: endpoint(&info.control_endpoint, &flags.control_endpoint),
        logging: endpoint(&info.logging_endpoint, &flags.logging_endpoint),
        status: endpoint(&info.status_endpoint, &None),
        artifacts: endpoint(&info.artifact_endpoint, &flags.artifact_endpoint),
        runner_capabilities: info.runner_capabilities.clone(),
    }
}

/// Options as the JSON object that SDKs read.
fn json(options: Struct) -> serde_json::Value {
    options.fields.into_iter().map(|(name, value)| (name, json_value(value))).collect()
}

fn json_value(value: Value) -> serde_json::Value {
    match value.kind {
        None | Some(Kind::NullValue(_)) => serde_json::Value::Null,
        Some(Kind::BoolValue(on)) => on.into(),
        Some(Kind::StringValue(text)) => text.into(),
        // Whole numbers have no point: SDKs read some options as integers.
        Some(Kind::NumberValue(number)) if number.fract() == 0.0 && number.abs() < 2f64.powi(53) => (number as i64).into(),
        Some(Kind::NumberValue(number)) => number.into(),
        Some(Kind::StructValue(fields)) => json(fields),
        Some(Kind::ListValue(list)) => list.values.into_iter().map(json_value).collect(),
    }
}

/// The harness is in this program's process group and is told to end by whoever tells the group; what it leaves behind is
/// cleared away after it.
async fn wait(mut harness: Child) -> anyhow::Result<ExitCode> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let status = loop {
        tokio::select! {
            status = harness.wait() => break status?,
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    };
    let failed = || status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1);
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::from(failed()) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_json() {
        let value = |kind| Value { kind: Some(kind) };
        let list = prost_types::ListValue { values: vec![value(Kind::BoolValue(true)), Value { kind: None }] };
        let kinds = [
            ("a", Kind::NumberValue(3.0)),
            ("b", Kind::NumberValue(0.5)),
            ("c", Kind::ListValue(list)),
            ("d", Kind::StructValue(Struct { fields: [("e".into(), value(Kind::StringValue("x".into())))].into() })),
        ];
        let fields = kinds.map(|(name, kind)| (name.to_string(), value(kind))).into();
        assert_eq!(json(Struct { fields }).to_string(), r#"{"a":3,"b":0.5,"c":[true,null],"d":{"e":"x"}}"#);
    }
}
