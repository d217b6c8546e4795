//! Compiled code on disk, found by what it was compiled from: sha256 of the component and the engine's compatibility hash.
//!
//! ```text
//!  <component sha256>-<engine hash>.compiled  =  32 bytes sha256 of the rest, compiled code
//! ```
//!
//! Loading native code trusts it, so this folder is ours alone (mode 0700, refused when others can write) and every file is
//! checked against its digest, which catches damage. Nothing that comes from a user is ever read as compiled code.

use std::fs::{self, DirBuilder};
use std::hash::{Hash, Hasher};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use sha2::{Digest, Sha256};
use wasmtime::Engine;
use wasmtime::component::Component;

use crate::Error;

const SUFFIX: &str = "compiled";

pub(crate) struct CompileCache {
    dir: PathBuf,
    bytes_max: u64,
    engine_hash: String,
    /// Tells files apart that are being written at the same time.
    writes: AtomicU64,
}

impl CompileCache {
    /// Opens a folder, making it when it is not there.
    pub(crate) fn open(dir: &Path, bytes_max: u64, engine: &Engine) -> Result<Self, Error> {
        let refuse = |reason: String| Error::Cache { path: dir.to_owned(), reason };
        DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(|error| refuse(error.to_string()))?;
        let mode = fs::metadata(dir).map_err(|error| refuse(error.to_string()))?.permissions().mode();
        if mode & 0o022 != 0 {
            return Err(refuse(format!(
                "others can write it (mode {:o}); compiled code must be out of their reach",
                mode & 0o777
            )));
        }
        Ok(CompileCache { dir: dir.to_owned(), bytes_max, engine_hash: engine_hash(engine), writes: AtomicU64::new(0) })
    }

    fn path(&self, component: &[u8; 32]) -> PathBuf {
        self.dir.join(format!("{}-{}.{SUFFIX}", to_hex(component), self.engine_hash))
    }

    /// The compiled component, if it is there and whole.
    pub(crate) fn load(&self, engine: &Engine, component: &[u8; 32]) -> Option<Component> {
        let path = self.path(component);
        let file = fs::read(&path).ok()?;
        let whole = file.split_at_checked(32).filter(|(digest, code)| Sha256::digest(code).as_slice() == *digest);
        let Some((_, code)) = whole else {
            tracing::warn!(path = %path.display(), "compiled component is damaged and is compiled again");
            return None;
        };
        match load_own_code(engine, code) {
            Ok(component) => Some(component),
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "compiled component does not load and is compiled again");
                None
            }
        }
    }

    /// Keeps a compiled component: all of it or nothing appears in the folder.
    pub(crate) fn store(&self, component: &[u8; 32], code: &[u8]) -> Result<(), Error> {
        let path = self.path(component);
        let number = self.writes.fetch_add(1, Ordering::Relaxed);
        let partial = self.dir.join(format!("{}-{}-{number}.partial", to_hex(component), std::process::id()));
        let write = || {
            let mut file = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&partial)?;
            file.write_all(&Sha256::digest(code))?;
            file.write_all(code)?;
            file.sync_all()?;
            fs::rename(&partial, &path)
        };
        write().map_err(|error| Error::Cache { path: path.clone(), reason: error.to_string() })?;
        self.evict(&path).map_err(|error| Error::Cache { path: self.dir.clone(), reason: error.to_string() })
    }

    /// Removes the oldest files until the rest is within the limit; the one just written stays.
    fn evict(&self, newest: &Path) -> std::io::Result<()> {
        let mut files = Vec::new();
        for entry in fs::read_dir(&self.dir)? {
            let path = entry?.path();
            // Another process may have removed it meanwhile.
            if let Ok(metadata) = fs::metadata(&path)
                && metadata.is_file()
            {
                files.push((metadata.modified()?, metadata.len(), path));
            }
        }
        files.sort();
        let mut bytes: u64 = files.iter().map(|(_, length, _)| length).sum();
        for (_, length, path) in files {
            if bytes <= self.bytes_max {
                break;
            }
            if path != newest {
                // Files that are gone already are no loss.
                let _ = fs::remove_file(&path);
                bytes -= length;
            }
        }
        Ok(())
    }
}

/// Loads code that `Component::serialize` made.
#[allow(unsafe_code, reason = "loading compiled code is unsafe; see SAFETY")]
fn load_own_code(engine: &Engine, code: &[u8]) -> wasmtime::Result<Component> {
    // SAFETY: `deserialize` asks that the bytes are what `Component::serialize` returned, unchanged. They come from a file that
    // `CompileCache::store` wrote under a name that contains the engine's compatibility hash, in a folder that nobody but this
    // user can write (checked in `open`), and their sha256 was compared with the one stored beside them just before.
    // `deserialize` itself refuses code of another version or configuration of the engine.
    unsafe { Component::deserialize(engine, code) }
}

fn engine_hash(engine: &Engine) -> String {
    let mut hasher = Sha256Hasher(Sha256::new());
    engine.precompile_compatibility_hash().hash(&mut hasher);
    to_hex(&hasher.0.finalize()[..16])
}

struct Sha256Hasher(Sha256);

impl Hasher for Sha256Hasher {
    fn write(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    fn finish(&self) -> u64 {
        let digest = self.0.clone().finalize();
        u64::from_le_bytes(digest[..8].try_into().expect("a sha256 digest has 32 bytes"))
    }
}

pub(crate) fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
