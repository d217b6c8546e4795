//! Side inputs of a job: broadcast entries, indexed by window and key, read in pages.
//!
//! One store serves all shards of a process. Payloads stay in the ledger, which keeps them in memory or on disk by its own
//! budget; the index holds eight bytes a row and the windows. The engine lets a bundle start only when what it may
//! read is complete, so an index that has taken in all entries never changes under a reader.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use ledger::{EntryHeader, JobLedger};
use model::{Batch, Coder, StageId, TransformId, WindowCoder};
use plan::Plan;
use worker::{Error, Page, StateAccess, StateKey};

/// A page of a side input is about this large.
pub const PAGE_BYTES: usize = 1 << 20;
/// Payloads that the store itself keeps at hand while pages are read.
const CACHED_BATCHES_MAX: usize = 64;

/// One row of a broadcast entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RowAt {
    entry: u32,
    row: u32,
}

/// See the file's head.
pub struct SideInputs {
    ledger: Arc<dyn JobLedger>,
    /// Where the elements of a (transform, tag) come from.
    sources: BTreeMap<(TransformId, String), Source>,
    /// Held while indexing and while a page is put together; readers of other jobs are not concerned.
    content: Mutex<Content>,
}

struct Source {
    producers: Vec<(StageId, u32)>,
    coder: Coder,
    windows: WindowCoder,
}

#[derive(Default)]
struct Content {
    /// Offsets of all broadcast entries by producer, in the order in which they came: commits of different shards may become
    /// visible in another order than that of their offsets, and what a view has taken in must stay in front.
    entries: BTreeMap<(StageId, u32), Vec<u64>>,
    known: HashSet<u64>,
    views: HashMap<(TransformId, String), View>,
    batches: HashMap<u64, Arc<Batch>>,
    recent: VecDeque<u64>,
}

/// One side input of one transform, indexed.
#[derive(Default)]
struct View {
    /// Entries taken in so far, per producer.
    taken: BTreeMap<(StageId, u32), usize>,
    offsets: Vec<u64>,
    windows: HashMap<Bytes, Window>,
}

#[derive(Default)]
struct Window {
    rows: Vec<RowAt>,
    /// Filled for keyed reads only.
    keys: Option<Keys>,
}

#[derive(Default)]
struct Keys {
    /// By hash of the key.
    alike: HashMap<u64, Alike>,
    /// The first row of each distinct key, in order.
    distinct: Vec<RowAt>,
}

/// Rows whose keys have one hash, which is mostly one key.
#[derive(Default)]
struct Alike {
    rows: Vec<RowAt>,
    /// The first row of each of the keys.
    distinct: Vec<RowAt>,
}

impl SideInputs {
    /// An empty store for the side inputs of `plan`.
    pub fn new(plan: &Plan, ledger: Arc<dyn JobLedger>) -> Self {
        let sides = plan.stages.iter().flat_map(|stage| &stage.side_inputs);
        let source = |side: &plan::SideInput| Source {
            producers: side.producers.clone(),
            coder: side.coder.clone(),
            windows: side.windowing.window_coder,
        };
        let sources = sides.map(|side| ((side.transform.clone(), side.tag.clone()), source(side))).collect();
        SideInputs { ledger, sources, content: Mutex::default() }
    }

