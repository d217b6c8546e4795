//! The tests, with all that they need: `cargo xtask test` on a fresh machine runs every one of them.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::steps::{GUESTS, HOST, cargo, command, output, root, run, step, target};

/// Builds the binary and the components, then runs the tests of every crate and last the integration tests.
pub(crate) fn run_all(filter: &[String]) -> Result<()> {
    crate::setup::toolchain()?;
    let python = crate::setup::python()?;
    build()?;
    crate::component::build_all()?;
    let chosen = chosen(filter)?;
    let uses = |sdk: &str| chosen.iter().any(|test| test.starts_with(sdk));
    let go = if uses("go::") { crate::sdks::go()? } else { None };
    if uses("java::") {
        crate::sdks::java()?;
    }
    if filter.is_empty() {
        run(&mut cargo(&[&["test", "--quiet"], GUESTS].concat())).context("tests of the guests")?;
        run(&mut cargo(&[&["test", "--quiet"], HOST, &["--exclude", "tests"]].concat())).context("tests of the crates")?;
        wrapper(&python)?;
    }
    let mut integration = integration(filter, &[]);
    integration.env("PURLIN_BINARY", target().join("release/purlin"));
    integration.env("PURLIN_PYTHON", python.join("bin/python"));
    integration.env("PURLIN_COMPONENTS", crate::component::folder());
    if let Some(folder) = go {
        integration.env("PATH", path_with(folder)?);
    }
    run(&mut integration).context("integration tests")
}

/// The integration tests that a filter chooses, to be run or, with other `arguments`, to be told about.
fn integration(filter: &[String], arguments: &[&str]) -> Command {
    let mut integration = cargo(&[&["test"], HOST, &["--test", "integration", "--"], arguments].concat());
    integration.args(filter);
    integration
}

/// Their names.
fn chosen(filter: &[String]) -> Result<Vec<String>> {
    let list = output(&mut integration(filter, &["--list"])).context("build the integration tests")?;
    Ok(list.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_string).collect())
}

/// The folders that programs are looked for in, with one more before them.
fn path_with(folder: PathBuf) -> Result<OsString> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    Ok(std::env::join_paths([folder].into_iter().chain(std::env::split_paths(&path)))?)
}

/// The binary.
pub(crate) fn build() -> Result<()> {
    step("build", || {
        run(&mut cargo(&[&["build", "--quiet"], HOST].concat()))?;
        Ok("purlin".into())
    })
}

/// The tests of the Python wrapper of components.
fn wrapper(python: &Path) -> Result<()> {
    step("wrapper", || {
        let folder = root().join("guest-sdk/python");
        let mut tests = command(python.join("bin/python"), &["-m", "unittest", "discover", "-s", "tests"]);
        tests.current_dir(&folder).env("PYTHONPATH", &folder).env("PYTHONDONTWRITEBYTECODE", "1");
        tests.env("PURLIN_TEST_COMPONENT", crate::component::folder().join("wordcount.wasm"));
        output(&mut tests).context("tests of the Python wrapper")?;
        Ok("the Python package around components".into())
    })
}
