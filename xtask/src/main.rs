//! The development tasks of this repository, one subcommand each: `cargo xtask <task>`.
//!
//! This file only dispatches; each task lives in a file of its name.

mod ci;
mod codegen;
mod component;
mod demo;
mod sdks;
mod setup;
mod steps;
mod test;
mod tidy;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "xtask", about = "development tasks")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Build everything, then count the words of a book in Python and again in WebAssembly.
    Demo,
    /// Run all tests, bringing what they need. With words: only the integration tests whose names contain one.
    Test {
        /// Parts of names of integration tests.
        filter: Vec<String>,
    },
    /// Everything that must be true before a change is taken.
    Ci,
    /// Check the dependency table and the files' heads.
    Tidy,
    /// Build the examples' components.
    Component,
    /// Generate the Rust code of Beam's messages from proto/.
    Codegen(codegen::Options),
}

fn main() -> anyhow::Result<()> {
    match Arguments::parse().task {
        Task::Demo => demo::run(),
        Task::Test { filter } => test::run_all(&filter),
        Task::Ci => ci::run_all(),
        Task::Tidy => tidy::run(),
        Task::Component => component::build_all(),
        Task::Codegen(options) => codegen::run(&options),
    }
}
