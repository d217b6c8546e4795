//! What this build can run. Planning refuses, by name, whatever needs more.

use model::urn;

/// What differs from one installation to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// URNs of the environments that can be started here, the preferred one first: the order in which one of several
    /// alternatives is chosen.
    pub startable: Vec<String>,
}

impl Default for Capabilities {
    fn default() -> Self {
        Capabilities { startable: [urn::ENV_WASM, urn::ENV_EXTERNAL, urn::ENV_PROCESS].map(str::to_owned).to_vec() }
    }
}

impl Capabilities {
    /// With containers, where a container engine is present.
    pub fn with_docker(mut self) -> Self {
        self.startable.push(urn::ENV_DOCKER.to_owned());
        self
    }

    pub(crate) fn can_start(&self, urn: &str) -> bool {
        self.startable.iter().any(|startable| startable == urn)
    }
}
