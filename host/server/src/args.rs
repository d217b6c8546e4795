//! The command line, in two dialects: our own, and that of Go programs as Beam's launchers for Prism speak it.
//!
//! ```text
//!  purlin serve --job-port 8073 --shards 4          ours
//!  purlin --job_port 8073 --serve_http=false        Python's launcher: flags only mean `serve`
//!  purlin -job_port=8073 -idle_shutdown_timeout=5m  Java's launcher: one dash, Go durations
//! ```
//!
//! [`normalised`] turns the second into the first; then one grammar reads both.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::boot::Boot;
use crate::config::{Config, LogKind, LogLevel};
use crate::options::{RETRIES_MAX, SHARDS_MAX};

/// Where the Job API of a server is looked for.
pub const ENDPOINT_DEFAULT: &str = "localhost:8073";

/// A Beam runner in one binary.
///
/// Start `purlin serve`, then point any Beam SDK at localhost:8073, for example in Python:
///   --runner=PortableRunner --job_endpoint=localhost:8073 --environment_type=LOOPBACK
#[derive(Debug, Parser)]
#[command(name = "purlin", version, verbatim_doc_comment, subcommand_required = true, arg_required_else_help = true)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What the binary can do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a server that takes jobs. Also what happens when only flags are given.
    Serve(Box<Serve>),
    /// Look at and act on the jobs of a running server.
    Jobs(Jobs),
    /// Print how a pipeline would be cut into stages, or everything that speaks against running it.
    Explain {
        /// A serialized `Pipeline` or `PrepareJobRequest`.
        file: PathBuf,
    },
    /// Start an SDK's harness, as the command of an environment of kind PROCESS; see examples/boot.
    Boot(Boot),
}

/// Flags of `purlin serve`.
#[derive(Debug, Args)]
pub struct Serve {
    /// Port of the Job API and of artifact staging; 0 takes any free one.
    #[arg(long, value_name = "PORT", default_value_t = 8073)]
    job_port: u16,
    /// Address to listen on. Anyone who reaches it can run code here.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1")]
    bind: IpAddr,
    /// Host name under which clients reach this server [default: localhost, or the address of --bind]
    #[arg(long, value_name = "HOST")]
    advertised_host: Option<String>,
    /// Keep jobs, their state and their artifacts in this folder, so that they survive a restart.
    #[arg(long, value_name = "FOLDER")]
    data_dir: Option<PathBuf>,
    /// Shards of a job that does not choose [default: one per processor]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(SHARDS_MAX)))]
    shards: Option<u32>,
    /// How often a bundle that failed in user code is tried again before the job fails.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=i64::from(RETRIES_MAX)))]
    retries: u32,
    /// End after this time without a job or a call, such as 90s or 1h30m; negative for never.
    #[arg(long, value_name = "DURATION", default_value = "-1ms", allow_hyphen_values = true, value_parser = go_duration_ms)]
    idle_shutdown_timeout: IdleMs,
    /// The least important log lines to write.
    #[arg(long, value_name = "LEVEL", default_value = "info", ignore_case = true)]
    log_level: LogLevel,
    /// How log lines look: for people, as JSON objects, or as key=value pairs.
    #[arg(long, value_name = "KIND", default_value = "dev", ignore_case = true)]
    log_kind: LogKind,
    /// Print the complete configuration and exit.
    #[arg(long)]
    pub print_config: bool,
    /// Accepted from launchers: whether to serve a web page, which this build does not have.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", hide = true)]
    pub serve_http: Option<bool>,
    /// Accepted from launchers: the port of the web page.
    #[arg(long, value_name = "PORT", hide = true)]
    web_port: Option<u16>,
    /// Accepted from launchers while empty: another Job API that the web page would show.
    #[arg(long, value_name = "ENDPOINT", hide = true, default_value = "")]
    jm_override: String,
}

