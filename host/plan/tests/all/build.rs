//! Builds pipeline messages piece by piece.

use std::collections::BTreeMap;

use prost::Message;
use proto::pipeline::{
    Coder, Components, Environment, FixedWindowsPayload, FunctionSpec, PCollection, PTransform, Pipeline, SessionWindowsPayload,
    SlidingWindowsPayload, Trigger, WindowingStrategy,
};

use crate::term::Term;

pub(crate) const STANDARD: [&str; 14] = [
    "bytes",
    "string_utf8",
    "bool",
    "varint",
    "double",
    "kv",
    "iterable",
    "length_prefix",
    "nullable",
    "global_window",
    "interval_window",
    "windowed_value",
    "timer",
    "row",
];

#[derive(Default)]
pub(crate) struct Builder {
    pub(crate) components: Components,
    pub(crate) roots: Vec<String>,
    pub(crate) requirements: Vec<String>,
}

impl Builder {
    pub(crate) fn pipeline(self) -> Pipeline {
        Pipeline {
            components: Some(self.components),
            root_transform_ids: self.roots,
            requirements: self.requirements,
            display_data: Vec::new(),
        }
    }

    /// A coder by its text, which is its id; `#2` and the like make another id for the same coder.
    pub(crate) fn coder(&mut self, text: &str) -> String {
        if !self.components.coders.contains_key(text) {
            let term = Term::parse(text.split('#').next().unwrap());
            self.coder_of(text, &term);
        }
        text.to_owned()
    }

    fn coder_of(&mut self, id: &str, term: &Term) {
        let mut parts = Vec::new();
        for part in &term.parts {
            let id = show(part);
            self.coder_of(&id, part);
            parts.push(id);
        }
        let urn = match term.name.as_str() {
            "string" => "beam:coder:string_utf8:v1".into(),
            "sized" => "beam:coder:length_prefix:v1".into(),
            "global" => "beam:coder:global_window:v1".into(),
            "interval" => "beam:coder:interval_window:v1".into(),
            name if STANDARD.contains(&name) || name == "custom_window" => format!("beam:coder:{name}:v1"),
            name => format!("test:coder:{name}"),
        };
        self.raw_coder(id, &urn, &parts);
    }

    pub(crate) fn raw_coder(&mut self, id: &str, urn: &str, parts: &[String]) {
        let spec = FunctionSpec { urn: urn.to_owned(), payload: Default::default() };
        self.components.coders.insert(id.to_owned(), Coder { spec: Some(spec), component_coder_ids: parts.to_vec() });
    }

    /// A strategy by its text: windows and, after `+`, what else is special.
    pub(crate) fn strategy(&mut self, text: &str) -> String {
        if self.components.windowing_strategies.contains_key(text) {
            return text.to_owned();
        }
        let mut parts = crate::term::split(text, '+').into_iter();
        let windows = Term::parse(parts.next().unwrap());
        let duration = |at: usize| windows.parts.get(at).map(|ms| millis(ms.number()));
        let (urn, payload, coder) = match windows.name.as_str() {
            "global" => ("beam:window_fn:global_windows:v1", Vec::new(), "global"),
            "fixed" => {
                let payload = FixedWindowsPayload { size: duration(0), offset: None };
                ("beam:window_fn:fixed_windows:v1", payload.encode_to_vec(), "interval")
            }
            "sliding" => {
                let payload = SlidingWindowsPayload { size: duration(0), period: duration(1), offset: None };
                ("beam:window_fn:sliding_windows:v1", payload.encode_to_vec(), "interval")
            }
            "sessions" => {
                let payload = SessionWindowsPayload { gap_size: duration(0) };
                ("beam:window_fn:session_windows:v1", payload.encode_to_vec(), "interval")
            }
            "custom" => ("test:window_fn:custom", Vec::new(), "windows"),
            other => panic!("unknown windows {other}"),
        };
        let mut strategy = WindowingStrategy {
            window_fn: Some(FunctionSpec { urn: urn.into(), payload: payload.into() }),
            merge_status: if windows.name == "sessions" { 2 } else { 1 },
            window_coder_id: self.coder(coder),
            accumulation_mode: 1,
            output_time: 1,
            closing_behavior: 2,
            on_time_behavior: 1,
            ..Default::default()
        };
        for part in parts {
            let term = Term::parse(part);
            match term.name.as_str() {
                "merging" => strategy.merge_status = 2,
                "merged" => strategy.merge_status = 3,
                "unspecified" => strategy.merge_status = 0,
                "accumulating" => strategy.accumulation_mode = 2,
                "earliest" => strategy.output_time = 3,
                "retracting" => strategy.accumulation_mode = 3,
                "sparse" => {
                    strategy = WindowingStrategy {
                        accumulation_mode: 0,
                        output_time: 0,
                        closing_behavior: 0,
                        on_time_behavior: 0,
                        ..strategy
                    }
                }
                "late" => strategy.allowed_lateness = term.parts[0].number(),
                "in" => strategy.environment_id = term.parts[0].name.clone(),
                "trigger" => strategy.trigger = Some(trigger(&term.parts[0])),
                other => panic!("unknown in a strategy: {other}"),
            }
        }
        self.components.windowing_strategies.insert(text.to_owned(), strategy);
        text.to_owned()
    }

