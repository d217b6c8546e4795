//! The host's side of an instance: what its imports do, and what it has used of its limits.

use std::sync::Arc;

use model::TransformId;
use wasmtime::ResourceLimiter;

use crate::Options;
use crate::bindings::{host, types};
use crate::state::StateCalls;

/// How important a guest's message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs, reason = "the usual levels")]
pub enum LogLevel {
    Trace,
    Debug,
    Info,
    Warn,
    Error,
}

/// A message of user code.
#[derive(Clone, Copy, Debug)]
pub struct LogEntry<'a> {
    /// As the guest says.
    pub level: LogLevel,
    /// The transform that runs; none while a component describes itself.
    pub transform: Option<&'a TransformId>,
    /// At most [`Options::log_message_bytes_max`] bytes.
    pub message: &'a str,
}

/// Takes what guests log, on the thread that runs them. Must not block.
pub type LogSink = Arc<dyn Fn(&LogEntry<'_>) + Send + Sync>;

/// A sink that passes messages on to `tracing`.
pub(crate) fn to_tracing() -> LogSink {
    Arc::new(|entry| {
        let transform = entry.transform.map_or("", TransformId::as_str);
        match entry.level {
            LogLevel::Trace => tracing::trace!(transform, "{}", entry.message),
            LogLevel::Debug => tracing::debug!(transform, "{}", entry.message),
            LogLevel::Info => tracing::info!(transform, "{}", entry.message),
            LogLevel::Warn => tracing::warn!(transform, "{}", entry.message),
            LogLevel::Error => tracing::error!(transform, "{}", entry.message),
        }
    })
}

/// A limit that a guest ran into. Travels through wasmtime as the cause of a trap.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum LimitHit {
    #[error("out of memory: {wanted} bytes of linear memory were asked for, the limit is {max}")]
    Memory { wanted: usize, max: usize },
    #[error("tables too large: {wanted} elements were asked for, the limit is {max}")]
    Table { wanted: usize, max: usize },
    #[error("too much output: one call made more than {max} bytes")]
    Output { max: usize },
    #[error("too many requests for state: more than {max} in one bundle")]
    StateCalls { max: usize },
    #[error("too much state read: more than {max} bytes in one bundle")]
    StateRead { max: usize },
    #[error("too many changes of state: more than {max} bytes in one bundle")]
    StateChanges { max: usize },
    #[error("too many changes of timers: more than {max} in one call")]
    Timers { max: usize },
}

/// What a store knows of its guest.
pub(crate) struct HostState {
    pub(crate) options: Arc<Options>,
    logs: LogSink,
    /// The transform that runs.
    pub(crate) transform: Option<TransformId>,
    /// Whether messages are dropped: while a failing row is looked for, the guest repeats itself.
    pub(crate) quiet: bool,
    /// Bytes of all linear memories.
    pub(crate) memory_bytes: usize,
    table_elements: usize,
    /// Outputs that the running call has handed over.
    pub(crate) emitted: Vec<types::Emitted>,
    emitted_bytes: usize,
    messages: usize,
    messages_dropped: usize,
    /// The last message of level error in the running call: before a trap it mostly says why.
    pub(crate) last_error: Option<String>,
    pub(crate) state: StateCalls,
}

impl HostState {
    pub(crate) fn new(options: Arc<Options>, logs: LogSink) -> Self {
        HostState {
            options,
            logs,
            transform: None,
            quiet: false,
            memory_bytes: 0,
            table_elements: 0,
            emitted: Vec::new(),
            emitted_bytes: 0,
            messages: 0,
            messages_dropped: 0,
            last_error: None,
            state: StateCalls::default(),
        }
    }

    /// Before every call.
    pub(crate) fn begin_call(&mut self, transform: Option<&TransformId>) {
        if self.transform.as_ref() != transform {
            self.transform = transform.cloned();
        }
        self.emitted.clear();
        self.emitted_bytes = 0;
        self.last_error = None;
    }

    /// After every bundle: says how much was not said.
    pub(crate) fn end_bundle(&mut self) {
        if self.messages_dropped > 0 {
            let message = format!("{} more messages of this bundle were dropped", self.messages_dropped);
            self.pass_on(LogLevel::Warn, &message);
        }
        self.messages = 0;
        self.messages_dropped = 0;
        self.state.end_bundle();
    }

