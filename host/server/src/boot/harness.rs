//! How the harness of each SDK is started: program, arguments, environment.

use std::env::var_os;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, bail, ensure};
use tokio::process::Command;

use super::Provided;
use super::staged::{File, GO_WORKER};

/// What Python's SDK calls the list of packages that come from an index, ...
const REQUIREMENTS: &str = "requirements.txt";
/// ... the list of packages that came with the job, ...
const EXTRA_PACKAGES: &str = "extra_packages.txt";
/// ... and the package made of the user's `setup.py`.
const WORKFLOW: &str = "workflow.tar.gz";

/// Python's harness, after what the job brings is installed for it alone.
pub(super) async fn python(provided: &Provided, folder: &Path, files: &[File]) -> anyhow::Result<Command> {
    let python = match var_os("VIRTUAL_ENV") {
        Some(environment) => PathBuf::from(environment).join("bin/python"),
        None => "python3".into(),
    };
    let mut command = Command::new(&python);
    if let Some(packages) = install(&python, folder, files).await? {
        let before = var_os("PYTHONPATH").map(PathBuf::from);
        command.env("PYTHONPATH", std::env::join_paths(std::iter::once(packages).chain(before))?);
    }
    command.args(["-m", "apache_beam.runners.worker.sdk_worker_main"]);
    command.env("WORKER_ID", &provided.id).env("SEMI_PERSISTENT_DIRECTORY", folder);
    with_endpoints(&mut command, provided, folder)?;
    Ok(command)
}

/// Installs packages that the job asks for into a folder of this harness. None: it asks for none.
async fn install(python: &Path, folder: &Path, files: &[File]) -> anyhow::Result<Option<PathBuf>> {
    let staged = |name: &str| files.iter().find(|file| file.name == name);
    let mut wanted: Vec<OsString> = Vec::new();
    if let Some(requirements) = staged(REQUIREMENTS) {
        wanted.extend(["-r".into(), requirements.path.clone().into()]);
    }
    if let Some(list) = staged(EXTRA_PACKAGES) {
        let list = std::fs::read_to_string(&list.path).context("read the list of extra packages")?;
        for name in list.lines().map(str::trim).filter(|name| !name.is_empty()) {
            let file = staged(name).with_context(|| format!("extra package {name} was not staged"))?;
            wanted.push(file.path.clone().into());
        }
    }
    wanted.extend(staged(WORKFLOW).map(|file| file.path.clone().into()));
    if wanted.is_empty() {
        return Ok(None);
    }
    let packages = folder.join("packages");
    let mut pip = Command::new(python);
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--target"]).arg(&packages);
    pip.arg("--find-links").arg(folder.join("staged")).args(wanted);
    let ended = pip.stdin(Stdio::null()).status().await.context("start pip")?;
    ensure!(ended.success(), "pip could not install the packages of the job: {ended}");
    Ok(Some(packages))
}

/// Java's harness on all staged jars.
pub(super) fn java(provided: &Provided, folder: &Path, files: &[File]) -> anyhow::Result<Command> {
    let jars: Vec<&Path> = files.iter().filter(|file| file.name.ends_with(".jar")).map(|file| file.path.as_path()).collect();
    if jars.is_empty() {
        bail!("no jar was staged; the job's class path has to hold Beam's Java harness");
    }
    let java = match var_os("JAVA_HOME") {
        Some(home) => PathBuf::from(home).join("bin/java"),
        None => "java".into(),
    };
    let mut command = Command::new(java);
    command.arg("-XX:-OmitStackTraceInFastThrow").arg("-cp").arg(std::env::join_paths(jars)?);
    command.arg("org.apache.beam.fn.harness.FnHarness");
    command.env("HARNESS_ID", &provided.id);
    with_endpoints(&mut command, provided, folder)?;
    Ok(command)
}

/// The environment that Python's and Java's harnesses read.
fn with_endpoints(command: &mut Command, provided: &Provided, folder: &Path) -> anyhow::Result<()> {
    // A file, since a variable of the environment has a limit.
    let options = folder.join("pipeline_options.json");
    std::fs::write(&options, &provided.options).context("write the pipeline options")?;
    command.env("PIPELINE_OPTIONS_FILE", options);
    command.env("RUNNER_CAPABILITIES", provided.runner_capabilities.join(" "));
    let descriptors = [("CONTROL", &provided.control), ("LOGGING", &provided.logging), ("STATUS", &provided.status)];
    for (service, endpoint) in descriptors.into_iter().filter(|(_, endpoint)| !endpoint.is_empty()) {
        // An ApiServiceDescriptor in protocol buffers' text format.
        command.env(format!("{service}_API_SERVICE_DESCRIPTOR"), format!("url: {endpoint:?}"));
    }
    Ok(())
}

/// The staged program, which is its own harness.
pub(super) fn go(provided: &Provided, folder: &Path, files: &[File]) -> anyhow::Result<Command> {
    use std::os::unix::fs::PermissionsExt;
    let worker = files.iter().find(|file| file.role == GO_WORKER).or(files.first());
    let worker = worker.context("no program was staged; a Go job brings its own")?;
    let mode = std::fs::Permissions::from_mode(0o700);
    std::fs::set_permissions(&worker.path, mode).context("make the staged program executable")?;
    let mut command = Command::new(&worker.path);
    command.arg("--worker=true").arg(format!("--id={}", provided.id));
    command.arg(format!("--logging_endpoint={}", provided.logging)).arg(format!("--control_endpoint={}", provided.control));
    command.arg(format!("--semi_persist_dir={}", folder.display())).arg(format!("--options={}", provided.options));
    command.env("RUNNER_CAPABILITIES", provided.runner_capabilities.join(" "));
    if !provided.status.is_empty() {
        command.env("STATUS_ENDPOINT", &provided.status);
    }
    Ok(command)
}
