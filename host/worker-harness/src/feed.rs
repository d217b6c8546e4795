//! Sends a bundle's input: rows, then fired timers, then one terminator for the source and for each timer family.
//!
//! A payload and the mark of its end never share a message entry: Python drops the payload. They may share a message.

use std::sync::Arc;

use bytes::Bytes;
use model::Batch;
use proto::fnapi::{Elements, elements};
use tokio::sync::mpsc;
use tonic::Status;
use worker::{Error, FiredTimer, StageSpec};

use crate::rows::{InputRows, MESSAGE_BYTES, wire_bytes};
use crate::timers;

/// Python queues five messages for a bundle and then stops reading the stream for all bundles of the harness. A bundle of
/// more bytes than this many messages gets a stream of its own where the SDK has such.
const MESSAGES_SHARED_MAX: usize = 3;

/// Bundles of fewer bytes are put into the request itself, where the SDK takes them there.
const EMBEDDED_BYTES_MAX: usize = 64 << 10;

/// How a bundle's input travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    /// In the request.
    Embedded,
    /// On the data stream that all bundles share.
    Shared,
    /// On a data stream of its own.
    Alone,
}

/// What an SDK says it can do, as far as data is concerned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Capabilities {
    pub(crate) embedded_requests: bool,
    pub(crate) named_streams: bool,
    pub(crate) element_metadata: bool,
}

impl Capabilities {
    pub(crate) fn of(urns: &[String]) -> Self {
        let has = |name: &str| urns.iter().any(|urn| urn.strip_prefix("beam:protocol:") == Some(name));
        Capabilities {
            embedded_requests: has("control_request_elements_embedding:v1"),
            named_streams: has("named_data_streams:v1"),
            element_metadata: has("element_metadata:v1"),
        }
    }
}

impl Route {
    pub(crate) fn of(input: &[Batch], timers: &[FiredTimer], capabilities: Capabilities) -> Self {
        let timer_bytes: usize = timers.iter().map(|timer| timer.key.len() + timer.window.len() + timer.tag.len() + 64).sum();
        match wire_bytes(input) + timer_bytes {
            bytes if capabilities.embedded_requests && bytes <= EMBEDDED_BYTES_MAX => Route::Embedded,
            bytes if capabilities.named_streams && bytes > MESSAGES_SHARED_MAX * MESSAGE_BYTES => Route::Alone,
            _ => Route::Shared,
        }
    }
}

/// The input of one bundle, message by message.
pub(crate) struct Feed {
    spec: Arc<StageSpec>,
    instruction: String,
    rows: InputRows,
    timers: Vec<FiredTimer>,
    ended: bool,
}

impl Feed {
    pub(crate) fn new(
        spec: &Arc<StageSpec>,
        instruction: &str,
        input: Vec<Batch>,
        timers: Vec<FiredTimer>,
        capabilities: Capabilities,
    ) -> Self {
        let rows = InputRows::new(input, capabilities.element_metadata);
        Feed { spec: spec.clone(), instruction: instruction.to_owned(), rows, timers, ended: false }
    }

    /// Sends everything, waiting wherever the stream is full. A stream that is gone ends this early: its harness has failed,
    /// and the bundle with it.
    pub(crate) async fn send(mut self, stream: mpsc::Sender<Result<Elements, Status>>) -> Result<(), Error> {
        loop {
            let (message, result) = match self.next() {
                Ok(Some(message)) => (message, Ok(())),
                Ok(None) => return Ok(()),
                Err(error) => (self.end(None), Err(error)),
            };
            if stream.send(Ok(message)).await.is_err() {
                return Ok(());
            }
            result?;
        }
    }

    /// Everything in one message.
    pub(crate) fn embed(mut self) -> Result<Elements, Error> {
        let mut all = Elements::default();
        while let Some(mut message) = self.next()? {
            all.data.append(&mut message.data);
            all.timers.append(&mut message.timers);
        }
        Ok(all)
    }

    fn next(&mut self) -> Result<Option<Elements>, Error> {
        if self.ended {
            return Ok(None);
        }
        if let Some(data) = self.rows.next_message()? {
            // A message that is not full is the last, and takes the terminators along.
            let full = data.len() >= MESSAGE_BYTES;
            let message = self.data(data, false);
            return Ok(Some(match full {
                true => Elements { data: vec![message], timers: Vec::new() },
                false => self.end(Some(message)),
            }));
        }
        Ok(Some(self.end(None)))
    }

    /// Fired timers and terminators, after the last rows.
    fn end(&mut self, rows: Option<elements::Data>) -> Elements {
        self.ended = true;
        let mut message = Elements::default();
        message.data.extend(rows);
        message.data.push(self.data(Bytes::new(), true));
        let mut payloads = vec![Vec::new(); self.spec.timer_families.len()];
        for timer in std::mem::take(&mut self.timers) {
            timers::encode(&timer, &mut payloads[timer.family]);
        }
        for (family, payload) in self.spec.timer_families.iter().zip(payloads) {
            let timers = |timers: Bytes, is_last| elements::Timers {
                instruction_id: self.instruction.clone(),
                transform_id: family.transform.to_string(),
                timer_family_id: family.family.clone(),
                timers,
                is_last,
            };
            if !payload.is_empty() {
                message.timers.push(timers(payload.into(), false));
            }
            message.timers.push(timers(Bytes::new(), true));
        }
        message
    }

    fn data(&self, data: Bytes, is_last: bool) -> elements::Data {
        let transform_id = self.spec.source.transform.to_string();
        elements::Data { instruction_id: self.instruction.clone(), transform_id, data, is_last }
    }
}
