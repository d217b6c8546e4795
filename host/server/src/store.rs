//! Artifacts on disk, under the sha256 of their bytes.
//!
//! No text of a client ever becomes part of a path here. Equal contents are one file, whoever staged them under whatever name.
//! A file lives as long as something refers to it; a store that is durable leaves its files to the next process, and a file to
//! which no job of that process refers any more is deleted at its start.
//!
//! ```text
//!  <folder>/<64 hexadecimal digits>      a whole artifact
//!  <folder>/incoming-<number>            one being written
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use sha2::{Digest, Sha256};
use tokio::fs::File;
use tokio::io::AsyncWriteExt;

/// A folder of artifacts.
#[derive(Debug)]
pub struct Store {
    folder: PathBuf,
    /// Files in use, by digest. Held while a file gets or loses its name, which is short.
    files: Mutex<BTreeMap<String, Weak<Stored>>>,
    incoming: AtomicU64,
    /// Whether files outlive their last reference from now on.
    keep: AtomicBool,
}

/// A file of a store; it is deleted with the last reference.
#[derive(Debug)]
pub struct Stored {
    /// Lower-case hexadecimal sha256 of the contents.
    pub sha256: String,
    /// Where it is.
    pub path: PathBuf,
    store: Arc<Store>,
}

/// Why an artifact was not stored.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The disk does not want it.
    #[error("the artifact could not be stored: {0}")]
    Disk(#[from] io::Error),
    /// It is longer than the server takes.
    #[error("the artifact has more than {0} bytes, which is the most that this server takes")]
    TooLarge(u64),
}

impl Store {
    /// Opens a folder, creating it if need be, and removes what a crash left half written.
    pub fn open(folder: PathBuf) -> io::Result<Arc<Store>> {
        std::fs::create_dir_all(&folder)?;
        for entry in std::fs::read_dir(&folder)? {
            let entry = entry?;
            if entry.file_name().to_string_lossy().starts_with("incoming-") {
                std::fs::remove_file(entry.path())?;
            }
        }
        Ok(Arc::new(Store { folder, files: Mutex::default(), incoming: AtomicU64::new(0), keep: AtomicBool::new(false) }))
    }

    /// A stored file, if there is one with that digest.
    pub fn get(self: &Arc<Self>, sha256: &str) -> Option<Arc<Stored>> {
        if !is_digest(sha256) {
            return None;
        }
        let mut files = self.lock();
        if let Some(stored) = files.get(sha256).and_then(Weak::upgrade) {
            return Some(stored);
        }
        let path = self.folder.join(sha256);
        path.is_file().then(|| self.named(&mut files, sha256.to_string(), path))
    }

    /// Begins a new file.
    pub async fn begin(self: &Arc<Self>, bytes_max: u64) -> Result<Incoming, Error> {
        let path = self.folder.join(format!("incoming-{}", self.incoming.fetch_add(1, Ordering::Relaxed)));
        let file = File::create(&path).await?;
        Ok(Incoming { store: self.clone(), path: Some(path), file, digest: Sha256::new(), bytes: 0, bytes_max })
    }

    /// Deletes whole files that are not in use and not among `wanted`.
    pub fn sweep(&self, wanted: &BTreeSet<String>) -> io::Result<()> {
        let files = self.lock();
        for entry in std::fs::read_dir(&self.folder)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let in_use = files.get(&name).is_some_and(|file| file.strong_count() > 0);
            if is_digest(&name) && !in_use && !wanted.contains(&name) {
                std::fs::remove_file(entry.path())?;
            }
        }
        Ok(())
    }

    /// Deletes the whole folder, because the process ends and nobody wants it.
    pub fn delete(&self) -> io::Result<()> {
        self.keep_files();
        std::fs::remove_dir_all(&self.folder)
    }

    /// From now on files outlive their last reference, because the process ends and the next one wants them.
    pub fn keep_files(&self) {
        self.keep.store(true, Ordering::Relaxed);
    }

    fn named(self: &Arc<Self>, files: &mut BTreeMap<String, Weak<Stored>>, sha256: String, path: PathBuf) -> Arc<Stored> {
        let stored = Arc::new(Stored { sha256: sha256.clone(), path, store: self.clone() });
        files.insert(sha256, Arc::downgrade(&stored));
        stored
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Weak<Stored>>> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Stored {
    fn drop(&mut self) {
        let mut files = self.store.lock();
        // Somebody may have stored the same contents again since the last reference went.
        if files.get(&self.sha256).is_none_or(|file| file.strong_count() > 0) {
            return;
        }
        files.remove(&self.sha256);
        if !self.store.keep.load(Ordering::Relaxed)
            && let Err(error) = std::fs::remove_file(&self.path)
        {
            tracing::warn!(%error, "an artifact could not be deleted");
        }
    }
}

/// A file being written. Dropping it before [`Incoming::finish`] deletes it.
#[derive(Debug)]
pub struct Incoming {
    store: Arc<Store>,
    path: Option<PathBuf>,
    file: File,
    digest: Sha256,
    bytes: u64,
    bytes_max: u64,
}

impl Incoming {
    /// Appends bytes.
    pub async fn append(&mut self, data: &[u8]) -> Result<(), Error> {
        self.bytes += data.len() as u64;
        if self.bytes > self.bytes_max {
            return Err(Error::TooLarge(self.bytes_max));
        }
        self.digest.update(data);
        Ok(self.file.write_all(data).await?)
    }

    /// Makes it a file of the store.
    pub async fn finish(mut self) -> Result<Arc<Stored>, Error> {
        self.file.sync_all().await?;
        let sha256 = hex(&std::mem::take(&mut self.digest).finalize());
        let target = self.store.folder.join(&sha256);
        let mut files = self.store.lock();
        if let Some(stored) = files.get(&sha256).and_then(Weak::upgrade) {
            return Ok(stored);
        }
        if let Some(path) = self.path.take() {
            std::fs::rename(path, &target)?;
        }
        Ok(self.store.named(&mut files, sha256, target))
    }
}

impl Drop for Incoming {
    fn drop(&mut self) {
        if let Some(path) = self.path.take() {
            // A left-over is removed when the store is opened the next time.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Whether a text is a lower-case hexadecimal sha256.
pub fn is_digest(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// Lower-case hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Where a store is when it is to end with the process.
pub fn temporary_folder(base: &Path) -> PathBuf {
    base.join(format!("purlin-artifacts-{}", std::process::id()))
}
