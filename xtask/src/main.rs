//! The development tasks of this repository, one subcommand each: `cargo xtask <task>`.
//!
//! This file only dispatches; each task lives in a file of its name.

mod codegen;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "xtask", about = "development tasks")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Generate the Rust code of Beam's messages from proto/beam.
    Codegen(codegen::Options),
}

fn main() -> anyhow::Result<()> {
    match Arguments::parse().task {
        Task::Codegen(options) => codegen::run(&options),
    }
}
