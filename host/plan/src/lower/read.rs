//! The old primitive read. Python's runs as an SDK transform behind an Impulse; others must use splittable DoFns.

use prost::Message;
use proto::pipeline::{FunctionSpec, PTransform, ReadPayload};

use super::{Lowering, Next, Refused};
use crate::coders::BYTES;
use crate::graph::*;

/// Python's name for a read of a source that lies in the payload, started by any element.
pub(super) const READ_FROM_IMPULSE: &str = "beam:transform:read_from_impulse_python:v1";
const PYTHON_SOURCE: &str = "beam:source:pickled_python:v1";

impl Lowering<'_> {
    pub(super) fn read(&mut self, id: &str, transform: &PTransform) -> Result<Next, Refused> {
        let payload = transform.spec.clone().unwrap_or_default().payload;
        let source = ReadPayload::decode(payload.clone()).ok().and_then(|read| read.source).unwrap_or_default();
        if source.urn != PYTHON_SOURCE {
            let what = format!("it is a primitive read of a source that only its SDK knows (\"{}\")", source.urn);
            let hint = "leave the experiment use_deprecated_read away, so that it becomes a splittable DoFn";
            return Err(self.refuse(transform, what, hint));
        }
        let (_, output) = self.only_output(transform)?;
        let bytes = self.coders.make(BYTES, &[]).expect("bytes have no components");
        let start = self.made_up_collection(format!("{id}/Impulse.out"), bytes, output, false);
        let impulse = PTransform { unique_name: format!("{}/Impulse", transform.unique_name), ..Default::default() };
        let impulse_id = self.made_up_id(id, "Impulse");
        self.add(&impulse_id, &impulse, Kind::Impulse, Vec::new(), vec![("out".into(), start)]);

        let read = PTransform {
            spec: Some(FunctionSpec { urn: READ_FROM_IMPULSE.into(), payload }),
            inputs: [("in".to_owned(), self.graph.collection(start).id.clone())].into(),
            ..transform.clone()
        };
        self.sdk(id, &read)
    }
}
