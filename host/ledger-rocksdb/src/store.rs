//! The one RocksDB of a process: opened, bounded in memory, written in whole batches, synced by policy.
//!
//! It knows tables and bytes, not jobs or shards. Everything that touches RocksDB's interface is in this file.
//!
//! Memory: write buffers and block cache are bounded by [`Options`] for all tables together. Tables are few, whatever the
//! number of jobs. Payload tables are compressed with LZ4 and their blocks do not go through the cache.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Bytes;
use ledger::{CommitError, Error};
use rocksdb::{
    BlockBasedOptions, Cache, ColumnFamily, ColumnFamilyDescriptor, DBCompressionType, DBRecoveryMode, DBWithThreadMode,
    ErrorKind, LogLevel, ReadOptions, SingleThreaded, WriteBatch, WriteOptions,
};

use crate::folder::Folder;
use crate::keys;
use crate::options::{Location, Options, Sync};

type Database = DBWithThreadMode<SingleThreaded>;

/// Bits of a number that count within an era; the rest is the era.
const ERA_SHIFT: u32 = 40;
/// Files that RocksDB keeps open, at most.
const OPEN_FILES_MAX: i32 = 256;
/// Bytes that a compaction reads at once of each table that it merges.
const COMPACTION_READ_BYTES: usize = 256 << 10;
/// Deletions among this many neighbours ...
const DELETION_WINDOW: usize = 512;
/// ... from which a table is compacted without waiting for its turn.
const DELETIONS_IN_WINDOW_MAX: usize = 256;

/// A column family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Table {
    /// Jobs and counters.
    Meta,
    /// Headers, reports and what remains: small rows, no payloads.
    Log,
    /// Encoded batches in chunks.
    Payloads,
    /// Cells.
    State,
}

impl Table {
    const ALL: [Table; 4] = [Table::Meta, Table::Log, Table::Payloads, Table::State];

    fn name(self) -> &'static str {
        match self {
            Table::Meta => "default",
            Table::Log => "log",
            Table::Payloads => "payloads",
            Table::State => "state",
        }
    }
}

/// Rows and cells of all jobs of one process.
pub(crate) struct Store {
    /// Ended before the database is closed.
    _syncing: Option<Syncing>,
    database: Arc<Database>,
    /// Removed after the database is closed, if it is temporary.
    _folder: Folder,
    durable: bool,
    commits: WriteOptions,
    ahead: WriteOptions,
    always_synced: WriteOptions,
    next_number: AtomicU64,
}

/// Changes that are written together.
pub(crate) struct Writes<'a> {
    store: &'a Store,
    batch: WriteBatch,
}

impl Store {
    pub(crate) fn open(options: &Options) -> Result<Self, Error> {
        let folder = Folder::open(&options.location)?;
        let durable = matches!(options.location, Location::Durable(_));
        let tables = table_options(options);
        let descriptors = Table::ALL.map(|table| ColumnFamilyDescriptor::new(table.name(), tables(table)));
        let database = Database::open_cf_descriptors(&database_options(options), folder.database(), descriptors).map_err(
            |error| match error.to_string() {
                text if text.contains("/LOCK") => {
                    Error::Storage(format!("data folder {} is in use by another process: {text}", folder.path().display()))
                }
                text => Error::Storage(format!("open data folder {}: {text}", folder.path().display())),
            },
        )?;
        let database = Arc::new(database);
        let syncing = match options.sync {
            Sync::Interval(interval_ms) if durable => Some(Syncing::start(database.clone(), interval_ms)?),
            _ => None,
        };
        let written = |sync: bool| {
            let mut writes = WriteOptions::default();
            writes.disable_wal(!durable);
            writes.set_sync(sync && durable);
            writes
        };
        let mut store = Store {
            _syncing: syncing,
            database,
            _folder: folder,
            durable,
            commits: written(options.sync == Sync::Commit),
            ahead: written(false),
            always_synced: written(true),
            next_number: AtomicU64::new(0),
        };
        store.begin_era()?;
        Ok(store)
    }

    /// Numbers of one era are above those of all eras before, so none is used twice though most are never written down.
    fn begin_era(&mut self) -> Result<(), Error> {
        let era = match self.get(Table::Meta, keys::ERA)? {
            None => 1,
            Some(row) => 1 + u64::from(u32_row(&row)?),
        };
        let row = u32::try_from(era).ok().filter(|era| *era < 1 << (64 - ERA_SHIFT));
        let row = row.ok_or_else(|| Error::Storage("the data folder was opened too often".to_owned()))?;
        let mut writes = self.writes();
        writes.put(Table::Meta, keys::ERA, &row.to_be_bytes());
        self.write_synced(writes)?;
        self.next_number = AtomicU64::new(era << ERA_SHIFT);
        Ok(())
    }

    /// Whether anything outlives the process.
    pub(crate) fn durable(&self) -> bool {
        self.durable
    }

