//! The server: Job API, artifact staging, configuration and command line.
//!
//! This library is everything of the binary `purlin` that does not need a particular ledger or worker; those are put together
//! in the binary. It is also where the outside enters: only here are arguments, environment and the wall clock read.

pub mod run;
