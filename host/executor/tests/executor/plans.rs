//! Plans by hand: stages, transforms and side inputs by the names of collections. No pipeline, no planner.

use std::collections::BTreeMap;

use bytes::Bytes;
use model::windowing::WindowingStrategy;
use model::{Coder, EnvironmentId, StageId, TimeDomain, TransformId, WindowCoder, urn};
use plan::{
    Aside, Body, Head, Input, Origins, Plan, Reader, Routing, Script, ScriptEvent, SideInput, Sink, Stage, StateKind,
    TimerFamily, Transform, UserState, WindowMapping, WindowMerging,
};
use worker::reference::DOFN_NATIVE;

/// The coder of most collections here: a key and a number.
pub(crate) fn kv() -> Coder {
    Coder::Kv(Box::new(Coder::Bytes), Box::new(Coder::VarInt))
}

/// What a grouping makes of a key and a value.
fn grouped(coder: &Coder) -> Coder {
    match coder {
        Coder::Kv(key, value) => Coder::Kv(key.clone(), Box::new(Coder::Iterable(value.clone()))),
        other => panic!("{other} cannot be grouped"),
    }
}

/// One without transforms, whose source is a collection.
fn body(source: &str, coder: Coder, windows: WindowCoder) -> Body {
    Body {
        environment: EnvironmentId(0),
        descriptor: Bytes::new(),
        transforms: Vec::new(),
        source: "source".into(),
        source_collection: source.to_owned(),
        source_coder: coder,
        source_windows: windows,
        timer_families: Vec::new(),
        states: Vec::new(),
    }
}

/// A plan in the making.
#[derive(Default)]
pub(crate) struct Plans {
    stages: Vec<Stage>,
    /// Where each collection is made, and how its elements look.
    collections: BTreeMap<String, (StageId, Coder, WindowCoder)>,
    scripts: Vec<Script>,
}

impl Plans {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// A stage whose head hands the job's one empty element over as collection `source`.
    pub(crate) fn impulse(&mut self, name: &str, source: &str) -> StageId {
        let stage = self.add(name, Head::Plain, Coder::Bytes, WindowCoder::Global);
        self.stages[stage.0 as usize].inputs.push(Input::Impulse);
        self.made(source, stage, Coder::Bytes, WindowCoder::Global);
        stage
    }

    /// A script with one output, which is collection `output`.
    pub(crate) fn script(&mut self, name: &str, events: Vec<ScriptEvent>, output: &str, coder: Coder) {
        let stage = self.add(name, Head::Script, coder.clone(), WindowCoder::Global);
        self.stages[stage.0 as usize].inputs.push(Input::Script { script: self.scripts.len() as u32, output: 0 });
        self.scripts.push(Script { name: name.to_owned(), outputs: vec!["out".to_owned()], events });
        self.made(output, stage, coder, WindowCoder::Global);
    }

    /// A stage whose head hands `inputs` over as collection `source`.
    pub(crate) fn stage(&mut self, name: &str, head: Head, inputs: &[(&str, Routing)], source: &str) -> StageId {
        let (_, coder, windows) = self.collections[inputs[0].0].clone();
        let handed_over = if matches!(head, Head::Grouping(_)) { grouped(&coder) } else { coder.clone() };
        let stage = self.add(name, head, coder, windows);
        for (index, (input, routing)) in inputs.iter().enumerate() {
            let (producer, sink) = self.sink(input);
            self.stages[stage.0 as usize].inputs.push(Input::Stage { stage: producer, local: *routing == Routing::Local });
            let reader = Reader::Main { stage, input: index as u32, routing: *routing };
            self.stages[producer.0 as usize].sinks[sink as usize].readers.push(reader);
        }
        self.made(source, stage, handed_over, windows);
        stage
    }

    /// A transform that is fused into a stage. Its DoFn is the one of its own name.
    pub(crate) fn transform(&mut self, stage: StageId, name: &str, input: &str, output: Option<(&str, Coder, WindowCoder)>) {
        let (_, coder, windows) = self.collections[input].clone();
        let body = self.stages[stage.0 as usize].body.get_or_insert_with(|| body(input, coder, windows));
        body.transforms.push(Transform {
            id: name.into(),
            name: name.to_owned(),
            environment: EnvironmentId(0),
            urn: urn::PAR_DO.to_owned(),
            dofn_urn: DOFN_NATIVE.to_owned(),
            dofn_payload: Bytes::copy_from_slice(name.as_bytes()),
            input: input.to_owned(),
            outputs: output.iter().map(|(output, ..)| ("out".to_owned(), (*output).to_owned())).collect(),
        });
        if let Some((output, coder, windows)) = output {
            self.made(output, stage, coder, windows);
        }
    }

    /// A side input with tag `side` of a transform in `stage`.
    pub(crate) fn side(
        &mut self,
        stage: StageId,
        transform: &str,
        collection: &str,
        windowing: WindowingStrategy,
        mapping: WindowMapping,
    ) {
        let (_, coder, _) = self.collections[collection].clone();
        let (producer, sink) = self.sink(collection);
        let readers = &mut self.stages[producer.0 as usize].sinks[sink as usize].readers;
        if !readers.contains(&Reader::Side) {
            readers.push(Reader::Side);
        }
        self.stages[stage.0 as usize].side_inputs.push(SideInput {
            transform: transform.into(),
            tag: "side".to_owned(),
            access_pattern: urn::SIDE_INPUT_MULTIMAP.to_owned(),
            collection: collection.to_owned(),
            producers: vec![(producer, sink)],
            coder,
            windowing,
            mapping,
        });
    }