/// Flags of `purlin jobs`.
#[derive(Debug, Args)]
pub struct Jobs {
    /// The server to ask.
    #[arg(long, alias = "job-endpoint", global = true, value_name = "HOST:PORT", default_value = ENDPOINT_DEFAULT)]
    pub endpoint: String,
    /// What to do.
    #[command(subcommand)]
    pub action: JobsAction,
}

/// What can be done with jobs. An id may be shortened as long as one job only begins like that.
#[derive(Debug, Subcommand)]
pub enum JobsAction {
    /// List all jobs.
    List,
    /// Show the stages of a job, and what holds each one's watermark.
    Describe {
        /// The job's id or the beginning of it.
        id: String,
    },
    /// Print the messages of a job.
    Logs {
        /// The job's id or the beginning of it.
        id: String,
        /// Go on until the job ends.
        #[arg(long, short)]
        follow: bool,
    },
    /// Stop a job without finishing its work.
    Cancel {
        /// The job's id or the beginning of it.
        id: String,
    },
    /// Let a job stop reading and finish what it has read.
    Drain {
        /// The job's id or the beginning of it.
        id: String,
    },
}

/// A time in milliseconds, or never.
type IdleMs = Never<u64>;

/// A value, or none because it was negative.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Never<T>(Option<T>);

impl Serve {
    /// The configuration that the flags describe. The error names the flag.
    pub fn config(&self) -> Result<Config, String> {
        if !self.jm_override.is_empty() {
            return Err("--jm_override is not supported: this build has no web page to show another server on".into());
        }
        let advertised_host = match &self.advertised_host {
            Some(host) => host.clone(),
            None if self.bind.is_loopback() => "localhost".into(),
            None if self.bind.is_unspecified() => {
                return Err(format!(
                    "--bind {} needs --advertised-host, the name under which clients reach this host",
                    self.bind
                ));
            }
            None if self.bind.is_ipv6() => format!("[{}]", self.bind),
            None => self.bind.to_string(),
        };
        let processors = std::thread::available_parallelism().map_or(1, |count| u32::try_from(count.get()).unwrap_or(u32::MAX));
        Ok(Config {
            bind: self.bind,
            job_port: self.job_port,
            advertised_host,
            data_dir: self.data_dir.clone(),
            shards: self.shards.unwrap_or(processors.min(SHARDS_MAX)),
            retries: self.retries,
            idle_shutdown_ms: self.idle_shutdown_timeout.0,
            log_kind: self.log_kind,
            log_level: self.log_level,
            ..Config::default()
        })
    }
}

/// Arguments (without the program's name) in our own dialect; see the module.
pub fn normalised(arguments: impl IntoIterator<Item = String>) -> Vec<String> {
    let mut arguments: Vec<String> = arguments.into_iter().map(flag).collect();
    let first = arguments.first().map(String::as_str);
    let only_flags = first.is_none_or(|first| first.starts_with('-') && !matches!(first, "-h" | "--help" | "-V" | "--version"));
    if only_flags {
        arguments.insert(0, "serve".into());
    }
    arguments
}

/// `-job_port=1` and `--job_port=1` become `--job-port=1`. Short flags, numbers and everything that is no flag stay.
fn flag(argument: String) -> String {
    let Some(name) = argument.strip_prefix("--").or_else(|| argument.strip_prefix('-')) else { return argument };
    let (name, value) = name.split_once('=').map_or((name, None), |(name, value)| (name, Some(value)));
    let is_long = name.len() > 1 && name.starts_with(|first: char| first.is_ascii_alphabetic());
    if !is_long {
        return argument;
    }
    let name = name.replace('_', "-");
    value.map_or_else(|| format!("--{name}"), |value| format!("--{name}={value}"))
}