    /// Takes in a broadcast entry; every shard reports every entry, the first report counts.
    pub fn add(&self, header: &EntryHeader) {
        let mut content = self.lock();
        if content.known.insert(header.position.offset) {
            content.entries.entry((header.stage, header.input)).or_default().push(header.position.offset);
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Content> {
        self.content.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn read(&self, key: &StateKey, from: Option<&Bytes>) -> Result<Page, Error> {
        let (transform, tag, window) = match key {
            StateKey::IterableSideInput { transform, side_input, window }
            | StateKey::MultimapSideInput { transform, side_input, window, .. }
            | StateKey::MultimapKeysSideInput { transform, side_input, window }
            | StateKey::MultimapKeysValuesSideInput { transform, side_input, window } => (transform, side_input, window),
            other => return Err(Error::Protocol(format!("not a side input: {other:?}"))),
        };
        let id = (transform.clone(), tag.clone());
        let source = self.sources.get(&id).ok_or_else(|| Error::Protocol(format!("{transform} has no side input {tag}")))?;
        let mut content = self.lock();
        let mut reader = PageReader { ledger: &*self.ledger, source, content: &mut content, id };
        reader.take_in()?;
        let start = position(from)?;
        match key {
            StateKey::IterableSideInput { .. } => reader.elements(window, start),
            StateKey::MultimapSideInput { key, .. } => reader.values(window, key, start),
            StateKey::MultimapKeysSideInput { .. } => reader.keys(window, start),
            _ => reader.keys_and_values(window, start),
        }
    }
}

/// A continuation token is the number of rows (or keys) read so far.
fn position(from: Option<&Bytes>) -> Result<usize, Error> {
    let Some(token) = from.filter(|token| !token.is_empty()) else { return Ok(0) };
    let bytes: [u8; 8] = token[..].try_into().map_err(|_| Error::Protocol("foreign continuation token".into()))?;
    Ok(u64::from_be_bytes(bytes) as usize)
}

fn token(position: usize) -> Option<Bytes> {
    Some(Bytes::copy_from_slice(&(position as u64).to_be_bytes()))
}

/// Reads one view while the store is locked.
struct PageReader<'a> {
    ledger: &'a dyn JobLedger,
    source: &'a Source,
    content: &'a mut Content,
    id: (TransformId, String),
}

impl PageReader<'_> {
    /// Indexes entries that came since the last read.
    fn take_in(&mut self) -> Result<(), Error> {
        for producer in &self.source.producers {
            let view = self.content.views.entry(self.id.clone()).or_default();
            let taken = view.taken.get(producer).copied().unwrap_or(0);
            let new = self.content.entries.get(producer).map_or_else(Vec::new, |offsets| offsets[taken..].to_vec());
            for offset in new {
                let batch = self.content.batch(self.ledger, offset)?;
                let view = self.content.views.entry(self.id.clone()).or_default();
                view.index(offset, &batch, self.source.windows)?;
                *view.taken.entry(*producer).or_default() += 1;
            }
        }
        Ok(())
    }

    fn window(&self, window: &Bytes) -> Option<&Window> {
        self.content.views.get(&self.id)?.windows.get(window)
    }

    fn row(&mut self, at: RowAt) -> Result<(Arc<Batch>, usize), Error> {
        let offset = self.content.views[&self.id].offsets[at.entry as usize];
        Ok((self.content.batch(self.ledger, offset)?, at.row as usize))
    }

    fn elements(&mut self, window: &Bytes, start: usize) -> Result<Page, Error> {
        let count = self.window(window).map_or(0, |window| window.rows.len());
        let mut data = Vec::new();
        for number in start..count {
            let at = self.content.views[&self.id].windows[window].rows[number];
            let (batch, row) = self.row(at)?;
            data.extend_from_slice(batch.value(row));
            if data.len() >= PAGE_BYTES && number + 1 < count {
                return Ok(Page { data: data.into(), next: token(number + 1) });
            }
        }
        Ok(Page { data: data.into(), next: None })
    }

    /// Builds the key index of a window on the first keyed read.
    fn index_keys(&mut self, window: &Bytes) -> Result<(), Error> {
        let Some(found) = self.window(window) else { return Ok(()) };
        if found.keys.is_some() {
            return Ok(());
        }
        let all = found.rows.clone();
        let mut keys = Keys::default();
        for at in all {
            let (batch, row) = self.row(at)?;
            let key = key_of(&self.source.coder, batch.value(row))?;
            let alike = keys.alike.entry(worker::outputs::key_hash(key)).or_default();
            let mut known = false;
            for first in &alike.distinct {
                let (batch, row) = self.row(*first)?;
                known |= key_of(&self.source.coder, batch.value(row))? == key;
            }
            if !known {
                alike.distinct.push(at);
                keys.distinct.push(at);
            }
            alike.rows.push(at);
        }
        let view = self.content.views.get_mut(&self.id).expect("the window was found in it");
        view.windows.get_mut(window).expect("the window was found").keys = Some(keys);
        Ok(())
    }

    fn values(&mut self, window: &Bytes, key: &Bytes, start: usize) -> Result<Page, Error> {
        self.index_keys(window)?;
        let hash = worker::outputs::key_hash(key);
        let keys = self.window(window).and_then(|window| window.keys.as_ref());
        let rows = keys.and_then(|keys| keys.alike.get(&hash)).map(|alike| alike.rows.clone()).unwrap_or_default();
        let mut data = Vec::new();
        for (number, at) in rows.iter().enumerate().skip(start) {
            let (batch, row) = self.row(*at)?;
            let value = batch.value(row);
            let length = key_of(&self.source.coder, value)?.len();
            if value[..length] == key[..] {
                data.extend_from_slice(&value[length..]);
            }
            if data.len() >= PAGE_BYTES && number + 1 < rows.len() {
                return Ok(Page { data: data.into(), next: token(number + 1) });
            }
        }
        Ok(Page { data: data.into(), next: None })
    }

    fn keys(&mut self, window: &Bytes, start: usize) -> Result<Page, Error> {
        self.distinct(window, start, |_, _, key, data| {
            data.extend_from_slice(key);
            Ok(())
        })
    }

    fn keys_and_values(&mut self, window: &Bytes, start: usize) -> Result<Page, Error> {
        self.distinct(window, start, |reader, window, key, data| {
            let (mut values, mut next) = (Vec::new(), None);
            loop {
                let page = reader.values(window, &Bytes::copy_from_slice(key), position(next.as_ref())?)?;
                values.extend_from_slice(&page.data);
                match page.next {
                    Some(more) => next = Some(more),
                    None => break,
                }
            }
            data.extend_from_slice(key);
            put_iterable(&reader.source.coder, &values, data)
        })
    }

    fn distinct(
        &mut self,
        window: &Bytes,
        start: usize,
        mut write: impl FnMut(&mut Self, &Bytes, &[u8], &mut Vec<u8>) -> Result<(), Error>,
    ) -> Result<Page, Error> {
        self.index_keys(window)?;
        let keys = self.window(window).and_then(|window| window.keys.as_ref());
        let distinct = keys.map(|keys| keys.distinct.clone()).unwrap_or_default();
        let mut data = Vec::new();
        for (number, at) in distinct.iter().enumerate().skip(start) {
            let (batch, row) = self.row(*at)?;
            let key = key_of(&self.source.coder, batch.value(row))?.to_vec();
            write(self, window, &key, &mut data)?;
            if data.len() >= PAGE_BYTES && number + 1 < distinct.len() {
                return Ok(Page { data: data.into(), next: token(number + 1) });
            }
        }
        Ok(Page { data: data.into(), next: None })
    }
}

fn key_of<'a>(coder: &Coder, value: &'a [u8]) -> Result<&'a [u8], Error> {
    let length = coder.key_len(value).map_err(|error| Error::Protocol(format!("side input without keys: {error}")))?;
    Ok(&value[..length])
}

