//! The folder that a ledger lives in: who may use it, which format it has, and when it goes away.
//!
//! ```text
//!  durable     FOLDER/format    one line, FORMAT        temporary    PARENT/purlin-PID-N/in-use   locked while it lives
//!              FOLDER/rocksdb/  locked by RocksDB                    PARENT/purlin-PID-N/rocksdb/
//! ```

use std::fs::{self, File, TryLockError};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use ledger::Error;

use crate::options::Location;

/// What the file `format` says. The number goes up when older binaries could not read what newer ones write, or the
/// other way round.
const FORMAT: &str = "purlin ledger 1";
const FORMAT_FILE: &str = "format";
const IN_USE_FILE: &str = "in-use";
const TEMPORARY_PREFIX: &str = "purlin-";
/// Folders of one process in one parent, at most.
const TEMPORARY_MAX: u32 = 10_000;

/// A folder that this process may use. A temporary one is removed when this is dropped.
#[derive(Debug)]
pub(crate) struct Folder {
    path: PathBuf,
    /// Keeps the lock of a temporary folder.
    in_use: Option<File>,
}

impl Folder {
    pub(crate) fn open(location: &Location) -> Result<Self, Error> {
        match location {
            Location::Temporary { parent } => temporary(parent),
            Location::Durable(path) => durable(path),
        }
    }

    /// Where the database is.
    pub(crate) fn database(&self) -> PathBuf {
        self.path.join("rocksdb")
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if self.in_use.is_some()
            && let Err(error) = fs::remove_dir_all(&self.path)
        {
            tracing::warn!(folder = %self.path.display(), %error, "temporary folder could not be removed");
        }
    }
}

fn failed(doing: &str, path: &Path, error: impl std::fmt::Display) -> Error {
    Error::Storage(format!("{doing} {}: {error}", path.display()))
}

fn durable(path: &Path) -> Result<Folder, Error> {
    fs::create_dir_all(path).map_err(|error| failed("create data folder", path, error))?;
    let format = path.join(FORMAT_FILE);
    match fs::read_to_string(&format) {
        Ok(found) if found.trim_end() == FORMAT => {}
        Ok(found) => {
            let found = found.lines().next().unwrap_or_default();
            let reason = format!("it has format {found:?}, this version reads {FORMAT:?}");
            return Err(failed("open data folder", path, reason));
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let mut content = fs::read_dir(path).map_err(|error| failed("read data folder", path, error))?;
            if content.next().is_some() {
                return Err(failed("open data folder", path, "it is neither empty nor a data folder of purlin"));
            }
            let write = || {
                let mut file = File::create_new(&format)?;
                writeln!(file, "{FORMAT}")?;
                file.sync_all()?;
                File::open(path)?.sync_all()
            };
            write().map_err(|error: std::io::Error| failed("write", &format, error))?;
        }
        Err(error) => return Err(failed("read", &format, error)),
    }
    Ok(Folder { path: path.to_owned(), in_use: None })
}

fn temporary(parent: &Path) -> Result<Folder, Error> {
    remove_abandoned(parent);
    for number in 0..TEMPORARY_MAX {
        let path = parent.join(format!("{TEMPORARY_PREFIX}{}-{number}", std::process::id()));
        match fs::create_dir(&path) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::AlreadyExists => continue,
            Err(error) => return Err(failed("create temporary folder", &path, error)),
        }
        let in_use = File::create_new(path.join(IN_USE_FILE)).map_err(|error| failed("create file in", &path, error))?;
        // Somebody who clears up may have been quicker; then the folder is theirs.
        if in_use.try_lock().is_ok() {
            return Ok(Folder { path, in_use: Some(in_use) });
        }
    }
    Err(failed("create temporary folder in", parent, "there are too many"))
}

/// Removes temporary folders whose process is gone: their lock is free.
fn remove_abandoned(parent: &Path) {
    let Ok(siblings) = fs::read_dir(parent) else { return };
    for sibling in siblings.flatten() {
        if !sibling.file_name().to_string_lossy().starts_with(TEMPORARY_PREFIX) {
            continue;
        }
        let Ok(in_use) = File::open(sibling.path().join(IN_USE_FILE)) else { continue };
        match in_use.try_lock() {
            Ok(()) => {
                tracing::info!(folder = %sibling.path().display(), "removing the temporary folder of a process that is gone");
                // Whatever cannot be removed now is tried again by the next process.
                let _ = fs::remove_dir_all(sibling.path());
            }
            Err(TryLockError::WouldBlock | TryLockError::Error(_)) => {}
        }
    }
}
