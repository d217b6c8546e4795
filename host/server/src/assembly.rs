//! The composition root: which ledger, which workers and which runner a server gets.

use std::sync::Arc;

use anyhow::Context;
use ledger_rocksdb::RocksLedger;
use plan::Capabilities;
use server::clock;
use server::config::Config;
use server::jobs::Parts;
use server::store::{Store, temporary_folder};
use worker_harness::{HarnessHost, HostOptions};
use worker_wasm::WasmEngine;

use crate::runner::Runner;

/// What this build can run.
pub(crate) fn capabilities() -> Capabilities {
    Capabilities::default()
}

/// Puts a server together. Must be called within the runtime that serves the harnesses.
pub(crate) fn assemble(config: &Config) -> anyhow::Result<Parts> {
    let temporary = std::env::temp_dir();
    let (ledger, artifacts, components) = match &config.data_dir {
        Some(folder) => {
            (ledger_rocksdb::Options::durable(folder.join("ledger")), folder.join("artifacts"), Some(folder.join("components")))
        }
        None => (ledger_rocksdb::Options::temporary(&temporary), temporary_folder(&temporary), None),
    };
    let ledger = RocksLedger::open(&ledger).context("open the ledger")?;
    let store = Store::open(artifacts).context("open the artifact store")?;
    let host = HostOptions {
        bind: (config.bind, 0).into(),
        advertised_host: config.advertised_host.clone(),
        instance: format!("{:x}-{:x}", clock::now_us(), std::process::id()),
    };
    let harnesses = HarnessHost::start(host, tokio::runtime::Handle::current()).context("serve SDK harnesses")?;
    let wasm = WasmEngine::new(worker_wasm::Options { cache_dir: components, ..worker_wasm::Options::default() });
    let wasm = wasm.context("start the WebAssembly engine")?;
    // So that `purlin boot` is found by scripts that stand for it; see examples/boot.
    let ourselves = std::env::current_exe().context("find the running program")?.display().to_string();
    let process_env = [("PURLIN".to_owned(), ourselves)].into();
    let runner = Runner { harnesses, wasm, process_env, clock: Arc::new(WallClock), durable: config.data_dir.is_some() };
    Ok(Parts { runner: Arc::new(runner), ledger: Arc::new(ledger), capabilities: capabilities(), store })
}

struct WallClock;

impl executor::job::Clock for WallClock {
    fn now_ms(&self) -> i64 {
        clock::now_ms()
    }
}
