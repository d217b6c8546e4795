//! Brings what the tests in Beam's other languages need: Go, and a JDK with Maven. Python, which the demo needs too, is brought
//! by `setup`.
//!
//! A Go that is new enough is used where it is; otherwise the release below is kept in the cache, touching nothing else.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::setup::{Need, answers, bring};
use crate::steps::{cache, command, output, root, step};

/// The Go that is brought when there is none that the tests' go.mod accepts.
const GO_VERSION: &str = "1.26.8";
/// Its archives on go.dev, by `uname -s` and `uname -m`, and their sha256.
const GO_ARCHIVES: &[(&str, &str, &str)] = &[
    ("Linux x86_64", "linux-amd64", "d0f743b33e8d8945e6b1f432edd15785c70507121d6e2a723b21285eddf8b57b"),
    ("Linux aarch64", "linux-arm64", "211ffced9dcb9633a55eac6364816ec0ddd951389a740e88fa8b3337971bdda0"),
];

/// What the script of the Go tests calls besides Go.
const GO_NEEDS: &[Need] = &[
    Need { what: "python3", there: || answers("python3", "--version"), packages: "python3" },
    Need { what: "curl", there: || answers("curl", "--version"), packages: "curl ca-certificates" },
];

const JAVA_NEEDS: &[Need] = &[
    Need { what: "a JDK", there: || answers("javac", "-version"), packages: "default-jdk-headless" },
    Need { what: "Maven", there: || answers("mvn", "--version"), packages: "maven" },
];

/// A JDK and Maven.
pub(crate) fn java() -> Result<()> {
    step("java", || {
        let installed = bring(JAVA_NEEDS)?;
        Ok(format!("JDK, Maven{installed}"))
    })
}

/// A Go that the tests' go.mod accepts. Returns the folder to be searched for programs before all others, if it has to be.
pub(crate) fn go() -> Result<Option<PathBuf>> {
    let mut folder = None;
    step("go", || {
        let installed = bring(GO_NEEDS)?;
        let wanted = wanted_go()?;
        if let Some(found) = go_version(Path::new("go")).filter(|found| *found >= wanted) {
            return Ok(format!("Go {}{installed}", shown(found)));
        }
        let brought = cache()?.join(format!("go-{GO_VERSION}"));
        if !brought.exists() {
            fetch_go(&brought)?;
        }
        folder = Some(brought.join("bin"));
        Ok(format!("Go {GO_VERSION} in the cache{installed}"))
    })?;
    Ok(folder)
}

/// Major, minor and patch.
type Version = [u32; 3];

fn shown(version: Version) -> String {
    version.map(|part| part.to_string()).join(".")
}

/// `1.26.8`, or `1.26` for its first release.
fn parse(text: &str) -> Option<Version> {
    let mut version = [0; 3];
    for (place, part) in text.trim().splitn(3, '.').enumerate() {
        version[place] = part.parse().ok()?;
    }
    Some(version)
}

/// The module of the Go tests.
fn module() -> PathBuf {
    root().join("tests/beam/go")
}

/// What the `go` line of a go.mod says.
fn wanted_go() -> Result<Version> {
    let path = module().join("go.mod");
    let text = std::fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
    let line = text.lines().find_map(|line| line.strip_prefix("go "));
    line.and_then(parse).with_context(|| format!("{} has no line `go VERSION`", path.display()))
}

/// The version that a `go` runs as in the tests' module: from 1.21 on it fetches the one of go.mod by itself, unless told not to.
fn go_version(go: &Path) -> Option<Version> {
    let said = output(Command::new(go).arg("version").current_dir(module())).ok()?;
    let version = said.split_whitespace().find_map(|word| word.strip_prefix("go").filter(|rest| !rest.is_empty()))?;
    parse(version)
}

/// Downloads, checks and unpacks; the folder is there when all of that is done.
fn fetch_go(folder: &Path) -> Result<()> {
    let machine = output(&mut command("uname", &["-sm"]))?;
    let known = GO_ARCHIVES.iter().find(|(name, ..)| *name == machine.trim());
    let Some((_, archive, sha256)) = known else {
        bail!("missing: Go {GO_VERSION} or later\nget it from https://go.dev/dl/ and put it on the PATH");
    };
    let work = folder.with_added_extension("part");
    let _ = std::fs::remove_dir_all(&work);
    std::fs::create_dir_all(&work)?;
    let file = work.join("go.tar.gz");
    let url = format!("https://go.dev/dl/go{GO_VERSION}.{archive}.tar.gz");
    let mut curl = command("curl", &["--fail", "--location", "--silent", "--show-error", "--proto", "=https", "--retry", "3"]);
    output(curl.arg("--output").arg(&file).arg(&url)).with_context(|| {
        format!("download Go {GO_VERSION}; without a way to go.dev, put a Go of that version or later on the PATH")
    })?;
    unpack(&file, sha256, &work)?;
    std::fs::rename(work.join("go"), folder)?;
    Ok(std::fs::remove_dir_all(&work)?)
}

fn unpack(file: &Path, sha256: &str, into: &Path) -> Result<()> {
    let said = output(command("sha256sum", &[]).arg(file))?;
    let found = said.split_whitespace().next().unwrap_or_default();
    ensure!(found == sha256, "{} has sha256 {found}, not {sha256}", file.display());
    output(command("tar", &["-xzf"]).arg(file).arg("-C").arg(into))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_part_by_part() {
        let check = |text: &str, expected: Option<Version>| assert_eq!(parse(text), expected, "{text}");
        check("1.26.8", Some([1, 26, 8]));
        check("1.26", Some([1, 26, 0]));
        check("1.26rc1", None);
        check("", None);
        assert!(parse("1.26.10") > parse("1.26.8") && parse("1.9.9") < parse("1.26"));
    }

    #[test]
    fn the_go_that_is_brought_is_one_that_the_tests_accept() {
        assert!(parse(GO_VERSION).unwrap() >= wanted_go().unwrap());
    }

    #[test]
    fn an_archive_with_another_checksum_is_not_unpacked() {
        let folder = tempfile::tempdir().unwrap();
        let (file, into) = (folder.path().join("go.tar.gz"), folder.path().join("into"));
        std::fs::create_dir_all(folder.path().join("go/bin")).unwrap();
        std::fs::create_dir(&into).unwrap();
        output(command("tar", &["-czf"]).arg(&file).arg("-C").arg(folder.path()).arg("go")).unwrap();
        let error = unpack(&file, GO_ARCHIVES[0].2, &into).unwrap_err().to_string();
        assert!(error.contains(GO_ARCHIVES[0].2) && !into.join("go").exists(), "{error}");
        let said = output(command("sha256sum", &[]).arg(&file)).unwrap();
        unpack(&file, said.split_whitespace().next().unwrap(), &into).unwrap();
        assert!(into.join("go/bin").is_dir());
    }
}
