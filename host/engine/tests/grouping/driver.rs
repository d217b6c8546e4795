//! Drives a grouping as the engine does: clocks, commits, output watermark; text in, panes out.

use std::fmt;

use bytes::Bytes;
use engine::grouping::{Clocks, Grouped, Grouping, Limits, MergeError, MergedWindows, Summary, WindowMerger};
use model::batch::Row;
use model::pane::{NO_FIRING, PaneInfo, Timing};
use model::reader::put_length_prefixed;
use model::window::IntervalWindow;
use model::windowing::{WindowFn, WindowingStrategy};
use model::{Batch, BatchBuilder, Coder, Reader, StageId, Timestamp, WindowCoder};

use crate::store::Store;

/// One element: key, event time in milliseconds, value, and windows unless the window function says them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Element {
    pub(crate) key: String,
    pub(crate) time: i64,
    pub(crate) value: String,
}

/// A window as `[start, end)` in milliseconds; the global one is `(MIN, GLOBAL_WINDOW_END + 1)`.
pub(crate) type Interval = (i64, i64);

pub(crate) const GLOBAL: Interval = (-9_223_372_036_854_775, 9_223_371_950_454_776);

/// A pane, decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pane {
    pub(crate) key: String,
    pub(crate) window: Interval,
    pub(crate) values: Vec<String>,
    pub(crate) timestamp: i64,
    pub(crate) info: PaneInfo,
}

/// What is done differently without a difference in what comes out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Manner {
    pub(crate) limits: Limits,
    /// The grouping is thrown away and rebuilt from state after each call.
    pub(crate) restored: bool,
    /// Each call is made twice, the first time without a commit.
    pub(crate) failing: bool,
    /// The output watermark waits until all that is due has fired.
    pub(crate) frozen: bool,
    /// Sessions come in the guise of a function that only an SDK knows.
    pub(crate) asked: bool,
    /// A trigger that counts is asked once for all rows of a key in a call. This one does make a difference.
    pub(crate) gathered: bool,
}

impl Manner {
    pub(crate) const PLAIN: Manner = Manner {
        limits: Limits { bytes_max: u64::MAX, keys_max: usize::MAX },
        restored: false,
        failing: false,
        frozen: false,
        asked: false,
        gathered: false,
    };
    pub(crate) const ONE_KEY: Limits = Limits { bytes_max: u64::MAX, keys_max: 1 };
}

pub(crate) struct Driver {
    strategy: WindowingStrategy,
    manner: Manner,
    grouping: Grouping,
    pub(crate) store: Store,
    pub(crate) clocks: Clocks,
    pub(crate) dropped: u64,
}

const STAGE: StageId = StageId(7);
/// Windows that a row of these tests is in, at most.
const WINDOWS_MAX: usize = 8;

fn new_grouping(strategy: &WindowingStrategy, manner: Manner) -> Grouping {
    let coder = Coder::Kv(Box::new(Coder::StringUtf8), Box::new(Coder::StringUtf8));
    let mut strategy = strategy.clone();
    if let (true, WindowFn::Sessions { .. }) = (manner.asked, &strategy.window_fn) {
        strategy.window_fn = WindowFn::Custom { urn: "sessions".into(), spec: Bytes::new(), environment: None };
    }
    let window_coder = strategy.window_coder;
    let mut grouping = Grouping::new(STAGE, strategy, coder, window_coder);
    if manner.gathered {
        grouping.gather();
    }
    grouping
}

/// Knows sessions, and nothing of how Purlin merges them.
struct SessionMerger;