    pub(crate) fn collection(&mut self, id: &str, coder: &str, strategy: &str, unbounded: bool) {
        let message = PCollection {
            unique_name: id.to_owned(),
            coder_id: self.coder(coder),
            is_bounded: if unbounded { 1 } else { 2 },
            windowing_strategy_id: self.strategy(strategy),
            display_data: Vec::new(),
        };
        self.components.pcollections.insert(id.to_owned(), message);
    }

    pub(crate) fn environment(&mut self, id: &str, environment: Environment) {
        self.components.environments.insert(id.to_owned(), environment);
    }

    pub(crate) fn transform(&mut self, id: &str, transform: PTransform) {
        self.components.transforms.insert(id.to_owned(), transform);
    }

    pub(crate) fn coder_text(&self, collection: &str) -> Option<String> {
        Some(self.components.pcollections.get(collection)?.coder_id.clone())
    }

    pub(crate) fn strategy_text(&self, collection: &str) -> Option<String> {
        Some(self.components.pcollections.get(collection)?.windowing_strategy_id.clone())
    }
}

pub(crate) fn environment(kind: &str, capabilities: &[String]) -> Environment {
    Environment {
        urn: match kind {
            "wasm" => model::urn::ENV_WASM.to_owned(),
            kind => format!("beam:env:{kind}:v1"),
        },
        capabilities: capabilities.to_vec(),
        ..Default::default()
    }
}

pub(crate) fn all_capabilities() -> Vec<String> {
    STANDARD.iter().map(|name| format!("beam:coder:{name}:v1")).collect()
}

pub(crate) fn spec(urn: &str, payload: &impl Message) -> Option<FunctionSpec> {
    Some(FunctionSpec { urn: urn.to_owned(), payload: payload.encode_to_vec().into() })
}

pub(crate) fn plain_spec(urn: &str) -> Option<FunctionSpec> {
    Some(FunctionSpec { urn: urn.to_owned(), payload: Default::default() })
}

pub(crate) fn tagged(collections: &[String]) -> BTreeMap<String, String> {
    let tag = |index: usize| if collections.len() == 1 { "out".to_owned() } else { format!("out{index}") };
    collections.iter().enumerate().map(|(index, collection)| (tag(index), collection.clone())).collect()
}

pub(crate) fn show(term: &Term) -> String {
    if term.parts.is_empty() {
        return term.name.clone();
    }
    let parts: Vec<String> = term.parts.iter().map(show).collect();
    format!("{}({})", term.name, parts.join(","))
}

fn millis(ms: i64) -> prost_types::Duration {
    prost_types::Duration { seconds: ms / 1000, nanos: (ms % 1000) as i32 * 1_000_000 }
}

fn trigger(term: &Term) -> Trigger {
    use proto::pipeline::trigger::{self as t, Trigger as Kind};
    let parts = || term.parts.iter().map(trigger).collect();
    let kind = match term.name.as_str() {
        "default" => Kind::Default(t::Default {}),
        "always" => Kind::Always(t::Always {}),
        "never" => Kind::Never(t::Never {}),
        "count" => Kind::ElementCount(t::ElementCount { element_count: term.parts[0].number() as i32 }),
        "end" => Kind::AfterEndOfWindow(Default::default()),
        "early" => Kind::AfterEndOfWindow(Box::new(t::AfterEndOfWindow {
            early_firings: Some(Box::new(trigger(&term.parts[0]))),
            late_firings: None,
        })),
        "late" => Kind::AfterEndOfWindow(Box::new(t::AfterEndOfWindow {
            early_firings: None,
            late_firings: Some(Box::new(trigger(&term.parts[0]))),
        })),
        "repeat" => Kind::Repeat(Box::new(t::Repeat { subtrigger: Some(Box::new(trigger(&term.parts[0]))) })),
        "all" => Kind::AfterAll(t::AfterAll { subtriggers: parts() }),
        "any" => Kind::AfterAny(t::AfterAny { subtriggers: parts() }),
        "each" => Kind::AfterEach(t::AfterEach { subtriggers: parts() }),
        "broken" => return Trigger { trigger: None },
        other => panic!("unknown trigger {other}"),
    };
    Trigger { trigger: Some(kind) }
}
