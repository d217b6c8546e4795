//! Keeps the architecture true: who may depend on whom, one owner per heavy library, files that say what they are.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::steps::root;

/// Crate, and the own crates that it may use. The table of ARCHITECTURE.md.
const MAY_USE: &[(&str, &[&str])] = &[
    ("model", &[]),
    ("proto", &[]),
    ("plan", &["model", "proto"]),
    ("engine", &["model"]),
    ("ledger", &["model"]),
    ("ledger-rocksdb", &["ledger", "model"]),
    ("worker", &["model"]),
    ("worker-wasm", &["worker", "model"]),
    ("worker-harness", &["worker", "model", "proto"]),
    ("executor", &["plan", "engine", "worker", "ledger", "model"]),
    (
        "server",
        &["plan", "engine", "worker", "worker-wasm", "worker-harness", "ledger", "ledger-rocksdb", "executor", "model", "proto"],
    ),
    ("purlin", &["purlin-macros"]),
    ("purlin-macros", &[]),
    ("wordcount", &["purlin"]),
    ("sessions", &["purlin"]),
    ("test-guest", &["purlin"]),
    ("tests", &[]),
    ("xtask", &[]),
];

/// Library, and the only crates that may name it outside tests. Whoever is missing here goes through the crate that owns it.
const OWNERS: &[(&str, &[&str])] = &[
    ("rocksdb", &["ledger-rocksdb"]),
    ("wasmtime", &["worker-wasm"]),
    ("tikv-jemallocator", &["server"]),
    ("wit-component", &["worker-wasm"]),
    ("wit-bindgen", &["purlin"]),
    // gRPC: the messages, and the two that speak it.
    ("tonic", &["proto", "worker-harness", "server"]),
    ("tonic-prost", &["proto"]),
    ("tokio", &["worker-harness", "server"]),
    ("tokio-stream", &["worker-harness", "server"]),
    ("futures-util", &["server"]),
    ("tower-layer", &["server"]),
    // Messages: the planner reads pipelines.
    ("prost", &["proto", "plan", "worker-harness", "server"]),
    ("prost-types", &["proto", "plan", "worker-harness", "server"]),
    // Processes of an environment are ended with their group.
    ("rustix", &["worker-harness"]),
    // Names of artifacts; keys of compiled components.
    ("sha2", &["server", "worker-wasm"]),
    // Records of jobs and configuration; manifests of components.
    ("serde", &["server", "worker-wasm"]),
    ("serde_json", &["server", "worker-wasm"]),
    // Only what ends in a person's terminal has errors without a type.
    ("anyhow", &["server", "xtask"]),
    ("clap", &["server", "xtask"]),
    ("tracing-subscriber", &["server"]),
    // Folders that go away with what they are for: those of harnesses that `purlin boot` starts, and of tests.
    ("tempfile", &["server", "xtask", "tests"]),
    // Code generation.
    ("protox", &["xtask"]),
    ("tonic-prost-build", &["xtask"]),
    // Reads Beam's own test data, nothing else.
    ("saphyr", &[]),
];

/// What a file says that has only its place yet.
const UNWRITTEN: &str = concat!("(being", " written)");

/// Names that say nothing.
const EMPTY_NAMES: &[&str] = &["util", "utils", "common", "helper", "helpers", "manager", "misc"];

/// Checks everything and reports all problems at once.
pub(crate) fn run() -> Result<()> {
    let mut problems = Vec::new();
    let manifests = manifests()?;
    for (folder, manifest) in &manifests {
        check_manifest(folder, manifest, &mut problems);
    }
    for (name, _) in MAY_USE {
        if !manifests.iter().any(|(_, manifest)| manifest.name == *name) {
            problems.push(format!("{name} is in the table of xtask/src/tidy.rs but not in the workspace"));
        }
    }
    for (folder, _) in &manifests {
        for file in sources(folder)? {
            check_source(&file, &mut problems)?;
        }
    }
    if problems.is_empty() {
        println!("tidy: {} crates", manifests.len());
        return Ok(());
    }
    bail!("{} problems\n{}", problems.len(), problems.join("\n"))
}

struct Manifest {
    name: String,
    dependencies: Vec<String>,
}

/// Folder and manifest of every crate of the workspace.
fn manifests() -> Result<Vec<(PathBuf, Manifest)>> {
    let mut found = Vec::new();
    find_manifests(&root(), &mut found)?;
    found.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(found)
}

/// Goes through all folders, since a crate may lie inside another one; what cargo builds and hidden folders are left out.
fn find_manifests(folder: &Path, found: &mut Vec<(PathBuf, Manifest)>) -> Result<()> {
    for entry in std::fs::read_dir(folder).with_context(|| format!("list {}", folder.display()))? {
        let path = entry?.path();
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        if !path.is_dir() || name == "target" || name.starts_with('.') {
            continue;
        }
        let file = path.join("Cargo.toml");
        if file.is_file() {
            found.push((path.clone(), parse(&std::fs::read_to_string(&file)?)));
        }
        find_manifests(&path, found)?;
    }
    Ok(())
}

