//! Everything that needs the real binary, as one test program: Beam's own suites and word counts in three languages,
//! components, public bug reports, kill -9, many small jobs.
//!
//! `cargo xtask test` builds what is needed and sets `PURLIN_BINARY`, `PURLIN_PYTHON` and `PURLIN_COMPONENTS`.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should panic")]

mod server;
mod verdicts;
mod words;

mod beam_suite;
mod cases;
mod go;
mod java;
mod kill;
mod reports;
mod sessions;
mod small_jobs;
mod stalls;
mod wheel;
mod wordcount;