    /// A number that this store has never given out before, greater than all before it.
    pub(crate) fn next_number(&self) -> u64 {
        self.next_number.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn writes(&self) -> Writes<'_> {
        Writes { store: self, batch: WriteBatch::default() }
    }

    /// With room for this many bytes. A large batch that grows is copied again and again and ends up twice as large.
    pub(crate) fn writes_of(&self, bytes: usize) -> Writes<'_> {
        Writes { store: self, batch: WriteBatch::with_capacity_bytes(bytes) }
    }

    /// Writes a commit, synced by policy.
    pub(crate) fn write_commit(&self, writes: Writes<'_>) -> Result<(), CommitError> {
        self.database.write_opt(writes.batch, &self.commits).map_err(commit_error)
    }

    /// Writes what a later commit refers to. The sync of that commit covers it.
    pub(crate) fn write_ahead(&self, writes: Writes<'_>) -> Result<(), Error> {
        self.database.write_opt(writes.batch, &self.ahead).map_err(storage)
    }

    /// Writes what must be safe when this returns, whatever the policy.
    pub(crate) fn write_synced(&self, writes: Writes<'_>) -> Result<(), Error> {
        self.database.write_opt(writes.batch, &self.always_synced).map_err(storage)
    }

    pub(crate) fn get(&self, table: Table, key: &[u8]) -> Result<Option<Bytes>, Error> {
        let mut reads = ReadOptions::default();
        reads.fill_cache(table != Table::Payloads);
        let row = self.database.get_pinned_cf_opt(self.family(table), key, &reads).map_err(storage)?;
        Ok(row.map(|row| Bytes::copy_from_slice(&row)))
    }

    /// Appends a row to `out`; false when there is none.
    pub(crate) fn append_to(&self, table: Table, key: &[u8], out: &mut Vec<u8>) -> Result<bool, Error> {
        let mut reads = ReadOptions::default();
        reads.fill_cache(table != Table::Payloads);
        let row = self.database.get_pinned_cf_opt(self.family(table), key, &reads).map_err(storage)?;
        row.as_ref().inspect(|row| out.extend_from_slice(row));
        Ok(row.is_some())
    }

    /// Shows `each` the rows of `[from, to)` in order until it answers false.
    pub(crate) fn scan(
        &self,
        table: Table,
        from: &[u8],
        to: &[u8],
        mut each: impl FnMut(&[u8], &[u8]) -> Result<bool, Error>,
    ) -> Result<(), Error> {
        let mut reads = ReadOptions::default();
        reads.set_iterate_upper_bound(to);
        let mut rows = self.database.raw_iterator_cf_opt(self.family(table), reads);
        rows.seek(from);
        while let Some((key, value)) = rows.item() {
            if !each(key, value)? {
                return Ok(());
            }
            rows.next();
        }
        rows.status().map_err(storage)
    }

    /// Whether there is a row in `[from, to)`.
    pub(crate) fn has_rows(&self, table: Table, from: &[u8], to: &[u8]) -> Result<bool, Error> {
        let mut found = false;
        self.scan(table, from, to, |_, _| {
            found = true;
            Ok(false)
        })?;
        Ok(found)
    }

    /// Drops whole files of `[from, to]`, all of whose rows were deleted, so that their space is free at once.
    pub(crate) fn free_range(&self, table: Table, from: &[u8], to: &[u8]) -> Result<(), Error> {
        self.database.delete_file_in_range_cf(self.family(table), from, to).map_err(storage)
    }

    /// Bytes of all tables of a kind on disk and in write buffers, about.
    pub(crate) fn table_bytes(&self, table: Table) -> Result<u64, Error> {
        let property = |name: &str| self.database.property_int_value_cf(self.family(table), name).map_err(storage);
        let files = property("rocksdb.total-sst-files-size")?.unwrap_or(0);
        Ok(files + property("rocksdb.cur-size-all-mem-tables")?.unwrap_or(0))
    }

    fn family(&self, table: Table) -> &ColumnFamily {
        self.database.cf_handle(table.name()).expect("all tables are made when the store is opened")
    }
}

impl Writes<'_> {
    pub(crate) fn put(&mut self, table: Table, key: &[u8], value: &[u8]) {
        self.batch.put_cf(self.store.family(table), key, value);
    }

    pub(crate) fn delete(&mut self, table: Table, key: &[u8]) {
        self.batch.delete_cf(self.store.family(table), key);
    }

    pub(crate) fn delete_range(&mut self, table: Table, from: &[u8], to: &[u8]) {
        self.batch.delete_range_cf(self.store.family(table), from, to);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.batch.is_empty()
    }

    /// Bytes of all changes so far.
    pub(crate) fn bytes(&self) -> usize {
        self.batch.size_in_bytes()
    }
}