    /// Makes a grouping stage ask a transform which windows merge. Its DoFn is the one of its own name.
    pub(crate) fn merging(&mut self, stage: StageId, name: &str, window: Coder) {
        let list = |coder: &Coder| Coder::Iterable(Box::new(coder.clone()));
        let pair = |key: Coder, value: Coder| Coder::Kv(Box::new(key), Box::new(value));
        let answer = pair(list(&window), list(&pair(window.clone(), list(&window))));
        let transform = Transform {
            id: name.into(),
            name: name.to_owned(),
            environment: EnvironmentId(0),
            urn: urn::MERGE_WINDOWS.to_owned(),
            dofn_urn: DOFN_NATIVE.to_owned(),
            dofn_payload: Bytes::copy_from_slice(name.as_bytes()),
            input: "asked".to_owned(),
            outputs: vec![("out".to_owned(), "answered".to_owned())],
        };
        let body = Body { transforms: vec![transform], ..body("asked", pair(Coder::Bytes, list(&window)), WindowCoder::Global) };
        let sink = Sink {
            transform: "sink of answered".into(),
            collection: "answered".to_owned(),
            coder: pair(Coder::Bytes, answer),
            windows: WindowCoder::Global,
            readers: Vec::new(),
        };
        self.stages[stage.0 as usize].merging = Some(WindowMerging { aside: Aside { body, sink }, window });
    }

    /// A user state of the first transform of `stage`.
    pub(crate) fn state(&mut self, stage: StageId, state: &str, kind: StateKind) {
        let body = self.stages[stage.0 as usize].body.as_mut().expect("a transform has state");
        let transform = body.transforms[0].id.clone();
        body.states.push(UserState { transform, state: state.to_owned(), kind });
    }

    /// Makes restrictions go through a transform when the job is drained. Its DoFn is the one of its own name.
    pub(crate) fn truncation(&mut self, stage: StageId, name: &str) {
        let body = self.stages[stage.0 as usize].body.as_ref().expect("the stage has a body");
        let transform = Transform {
            id: name.into(),
            name: name.to_owned(),
            dofn_payload: Bytes::copy_from_slice(name.as_bytes()),
            outputs: vec![("out".to_owned(), "truncated".to_owned())],
            ..body.transforms[0].clone()
        };
        let sink = Sink {
            transform: "sink of truncated".into(),
            collection: "truncated".to_owned(),
            coder: body.source_coder.clone(),
            windows: body.source_windows,
            readers: Vec::new(),
        };
        let body = Body { transforms: vec![transform], ..body.clone() };
        self.stages[stage.0 as usize].truncation = Some(Aside { body, sink });
    }

    /// One more timer family of the first transform of `stage`.
    pub(crate) fn timers(&mut self, stage: StageId, domain: TimeDomain) {
        let body = self.stages[stage.0 as usize].body.as_mut().expect("a transform has timers");
        body.timer_families.push(TimerFamily {
            transform: body.transforms[0].id.clone(),
            family: format!("family {}", body.timer_families.len()),
            event_time: domain == TimeDomain::Event,
            key_coder: Coder::Bytes,
            window_coder: body.source_windows,
        });
    }

    /// The stage that makes a collection.
    pub(crate) fn maker(&self, collection: &str) -> StageId {
        self.collections[collection].0
    }

    /// Whether transforms can be fused into a stage.
    pub(crate) fn has_body(&self, stage: StageId) -> bool {
        self.stages[stage.0 as usize].body.is_some()
    }

    pub(crate) fn build(self) -> Plan {
        Plan { stages: self.stages, environments: Vec::new(), scripts: self.scripts, origins: Origins::default() }
    }

    fn add(&mut self, name: &str, head: Head, input_coder: Coder, input_windows: WindowCoder) -> StageId {
        let id = StageId(self.stages.len() as u32);
        self.stages.push(Stage {
            id,
            name: name.to_owned(),
            head,
            inputs: Vec::new(),
            input_coder,
            input_windows,
            side_inputs: Vec::new(),
            merging: None,
            truncation: None,
            body: None,
            sinks: Vec::new(),
        });
        id
    }

    fn made(&mut self, collection: &str, stage: StageId, coder: Coder, windows: WindowCoder) {
        let before = self.collections.insert(collection.to_owned(), (stage, coder, windows));
        assert!(before.is_none(), "{collection} is made twice");
    }

    /// The sink through which a collection leaves its stage.
    fn sink(&mut self, collection: &str) -> (StageId, u32) {
        let (stage, coder, windows) = self.collections[collection].clone();
        let sinks = &mut self.stages[stage.0 as usize].sinks;
        let found = sinks.iter().position(|sink| sink.collection == collection);
        let index = found.unwrap_or_else(|| {
            let transform = TransformId::from(format!("sink of {collection}"));
            sinks.push(Sink { transform, collection: collection.to_owned(), coder, windows, readers: Vec::new() });
            sinks.len() - 1
        });
        (stage, index as u32)
    }
}
