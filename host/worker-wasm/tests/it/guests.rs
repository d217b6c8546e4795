//! Builds the guests, once per test run. A guest that does not build fails the test.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// A core module of this workspace, as cargo makes it.
pub(crate) fn guest(package: &str) -> Vec<u8> {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    let folder = BUILT.get_or_init(build);
    let path = folder.join(format!("{}.wasm", package.replace('-', "_")));
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn build() -> PathBuf {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("guests");
    let status = Command::new(env!("CARGO"))
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .args(["build", "--quiet", "--profile", "guest", "--target", "wasm32-unknown-unknown"])
        .args(["--package", "test-guest", "--package", "wordcount", "--target-dir"])
        .arg(&target)
        .status()
        .expect("cargo runs");
    assert!(status.success(), "the guests do not build");
    target.join("wasm32-unknown-unknown/guest")
}
