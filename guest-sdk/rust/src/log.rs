//! Messages for whoever runs the pipeline: to the host in a component, to standard error natively.
//!
//! `purlin::info!("{n} lines")` and its sisters format only what the host wants to see.

use std::fmt;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

/// How important a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Every step.
    Trace,
    /// For finding a fault.
    Debug,
    /// Changes of state.
    Info,
    /// Look here first.
    Warn,
    /// Someone must act.
    Error,
}

static LEAST: AtomicU8 = AtomicU8::new(Level::Info as u8);

/// Drops messages below a level from now on.
pub fn set_level(least: Level) {
    LEAST.store(least as u8, Relaxed);
}

/// Whether messages of a level are wanted.
pub fn is_wanted(level: Level) -> bool {
    level as u8 >= LEAST.load(Relaxed)
}

/// Logs a message, if its level is wanted.
pub fn log(level: Level, message: fmt::Arguments<'_>) {
    if !is_wanted(level) {
        return;
    }
    #[cfg(target_arch = "wasm32")]
    crate::component::log(level, &message.to_string());
    #[cfg(not(target_arch = "wasm32"))]
    eprintln!("{level:?}: {message}");
}

/// Logs at level `error`, with the arguments of `format!`.
#[macro_export]
macro_rules! error { ($($arg:tt)+) => { $crate::log::log($crate::log::Level::Error, ::std::format_args!($($arg)+)) } }
/// Logs at level `warn`, with the arguments of `format!`.
#[macro_export]
macro_rules! warn { ($($arg:tt)+) => { $crate::log::log($crate::log::Level::Warn, ::std::format_args!($($arg)+)) } }
/// Logs at level `info`, with the arguments of `format!`.
#[macro_export]
macro_rules! info { ($($arg:tt)+) => { $crate::log::log($crate::log::Level::Info, ::std::format_args!($($arg)+)) } }
/// Logs at level `debug`, with the arguments of `format!`.
#[macro_export]
macro_rules! debug { ($($arg:tt)+) => { $crate::log::log($crate::log::Level::Debug, ::std::format_args!($($arg)+)) } }
/// Logs at level `trace`, with the arguments of `format!`.
#[macro_export]
macro_rules! trace { ($($arg:tt)+) => { $crate::log::log($crate::log::Level::Trace, ::std::format_args!($($arg)+)) } }
