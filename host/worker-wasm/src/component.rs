//! A compiled component that was checked: nothing but the host of its world is imported, what is exported fits, and the
//! manifest in the file is what the component says when it is asked.

use std::sync::Arc;

use wasmtime::component::{HasSelf, Linker};

use crate::bindings::{Stateless, StatelessPre, host};
use crate::host::{HostState, cut, to_tracing};
use crate::instance::new_store;
use crate::{Error, Manifest, Options, artifact, trouble};

/// The interfaces that a DoFn component may import; types have no functions.
const IMPORTS: [&str; 2] = ["purlin:dofn/host@0.1.0", "purlin:dofn/types@0.1.0"];
/// The interfaces that it must export.
const EXPORTS: [&str; 3] = ["purlin:dofn/describe@0.1.0", "purlin:dofn/lifecycle@0.1.0", "purlin:dofn/processor@0.1.0"];

/// How much of a manifest an error shows.
const SHOWN_BYTES_MAX: usize = 4 << 10;

/// See the file's head. Cheap to share; slots make instances of it.
pub struct Component {
    digest: [u8; 32],
    manifest: Manifest,
    pre: StatelessPre<HostState>,
}

impl Component {
    pub(crate) fn new(
        digest: [u8; 32],
        bytes: &[u8],
        compiled: &wasmtime::component::Component,
        options: Arc<Options>,
    ) -> Result<Self, Error> {
        let invalid = |error: wasmtime::Error| Error::Invalid(format!("{error:#}"));
        check_interfaces(compiled)?;
        let mut linker = Linker::new(compiled.engine());
        host::add_to_linker::<HostState, HasSelf<HostState>>(&mut linker, |state| state).map_err(invalid)?;
        let pre = linker.instantiate_pre(compiled).and_then(StatelessPre::new).map_err(invalid)?;
        let manifest = described(&pre, options)?;
        if let Some(section) = artifact::manifest_section(bytes)? {
            let section = Manifest::from_json(section)?;
            if section != manifest {
                let (file, component) = (section.to_json(), manifest.to_json());
                let (file, component) = (cut(&file, SHOWN_BYTES_MAX), cut(&component, SHOWN_BYTES_MAX));
                return Err(Error::Manifest(format!("the file says {file}, the component says {component}")));
            }
        }
        Ok(Component { digest, manifest, pre })
    }

    /// sha256 of the file.
    pub fn digest(&self) -> &[u8; 32] {
        &self.digest
    }

    /// What it holds.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    pub(crate) fn pre(&self) -> &StatelessPre<HostState> {
        &self.pre
    }
}

fn check_interfaces(compiled: &wasmtime::component::Component) -> Result<(), Error> {
    let engine = compiled.engine();
    let interfaces = compiled.component_type();
    if let Some((name, _)) = interfaces.imports(engine).find(|(name, _)| !IMPORTS.contains(name)) {
        return Err(Error::UnknownImport { name: name.to_owned() });
    }
    let exports: Vec<&str> = interfaces.exports(engine).map(|(name, _)| name).collect();
    match EXPORTS.iter().find(|name| !exports.contains(name)) {
        Some(name) => Err(Error::MissingExport { name }),
        None => Ok(()),
    }
}

/// Asks the component itself, within the limits of any call.
fn described(pre: &StatelessPre<HostState>, options: Arc<Options>) -> Result<Manifest, Error> {
    let mut store = new_store(pre.engine(), options, to_tracing());
    let ask = |store: &mut wasmtime::Store<HostState>| {
        let component: Stateless = pre.instantiate(&mut *store)?;
        component.purlin_dofn_describe().call_transforms(store)
    };
    let transforms = ask(&mut store).map_err(|error| {
        let trouble = trouble::explain(&error, store.data_mut());
        Error::Describe(trouble.message)
    })?;
    Manifest::described(transforms)
}