impl WindowMerger for SessionMerger {
    fn merge(&mut self, windows: &[Bytes]) -> Result<Vec<MergedWindows>, MergeError> {
        assert!(windows.len() > 1, "one window has nothing to merge with");
        let mut sets: Vec<(IntervalWindow, Vec<Bytes>)> = Vec::new();
        for bytes in windows {
            let mut window = IntervalWindow::decode(&mut Reader::new(bytes)).unwrap();
            let mut sources = vec![bytes.clone()];
            while let Some(met) = sets.iter().position(|(other, _)| window.start < other.end && other.start < window.end) {
                let (other, others) = sets.swap_remove(met);
                window = IntervalWindow { start: window.start.min(other.start), end: window.end.max(other.end) };
                sources.extend(others);
            }
            sets.push((window, sources));
        }
        let merged = sets.into_iter().filter(|(_, sources)| sources.len() > 1).map(|(window, sources)| {
            let mut result = Vec::new();
            window.encode(&mut result);
            MergedWindows { result: result.into(), sources }
        });
        Ok(merged.collect())
    }
}

impl Driver {
    pub(crate) fn new(strategy: &WindowingStrategy, manner: Manner) -> Self {
        let clocks = Clocks { input_watermark: Timestamp::MIN, output_watermark: Timestamp::MIN, now_ms: 0 };
        let grouping = new_grouping(strategy, manner);
        Driver { strategy: strategy.clone(), manner, grouping, store: Store::default(), clocks, dropped: 0 }
    }

    /// Takes one batch in and fires all that is due.
    pub(crate) fn rows(&mut self, elements: &[Element]) -> Vec<Pane> {
        let batch = encode(&self.strategy, elements);
        self.drain(&[batch])
    }

    pub(crate) fn watermark(&mut self, millis: i64) -> Vec<Pane> {
        self.clocks.input_watermark = self.clocks.input_watermark.max(Timestamp::from_millis(millis));
        self.advance();
        self.drain(&[])
    }

    pub(crate) fn clock(&mut self, now_ms: i64) -> Vec<Pane> {
        self.clocks.now_ms = self.clocks.now_ms.max(now_ms);
        self.drain(&[])
    }

    pub(crate) fn hold(&self) -> Timestamp {
        self.grouping.hold()
    }

    pub(crate) fn next_processing_ms(&self) -> Option<i64> {
        self.grouping.next_processing_ms()
    }

    pub(crate) fn summary(&self) -> Summary {
        self.grouping.summary()
    }

    /// The equation of the output watermark, for a stage that is nothing but a grouping.
    fn advance(&mut self) {
        let reached = self.clocks.input_watermark.min(self.grouping.hold());
        self.clocks.output_watermark = self.clocks.output_watermark.max(reached);
    }

    fn drain(&mut self, batches: &[Batch]) -> Vec<Pane> {
        let mut panes = self.call(batches);
        while self.grouping.due(self.clocks) {
            if !self.manner.frozen {
                self.advance();
            }
            panes.extend(self.call(&[]));
        }
        self.advance();
        panes
    }

    fn call(&mut self, batches: &[Batch]) -> Vec<Pane> {
        if self.manner.failing {
            let grouped = self.try_call(batches);
            let cells = self.store.cells().len();
            self.store.abort();
            assert_eq!(cells, self.store.cells().len());
            drop(grouped);
        }
        let Grouped { panes, delta, dropped_rows } = self.try_call(batches);
        self.store.commit();
        self.grouping.apply(delta);
        self.dropped += dropped_rows;
        if self.manner.restored {
            let mut restored = new_grouping(&self.strategy, self.manner);
            restored.restore(&self.store).unwrap();
            assert_eq!(outside(&restored), outside(&self.grouping), "a restored grouping is as the one before");
            self.grouping = restored;
        }
        let panes: Vec<_> = panes.iter().flat_map(|batch| batch.iter().map(|row| self.decode(row)).collect::<Vec<_>>()).collect();
        let by_rows = if self.manner.gathered { 0 } else { batches.iter().map(Batch::rows).sum::<usize>() * WINDOWS_MAX };
        assert!(panes.len() <= self.manner.limits.keys_max.max(1).saturating_add(by_rows), "a call keeps to its limits");
        panes
    }

