//! What harnesses log, on its way to the job's log.

use proto::fnapi::log_entry::severity::Enum;

/// Takes log entries of one environment. Called on the threads that serve the harnesses: it must not wait.
pub trait LogSink: Send + Sync {
    /// Takes one entry.
    fn log(&self, entry: LogEntry);
}

/// One entry, from an SDK's logging stream or from a line that a harness process printed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogEntry {
    /// How grave.
    pub severity: Severity,
    /// The text.
    pub message: String,
    /// A stack trace, or empty.
    pub trace: String,
    /// The transform's id in the pipeline, or empty.
    pub transform: String,
    /// The instruction that was being executed, or empty.
    pub instruction: String,
    /// Where in the SDK's or user's code, or empty.
    pub location: String,
    /// The thread, or empty.
    pub thread: String,
    /// When, in milliseconds since the epoch, by the harness's clock; none for printed lines.
    pub at_ms: Option<i64>,
    /// The harness.
    pub worker: String,
}

/// How grave a log entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs, reason = "the names of the Fn API's severities")]
pub enum Severity {
    Trace,
    Debug,
    Info,
    Notice,
    Warn,
    Error,
    Critical,
}

impl LogEntry {
    pub(crate) fn from_sdk(worker: &str, entry: proto::fnapi::LogEntry) -> Self {
        let severity = match entry.severity() {
            Enum::Trace => Severity::Trace,
            Enum::Debug => Severity::Debug,
            Enum::Unspecified | Enum::Info => Severity::Info,
            Enum::Notice => Severity::Notice,
            Enum::Warn => Severity::Warn,
            Enum::Error => Severity::Error,
            Enum::Critical => Severity::Critical,
        };
        LogEntry {
            severity,
            message: entry.message,
            trace: entry.trace,
            transform: entry.transform_id,
            instruction: entry.instruction_id,
            location: entry.log_location,
            thread: entry.thread,
            at_ms: entry.timestamp.map(|at| crate::split::millis(at.seconds, at.nanos)),
            worker: worker.to_owned(),
        }
    }

    pub(crate) fn printed(worker: &str, message: String) -> Self {
        LogEntry {
            severity: Severity::Info,
            message,
            trace: String::new(),
            transform: String::new(),
            instruction: String::new(),
            location: String::new(),
            thread: String::new(),
            at_ms: None,
            worker: worker.to_owned(),
        }
    }
}
