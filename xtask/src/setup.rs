//! Brings what a build and the demo need and cargo does not: system packages, the wasm target, a Python with Beam.
//!
//! Everything is looked for first; nothing that is there is touched. What only the tests in other languages need is in `sdks`.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::steps::{cache, command, output, run, step};

/// The release of Beam's Python SDK that the tests and the demo use.
pub(crate) const BEAM_VERSION: &str = "2.77.0";

/// A tool or library, how to see that it is there, and the Debian packages that bring it.
pub(crate) struct Need {
    pub(crate) what: &'static str,
    pub(crate) there: fn() -> bool,
    /// Separated by spaces.
    pub(crate) packages: &'static str,
}

const NEEDS: &[Need] = &[
    Need { what: "a C++ compiler", there: || answers("c++", "--version"), packages: "g++" },
    Need { what: "make (for the allocator)", there: || answers("make", "--version"), packages: "make" },
    Need { what: "libclang (for the bindings of RocksDB)", there: has_libclang, packages: "libclang-dev" },
    Need {
        what: "python3 with venv",
        there: || answers_with("python3", &["-c", "import venv, ensurepip"]),
        packages: "python3 python3-venv",
    },
];

/// System packages and the wasm target.
pub(crate) fn toolchain() -> Result<()> {
    step("toolchain", || {
        let installed = bring(NEEDS)?;
        wasm_target()?;
        Ok(format!("wasm32 target, system packages{installed}"))
    })
}

/// Installs what is not there, and says so in words to be put after others.
pub(crate) fn bring(needs: &[Need]) -> Result<String> {
    let missing: Vec<&Need> = needs.iter().filter(|need| !(need.there)()).collect();
    if missing.is_empty() {
        return Ok(String::new());
    }
    let packages: Vec<&str> = missing.iter().flat_map(|need| need.packages.split(' ')).collect();
    install(&missing, &packages)?;
    Ok(format!(", installed {}", packages.join(" ")))
}

/// Installs with apt where that is possible; otherwise says what to type.
fn install(missing: &[&Need], packages: &[&str]) -> Result<()> {
    let root = output(&mut command("id", &["-u"])).is_ok_and(|id| id.trim() == "0");
    if !(root && answers("apt-get", "--version")) {
        let what: Vec<&str> = missing.iter().map(|need| need.what).collect();
        bail!("missing: {}\ninstall with: sudo apt-get install {}", what.join(", "), packages.join(" "));
    }
    let apt = |arguments: &[&str]| {
        let mut apt = command("apt-get", arguments);
        apt.env("DEBIAN_FRONTEND", "noninteractive");
        output(&mut apt).context("install system packages")
    };
    apt(&["update", "-qq"])?;
    apt(&[["install", "-y", "-qq", "--no-install-recommends"].as_slice(), packages].concat())?;
    Ok(())
}

fn wasm_target() -> Result<()> {
    const TARGET: &str = "wasm32-unknown-unknown";
    let libraries = output(&mut command("rustc", &["--print", "target-libdir", "--target", TARGET]))?;
    if Path::new(libraries.trim()).join("..").join("lib").is_dir() && has_entries(Path::new(libraries.trim())) {
        return Ok(());
    }
    output(&mut command("rustup", &["target", "add", TARGET])).with_context(|| format!("add the target {TARGET}"))?;
    Ok(())
}

fn has_entries(folder: &Path) -> bool {
    std::fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_some())
}

/// A virtual environment with Beam and what Beam's own tests import. Returns its folder.
pub(crate) fn python() -> Result<PathBuf> {
    let folder = cache()?.join(format!("python-beam-{BEAM_VERSION}"));
    let done = folder.join("complete");
    let requirements = crate::steps::root().join("tests/beam/python/requirements.txt");
    let wanted = std::fs::read_to_string(&requirements).with_context(|| format!("read {}", requirements.display()))?;
    step("python", || {
        // What it was made for is written down: when more is wanted, that is added.
        if std::fs::read_to_string(&done).ok().as_ref() != Some(&wanted) {
            std::fs::create_dir_all(cache()?)?;
            run(command("python3", &["-m", "venv"]).arg(&folder)).context("make a virtual environment")?;
            let mut pip = Command::new(folder.join("bin/pip"));
            output(pip.args(["install", "--quiet", "--disable-pip-version-check", "-r"]).arg(&requirements))
                .context("install apache-beam")?;
            std::fs::write(&done, &wanted)?;
        }
        Ok(format!("virtual environment with apache-beam {BEAM_VERSION}"))
    })?;
    Ok(folder)
}

/// Whether a program is there and does not fail.
pub(crate) fn answers(program: &str, argument: &str) -> bool {
    answers_with(program, &[argument])
}

fn answers_with(program: &str, arguments: &[&str]) -> bool {
    output(&mut command(program, arguments)).is_ok()
}

/// The library lies in a versioned LLVM folder or among the system's libraries, or is named by LIBCLANG_PATH.
fn has_libclang() -> bool {
    let has = |folder: &Path| {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        entries.map(|entry| entry.file_name()).any(|name| is_libclang(&name.to_string_lossy()))
    };
    let named = std::env::var_os("LIBCLANG_PATH").is_some_and(|folder| has(Path::new(&folder)));
    let versions = std::fs::read_dir("/usr/lib").into_iter().flatten().flatten();
    let llvm = versions
        .filter(|entry| entry.file_name().to_string_lossy().starts_with("llvm-"))
        .any(|entry| has(&entry.path().join("lib")));
    named
        || llvm
        || ["/usr/lib", "/usr/lib64", "/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/opt/homebrew/opt/llvm/lib"]
            .iter()
            .any(|folder| has(Path::new(folder)))
}

/// `libclang.so.1`, `libclang-14.so.1`, `libclang.dylib`; not `libclang-cpp.so`, which has another interface.
fn is_libclang(name: &str) -> bool {
    let version = name.strip_prefix("libclang").and_then(|rest| rest.split_once('.')).map(|(version, _)| version);
    version.is_some_and(|version| version.trim_start_matches('-').chars().all(|digit| digit.is_ascii_digit()))
        && (name.contains(".so") || name.ends_with(".dylib"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(names: &str, expected: bool) {
        names.split_whitespace().for_each(|name| assert_eq!(is_libclang(name), expected, "{name}"));
    }

    #[test]
    fn only_the_c_interface_of_clang_counts() {
        check("libclang.so libclang.so.1 libclang-14.so.1 libclang-14.so.14.0.6 libclang.dylib", true);
        check("libclang-cpp.so.14 libclang-cpp.so libclangBasic.a libclang libLLVM-14.so", false);
    }
}