fn database_options(options: &Options) -> rocksdb::Options {
    let mut database = rocksdb::Options::default();
    database.create_if_missing(true);
    database.create_missing_column_families(true);
    database.set_db_write_buffer_size(options.write_buffer_bytes_max);
    database.set_max_total_wal_size(2 * options.write_buffer_bytes_max as u64);
    database.set_max_background_jobs(2);
    database.set_max_open_files(OPEN_FILES_MAX);
    database.set_keep_log_file_num(2);
    database.set_log_level(LogLevel::Warn);
    database.set_stats_dump_period_sec(0);
    database.set_stats_persist_period_sec(0);
    // What follows the first torn record was never acknowledged as synced: the prefix before it is the truth.
    database.set_wal_recovery_mode(DBRecoveryMode::PointInTime);
    database.set_bytes_per_sync(1 << 20);
    database.set_compaction_readahead_size(COMPACTION_READ_BYTES);
    database
}

fn table_options(options: &Options) -> impl Fn(Table) -> rocksdb::Options {
    let cache = Cache::new_lru_cache(options.block_cache_bytes_max);
    // Each table has two buffers: one that fills, and one that is being written. RocksDB holds up its writers beyond that.
    let buffer_bytes = options.write_buffer_bytes_max / 2;
    move |table| {
        let mut blocks = BlockBasedOptions::default();
        blocks.set_block_cache(&cache);
        blocks.set_cache_index_and_filter_blocks(true);
        blocks.set_pin_l0_filter_and_index_blocks_in_cache(true);
        let mut family = rocksdb::Options::default();
        family.set_compression_type(DBCompressionType::Lz4);
        family.set_level_compaction_dynamic_level_bytes(true);
        family.add_compact_on_deletion_collector_factory(DELETION_WINDOW, DELETIONS_IN_WINDOW_MAX, 0.5);
        match table {
            Table::Meta => family.set_write_buffer_size(buffer_bytes / 16),
            Table::Log => family.set_write_buffer_size(buffer_bytes / 8),
            Table::Payloads => {
                blocks.set_block_size(64 << 10);
                family.set_write_buffer_size(buffer_bytes / 3);
                // Whole files can be dropped only below level 0, and moving them there costs nothing.
                family.set_level_zero_file_num_compaction_trigger(2);
            }
            Table::State => {
                blocks.set_block_size(8 << 10);
                blocks.set_bloom_filter(10.0, false);
                family.set_write_buffer_size(buffer_bytes / 2);
                family.set_memtable_prefix_bloom_ratio(0.05);
                family.set_memtable_whole_key_filtering(true);
            }
        }
        family.set_block_based_table_factory(&blocks);
        family
    }
}

fn u32_row(row: &[u8]) -> Result<u32, Error> {
    let bytes: Result<[u8; 4], _> = row.try_into();
    bytes.map(u32::from_be_bytes).map_err(|_| Error::Corrupt("a counter does not have four bytes".to_owned()))
}

/// Reads a counter of the meta table.
pub(crate) fn counter(store: &Store, key: &[u8]) -> Result<u32, Error> {
    store.get(Table::Meta, key)?.map_or(Ok(0), |row| u32_row(&row))
}

fn storage(error: rocksdb::Error) -> Error {
    match error.kind() {
        ErrorKind::Corruption => Error::Corrupt(error.to_string()),
        _ => Error::Storage(error.to_string()),
    }
}

fn commit_error(error: rocksdb::Error) -> CommitError {
    let text = error.to_string();
    let passing = matches!(error.kind(), ErrorKind::TimedOut | ErrorKind::Busy | ErrorKind::TryAgain | ErrorKind::Incomplete);
    if passing || text.contains("No space left") { CommitError::Retry(text) } else { CommitError::Fatal(text) }
}

/// Syncs the write-ahead log now and then, until it is dropped.
struct Syncing {
    stop: Arc<(Mutex<bool>, Condvar)>,
    thread: Option<JoinHandle<()>>,
}

impl Syncing {
    fn start(database: Arc<Database>, interval_ms: u64) -> Result<Self, Error> {
        let stop = Arc::new((Mutex::new(false), Condvar::new()));
        let stopped = stop.clone();
        let run = move || {
            let (flag, changed) = &*stopped;
            let mut stop = flag.lock().unwrap_or_else(PoisonError::into_inner);
            while !*stop {
                let interval = Duration::from_millis(interval_ms.max(1));
                (stop, _) = changed.wait_timeout(stop, interval).unwrap_or_else(PoisonError::into_inner);
                if let Err(error) = database.flush_wal(true) {
                    // RocksDB refuses further writes after this; commits will say so.
                    tracing::error!(%error, "the write-ahead log could not be synced");
                    return;
                }
            }
        };
        let thread = std::thread::Builder::new().name("ledger-sync".to_owned()).spawn(run);
        let thread = thread.map_err(|error| Error::Storage(format!("start the thread that syncs: {error}")))?;
        Ok(Syncing { stop, thread: Some(thread) })
    }
}

impl Drop for Syncing {
    fn drop(&mut self) {
        *self.stop.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.stop.1.notify_all();
        if let Some(thread) = self.thread.take() {
            // A panic there was reported there.
            let _ = thread.join();
        }
    }
}