/// As much TOML as our own manifests use. Dependencies of tests and benches do not count: they are in no library.
fn parse(text: &str) -> Manifest {
    let mut manifest = Manifest { name: String::new(), dependencies: Vec::new() };
    let mut section = "";
    for line in text.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix('[') {
            section = name.trim_end_matches(']');
        } else if let Some((key, value)) = line.split_once('=') {
            match section {
                "package" if key.trim() == "name" => manifest.name = value.trim().trim_matches('"').to_string(),
                _ if is_dependencies(section) => {
                    manifest.dependencies.push(key.trim().trim_end_matches(".workspace").to_string());
                }
                _ => {}
            }
        }
    }
    manifest
}

fn is_dependencies(section: &str) -> bool {
    let last = section.rsplit_once('.').map_or(section, |(_, last)| last);
    matches!(last, "dependencies" | "build-dependencies")
}

fn check_manifest(folder: &Path, manifest: &Manifest, problems: &mut Vec<String>) {
    let table: BTreeMap<&str, &[&str]> = MAY_USE.iter().copied().collect();
    let name = manifest.name.as_str();
    let Some(allowed) = table.get(name) else {
        return problems.push(format!("{name} is not in the table of xtask/src/tidy.rs"));
    };
    let last = folder.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    if folder.parent().is_some_and(|parent| parent.ends_with("host")) && last != name {
        problems.push(format!("host/{last} holds a crate called {name}"));
    }
    for dependency in manifest.dependencies.iter().map(String::as_str) {
        if table.contains_key(dependency) && !allowed.contains(&dependency) {
            problems.push(format!("{name} must not use {dependency}"));
        }
        let owners = OWNERS.iter().find(|(library, _)| *library == dependency).map(|(_, owners)| *owners);
        if owners.is_some_and(|owners| !owners.contains(&name)) {
            let owners = owners.filter(|owners| !owners.is_empty()).map_or("tests only".into(), |owners| owners.join(", "));
            problems.push(format!("{name} must not use {dependency}; its owners are {owners}"));
        }
    }
}

fn sources(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for part in ["src", "tests", "benches", "integration"] {
        collect(&folder.join(part), &mut found)?;
    }
    Ok(found)
}

/// Every Rust file below a folder, without generated ones and without those of a crate that lies inside.
fn collect(folder: &Path, found: &mut Vec<PathBuf>) -> Result<()> {
    if !folder.is_dir() || folder.ends_with("generated") || folder.join("Cargo.toml").is_file() {
        return Ok(());
    }
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, found)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    Ok(())
}

fn check_source(file: &Path, problems: &mut Vec<String>) -> Result<()> {
    let shown = file.strip_prefix(root()).unwrap_or(file).display();
    let text = std::fs::read_to_string(file)?;
    if !text.starts_with("//!") {
        problems.push(format!("{shown} does not open with what it is"));
    }
    if text.contains(UNWRITTEN) {
        problems.push(format!("{shown} is not written"));
    }
    let stem = file.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    if EMPTY_NAMES.contains(&stem.as_str()) {
        problems.push(format!("{shown} has a name that says nothing"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(name: &str, folder: &str, dependencies: &str, expected: &[&str]) {
        let text = format!("[package]\nname = \"{name}\"\n[dependencies]\n{dependencies}");
        let mut problems = Vec::new();
        check_manifest(Path::new(folder), &parse(&text), &mut problems);
        assert_eq!(problems, expected);
    }

    #[test]
    fn forbidden_edges_are_named() {
        check("engine", "host/engine", "model.workspace = true", &[]);
        check("engine", "host/engine", "proto.workspace = true", &["engine must not use proto"]);
        check(
            "plan",
            "host/plan",
            "tokio = { workspace = true }",
            &["plan must not use tokio; its owners are worker-harness, server"],
        );
        check("model", "host/shape", "", &["host/shape holds a crate called model"]);
        check(
            "test-guest",
            "host/worker-wasm/tests/guest",
            "worker-wasm.workspace = true",
            &["test-guest must not use worker-wasm"],
        );
        check("model", "host/model", "saphyr.workspace = true", &["model must not use saphyr; its owners are tests only"]);
    }

    #[test]
    fn only_what_a_library_is_built_with_counts() {
        let text = "[package]\nname = \"model\"\n[dependencies]\na.workspace = true\n[dev-dependencies]\nb = \"1\"\n\
            [target.'cfg(unix)'.dependencies]\nc = \"1\"\n[target.'cfg(unix)'.dev-dependencies]\nd = \"1\"\n\
            [build-dependencies]\ne = { version = \"1\" }\n[lints]\nworkspace = true\n";
        assert_eq!(parse(text).dependencies, ["a", "c", "e"]);
    }
}