/// Writes encoded values as an iterable: their number and themselves.
fn put_iterable(coder: &Coder, values: &[u8], data: &mut Vec<u8>) -> Result<(), Error> {
    let Coder::Kv(_, value) = coder else { return Err(Error::Protocol("side input without keys".into())) };
    let mut reader = model::Reader::new(values);
    let mut count = 0i32;
    while !reader.is_empty() {
        value.skip(&mut reader).map_err(|error| Error::Protocol(format!("malformed side input: {error}")))?;
        count += 1;
    }
    data.extend_from_slice(&count.to_be_bytes());
    data.extend_from_slice(values);
    Ok(())
}

impl Content {
    fn batch(&mut self, ledger: &dyn JobLedger, offset: u64) -> Result<Arc<Batch>, Error> {
        if let Some(batch) = self.batches.get(&offset) {
            return Ok(batch.clone());
        }
        let batch = ledger.fetch_broadcast(offset).map_err(|error| Error::Infrastructure(error.to_string()))?;
        let batch = Arc::new(batch);
        self.batches.insert(offset, batch.clone());
        self.recent.push_back(offset);
        if self.recent.len() > CACHED_BATCHES_MAX {
            self.recent.pop_front().map(|oldest| self.batches.remove(&oldest));
        }
        Ok(batch)
    }
}

impl View {
    fn index(&mut self, offset: u64, batch: &Batch, windows: WindowCoder) -> Result<(), Error> {
        let entry = self.offsets.len() as u32;
        self.offsets.push(offset);
        let sets = batch.windows().entries().iter().map(|set| windows.windows_of(set)).collect::<Result<Vec<_>, _>>();
        let sets = sets.map_err(|error| Error::Protocol(format!("malformed side input window: {error}")))?;
        for row in 0..batch.rows() {
            for window in &sets[batch.windows().entry_of(row)] {
                let at = RowAt { entry, row: row as u32 };
                match self.windows.get_mut(*window) {
                    Some(found) => found.add(at),
                    None => self.windows.entry(Bytes::copy_from_slice(window)).or_default().add(at),
                }
            }
        }
        Ok(())
    }
}

impl Window {
    fn add(&mut self, at: RowAt) {
        self.rows.push(at);
        self.keys = None;
    }
}

impl StateAccess for SideInputs {
    fn get(&self, key: &StateKey, from: Option<&Bytes>) -> Result<Page, Error> {
        self.read(key, from)
    }

    fn append(&self, key: &StateKey, _: Bytes) -> Result<(), Error> {
        Err(Error::Protocol(format!("cannot be written: {key:?}")))
    }

    fn clear(&self, key: &StateKey) -> Result<(), Error> {
        Err(Error::Protocol(format!("cannot be cleared: {key:?}")))
    }
}
