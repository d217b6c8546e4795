//! A living component instance with its store: calls within their limits. After a trouble it must be dropped.

use std::sync::Arc;

use model::{Batch, TransformId};
use wasmtime::{Engine, Store};

use crate::bindings::{keyed, lifecycle, types};
use crate::columns::{Lowered, Reads};
use crate::engine::EPOCH_MS;
use crate::exports::Exports;
use crate::host::{HostState, LimitHit, LogSink, guest_level};
use crate::state::Reach;
use crate::trouble::{Trouble, explain};
use crate::{Component, Options};

/// A store within its limits, good for one component instance.
pub(crate) fn new_store(engine: &Engine, options: Arc<Options>, logs: LogSink) -> Store<HostState> {
    // Bounds what is copied in one go before it can be counted; what an outcome has besides outputs must fit too.
    let copied_bytes_max = options.output_bytes_max.saturating_mul(2).saturating_add(1 << 20);
    let mut store = Store::new(engine, HostState::new(options, logs));
    store.limiter(|state| state);
    store.set_hostcall_fuel(copied_bytes_max);
    begin_call(&mut store, None);
    store
}

fn begin_call(store: &mut Store<HostState>, transform: Option<&TransformId>) {
    store.data_mut().begin_call(transform);
    // One more, since the running epoch may be almost over.
    let epochs = store.data().options.call_deadline_ms.div_ceil(EPOCH_MS) + 1;
    store.set_epoch_deadline(epochs);
}

/// What a call came to when it returned.
pub(crate) type Answer<T> = Result<Result<T, types::Failure>, Trouble>;

/// What a keyed call returns.
type KeyedResult = Result<keyed::KeyedOutcome, types::Failure>;

pub(crate) struct Instance {
    store: Store<HostState>,
    exports: Exports,
    /// Bytes of memory after the first bundle.
    settled_bytes: Option<usize>,
}

impl Instance {
    pub(crate) fn new(component: &Component, options: Arc<Options>, logs: LogSink) -> Result<Self, Trouble> {
        let mut store = new_store(component.engine(), options, logs);
        match component.instantiate(&mut store) {
            Ok(exports) => Ok(Instance { store, exports, settled_bytes: None }),
            Err(error) => Err(explain(&error, store.data_mut())),
        }
    }

    /// Drops all messages from now on.
    pub(crate) fn hush(&mut self) {
        self.store.data_mut().quiet = true;
    }

    pub(crate) fn open(&mut self, transform: &TransformId, name: &str, config: &[u8]) -> Answer<u32> {
        let options = &self.store.data().options;
        let grant = lifecycle::Grant { flush_bytes: options.flush_bytes, log_level: guest_level(options.log_level) };
        self.call(transform, |exports, store| exports.lifecycle.call_open(store, name, config, grant))
    }

    pub(crate) fn start(&mut self, transform: &TransformId, handle: u32) -> Answer<types::Outcome> {
        let answer = self.call(transform, |exports, store| exports.processor.call_start_bundle(store, handle));
        self.complete(answer)
    }

    pub(crate) fn process(
        &mut self,
        transform: &TransformId,
        handle: u32,
        input: &Batch,
        reads: Reads,
    ) -> Answer<types::Outcome> {
        let lowered = Lowered::new(input, reads);
        let answer = self.call(transform, |exports, store| exports.processor.call_process(store, handle, lowered.param()));
        self.complete(answer)
    }

    /// Rows or timers of keys, as `call` passes them on. What the guest reaches of state meanwhile is `reach`.
    pub(crate) fn keyed(
        &mut self,
        reach: &Reach,
        call: impl FnOnce(&keyed::Guest, &mut Store<HostState>) -> wasmtime::Result<KeyedResult>,
    ) -> Answer<keyed::KeyedOutcome> {
        self.store.data_mut().state.reach = Some(reach.clone());
        let answer = self.call(&reach.transform, |exports, store| {
            let (_, keyed) = exports.stateful.as_ref().expect("only stateful components name transforms with keys");
            call(keyed, store)
        });
        let answer = self.complete_keyed(answer);
        self.store.data_mut().state.reach = None;
        answer
    }

    fn complete_keyed(&mut self, answer: Result<KeyedResult, Trouble>) -> Answer<keyed::KeyedOutcome> {
        let (outcome, changes, timers) = match answer? {
            Ok(keyed::KeyedOutcome { outcome, state, timers }) => (outcome, state, timers),
            Err(failure) => return Ok(Err(failure)),
        };
        let state = self.store.data_mut();
        let max = state.options.timer_changes_max;
        if timers.runs.len() > max {
            return Err(explain(&LimitHit::Timers { max }.into(), state));
        }
        state.state.apply(&changes, &state.options).map_err(|refused| explain(&refused.into(), state))?;
        let outcome = match self.complete(Ok(Ok(outcome)))? {
            Ok(outcome) => outcome,
            Err(failure) => return Ok(Err(failure)),
        };
        Ok(Ok(keyed::KeyedOutcome { outcome, state: changes, timers }))
    }

    /// Why the state failed in the last call, if it did.
    pub(crate) fn take_state_error(&mut self) -> Option<worker::Error> {
        self.store.data_mut().state.failed.take()
    }

    /// Gives all DoFns up, in an orderly way.
    pub(crate) fn close(&mut self, transform: &TransformId, handle: u32) {
        // Nothing depends on it: what was done is done.
        let _ = self.call(transform, |exports, store| exports.lifecycle.call_close(store, handle));
    }

    pub(crate) fn finish(&mut self, transform: &TransformId, handle: u32) -> Answer<types::Outcome> {
        let answer = self.call(transform, |exports, store| exports.processor.call_finish_bundle(store, handle));
        self.complete(answer)
    }

    fn call<T>(
        &mut self,
        transform: &TransformId,
        call: impl FnOnce(&Exports, &mut Store<HostState>) -> wasmtime::Result<T>,
    ) -> Result<T, Trouble> {
        begin_call(&mut self.store, Some(transform));
        call(&self.exports, &mut self.store).map_err(|error| explain(&error, self.store.data_mut()))
    }

    /// Puts what was emitted during the call before what it returned, and counts that too.
    fn complete(&mut self, answer: Answer<types::Outcome>) -> Answer<types::Outcome> {
        let mut outcome = match answer? {
            Ok(outcome) => outcome,
            failed => return Ok(failed),
        };
        let state = self.store.data_mut();
        for emitted in &outcome.outputs {
            state.count_output(emitted).map_err(|limit| explain(&limit.into(), state))?;
        }
        if !state.emitted.is_empty() {
            let mut outputs = std::mem::take(&mut state.emitted);
            outputs.append(&mut outcome.outputs);
            outcome.outputs = outputs;
        }
        Ok(Ok(outcome))
    }

    /// A bundle is over. True: the instance has grown too large and is to be replaced.
    pub(crate) fn end_bundle(&mut self) -> bool {
        let state = self.store.data_mut();
        state.end_bundle();
        let settled = *self.settled_bytes.get_or_insert(state.memory_bytes);
        state.memory_bytes > state.options.memory_watermark_bytes.max(settled.saturating_mul(2))
    }
}
