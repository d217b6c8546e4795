//! Completes a stage's process bundle descriptor: its id and the endpoints in it.

use std::sync::Arc;

use prost::Message;
use proto::fnapi::{ProcessBundleDescriptor, RemoteGrpcPort};
use proto::pipeline::ApiServiceDescriptor;
use worker::{Error, StageSpec};

/// A stage that harnesses can be asked to run.
#[derive(Debug)]
pub(crate) struct PreparedStage {
    pub(crate) spec: Arc<StageSpec>,
    /// What harnesses know it by.
    pub(crate) descriptor_id: String,
    pub(crate) descriptor: Arc<ProcessBundleDescriptor>,
}

const WINDOWED_VALUE: &str = "beam:coder:windowed_value:v1";

impl PreparedStage {
    /// Decodes the descriptor of `spec`, checks that it has the ports that `spec` names, and fills in what planning left out.
    pub(crate) fn new(spec: Arc<StageSpec>, id: String, endpoint: &str) -> Result<Self, Error> {
        let unusable = |what: String| Error::Protocol(format!("descriptor of stage {:?} {what}", spec.name));
        let mut descriptor = ProcessBundleDescriptor::decode(spec.descriptor.clone())
            .map_err(|error| unusable(format!("is malformed: {error}")))?;
        let service = ApiServiceDescriptor { url: endpoint.to_owned(), authentication: None };
        let ports = std::iter::once(&spec.source).chain(spec.sinks.iter().map(|sink| &sink.port));
        for (index, port) in ports.enumerate() {
            let urn = if index == 0 { model::urn::RUNNER_SOURCE } else { model::urn::RUNNER_SINK };
            let name = port.transform.as_str();
            let transform = descriptor.transforms.get_mut(name).ok_or_else(|| unusable(format!("lacks its port {name:?}")))?;
            let function = transform.spec.as_mut().filter(|function| function.urn == urn);
            let function = function.ok_or_else(|| unusable(format!("has a port {name:?} that is no {urn}")))?;
            let mut grpc = RemoteGrpcPort::decode(function.payload.clone())
                .map_err(|error| unusable(format!("has a malformed port {name:?}: {error}")))?;
            let coder = descriptor.coders.get(&grpc.coder_id).and_then(|coder| coder.spec.as_ref());
            if coder.is_none_or(|coder| coder.urn != WINDOWED_VALUE) {
                return Err(unusable(format!("has a port {name:?} whose coder {:?} is no windowed value coder", grpc.coder_id)));
            }
            grpc.api_service_descriptor = Some(service.clone());
            function.payload = grpc.encode_to_vec().into();
        }
        descriptor.id.clone_from(&id);
        // Python waits for the end of timers in every bundle when the timer endpoint is set, and for ever when it is not
        // but should be.
        descriptor.timer_api_service_descriptor = (!spec.timer_families.is_empty()).then(|| service.clone());
        descriptor.state_api_service_descriptor = Some(service);
        Ok(PreparedStage { descriptor_id: id, descriptor: Arc::new(descriptor), spec })
    }
}
