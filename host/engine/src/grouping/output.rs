//! Panes on their way out: batches under the limits of one call, and the timestamp that a pane gets.

use model::pane::PaneInfo;
use model::windowing::OutputTime;
use model::{Batch, BatchBuilder, Timestamp, window};

use super::{Error, Limits};

/// A batch of panes is closed when its values reach this many bytes.
const BATCH_BYTES: usize = 256 << 10;

/// The values of one pane, without the key.
#[derive(Clone, Debug, Default)]
pub(super) struct Values {
    /// How many.
    pub(super) count: u64,
    /// One after another.
    pub(super) bytes: Vec<u8>,
}

/// Collects panes into batches and says when the call has fired enough.
#[derive(Debug)]
pub(super) struct Panes {
    limits: Limits,
    keys: usize,
    bytes: u64,
    builder: BatchBuilder,
    batches: Vec<Batch>,
    window: Vec<u8>,
    pane: Vec<u8>,
}

impl Panes {
    pub(super) fn new(limits: Limits) -> Self {
        Panes {
            limits,
            keys: 0,
            bytes: 0,
            builder: BatchBuilder::new(),
            batches: Vec::new(),
            window: Vec::new(),
            pane: Vec::new(),
        }
    }

    /// Whether no further pane may be begun.
    #[inline]
    pub(super) fn full(&self) -> bool {
        self.keys > 0 && (self.keys >= self.limits.keys_max || self.full_of_bytes())
    }

    /// Whether there are too many bytes for one more.
    #[inline]
    pub(super) fn full_of_bytes(&self) -> bool {
        self.keys > 0 && self.bytes >= self.limits.bytes_max
    }

    /// A key and window is looked at, whether it has a pane or not.
    pub(super) fn count_key(&mut self) {
        self.keys += 1;
    }

    /// Adds a pane: key bytes, count and values, in one window.
    pub(super) fn push(
        &mut self,
        key: &[u8],
        values: &Values,
        timestamp: Timestamp,
        encoded_window: &[u8],
        pane: PaneInfo,
    ) -> Result<(), Error> {
        let count = i32::try_from(values.count).map_err(|_| Error::PaneTooLarge("2^31 values"))?;
        let bytes = key.len() + 4 + values.bytes.len();
        if self.builder.value_bytes() > 0 && self.builder.value_bytes() + bytes > BATCH_BYTES {
            self.batches.push(self.builder.finish());
        }
        if bytes > model::batch::BATCH_BYTES_MAX {
            return Err(Error::PaneTooLarge("4 GiB"));
        }
        if self.window.get(4..) != Some(encoded_window) {
            self.window = window::single(encoded_window);
        }
        self.pane.clear();
        pane.encode(&mut self.pane);
        self.builder.push_with(timestamp, &self.window, &self.pane, |out| {
            out.extend_from_slice(key);
            out.extend_from_slice(&count.to_be_bytes());
            out.extend_from_slice(&values.bytes);
        });
        self.bytes += bytes as u64;
        Ok(())
    }

    pub(super) fn finish(mut self) -> Vec<Batch> {
        if !self.builder.is_empty() {
            self.batches.push(self.builder.finish());
        }
        self.batches
    }
}

/// Combines the times at which elements of a pane hold the watermark; the result is the pane's timestamp.
/// None is an element that came too late to hold anything.
#[inline]
pub(super) fn combine_holds(output_time: OutputTime, a: Option<Timestamp>, b: Option<Timestamp>) -> Option<Timestamp> {
    match (a, b, output_time) {
        (Some(a), Some(b), OutputTime::Latest) => Some(a.max(b)),
        (Some(a), Some(b), _) => Some(a.min(b)),
        (one, None, _) | (None, one, _) => one,
    }
}