/// A duration as Go writes it: `1h30m`, `1.5s`, `300ms`, `0`; negative means never.
fn go_duration_ms(text: &str) -> Result<IdleMs, String> {
    let refused = || format!("{text:?} is not a duration; write for example 90s, 5m or 1h30m");
    let (negative, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let mut ms = 0.0;
    if rest != "0" {
        if rest.is_empty() {
            return Err(refused());
        }
        while !rest.is_empty() {
            let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(refused)?;
            let number: f64 = rest[..digits].parse().map_err(|_| refused())?;
            rest = &rest[digits..];
            let unit_length = rest.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(rest.len());
            let unit_ms = match &rest[..unit_length] {
                "ns" => 1e-6,
                "us" | "µs" | "μs" => 1e-3,
                "ms" => 1.0,
                "s" => 1e3,
                "m" => 60e3,
                "h" => 3_600e3,
                _ => return Err(refused()),
            };
            ms += number * unit_ms;
            rest = &rest[unit_length..];
        }
    }
    Ok(Never((!negative).then_some(ms as u64)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a command line means, as the non-default part of its configuration.
    fn check(line: &str, expected: &str) {
        let arguments = normalised(line.split_whitespace().map(str::to_string));
        let cli =
            Cli::try_parse_from(std::iter::once("purlin".to_string()).chain(arguments)).unwrap_or_else(|e| panic!("{line}: {e}"));
        let Command::Serve(serve) = cli.command else { panic!("{line} does not serve") };
        let found = match serve.config() {
            Err(refusal) => refusal,
            Ok(config) => {
                let values = |config: &Config| serde_json::to_value(config).unwrap().as_object().unwrap().clone();
                let default = values(&Config { shards: config.shards, ..Config::default() });
                let changed = values(&config).into_iter().filter(|(key, value)| default[key] != *value);
                changed.map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(" ")
            }
        };
        assert_eq!(found, expected, "{line}");
    }

    #[test]
    fn launchers_of_prism_are_understood() {
        check("", "");
        check("--job_port 8100", "job_port=8100");
        check(
            "-job_port=8100 -serve_http=true -idle_shutdown_timeout=5m0s -log_level=debug",
            r#"idle_shutdown_ms=300000 job_port=8100 log_level="debug""#,
        );
        check("--job_port 1 --log_level INFO --log_kind json --serve_http=false", r#"job_port=1 log_kind="json""#);
        check("-web_port 8074 -idle_shutdown_timeout -1ns -serve_http", "");
        check("--jm_override=", "");
        check("--jm_override=other:1", "--jm_override is not supported: this build has no web page to show another server on");
    }

    #[test]
    fn our_own_flags() {
        check("serve --job-port 0 --retries 3 --data-dir /a_b/c", r#"data_dir="/a_b/c" job_port=0 retries=3"#);
        check("--bind 0.0.0.0", "--bind 0.0.0.0 needs --advertised-host, the name under which clients reach this host");
        check("--bind 0.0.0.0 --advertised-host h", r#"advertised_host="h" bind="0.0.0.0""#);
        check("--bind ::1", r#"bind="::1""#);
        check("--bind 10.0.0.1", r#"advertised_host="10.0.0.1" bind="10.0.0.1""#);
    }

    #[test]
    fn durations_as_go_writes_them() {
        for (text, ms) in
            [("1h30m", Some(5_400_000)), ("1.5s", Some(1_500)), ("0", Some(0)), ("-1ms", None), ("250ms10us", Some(250))]
        {
            assert_eq!(go_duration_ms(text), Ok(Never(ms)), "{text}");
        }
        for text in ["", "5", "m", "1d", "1.2.3s", "s5", "-"] {
            assert!(go_duration_ms(text).is_err(), "{text}");
        }
    }

    #[test]
    fn unknown_flags_are_refused() {
        assert!(Cli::try_parse_from(["purlin", "serve", "--no-such-flag"]).is_err());
        assert!(Cli::try_parse_from(["purlin", "serve", "--shards", "0"]).is_err());
    }
}
