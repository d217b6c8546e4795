//! Everything that must be true before a change is taken, in the order in which it fails fastest.

use anyhow::{Context, Result};

use crate::steps::{GUESTS, HOST, cargo, run};

/// The gate.
pub(crate) fn run_all() -> Result<()> {
    crate::tidy::run()?;
    run(&mut cargo(&["fmt", "--all", "--check"]))?;
    crate::codegen::run(&crate::codegen::Options { check: true })?;
    crate::setup::toolchain()?;
    for packages in [HOST, GUESTS] {
        let mut clippy = cargo(&[&["clippy", "--quiet", "--all-targets"], packages, &["--", "-D", "warnings"]].concat());
        run(&mut clippy).context("clippy has remarks")?;
    }
    crate::test::run_all(&[])
}
