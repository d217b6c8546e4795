//! Everything that must be true before a change is taken, in the order in which it fails fastest.

use anyhow::{Result, bail};

use crate::steps::{cargo, run};

/// The gate.
pub(crate) fn run_all() -> Result<()> {
    crate::tidy::run()?;
    run(&mut cargo(&["fmt", "--all", "--check"]))?;
    crate::codegen::run(&crate::codegen::Options { check: true })?;
    crate::setup::toolchain()?;
    let mut clippy = cargo(&["clippy", "--release", "--workspace", "--all-targets", "--quiet", "--", "-D", "warnings"]);
    if run(&mut clippy).is_err() {
        bail!("clippy has remarks");
    }
    crate::test::run_all(&[])
}
