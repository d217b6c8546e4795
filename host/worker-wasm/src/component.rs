//! A compiled component that was checked: nothing but the host of its world is imported, what is exported fits, and the
//! manifest in the file is what the component says when it is asked.

use std::sync::Arc;

use wasmtime::Store;
use wasmtime::component::{HasSelf, InstancePre, Linker};

use crate::bindings::{host, state};
use crate::exports::{Exports, Interfaces};
use crate::host::{HostState, cut, to_tracing};
use crate::instance::new_store;
use crate::{Error, Manifest, Options, artifact, trouble};

/// The interfaces that a DoFn component may import; types have no functions.
const IMPORTS: [&str; 3] = ["purlin:dofn/host@0.1.0", "purlin:dofn/state@0.1.0", "purlin:dofn/types@0.1.0"];
/// The interfaces that it exports besides if it has state and timers: both or neither.
const STATEFUL: [&str; 2] = ["purlin:dofn/describe-keyed@0.1.0", "purlin:dofn/keyed@0.1.0"];
/// The interfaces that it must export.
const EXPORTS: [&str; 3] = ["purlin:dofn/describe@0.1.0", "purlin:dofn/lifecycle@0.1.0", "purlin:dofn/processor@0.1.0"];

/// How much of a manifest an error shows.
const SHOWN_BYTES_MAX: usize = 4 << 10;

/// See the file's head. Cheap to share; slots make instances of it.
pub struct Component {
    digest: [u8; 32],
    manifest: Manifest,
    pre: InstancePre<HostState>,
    interfaces: Interfaces,
}

impl Component {
    pub(crate) fn new(
        digest: [u8; 32],
        bytes: &[u8],
        compiled: &wasmtime::component::Component,
        options: Arc<Options>,
    ) -> Result<Self, Error> {
        let invalid = |error: wasmtime::Error| Error::Invalid(format!("{error:#}"));
        let stateful = check_interfaces(compiled)?;
        let mut linker = Linker::new(compiled.engine());
        host::add_to_linker::<HostState, HasSelf<HostState>>(&mut linker, |state| state).map_err(invalid)?;
        state::add_to_linker::<HostState, HasSelf<HostState>>(&mut linker, |state| state).map_err(invalid)?;
        let pre = linker.instantiate_pre(compiled).map_err(invalid)?;
        let interfaces = Interfaces::new(&pre, stateful).map_err(invalid)?;
        let manifest = described(&pre, &interfaces, options)?;
        if let Some(section) = artifact::manifest_section(bytes)? {
            let section = Manifest::from_json(section)?;
            if section != manifest {
                let (file, component) = (section.to_json(), manifest.to_json());
                let (file, component) = (cut(&file, SHOWN_BYTES_MAX), cut(&component, SHOWN_BYTES_MAX));
                return Err(Error::Manifest(format!("the file says {file}, the component says {component}")));
            }
        }
        Ok(Component { digest, manifest, pre, interfaces })
    }

    /// sha256 of the file.
    pub fn digest(&self) -> &[u8; 32] {
        &self.digest
    }

    /// What it holds.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    pub(crate) fn engine(&self) -> &wasmtime::Engine {
        self.pre.engine()
    }

    pub(crate) fn instantiate(&self, store: &mut Store<HostState>) -> wasmtime::Result<Exports> {
        instantiate(&self.pre, &self.interfaces, store)
    }
}

fn instantiate(pre: &InstancePre<HostState>, interfaces: &Interfaces, store: &mut Store<HostState>) -> wasmtime::Result<Exports> {
    let instance = pre.instantiate(&mut *store)?;
    interfaces.load(store, &instance)
}

/// Whether it has state and timers.
fn check_interfaces(compiled: &wasmtime::component::Component) -> Result<bool, Error> {
    let engine = compiled.engine();
    let interfaces = compiled.component_type();
    if let Some((name, _)) = interfaces.imports(engine).find(|(name, _)| !IMPORTS.contains(name)) {
        return Err(Error::UnknownImport { name: name.to_owned() });
    }
    let exports: Vec<&str> = interfaces.exports(engine).map(|(name, _)| name).collect();
    let missing = |name: &&'static str| !exports.contains(name);
    let stateful = !STATEFUL.iter().all(missing);
    let needed = EXPORTS.iter().chain(STATEFUL.iter().filter(|_| stateful));
    match needed.copied().find(missing) {
        Some(name) => Err(Error::MissingExport { name }),
        None => Ok(stateful),
    }
}

/// Asks the component itself, within the limits of any call.
fn described(pre: &InstancePre<HostState>, interfaces: &Interfaces, options: Arc<Options>) -> Result<Manifest, Error> {
    let mut store = new_store(pre.engine(), options, to_tracing());
    let ask = |store: &mut Store<HostState>| {
        let exports = instantiate(pre, interfaces, store)?;
        let plain = exports.describe.call_transforms(&mut *store)?;
        let stateful = exports.stateful.map(|(describe, _)| describe.call_transforms(store)).transpose()?;
        Ok::<_, wasmtime::Error>((plain, stateful.unwrap_or_default()))
    };
    let (plain, stateful) = ask(&mut store).map_err(|error: wasmtime::Error| {
        let trouble = trouble::explain(&error, store.data_mut());
        Error::Describe(trouble.message)
    })?;
    Manifest::described(plain, stateful)
}