    fn pass_on(&self, level: LogLevel, message: &str) {
        if !self.quiet {
            (self.logs)(&LogEntry { level, transform: self.transform.as_ref(), message });
        }
    }

    /// Counts output of the running call, all columns of it.
    pub(crate) fn count_output(&mut self, emitted: &types::Emitted) -> Result<(), LimitHit> {
        // A call that emits nothing many times must not fill the memory either, and each entry of a dictionary costs an object.
        const OVERHEAD_BYTES: usize = 256;
        const ENTRY_BYTES: usize = 40;
        let dictionary = |column: &types::DictionaryResult| {
            column.entries.bytes.len() + column.entries.ends.len() * ENTRY_BYTES + column.index.len() * 4
        };
        let values =
            emitted.values.bytes.len() + (emitted.values.ends.len() + emitted.origin.len() + emitted.timestamps.len() * 2) * 4;
        let bytes = OVERHEAD_BYTES + values + dictionary(&emitted.windows) + dictionary(&emitted.panes);
        self.emitted_bytes = self.emitted_bytes.saturating_add(bytes);
        let max = self.options.output_bytes_max;
        if self.emitted_bytes > max { Err(LimitHit::Output { max }) } else { Ok(()) }
    }
}

impl host::Host for HostState {
    fn emit(&mut self, outputs: types::Emitted) -> wasmtime::Result<()> {
        self.count_output(&outputs)?;
        self.emitted.push(outputs);
        Ok(())
    }

    fn log(&mut self, level: types::Level, message: String) -> wasmtime::Result<()> {
        let level = level_of(level);
        let message = cut(&message, self.options.log_message_bytes_max);
        if level == LogLevel::Error {
            self.last_error = Some(message.to_owned());
        }
        if level < self.options.log_level {
            return Ok(());
        }
        if self.messages >= self.options.log_messages_max {
            self.messages_dropped += 1;
            return Ok(());
        }
        self.messages += 1;
        self.pass_on(level, message);
        Ok(())
    }
}

/// The longest beginning of a text within so many bytes.
pub(crate) fn cut(text: &str, bytes_max: usize) -> &str {
    &text[..text.floor_char_boundary(bytes_max)]
}

fn level_of(level: types::Level) -> LogLevel {
    match level {
        types::Level::Trace => LogLevel::Trace,
        types::Level::Debug => LogLevel::Debug,
        types::Level::Info => LogLevel::Info,
        types::Level::Warn => LogLevel::Warn,
        types::Level::Error => LogLevel::Error,
    }
}

pub(crate) fn guest_level(level: LogLevel) -> types::Level {
    match level {
        LogLevel::Trace => types::Level::Trace,
        LogLevel::Debug => types::Level::Debug,
        LogLevel::Info => types::Level::Info,
        LogLevel::Warn => types::Level::Warn,
        LogLevel::Error => types::Level::Error,
    }
}

/// A guest that wants more than it may have is stopped at once: most cannot go on without memory anyway, and say less well why.
impl ResourceLimiter for HostState {
    fn memory_growing(&mut self, current: usize, desired: usize, _maximum: Option<usize>) -> wasmtime::Result<bool> {
        let wanted = self.memory_bytes.saturating_sub(current).saturating_add(desired);
        let max = self.options.memory_bytes_max;
        if wanted > max {
            return Err(LimitHit::Memory { wanted, max }.into());
        }
        self.memory_bytes = wanted;
        Ok(true)
    }

    fn table_growing(&mut self, current: usize, desired: usize, _maximum: Option<usize>) -> wasmtime::Result<bool> {
        let wanted = self.table_elements.saturating_sub(current).saturating_add(desired);
        let max = self.options.table_elements_max;
        if wanted > max {
            return Err(LimitHit::Table { wanted, max }.into());
        }
        self.table_elements = wanted;
        Ok(true)
    }

    fn instances(&self) -> usize {
        INSTANCES_MAX
    }

    fn memories(&self) -> usize {
        INSTANCES_MAX
    }

    fn tables(&self) -> usize {
        INSTANCES_MAX
    }
}

/// Most core instances, memories and tables of one component instance; language runtimes have a dozen.
const INSTANCES_MAX: usize = 64;
