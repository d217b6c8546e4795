//! Limits of components and of what they do. Complete values; whoever makes the engine decides.

use std::path::PathBuf;

use crate::LogLevel;

/// How components are run. All limits are per process, component, instance or call, as each says.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where compiled code is kept between runs; none: only in memory. Made with mode 0700, and must not be writable by others.
    pub cache_dir: Option<PathBuf>,
    /// Most bytes of compiled code in the cache folder; the oldest go first.
    pub cache_bytes_max: u64,
    /// Largest component that is accepted, in bytes.
    pub component_bytes_max: usize,
    /// Most bytes of linear memory of one instance.
    pub memory_bytes_max: usize,
    /// An instance whose memory is larger than this after a bundle is replaced before the next, since linear memory never shrinks.
    /// An instance that needs more from its first bundle on is replaced at twice what it needed then.
    pub memory_watermark_bytes: usize,
    /// Most elements of all tables of one instance.
    pub table_elements_max: usize,
    /// Longest time of one call, in milliseconds.
    pub call_deadline_ms: u64,
    /// Most bytes that one call may output, emitted or returned, all columns together.
    pub output_bytes_max: usize,
    /// Guests are asked to hand over outputs that are larger than this many bytes before a call returns.
    pub flush_bytes: u32,
    /// Most requests for state of one instance in one bundle: pages that it reads, and changes that it hands over early.
    pub state_calls_max: usize,
    /// Most bytes of state that one instance may read in one bundle.
    pub state_read_bytes_max: usize,
    /// Most bytes of changes of state of one instance in one bundle, names of parts included.
    pub state_change_bytes_max: usize,
    /// Most timers that one call may set or clear.
    pub timer_changes_max: usize,
    /// Messages below this level are dropped.
    pub log_level: LogLevel,
    /// Most messages of one instance in one bundle.
    pub log_messages_max: usize,
    /// Longest message in bytes; the rest is cut.
    pub log_message_bytes_max: usize,
    /// Most distinct metrics of one transform in one bundle.
    pub metrics_max: usize,
    /// Longest name or namespace of a metric in bytes.
    pub metric_name_bytes_max: usize,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            cache_dir: None,
            cache_bytes_max: 2 << 30,
            component_bytes_max: 64 << 20,
            memory_bytes_max: 512 << 20,
            memory_watermark_bytes: 128 << 20,
            table_elements_max: 100_000,
            call_deadline_ms: 10_000,
            output_bytes_max: 64 << 20,
            flush_bytes: 256 << 10,
            state_calls_max: 1_000_000,
            state_read_bytes_max: 4 << 30,
            state_change_bytes_max: 1 << 30,
            timer_changes_max: 1_000_000,
            log_level: LogLevel::Info,
            log_messages_max: 1_000,
            log_message_bytes_max: 16 << 10,
            metrics_max: 1_000,
            metric_name_bytes_max: 256,
        }
    }
}
