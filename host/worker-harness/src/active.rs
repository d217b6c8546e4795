//! A bundle that a harness is running: collects what the harness sends for it, and serves its state.
//!
//! It settles exactly once: when its response and the end of every output have arrived, when it failed, or when it was given
//! up. What arrives afterwards is ignored.

use std::collections::VecDeque;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex};

use proto::fnapi::instruction_response::Response;
use proto::fnapi::{
    Elements, InstructionResponse, ProcessBundleResponse, StateAppendResponse, StateClearResponse, StateGetResponse,
    StateRequest, StateResponse, elements, state_request, state_response,
};
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};
use tokio::time::Instant;
use worker::{Error, Outputs, StageSpec, StateAccess, TimerChange};

use crate::harness::locked;
use crate::{rows, state_key, timers};

/// Everything a successful bundle sent, before metrics and residuals are looked into.
pub(crate) struct Collected {
    pub(crate) outputs: Outputs,
    pub(crate) timers: Vec<TimerChange>,
    pub(crate) response: ProcessBundleResponse,
}

/// Brings what a bundle came to.
pub(crate) type Settled = oneshot::Receiver<Result<Collected, Error>>;

pub(crate) struct ActiveBundle {
    pub(crate) instruction: String,
    spec: Arc<StageSpec>,
    worker: String,
    /// Gone once the bundle is settled. Held for one message at a time, never across an await.
    collecting: Mutex<Option<Collecting>>,
    state: Arc<dyn StateAccess>,
    requests: Mutex<StateRequests>,
}

struct Collecting {
    outputs: Outputs,
    timers: Vec<TimerChange>,
    /// By sink, then by timer family: whether its end was seen.
    ended: Vec<bool>,
    missing: usize,
    response: Option<ProcessBundleResponse>,
    latest: Instant,
    settled: oneshot::Sender<Result<Collected, Error>>,
}

/// Requests of one bundle are answered one after another, by at most one thread at a time.
#[derive(Default)]
struct StateRequests {
    waiting: VecDeque<(StateRequest, StateReply)>,
    serving: bool,
    /// The first failure of the store, which counts more than the error that an SDK makes of it.
    failure: Option<Error>,
}

/// Where the answer to a state request goes. The permit bounds how many requests of a harness are unanswered.
pub(crate) struct StateReply {
    pub(crate) stream: mpsc::Sender<Result<StateResponse, tonic::Status>>,
    pub(crate) permit: OwnedSemaphorePermit,
}

impl ActiveBundle {
    pub(crate) fn new(
        instruction: String,
        worker: &str,
        spec: &Arc<StageSpec>,
        outputs: Outputs,
        state: Arc<dyn StateAccess>,
    ) -> (Arc<Self>, Settled) {
        let (settled, receiver) = oneshot::channel();
        let missing = spec.sinks.len() + spec.timer_families.len();
        let collecting = Collecting {
            outputs,
            timers: Vec::new(),
            ended: vec![false; missing],
            missing,
            response: None,
            latest: Instant::now(),
            settled,
        };
        let active = ActiveBundle {
            instruction,
            spec: spec.clone(),
            worker: worker.to_owned(),
            collecting: Mutex::new(Some(collecting)),
            state,
            requests: Mutex::default(),
        };
        (Arc::new(active), receiver)
    }

    /// Takes one message of the data stream.
    pub(crate) fn data(&self, data: &elements::Data) {
        self.collect(|collecting| collecting.data(&self.spec, data));
    }

    /// Takes one message of timers.
    pub(crate) fn timers(&self, timers: &elements::Timers) {
        self.collect(|collecting| collecting.timers(&self.spec, timers));
    }

    /// Takes the harness's answer.
    pub(crate) fn respond(&self, response: InstructionResponse) {
        if !response.error.is_empty() {
            let failure = locked(&self.requests).failure.take();
            return self.fail(failure.unwrap_or(Error::User { transform: None, message: response.error }));
        }
        self.collect(|collecting| {
            let Some(Response::ProcessBundle(mut response)) = response.response else {
                return Err(Error::Protocol("answered a bundle with something else".to_owned()));
            };
            if collecting.response.is_some() {
                return Err(Error::Protocol("answered a bundle twice".to_owned()));
            }
            let embedded: Elements = response.elements.take().unwrap_or_default();
            embedded.data.iter().try_for_each(|data| collecting.data(&self.spec, data))?;
            embedded.timers.iter().try_for_each(|timers| collecting.timers(&self.spec, timers))?;
            collecting.response = Some(response);
            Ok(())
        });
    }

    /// Settles the bundle without success, unless it is settled.
    pub(crate) fn fail(&self, error: Error) {
        if let Some(collecting) = locked(&self.collecting).take() {
            // The receiver is gone when the bundle was given up; then nobody wants to know.
            let _ = collecting.settled.send(Err(error));
        }
    }

    /// Since when the harness has sent nothing for a bundle that it has answered; none while it is at work.
    pub(crate) fn overdue(&self) -> Option<(Instant, String)> {
        let collecting = locked(&self.collecting);
        let collecting = collecting.as_ref().filter(|collecting| collecting.response.is_some())?;
        Some((collecting.latest, self.missing(&collecting.ended)))
    }

    fn missing(&self, ended: &[bool]) -> String {
        let sinks = self.spec.sinks.iter().map(|sink| sink.port.transform.to_string());
        let families = self.spec.timer_families.iter().map(|family| format!("timers {} of {}", family.family, family.transform));
        let open = sinks.chain(families).zip(ended).filter(|(_, ended)| !**ended).map(|(name, _)| name);
        open.collect::<Vec<_>>().join(", ")
    }

