//! TestStream: a source that is a script of elements and clock movements. Each of its outputs becomes a stage without a body
//! that the executor feeds, followed by a Flatten in an SDK.
//!
//! The SDK wrote the elements with the coder that the payload names and in the outer context, where the last part of a value has
//! no length; the output may be declared with another coder. So the script hands them on in a length prefix, and that Flatten
//! turns them into what the output is declared as. Nothing here has to understand them.

use bytes::{BufMut, Bytes, BytesMut};
use model::{Batch, BatchBuilder, Duration, EnvironmentId, Timestamp};
use prost::Message;
use proto::pipeline::test_stream_payload::{self, event::Event};
use proto::pipeline::{PTransform, TestStreamPayload};

use super::{Lowering, Next, Refused};
use crate::coders::{CoderRef, LENGTH_PREFIX};
use crate::facts::flatten_in_sdk;
use crate::flow::Flow;
use crate::graph::*;
use crate::plan::{self, ScriptEvent};

const MALFORMED: &str = "the pipeline is malformed";
/// What Python calls the output that has no tag where there are others.
const MAIN_TAG: &str = "None";
/// Part of the capability by which the Go SDK gives its version. Its coders know the nested context only.
const GO_SDK: &str = "beam_go_sdk";

/// A TestStream on its way through planning.
pub(crate) struct Script {
    name: String,
    /// Tags, and the collections that the executor feeds.
    outputs: Vec<(String, CollectionRef)>,
    steps: Vec<Step>,
}

/// As [`ScriptEvent`], with elements in the coder that their collection is declared with.
enum Step {
    Elements { output: u32, elements: Vec<(Timestamp, Bytes)> },
    Watermark { output: u32, watermark: Timestamp },
    ProcessingTime(Duration),
}

impl Lowering<'_> {
    pub(super) fn test_stream(&mut self, id: &str, transform: &PTransform) -> Result<Next, Refused> {
        let payload = transform.spec.clone().unwrap_or_default().payload;
        let Ok(payload) = TestStreamPayload::decode(payload) else {
            return Err(self.refuse(transform, "its TestStream payload is malformed", MALFORMED));
        };
        // The Go SDK always sets an endpoint, and leaves it empty.
        if payload.endpoint.as_ref().is_some_and(|endpoint| !endpoint.url.is_empty()) {
            let what = "it takes its TestStream events from a service, which is not supported";
            return Err(self.refuse(transform, what, "put the events into the TestStream"));
        }
        let environment = self.test_stream_environment(transform)?;
        if environment.is_some_and(|environment| self.environments.is_wasm(environment)) {
            let what = "its environment is a component, which cannot read the elements of a TestStream";
            return Err(self.refuse(transform, what, "leave the TestStream to the SDK that built it"));
        }
        let delimited = environment.is_some_and(|environment| self.delimits(environment));
        let steps = self.steps(transform, &payload, delimited)?;

        let mut outputs = Vec::with_capacity(transform.outputs.len());
        for (tag, output) in &transform.outputs {
            let output = self.collection(output, transform)?;
            let coder = self.script_coder(transform, &payload, output, delimited)?;
            let unbounded = self.graph.collection(output).unbounded;
            let fed = self.made_up_collection(format!("{id}/Events.{tag}"), coder, output, unbounded);
            outputs.push((tag.clone(), fed));
        }
        let script = Script { name: transform.unique_name.clone(), outputs: outputs.clone(), steps };
        self.scripts.push(script);
        self.add(id, transform, Kind::Script(self.scripts.len() - 1), Vec::new(), outputs.clone());
        for ((tag, output), (_, fed)) in transform.outputs.iter().zip(outputs) {
            let output = self.collection(output, transform)?;
            self.add_reading_of_elements(id, transform, tag, (fed, output), environment);
        }
        Ok(Next::Done)
    }

    /// The SDK that wrote the elements, where the pipeline says so.
    fn test_stream_environment(&mut self, transform: &PTransform) -> Result<Option<EnvironmentId>, Refused> {
        match transform.environment_id.as_str() {
            "" => Ok(self.environments.only()),
            id => match self.environments.in_use(id) {
                Ok(environment) => Ok(Some(environment)),
                Err(fault) => Err(self.refuse(transform, fault, "")),
            },
        }
    }

    /// Whether an SDK's elements delimit themselves wherever they are.
    fn delimits(&self, environment: EnvironmentId) -> bool {
        self.environments.get(environment).capabilities.iter().any(|capability| capability.contains(GO_SDK))
    }

    fn script_coder(
        &mut self,
        transform: &PTransform,
        payload: &TestStreamPayload,
        output: CollectionRef,
        delimited: bool,
    ) -> Result<CoderRef, Refused> {
        if delimited {
            return Ok(self.graph.collection(output).coder);
        }
        let prefixed = self.coders.lookup(&payload.coder_id).and_then(|coder| self.coders.make(LENGTH_PREFIX, &[coder]));
        prefixed.map_err(|fault| self.refuse(transform, format!("its elements: {fault}"), MALFORMED))
    }

    fn steps(&mut self, transform: &PTransform, payload: &TestStreamPayload, delimited: bool) -> Result<Vec<Step>, Refused> {
        let mut steps = Vec::with_capacity(payload.events.len());
        for event in &payload.events {
            let step = match &event.event {
                None => Err("it has a TestStream event of a kind that is unknown here".to_owned()),
                Some(event) => step(transform, event, delimited),
            };
            steps.push(step.map_err(|what| self.refuse(transform, what, MALFORMED))?);
        }
        Ok(steps)
    }

    fn add_reading_of_elements(
        &mut self,
        id: &str,
        transform: &PTransform,
        tag: &str,
        (fed, output): (CollectionRef, CollectionRef),
        environment: Option<EnvironmentId>,
    ) {
        let label = format!("{}/Elements", transform.unique_name);
        let sdk = Sdk { environment, ..flatten_in_sdk(&label, EnvironmentId(0)) };
        let node = Node {
            id: self.made_up_id(id, &format!("Elements.{tag}")),
            name: transform.unique_name.clone(),
            label,
            kind: Kind::Sdk(Box::new(sdk)),
            mains: vec![fed],
            sides: Vec::new(),
            outputs: vec![("out".into(), output)],
        };
        let node = node.with_ports("in", &self.graph);
        self.graph.add_node(node, &mut self.problems);
    }

    /// The scripts of the plan, with elements in wire coders. What is not an element of its coder is noted.
    pub(crate) fn scripts(&mut self, flow: &Flow) -> Vec<plan::Script> {
        let mut scripts = Vec::with_capacity(self.scripts.len());
        for script in std::mem::take(&mut self.scripts) {
            let mut events = Vec::with_capacity(script.steps.len());
            for step in &script.steps {
                match self.event(&script, step, flow) {
                    Ok(event) => events.push(event),
                    Err(what) => self.problems.at(&script.name, what, MALFORMED),
                }
            }
            let outputs = script.outputs.into_iter().map(|(tag, _)| tag).collect();
            scripts.push(plan::Script { name: script.name, outputs, events });
        }
        scripts
    }

    fn event(&self, script: &Script, step: &Step, flow: &Flow) -> Result<ScriptEvent, String> {
        Ok(match step {
            Step::Watermark { output, watermark } => ScriptEvent::Watermark { output: *output, watermark: *watermark },
            Step::ProcessingTime(span) => ScriptEvent::ProcessingTime(*span),
            Step::Elements { output, elements } => {
                let (tag, fed) = &script.outputs[*output as usize];
                let batch = self.batch(*fed, elements, flow).ok_or_else(|| {
                    format!("elements of its TestStream for output \"{tag}\" are not in the coder of that output")
                })?;
                ScriptEvent::Elements { output: *output, batch }
            }
        })
    }

    /// One batch of elements. None if one of them is not exactly one value of its wire coder.
    fn batch(&self, fed: CollectionRef, elements: &[(Timestamp, Bytes)], flow: &Flow) -> Option<Batch> {
        let (declared, wire) = (self.graph.collection(fed).coder, flow.wire[fed.0]);
        let host = crate::wire::host_form(&self.coders, wire)?;
        let prefix = declared != wire && self.coders.value(wire).urn == LENGTH_PREFIX;
        let mut batch = BatchBuilder::new();
        for (timestamp, element) in elements {
            let element = if prefix { length_prefixed(element) } else { element.clone() };
            let mut reader = model::Reader::new(&element);
            host.skip(&mut reader).ok()?;
            if reader.position() != element.len() {
                return None;
            }
            batch.push_with(*timestamp, model::window::GLOBAL_SET, model::pane::NO_FIRING, |out| out.extend(&element));
        }
        Some(batch.finish())
    }
}

