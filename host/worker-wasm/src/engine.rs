//! One engine per process: compiles components, keeps them by digest, and lets time pass for them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use model::EnvironmentId;
use sha2::{Digest, Sha256};
use wasmtime::{Config, Engine, WasmBacktraceDetails};

use crate::compile_cache::CompileCache;
use crate::host::LogSink;
use crate::{Component, Error, Options, artifact, slot};

/// Length of an epoch, the unit in which guests run out of time.
pub(crate) const EPOCH_MS: u64 = 10;

/// Most frames of a guest's stack in a message.
const BACKTRACE_FRAMES_MAX: usize = 24;

/// Compiles and holds components.
pub struct WasmEngine {
    engine: Engine,
    options: Arc<Options>,
    cache: Option<CompileCache>,
    /// Components in use, by digest. Held while one is compiled: the same component is never compiled twice at once.
    components: Mutex<BTreeMap<[u8; 32], Weak<Component>>>,
}

impl WasmEngine {
    /// An engine, and a thread that counts its epochs until the engine and all that came from it are gone.
    pub fn new(options: Options) -> Result<Self, Error> {
        let mut config = Config::new();
        config.wasm_component_model(true).epoch_interruption(true);
        config.wasm_backtrace_details(WasmBacktraceDetails::Disable);
        config.wasm_backtrace_max_frames(std::num::NonZeroUsize::new(BACKTRACE_FRAMES_MAX));
        let engine = Engine::new(&config).map_err(|error| Error::Engine(format!("{error:#}")))?;
        let cache =
            options.cache_dir.as_deref().map(|dir| CompileCache::open(dir, options.cache_bytes_max, &engine)).transpose()?;
        let weak = engine.weak();
        let tick = move || {
            while let Some(engine) = weak.upgrade() {
                engine.increment_epoch();
                drop(engine);
                std::thread::sleep(Duration::from_millis(EPOCH_MS));
            }
        };
        let spawned = std::thread::Builder::new().name("wasm-epochs".to_owned()).spawn(tick);
        spawned.map_err(|error| Error::Engine(format!("thread for epochs: {error}")))?;
        Ok(WasmEngine { engine, options: Arc::new(options), cache, components: Mutex::default() })
    }

    /// Makes a component of a file: a component, or a core module that describes its types. Compiles it, unless its code is in
    /// memory or in the cache, and checks imports, exports and manifest. Takes a second and more for large ones.
    pub fn component(&self, bytes: &[u8]) -> Result<Arc<Component>, Error> {
        if bytes.len() > self.options.component_bytes_max {
            return Err(Error::TooLarge { bytes: bytes.len(), max: self.options.component_bytes_max });
        }
        artifact::Kind::of(bytes)?;
        let digest: [u8; 32] = Sha256::digest(bytes).into();
        let mut components = self.components.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(known) = components.get(&digest).and_then(Weak::upgrade) {
            return Ok(known);
        }
        let compiled = self.compiled(bytes, &digest)?;
        let component = Arc::new(Component::new(digest, bytes, &compiled, self.options.clone())?);
        components.retain(|_, component| component.strong_count() > 0);
        components.insert(digest, Arc::downgrade(&component));
        Ok(component)
    }

    fn compiled(&self, bytes: &[u8], digest: &[u8; 32]) -> Result<wasmtime::component::Component, Error> {
        if let Some(cache) = &self.cache
            && let Some(compiled) = cache.load(&self.engine, digest)
        {
            return Ok(compiled);
        }
        let invalid = |error: wasmtime::Error| Error::Invalid(format!("{error:#}"));
        if artifact::Kind::of(bytes)? == artifact::Kind::CoreModule {
            wasmtime::Module::validate(&self.engine, bytes).map_err(invalid)?;
        }
        let compiled = wasmtime::component::Component::from_binary(&self.engine, &artifact::pack(bytes)?).map_err(invalid)?;
        if let Some(cache) = &self.cache {
            cache.store(digest, &compiled.serialize().map_err(invalid)?)?;
        }
        Ok(compiled)
    }

    /// A worker for stages whose DoFns are in these components. Guests log to `tracing`.
    pub fn worker(&self, components: BTreeMap<EnvironmentId, Arc<Component>>) -> Arc<dyn worker::Worker> {
        self.worker_logging_to(components, crate::host::to_tracing())
    }

    /// As [`WasmEngine::worker`], with another place for what guests log.
    pub fn worker_logging_to(
        &self,
        components: BTreeMap<EnvironmentId, Arc<Component>>,
        logs: LogSink,
    ) -> Arc<dyn worker::Worker> {
        Arc::new(slot::WasmWorker::new(components, self.options.clone(), logs))
    }
}
