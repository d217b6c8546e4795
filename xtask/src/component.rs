//! Builds the examples' WebAssembly components: one cargo command each, no tool beyond the wasm target.

use std::path::PathBuf;

use anyhow::Result;

use crate::steps::{cargo, run, step, target};

/// Examples that are components.
const EXAMPLES: &[&str] = &["wordcount", "sessions"];

/// Where built components lie, `NAME.wasm`.
pub(crate) fn folder() -> PathBuf {
    target().join("wasm32-unknown-unknown/guest")
}

/// Builds them all.
pub(crate) fn build_all() -> Result<()> {
    step("components", || {
        for example in EXAMPLES {
            let words = ["build", "--quiet", "--profile", "guest", "--target", "wasm32-unknown-unknown", "--package", example];
            run(&mut cargo(&words))?;
        }
        Ok(EXAMPLES.join(", "))
    })
}
