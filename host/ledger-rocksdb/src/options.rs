//! What an embedded ledger is opened with. Complete values; nothing is read from anywhere else.

use std::path::PathBuf;

/// Where the ledger lives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Location {
    /// In a new folder inside `parent`, which goes away with the ledger. Nothing survives the process; disk is touched
    /// only above the memory budget and for state.
    Temporary {
        /// An existing folder with room for what does not fit in memory.
        parent: PathBuf,
    },
    /// In this folder, which is made if it is not there. Jobs survive the process.
    Durable(PathBuf),
}

/// When a durable commit is safe against the loss of power. Against the loss of the process it always is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sync {
    /// When it returns.
    Commit,
    /// At most this many milliseconds after it returns.
    Interval(u64),
    /// When the operating system gets to it.
    Off,
}

/// What [`crate::RocksLedger::open`] needs to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Where.
    pub location: Location,
    /// How safe a durable ledger is.
    pub sync: Sync,
    /// Most bytes of payloads kept in memory, of all jobs, staged or in the log.
    pub memory_bytes_max: u64,
    /// Most bytes of writes that RocksDB collects in memory before it writes tables.
    pub write_buffer_bytes_max: usize,
    /// Most bytes of table blocks kept in memory.
    pub block_cache_bytes_max: usize,
}

impl Options {
    /// A temporary ledger with the usual bounds.
    pub fn temporary(parent: impl Into<PathBuf>) -> Self {
        Self::new(Location::Temporary { parent: parent.into() })
    }

    /// A durable ledger with the usual bounds, synced at every commit.
    pub fn durable(folder: impl Into<PathBuf>) -> Self {
        Self::new(Location::Durable(folder.into()))
    }

    /// 72 MiB together, which is most of what a server needs however much goes through it.
    fn new(location: Location) -> Self {
        Options {
            location,
            sync: Sync::Commit,
            memory_bytes_max: 32 << 20,
            write_buffer_bytes_max: 24 << 20,
            block_cache_bytes_max: 16 << 20,
        }
    }
}
