//! Restrictions are cut short when a job is drained (`beam-model` 4.5): the transform that does so, made of the one that
//! processes them.

use model::{StageId, TransformId, urn};
use prost::Message;
use proto::fnapi::ProcessBundleDescriptor;

use crate::lower::Lowering;
use crate::plan::{Aside, Body, Sink, Transform};

impl Lowering<'_> {
    /// What truncates the restrictions that `body` processes. None when its SDK cannot.
    ///
    /// The transform keeps the id of the one that processes, so that side inputs are found, and its descriptor is that of the stage
    /// with everything else taken out.
    pub(crate) fn truncation(&self, stage: StageId, body: &Body) -> Option<Aside> {
        let able = &self.environments.get(body.environment).capabilities;
        let process = body.transforms.iter().find(|transform| transform.urn == urn::SDF_PROCESS)?;
        if !able.iter().any(|capability| capability == urn::SDF_TRUNCATE) {
            return None;
        }
        let mut descriptor = ProcessBundleDescriptor::decode(body.descriptor.clone()).ok()?;
        let mut source = descriptor.transforms.get(body.source.as_str())?.clone();
        let mut truncate = descriptor.transforms.get(process.id.as_str())?.clone();
        let mut truncated = descriptor.pcollections.get(&body.source_collection)?.clone();
        let (sink, collection) =
            (self.port_id(stage, "truncated"), unused(&descriptor, &format!("{}/truncated", body.source_collection)));
        truncated.unique_name.clone_from(&collection);
        descriptor.pcollections.insert(collection.clone(), truncated);
        truncate.spec.as_mut()?.urn = urn::SDF_TRUNCATE.to_owned();
        truncate.outputs = [("out".to_owned(), collection.clone())].into();
        descriptor.transforms = [(body.source.to_string(), source.clone()), (process.id.to_string(), truncate)].into();
        source.spec.as_mut()?.urn = urn::RUNNER_SINK.to_owned();
        source.inputs = [("in".to_owned(), collection.clone())].into();
        source.outputs.clear();
        source.unique_name.clone_from(&sink);
        descriptor.transforms.insert(sink.clone(), source);
        let transform = Transform {
            urn: urn::SDF_TRUNCATE.to_owned(),
            outputs: vec![("out".to_owned(), collection.clone())],
            ..process.clone()
        };
        Some(Aside {
            sink: Sink {
                transform: TransformId::from(sink),
                collection,
                coder: body.source_coder.clone(),
                windows: body.source_windows,
                readers: Vec::new(),
            },
            body: Body { descriptor: descriptor.encode_to_vec().into(), transforms: vec![transform], ..body.clone() },
        })
    }
}

fn unused(descriptor: &ProcessBundleDescriptor, id: &str) -> String {
    let mut id = id.to_owned();
    while descriptor.pcollections.contains_key(&id) {
        id.push('#');
    }
    id
}