    fn try_call(&mut self, batches: &[Batch]) -> Grouped {
        self.grouping.run(batches, self.clocks, self.manner.limits, &mut self.store, &mut SessionMerger).unwrap()
    }

    fn decode(&self, row: Row<'_>) -> Pane {
        let mut reader = Reader::new(row.value);
        let text = |reader: &mut Reader<'_>| String::from_utf8(reader.length_prefixed().unwrap().to_vec()).unwrap();
        let key = text(&mut reader);
        let values = (0..reader.be_i32().unwrap()).map(|_| text(&mut reader)).collect();
        assert!(reader.is_empty());
        let windows = self.strategy.window_coder.windows_of(row.windows).unwrap();
        assert_eq!(windows.len(), 1);
        let info = PaneInfo::decode(&mut Reader::new(row.pane)).unwrap();
        let window = match self.strategy.window_coder {
            WindowCoder::Global => GLOBAL,
            _ => {
                let window = IntervalWindow::decode(&mut Reader::new(windows[0])).unwrap();
                (window.start.millis(), window.end.millis())
            }
        };
        Pane { key, window, values, timestamp: row.timestamp.millis(), info }
    }
}

fn outside(grouping: &Grouping) -> (Timestamp, Option<i64>, Summary) {
    (grouping.hold(), grouping.next_processing_ms(), grouping.summary())
}

/// The windows that the strategy's function assigns.
pub(crate) fn assign(strategy: &WindowingStrategy, time: i64) -> Vec<Interval> {
    match &strategy.window_fn {
        WindowFn::Global => vec![GLOBAL],
        WindowFn::Fixed { size, offset } => {
            let start = time - (time - offset.0).rem_euclid(size.0);
            vec![(start, start + size.0)]
        }
        WindowFn::Sliding { size, period, offset } => {
            let last = time - (time - offset.0).rem_euclid(period.0);
            let starts = (0..).map(|step| last - step * period.0).take_while(|start| start + size.0 > time);
            starts.map(|start| (start, start + size.0)).collect()
        }
        WindowFn::Sessions { gap } => vec![(time, time + gap.0)],
        WindowFn::Custom { urn, .. } => panic!("{urn} is not assigned here"),
    }
}

fn encode(strategy: &WindowingStrategy, elements: &[Element]) -> Batch {
    let mut builder = BatchBuilder::new();
    for Element { key, time, value } in elements {
        let assigned = assign(strategy, *time);
        let mut windows = (assigned.len() as i32).to_be_bytes().to_vec();
        for (start, end) in assigned.into_iter().filter(|_| strategy.window_coder == WindowCoder::Interval) {
            let (start, end) = (Timestamp::from_millis(start), Timestamp::from_millis(end));
            IntervalWindow { start, end }.encode(&mut windows);
        }
        builder.push_with(Timestamp::from_millis(*time), &windows, NO_FIRING, |out| {
            put_length_prefixed(out, key.as_bytes());
            put_length_prefixed(out, value.as_bytes());
        });
    }
    builder.finish()
}

impl fmt::Display for Pane {
    /// `key [start,end) values @timestamp TIMING index/nonspeculative first last`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.window {
            GLOBAL => write!(f, "{} [global)", self.key)?,
            (start, end) => write!(f, "{} [{start},{end})", self.key)?,
        }
        let PaneInfo { is_first, is_last, timing, index, nonspeculative_index } = self.info;
        let timing = match timing {
            Timing::Early => "EARLY",
            Timing::OnTime => "ON_TIME",
            Timing::Late => "LATE",
            Timing::Unknown => "UNKNOWN",
        };
        let timestamp = Timestamp::from_millis(self.timestamp);
        write!(f, " {} @{timestamp} {timing} {index}/{nonspeculative_index}", self.values.join(","))?;
        f.write_str(if is_first { " first" } else { "" })?;
        f.write_str(if is_last { " last" } else { "" })
    }
}
