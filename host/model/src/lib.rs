//! The nouns that every other crate shares: ids, time, windows, panes, batches, coders, windowing strategies, metrics.
//!
//! Pure data. Nothing here knows protocol buffers, threads, clocks, files or a particular worker or ledger.
//! Read in the order of the modules: each uses only those above it.

pub mod batch;
pub mod coder;
pub mod error;
pub mod ids;
pub mod keyed;
pub mod metric_codec;
pub mod metrics;
pub mod pane;
pub mod reader;
pub mod schema;
pub mod time;
pub mod urn;
pub mod value;
pub mod window;
pub mod windowing;

pub use batch::{Batch, BatchBuilder, Dictionary, Timestamps};
pub use coder::Coder;
pub use error::DecodeError;
pub use ids::{BundleId, EnvironmentId, JobId, ShardId, StageId, TransformId};
pub use keyed::{FiredTimer, Keyed, TimeDomain, TimerChange};
pub use reader::Reader;
pub use time::{Duration, RawTime, Timestamp};
pub use window::WindowCoder;
