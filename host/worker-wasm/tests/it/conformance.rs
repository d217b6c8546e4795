//! The suite of the worker contract, with the test guest's DoFns.

use std::collections::BTreeMap;
use std::sync::Arc;

use worker::conformance::{Behaviour, Dofn, ENVIRONMENT, Subject};
use worker_wasm::payload::DofnPayload;

struct Wasm;

impl Subject for Wasm {
    fn worker(&self) -> Arc<dyn worker::Worker> {
        let (engine, component) = crate::running::test_guest();
        engine.worker(BTreeMap::from([(ENVIRONMENT, component)]))
    }

    fn dofn(&self, behaviour: Behaviour) -> Dofn {
        let payload = DofnPayload { name: format!("{behaviour:?}"), config: Vec::new() };
        Dofn { environment: ENVIRONMENT, urn: model::urn::DOFN_WASM.to_owned(), payload: payload.encode().into() }
    }
}

worker::conformance!(Wasm);
worker::conformance_by_key!(Wasm);
