//! `purlin explain FILE`: how a pipeline would run, without running it.

use std::io::Write;
use std::path::Path;

use anyhow::{Context, bail};
use plan::Capabilities;
use prost::Message;
use proto::job::PrepareJobRequest;
use proto::pipeline::Pipeline;

/// Plans the pipeline in a file and prints the plan. The error lists everything that speaks against running it.
pub fn explain(file: &Path, capabilities: &Capabilities, out: &mut dyn Write) -> anyhow::Result<()> {
    let bytes = std::fs::read(file).with_context(|| format!("read {}", file.display()))?;
    let pipeline =
        pipeline(&bytes).with_context(|| format!("{} is no serialized Pipeline or PrepareJobRequest", file.display()))?;
    match plan::plan(&pipeline, capabilities) {
        Ok(plan) => Ok(write!(out, "{}", plan.explain())?),
        Err(problems) => bail!("{problems}"),
    }
}

/// Both messages are told apart by which of them has transforms; the bytes of one may decode as the other.
fn pipeline(bytes: &[u8]) -> anyhow::Result<Pipeline> {
    let has_transforms =
        |pipeline: &Pipeline| pipeline.components.as_ref().is_some_and(|components| !components.transforms.is_empty());
    let request = PrepareJobRequest::decode(bytes).ok().and_then(|request| request.pipeline);
    if let Some(pipeline) = request.filter(has_transforms) {
        return Ok(pipeline);
    }
    match Pipeline::decode(bytes) {
        Ok(pipeline) if has_transforms(&pipeline) => Ok(pipeline),
        Ok(_) => bail!("it has no transforms"),
        Err(error) => bail!("{error}"),
    }
}
