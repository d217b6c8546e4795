//! The server's log, on standard error, in the three looks that Beam's launchers ask for.
//!
//! ```text
//!  dev    07:45:04  INFO job state  job=wordcount-3f state=RUNNING
//!  text   time=2026-12-01T07:45:04.000123+00:00 level=INFO msg="job state" job=wordcount-3f state=RUNNING
//!  json   {"time":"...","level":"INFO","source":{"function":"server::jobs","file":"host/...","line":12},"msg":"job state","job":...}
//! ```
//!
//! The keys of the json form are what Python's launcher parses; lines of SDK workers have the shape that it shows as theirs. A
//! dot in a field's name makes a nested object. Fields of the spans around an event are added to it.

use std::collections::BTreeMap;
use std::fmt;
use std::io::IsTerminal;

use serde_json::{Map, Value, json};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;
use worker_harness::Severity;

use crate::clock;
use crate::config::{LogKind, LogLevel};

/// Writes a line that an SDK worker sent into the server's log.
pub fn sdk_line(job: &str, severity: Severity, message: &str, transform: Option<&str>, worker: &str) {
    macro_rules! line {
        ($level:ident) => {
            tracing::$level!(target: "sdk", job, "worker.ID" = worker, "sdk.msg" = message, "sdk.transform" = transform, "log from SDK worker")
        };
    }
    match severity {
        Severity::Trace => line!(trace),
        Severity::Debug => line!(debug),
        Severity::Info | Severity::Notice => line!(info),
        Severity::Warn => line!(warn),
        Severity::Error | Severity::Critical => line!(error),
    }
}

/// Sends all events of the process to standard error from now on. Libraries speak from WARN on only.
pub fn start(kind: LogKind, level: LogLevel) {
    let own = match level {
        LogLevel::Trace => Level::TRACE,
        LogLevel::Debug => Level::DEBUG,
        LogLevel::Info => Level::INFO,
        LogLevel::Warn => Level::WARN,
        LogLevel::Error => Level::ERROR,
    };
    let libraries = ["h2", "hyper", "hyper_util", "tonic", "tower", "rustls", "cranelift_codegen", "wasmtime"];
    let filter = Targets::new().with_default(own).with_targets(libraries.map(|library| (library, own.min(Level::WARN))));
    let colors = kind == LogKind::Dev && std::io::stderr().is_terminal();
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_ansi(colors).event_format(Look { kind });
    // Whoever embeds the server may have a log of their own already.
    let _ =
        tracing_subscriber::registry().with(SpanFields.with_filter(filter.clone())).with(lines.with_filter(filter)).try_init();
    std::panic::set_hook(Box::new(|panic| {
        tracing::error!(at = panic.location().map(ToString::to_string), "{}", panic_text(panic))
    }));
}

fn panic_text(panic: &std::panic::PanicHookInfo<'_>) -> String {
    format!("panic: {}", panic.payload_as_str().unwrap_or("no message"))
}

/// Fields by name, as JSON values.
#[derive(Clone, Debug, Default)]
struct Fields(BTreeMap<&'static str, Value>);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.insert(field.name(), Value::String(format!("{value:?}")));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name(), value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.0.insert(field.name(), value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.0.insert(field.name(), value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.0.insert(field.name(), value.into());
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.0.insert(field.name(), value.into());
    }
}

/// Keeps the fields of spans for the events inside them.
struct SpanFields;

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for SpanFields {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        if let Some(span) = context.span(id) {
            span.extensions_mut().insert(fields);
        }
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        if let Some(span) = context.span(id)
            && let Some(fields) = span.extensions_mut().get_mut::<Fields>()
        {
            values.record(fields);
        }
    }
}

/// How an event looks.
struct Look {
    kind: LogKind,
}

impl<S, N> FormatEvent<S, N> for Look
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, context: &FmtContext<'_, S, N>, writer: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let mut fields = Fields::default();
        for span in context.event_scope().into_iter().flat_map(|scope| scope.from_root()) {
            if let Some(of_span) = span.extensions().get::<Fields>() {
                fields.0.extend(of_span.0.clone());
            }
        }
        event.record(&mut fields);
        let message = match fields.0.remove("message") {
            Some(Value::String(text)) => text,
            other => other.map(|value| value.to_string()).unwrap_or_default(),
        };
        match self.kind {
            LogKind::Json => json_line(writer, event, message, fields),
            LogKind::Text => text_line(writer, event, &message, &fields),
            LogKind::Dev => dev_line(writer, event, &message, &fields),
        }
    }
}

/// Python knows these names only.
fn level(event: &Event<'_>) -> &'static str {
    match *event.metadata().level() {
        Level::ERROR => "ERROR",
        Level::WARN => "WARN",
        Level::INFO => "INFO",
        Level::DEBUG | Level::TRACE => "DEBUG",
    }
}

fn json_line(mut writer: Writer<'_>, event: &Event<'_>, message: String, fields: Fields) -> fmt::Result {
    let metadata = event.metadata();
    let mut line = Map::new();
    line.insert("time".into(), clock::rfc3339(clock::now_us()).into());
    line.insert("level".into(), level(event).into());
    line.insert(
        "source".into(),
        json!({"function": metadata.target(), "file": metadata.file().unwrap_or(""), "line": metadata.line().unwrap_or(0)}),
    );
    line.insert("msg".into(), message.into());
    for (name, value) in fields.0 {
        match name.split_once('.') {
            None => {
                line.insert(name.into(), value);
            }
            Some((outer, inner)) => {
                if let Value::Object(nested) = line.entry(outer).or_insert_with(|| json!({})) {
                    nested.insert(inner.into(), value);
                }
            }
        }
    }
    writeln!(writer, "{}", Value::Object(line))
}

fn text_line(mut writer: Writer<'_>, event: &Event<'_>, message: &str, fields: &Fields) -> fmt::Result {
    write!(writer, "time={} level={} msg={}", clock::rfc3339(clock::now_us()), level(event), plain(&message.into()))?;
    for (name, value) in &fields.0 {
        write!(writer, " {name}={}", plain(value))?;
    }
    writeln!(writer)
}

/// A value without quotes where none are needed.
fn plain(value: &Value) -> String {
    match value {
        Value::String(text)
            if !text.is_empty() && !text.contains(|c: char| c.is_whitespace() || c.is_control() || "=\"".contains(c)) =>
        {
            text.clone()
        }
        other => other.to_string(),
    }
}

fn dev_line(mut writer: Writer<'_>, event: &Event<'_>, message: &str, fields: &Fields) -> fmt::Result {
    let color = match *event.metadata().level() {
        Level::ERROR => "\x1b[31m",
        Level::WARN => "\x1b[33m",
        Level::INFO => "\x1b[32m",
        Level::DEBUG | Level::TRACE => "\x1b[2m",
    };
    let (on, off) = if writer.has_ansi_escapes() { (color, "\x1b[0m") } else { ("", "") };
    let from_sdk = fields.0.get("sdk.msg").and_then(Value::as_str);
    write!(writer, "{} {on}{:>5}{off} {}", clock::time_of_day(clock::now_ms()), level(event), from_sdk.unwrap_or(message))?;
    let mut separator = "  ";
    for (name, value) in fields.0.iter().filter(|(name, _)| **name != "sdk.msg") {
        write!(writer, "{separator}{name}={}", plain(value))?;
        separator = " ";
    }
    writeln!(writer)
}
