//! Runs the commands of a task and shows one line per step. Knows nothing of what the steps are for.

use std::ffi::OsStr;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail};

/// The packages that are built, checked and tested together in release. Cargo unifies features over the selection, so any other
/// selection would build RocksDB and Cranelift once more. Guests are apart: their libraries would change the features of the host's.
pub(crate) const HOST: &[&str] =
    &["--release", "--workspace", "--exclude=purlin", "--exclude=purlin-macros", "--exclude=wordcount", "--exclude=sessions"];

/// Guest libraries and examples, run natively.
pub(crate) const GUESTS: &[&str] =
    &["--release", "--package=purlin", "--package=purlin-macros", "--package=wordcount", "--package=sessions"];

/// The root of the checkout: as cargo says while it runs this, since several checkouts may share the folder that this was built in.
pub(crate) fn root() -> PathBuf {
    let manifest = std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    Path::new(&manifest).parent().expect("xtask lies in the checkout").to_path_buf()
}

/// Where things are kept that should outlive a checkout: `$XDG_CACHE_HOME/purlin`, or `~/.cache/purlin`.
pub(crate) fn cache() -> Result<PathBuf> {
    let base = match (std::env::var_os("XDG_CACHE_HOME"), std::env::var_os("HOME")) {
        (Some(cache), _) if !cache.is_empty() => PathBuf::from(cache),
        (_, Some(home)) => Path::new(&home).join(".cache"),
        _ => bail!("neither XDG_CACHE_HOME nor HOME is set"),
    };
    Ok(base.join("purlin"))
}

/// The folder that cargo builds into.
pub(crate) fn target() -> PathBuf {
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(folder) => root().join(folder),
        None => root().join("target"),
    }
}

/// A command that runs in the root of the checkout.
pub(crate) fn command(program: impl AsRef<OsStr>, arguments: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(arguments).current_dir(root());
    command
}

/// The cargo that runs this.
pub(crate) fn cargo(arguments: &[&str]) -> Command {
    command(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()), arguments)
}

/// Runs a command with its output on the terminal; fails when it fails.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let shown = format!("{command:?}");
    let status = command.status().with_context(|| format!("start {shown}"))?;
    if !status.success() {
        bail!("{shown} ended with {status}");
    }
    Ok(())
}

/// Runs a command and returns what it prints; on failure the error holds the end of its output.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let shown = format!("{command:?}");
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("start {shown}"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        let all = format!("{text}{}", String::from_utf8_lossy(&output.stderr));
        let lines: Vec<&str> = all.lines().collect();
        bail!("{shown} ended with {}:\n{}", output.status, lines[lines.len().saturating_sub(40)..].join("\n"));
    }
    Ok(text)
}

/// Announces a step, runs it, and says how long it took. `work` returns what is worth saying.
pub(crate) fn step(name: &str, work: impl FnOnce() -> Result<String>) -> Result<()> {
    let started = Instant::now();
    print!(" ▸ {name:<11}");
    std::io::stdout().flush()?;
    match work() {
        Ok(said) => println!("\r ✓ {name:<11} {said:<60} {:.1} s", started.elapsed().as_secs_f64()),
        Err(error) => {
            println!("\r ✗ {name:<11}");
            return Err(error);
        }
    }
    Ok(())
}