    #[inline]
    fn collect(&self, take: impl FnOnce(&mut Collecting) -> Result<(), Error>) {
        let mut slot = locked(&self.collecting);
        let Some(collecting) = slot.as_mut() else { return };
        collecting.latest = Instant::now();
        let taken = take(collecting);
        if taken.is_ok() && !(collecting.missing == 0 && collecting.response.is_some()) {
            return;
        }
        let Some(Collecting { outputs, timers, response, settled, .. }) = slot.take() else { return };
        let result = taken.map_err(|error| self.named(error)).and_then(|()| {
            let response = response.ok_or_else(|| Error::Protocol("settled without a response".to_owned()))?;
            Ok(Collected { outputs, timers, response })
        });
        drop(slot);
        let _ = settled.send(result);
    }

    /// Says which worker broke the protocol, and where.
    pub(crate) fn named(&self, error: Error) -> Error {
        match error {
            Error::Protocol(what) => Error::Protocol(format!("worker {} in stage {:?}: {what}", self.worker, self.spec.name)),
            other => other,
        }
    }
}

impl Collecting {
    fn data(&mut self, spec: &StageSpec, data: &elements::Data) -> Result<(), Error> {
        let sink = spec.sinks.iter().position(|sink| sink.port.transform.as_str() == data.transform_id);
        let sink = sink.ok_or_else(|| Error::Protocol(format!("sent data for the unknown sink {:?}", data.transform_id)))?;
        if !data.data.is_empty() {
            if self.ended[sink] {
                return Err(Error::Protocol(format!("sent data for {:?} after its end", data.transform_id)));
            }
            let port = &spec.sinks[sink].port;
            let outputs = &mut self.outputs;
            rows::parse(&data.data, &port.coder, port.window_coder, |row| outputs.push(sink, row)).map_err(
                |error| match error {
                    rows::RowError::Refused(error) => error,
                    rows::RowError::Malformed(at, error) => Error::Protocol(format!(
                        "sent a malformed element of {:?} for {:?}, at byte {at} of {}: {error}",
                        port.collection,
                        data.transform_id,
                        data.data.len()
                    )),
                },
            )?;
        }
        self.end(sink, data.is_last)
    }

    fn timers(&mut self, spec: &StageSpec, timers: &elements::Timers) -> Result<(), Error> {
        let (transform, family) = (&timers.transform_id, &timers.timer_family_id);
        let known = |known: &worker::TimerFamily| known.transform.as_str() == transform && known.family == *family;
        let index = spec.timer_families.iter().position(known);
        let index =
            index.ok_or_else(|| Error::Protocol(format!("sent timers of the unknown family {family:?} of {transform:?}")))?;
        timers::parse(&timers.timers, index, &spec.timer_families[index], &mut self.timers)
            .map_err(|error| Error::Protocol(format!("sent a malformed timer of family {family:?} of {transform:?}: {error}")))?;
        self.end(spec.sinks.len() + index, timers.is_last)
    }

    fn end(&mut self, stream: usize, is_last: bool) -> Result<(), Error> {
        if is_last && !std::mem::replace(&mut self.ended[stream], true) {
            self.missing -= 1;
        }
        Ok(())
    }
}

impl ActiveBundle {
    /// Queues a state request, and starts a thread for the bundle's requests unless one is at it.
    pub(crate) fn state_request(self: Arc<Self>, request: StateRequest, reply: StateReply) {
        let mut requests = locked(&self.requests);
        requests.waiting.push_back((request, reply));
        if !std::mem::replace(&mut requests.serving, true) {
            drop(requests);
            tokio::task::spawn_blocking(move || self.serve_state());
        }
    }

    fn serve_state(&self) {
        loop {
            let mut requests = locked(&self.requests);
            let Some((request, reply)) = requests.waiting.pop_front() else {
                requests.serving = false;
                return;
            };
            drop(requests);
            let id = request.id.clone();
            let answer = std::panic::catch_unwind(AssertUnwindSafe(|| self.answer(request)));
            let answer = answer.unwrap_or_else(|_| Err("the host failed to serve state".to_owned()));
            let response = match answer {
                Ok(response) => StateResponse { id, error: String::new(), response: Some(response) },
                Err(error) => StateResponse { id, error, response: None },
            };
            // The harness is gone if this fails, and so is the bundle.
            let _ = reply.stream.blocking_send(Ok(response));
            drop(reply.permit);
        }
    }

    fn answer(&self, request: StateRequest) -> Result<state_response::Response, String> {
        if locked(&self.collecting).is_none() {
            return Err(format!("bundle {} is not running", self.instruction));
        }
        let key = state_key::decode(request.state_key.unwrap_or_default())?;
        let answer = match request.request.ok_or("a state request of an unknown kind")? {
            state_request::Request::Get(get) => {
                let from = Some(&get.continuation_token).filter(|token| !token.is_empty());
                self.state.get(&key, from).map(|page| {
                    let continuation_token = page.next.unwrap_or_default();
                    state_response::Response::Get(StateGetResponse { continuation_token, data: page.data })
                })
            }
            state_request::Request::Append(append) => {
                self.state.append(&key, append.data).map(|()| state_response::Response::Append(StateAppendResponse {}))
            }
            state_request::Request::Clear(_) => {
                self.state.clear(&key).map(|()| state_response::Response::Clear(StateClearResponse {}))
            }
        };
        answer.map_err(|error| {
            let message = error.to_string();
            if matches!(error, Error::Infrastructure(_)) {
                locked(&self.requests).failure.get_or_insert(error);
            }
            message
        })
    }
}
