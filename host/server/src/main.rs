//! The binary `purlin`: reads the command line and does what it says. What a server is made of is in `assembly`.

mod assembly;
mod runner;
mod times;

use std::io::{Write, stdout};
use std::process::ExitCode;

use anyhow::{Context, anyhow};
use clap::Parser;
use server::args::{Cli, Command, Serve, normalised};
use server::serve::{Bound, interrupted};
use server::{boot, cli, logging};

/// For RocksDB too. Batches are made by one thread and freed by another, where the system's allocator gives little back.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    let mut arguments = std::env::args();
    let program = arguments.next().unwrap_or_else(|| "purlin".into());
    let cli = Cli::parse_from([program].into_iter().chain(normalised(arguments)));
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("purlin: the runtime could not be started: {error}");
            return ExitCode::FAILURE;
        }
    };
    let done = runtime.block_on(run(cli.command));
    // A job that does not stop must not keep the process.
    runtime.shutdown_background();
    match done {
        Ok(code) => code,
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("purlin: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Serve(serve) => run_server(&serve).await?,
        Command::Jobs(arguments) => cli::jobs::jobs(&arguments, &mut stdout()).await?,
        Command::Explain { file } => cli::explain::explain(&file, &assembly::capabilities(), &mut stdout().lock())?,
        Command::Boot(flags) => return boot::boot(&flags).await,
    }
    Ok(ExitCode::SUCCESS)
}

async fn run_server(flags: &Serve) -> anyhow::Result<()> {
    let config = flags.config().map_err(|refusal| anyhow!(refusal))?;
    if flags.print_config {
        return Ok(writeln!(stdout(), "{}", config.print())?);
    }
    logging::start(config.log_kind, config.log_level);
    if flags.serve_http == Some(true) {
        tracing::warn!("--serve_http: this build has no web page; `purlin jobs` shows the same in the terminal");
    }
    let bound = Bound::bind(config.clone()).await?;
    let parts = tokio::task::block_in_place(|| assembly::assemble(&config)).context("put the server together")?;
    bound
        .serve(parts, async {
            if let Err(error) = interrupted().await {
                tracing::warn!("{error:#}; the server runs until it is killed");
                std::future::pending::<()>().await;
            }
        })
        .await
}

/// Whether the reader of our output had enough, such as `head`.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<std::io::Error>().is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
}
