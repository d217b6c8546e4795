//! The question which windows merge, as a bundle for the SDK that knows (`beam-model` 4.9).

use std::collections::BTreeSet;

use model::windowing::{Merging, WindowFn};
use model::{StageId, TransformId, WindowCoder, urn};
use prost::Message;
use proto::fnapi::ProcessBundleDescriptor;
use proto::pipeline::{
    FunctionSpec, PCollection, PTransform, Trigger, WindowingStrategy, accumulation_mode, closing_behavior, is_bounded,
    merge_status, on_time_behavior, output_time, trigger,
};

use crate::coders::{BYTES, CoderRef, GLOBAL_WINDOW, ITERABLE, KV};
use crate::graph::CollectionRef;
use crate::lower::Lowering;
use crate::plan::{Aside, Body, Sink, Transform, WindowMerging};

/// Ids of the descriptor; all of it is made up here.
const MERGE: &str = "merge_windows";
const ASKED: &str = "asked";
const ANSWERED: &str = "answered";
const GLOBAL: &str = "global";

impl Lowering<'_> {
    /// Whom a stage that groups `input` asks.
    pub(crate) fn window_merging(&mut self, stage: StageId, input: CollectionRef) -> Option<WindowMerging> {
        let windowing = self.strategies.get(&self.graph.collection(input).strategy).clone();
        let WindowFn::Custom { spec, environment: Some(environment), .. } = windowing.strategy.window_fn else { return None };
        if windowing.strategy.merging != Merging::NeedsMerge {
            return None;
        }
        let source = TransformId::from(self.port_id(stage, "windows"));
        let sink = TransformId::from(self.port_id(stage, "merged_windows"));
        let (bytes, window) = (self.made(BYTES, &[]), windowing.coder);
        let windows = self.made(ITERABLE, &[window]);
        let merged = self.made(KV, &[window, windows]);
        let merged = self.made(ITERABLE, &[merged]);
        let answer = self.made(KV, &[windows, merged]);
        let (asked, answered) = (self.made(KV, &[bytes, windows]), self.made(KV, &[bytes, answer]));
        let environment_id = self.environments.get(environment).id.clone();
        let message = PTransform {
            unique_name: MERGE.to_owned(),
            spec: Some(FunctionSpec { urn: urn::MERGE_WINDOWS.to_owned(), payload: spec.clone() }),
            inputs: [("in".to_owned(), ASKED.to_owned())].into(),
            outputs: [("out".to_owned(), ANSWERED.to_owned())].into(),
            environment_id: environment_id.clone(),
            ..Default::default()
        };
        let descriptor = self.merging_descriptor(message, (&source, asked), (&sink, answered));
        let transform = Transform {
            id: TransformId::from(MERGE),
            name: format!("merge windows of {}", self.graph.collection(input).id),
            environment,
            urn: urn::MERGE_WINDOWS.to_owned(),
            dofn_urn: String::new(),
            dofn_payload: spec,
            input: ASKED.to_owned(),
            outputs: vec![("out".to_owned(), ANSWERED.to_owned())],
        };
        let sink = Sink {
            transform: sink,
            collection: ANSWERED.to_owned(),
            coder: self.host(answered),
            windows: WindowCoder::Global,
            readers: Vec::new(),
        };
        let body = Body {
            environment,
            descriptor: descriptor.encode_to_vec().into(),
            transforms: vec![transform],
            source,
            source_collection: ASKED.to_owned(),
            source_coder: self.host(asked),
            source_windows: WindowCoder::Global,
            timer_families: Vec::new(),
            states: Vec::new(),
        };
        Some(WindowMerging { aside: Aside { body, sink }, window: self.host(window) })
    }

    fn merging_descriptor(
        &mut self,
        merge: PTransform,
        (source, asked): (&TransformId, CoderRef),
        (sink, answered): (&TransformId, CoderRef),
    ) -> ProcessBundleDescriptor {
        let global = self.made(GLOBAL_WINDOW, &[]);
        let global_id = self.coders.id(global).to_owned();
        let mut coder_ids = BTreeSet::from([global_id.clone()]);
        let first = PTransform {
            unique_name: source.to_string(),
            outputs: [("out".to_owned(), ASKED.to_owned())].into(),
            ..self.port_of(urn::RUNNER_SOURCE, asked, global, &mut coder_ids)
        };
        let last = PTransform {
            unique_name: sink.to_string(),
            inputs: [("in".to_owned(), ANSWERED.to_owned())].into(),
            ..self.port_of(urn::RUNNER_SINK, answered, global, &mut coder_ids)
        };
        let collection = |name: &str, coder: CoderRef| PCollection {
            unique_name: name.to_owned(),
            coder_id: self.coders.id(coder).to_owned(),
            is_bounded: is_bounded::Enum::Bounded as i32,
            windowing_strategy_id: GLOBAL.to_owned(),
            display_data: Vec::new(),
        };
        let strategy = WindowingStrategy {
            window_fn: Some(FunctionSpec { urn: "beam:window_fn:global_windows:v1".to_owned(), payload: Default::default() }),
            merge_status: merge_status::Enum::NonMerging as i32,
            window_coder_id: global_id,
            // SDKs read all of it, whether it counts or not.
            trigger: Some(Trigger { trigger: Some(trigger::Trigger::Default(trigger::Default {})) }),
            accumulation_mode: accumulation_mode::Enum::Discarding as i32,
            output_time: output_time::Enum::EndOfWindow as i32,
            closing_behavior: closing_behavior::Enum::EmitIfNonempty as i32,
            on_time_behavior: on_time_behavior::Enum::FireAlways as i32,
            allowed_lateness: 0,
            assigns_to_one_window: true,
            environment_id: String::new(),
        };
        let environment = self.environments.message(&merge.environment_id);
        ProcessBundleDescriptor {
            environments: environment.map(|message| (merge.environment_id.clone(), message)).into_iter().collect(),
            pcollections: [ASKED, ANSWERED]
                .into_iter()
                .zip([asked, answered])
                .map(|(name, coder)| (name.to_owned(), collection(name, coder)))
                .collect(),
            windowing_strategies: [(GLOBAL.to_owned(), strategy)].into(),
            coders: self.coders.closure(coder_ids.iter().map(String::as_str)),
            transforms: [(source.to_string(), first), (MERGE.to_owned(), merge), (sink.to_string(), last)].into(),
            ..Default::default()
        }
    }
}
