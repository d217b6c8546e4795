//! The worker contract: run one bundle of one stage.
//!
//! What a worker is made of (a component in this process, an SDK harness over the Fn API, native code) is nobody's
//! business outside `server`, which makes them. This crate holds the contract ([`contract`]), what a stage looks like to a
//! worker ([`stage`]), the collector that routes and cuts a bundle's output ([`outputs`]), the order of a bundle for workers
//! that run fused transforms themselves ([`body`]), what workers keep of bundles that want to hear of their commit
//! ([`finalization`]), a native reference ([`reference`]) and the conformance suite ([`conformance`]).

pub mod body;
pub mod conformance;
pub mod contract;
pub mod finalization;
pub mod outputs;
pub mod reference;
pub mod stage;
pub mod state;

pub use contract::*;
pub use outputs::{Output, Outputs, Routing};
pub use stage::*;
pub use state::{Page, StateAccess, StateKey};
