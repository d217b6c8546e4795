//! Stands where `grouping` will stand and refuses by name, so that the rest of the engine compiles before it.

use model::windowing::WindowingStrategy;
use model::{Batch, Coder, StageId, Timestamp, WindowCoder};

use crate::{Error, KeyedState};

#[derive(Clone, Copy, Debug)]
pub struct Clocks {
    pub input_watermark: Timestamp,
    pub output_watermark: Timestamp,
    pub now_ms: i64,
}

#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub bytes_max: u64,
    pub keys_max: usize,
}

#[derive(Debug)]
pub struct Delta;

#[derive(Debug)]
pub struct Grouped {
    pub panes: Vec<Batch>,
    pub delta: Delta,
    pub dropped_rows: u64,
}

#[derive(Debug)]
pub struct Grouping;

impl Grouping {
    pub fn new(_: StageId, _: WindowingStrategy, _: Coder, _: WindowCoder) -> Self {
        Grouping
    }
    pub fn restore(&mut self, _: &dyn KeyedState) -> Result<(), Error> {
        Err(Error::Unsupported("grouping".into()))
    }
    pub fn run(&self, _: &[Batch], _: Clocks, _: Limits, _: &mut dyn KeyedState) -> Result<Grouped, Error> {
        Err(Error::Unsupported("grouping".into()))
    }
    pub fn apply(&mut self, _: Delta) {}
    pub fn due(&self, _: Clocks) -> bool {
        false
    }
    pub fn next_processing_ms(&self) -> Option<i64> {
        None
    }
    pub fn hold(&self) -> Timestamp {
        Timestamp::MAX
    }
}