fn step(transform: &PTransform, event: &Event, delimited: bool) -> Result<Step, String> {
    Ok(match event {
        Event::WatermarkEvent(event) => {
            Step::Watermark { output: output(transform, &event.tag)?, watermark: Timestamp::from_millis(event.new_watermark) }
        }
        Event::ProcessingTimeEvent(event) if event.advance_duration < 0 => {
            return Err("its TestStream turns the clock back".to_owned());
        }
        Event::ProcessingTimeEvent(event) => Step::ProcessingTime(Duration(event.advance_duration)),
        Event::ElementEvent(event) => {
            let element = |element: &test_stream_payload::TimestampedElement| {
                let bytes = &element.encoded_element;
                let bytes = if delimited { bytes.clone() } else { length_prefixed(bytes) };
                (Timestamp::from_millis(element.timestamp), bytes)
            };
            Step::Elements { output: output(transform, &event.tag)?, elements: event.elements.iter().map(element).collect() }
        }
    })
}

/// The index of the output that an event's tag means: no tag is the only output, or Python's main one.
fn output(transform: &PTransform, tag: &str) -> Result<u32, String> {
    let tags: Vec<&str> = transform.outputs.keys().map(String::as_str).collect();
    let index = match (&tags[..], tag) {
        ([_], "") => Some(0),
        (_, "") => tags.iter().position(|known| *known == MAIN_TAG),
        _ => tags.iter().position(|known| *known == tag),
    };
    index
        .map(|index| index as u32)
        .ok_or_else(|| format!("its TestStream has events for an output that it does not have (\"{tag}\")"))
}

fn length_prefixed(bytes: &Bytes) -> Bytes {
    let mut prefixed = BytesMut::with_capacity(bytes.len() + prost::length_delimiter_len(bytes.len()));
    prost::encode_length_delimiter(bytes.len(), &mut prefixed).expect("the buffer grows");
    prefixed.put_slice(bytes);
    prefixed.freeze()
}
