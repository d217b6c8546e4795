//! `cargo xtask codegen`: Rust code for Beam's messages and our own, from `proto/beam` and `proto/purlin` into
//! `proto/src/generated`.
//!
//! Generated code is committed, so that building the workspace needs neither this task nor a Protocol Buffers
//! compiler. `--check` writes nothing and fails when what is committed is not what would be generated.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

/// Arguments of `cargo xtask codegen`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Fail when the committed code is stale instead of writing it.
    #[arg(long)]
    pub(crate) check: bool,
}

/// Generates or checks the code.
pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let proto = crate::steps::root().join("proto");
    let target = proto.join("src/generated");
    let generated = generate(&proto)?;
    if options.check {
        return check(&generated, &read_files(&target)?);
    }
    for stale in read_files(&target)?.keys().filter(|name| !generated.contains_key(*name)) {
        fs::remove_file(target.join(stale)).with_context(|| format!("remove {stale}"))?;
    }
    fs::create_dir_all(&target).context("create proto/src/generated")?;
    for (name, text) in &generated {
        fs::write(target.join(name), text).with_context(|| format!("write {name}"))?;
    }
    Ok(())
}

/// Compiles every file under `proto/beam` and `proto/purlin`; returns file name to Rust text.
fn generate(proto: &Path) -> anyhow::Result<BTreeMap<String, String>> {
    let mut sources = Vec::new();
    find_sources(&proto.join("beam"), &mut sources)?;
    find_sources(&proto.join("purlin"), &mut sources)?;
    sources.sort();
    let descriptors = protox::compile(&sources, [proto]).context("compile the .proto files")?;
    let output = tempfile::tempdir().context("create a directory for the output")?;
    tonic_prost_build::configure()
        // Data and state payloads are slices of the received message, never copies.
        .bytes(".")
        // Maps iterate in key order, so that everything derived from a pipeline is deterministic.
        .btree_map(".")
        .emit_rerun_if_changed(false)
        .out_dir(output.path())
        .compile_fds(descriptors)
        .context("generate Rust code")?;
    read_files(output.path())
}

fn find_sources(directory: &Path, sources: &mut Vec<PathBuf>) -> anyhow::Result<()> {
    for entry in fs::read_dir(directory).with_context(|| format!("list {}", directory.display()))? {
        let path = entry?.path();
        if path.is_dir() {
            find_sources(&path, sources)?;
        } else if path.extension().is_some_and(|extension| extension == "proto") {
            sources.push(path);
        }
    }
    Ok(())
}

/// All files of a directory by name; none when the directory does not exist.
fn read_files(directory: &Path) -> anyhow::Result<BTreeMap<String, String>> {
    let mut files = BTreeMap::new();
    if !directory.exists() {
        return Ok(files);
    }
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let text = fs::read_to_string(entry.path()).with_context(|| format!("read {name}"))?;
        files.insert(name, text);
    }
    Ok(files)
}

fn check(generated: &BTreeMap<String, String>, committed: &BTreeMap<String, String>) -> anyhow::Result<()> {
    let names = generated.keys().chain(committed.keys());
    let mut stale: Vec<&String> = names.filter(|name| generated.get(*name) != committed.get(*name)).collect();
    stale.dedup();
    if !stale.is_empty() {
        bail!("generated code is stale, run `cargo xtask codegen`: {stale:?}");
    }
    Ok(())
}
