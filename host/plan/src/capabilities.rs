//! What this build can run. Planning refuses, by name, whatever needs more.

use model::urn;

/// Switches of a build. Planning itself handles everything that has a switch here; a switch is on when engine, executor and
/// workers do so too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// User state. A stateful ParDo then is the root of a stage that is fed by key; running one key in one bundle at a time
    /// is the engine's part.
    pub state: bool,
    /// User timers; as for `state`.
    pub timers: bool,
    /// Triggers other than the default one.
    pub triggers: bool,
    /// `RequiresStableInput`: input comes from committed entries, so that a retry sees the same elements.
    pub stable_input: bool,
    /// `RequiresTimeSortedInput`.
    pub time_sorted_input: bool,
    /// Merging windows of functions that only an SDK knows.
    pub merging_custom_windows: bool,
    /// URNs of the environments that can be started here, the preferred one first: the order in which one of several
    /// alternatives is chosen.
    pub startable: Vec<String>,
}

impl Default for Capabilities {
    fn default() -> Self {
        Capabilities {
            state: false,
            timers: false,
            triggers: true,
            stable_input: true,
            time_sorted_input: false,
            merging_custom_windows: true,
            startable: [urn::ENV_WASM, urn::ENV_EXTERNAL, urn::ENV_PROCESS].map(str::to_owned).to_vec(),
        }
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
