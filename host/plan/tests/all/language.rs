//! The language of the cases. A line is a transform or a setting:
//!
//! ```text
//! environment go external kv varint      an environment and the coders that it declares ("all": everything)
//! environment w wasm all
//! environment any anyof docker external  alternatives
//! capability go beam:protocol:...        one more capability of an environment
//! capabilities docker                    what else can be started here
//! requires beam:requirement:...
//! file NAME                              the pipeline of tests/pipelines/NAME.pb
//!
//! a = impulse
//! b = pardo(a) sides=[c,d:multimap] outs=[x,y] coder=kv(string,varint) env=py windows=fixed(10)+late(5)
//! collection x coder=bytes               corrects an output, or makes a collection that nobody produces
//! composite Outer                        `inside=Outer` puts transforms into it
//! coder loop kv loop loop                a coder in raw form
//! remove coder string                    also: environment, collection, strategy, transform
//! ```
//!
//! A transform's output is called as the transform unless `outs` names others. Coder and windows come from the main input
//! where that makes sense; otherwise from `string` and `global`. The environment is `py`, which exists by default.

use plan::Capabilities;
use prost::Message;
use proto::pipeline::test_stream_payload::event::{AddElements, AdvanceProcessingTime, AdvanceWatermark, Event};
use proto::pipeline::test_stream_payload::{self, TimestampedElement};
use proto::pipeline::{
    AnyOfEnvironmentPayload, ApiServiceDescriptor, BagStateSpec, CombinePayload, Environment, FunctionSpec, PTransform,
    ParDoPayload, Pipeline, ReadPayload, SideInput, StateSpec, TestStreamPayload, TimerFamilySpec, state_spec,
};

use crate::build::*;
use crate::term::{Term, split};

pub(crate) struct Case {
    pub(crate) pipeline: Pipeline,
    pub(crate) capabilities: Capabilities,
}

pub(crate) fn parse(text: &str, folder: &std::path::Path) -> Case {
    let mut builder = Builder::default();
    let mut capabilities = Capabilities::default();
    let mut from_file = None;
    builder.environment("py", environment("external", &all_capabilities()));
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
        if let Some((name, definition)) = line.split_once(" = ") {
            transform(&mut builder, name.trim(), definition.trim());
            continue;
        }
        let words: Vec<&str> = split(line, ' ');
        match words[..] {
            ["file", name] => {
                let bytes = std::fs::read(folder.join(format!("../pipelines/{name}.pb"))).unwrap();
                from_file = Some(Pipeline::decode(&bytes[..]).unwrap());
            }
            ["requires", requirement] => builder.requirements.push(requirement.to_owned()),
            ["capability", id, urn] => {
                builder.components.environments.get_mut(id).unwrap().capabilities.push(urn.to_owned());
            }
            ["capabilities", "docker"] => capabilities = capabilities.with_docker(),
            ["environment", id, kind, ref rest @ ..] => builder.environment(id, declared_environment(id, kind, rest)),
            ["collection", id, ref options @ ..] => {
                let options = Options::parse(options);
                let coder = options.get("coder").map(str::to_owned).or(builder.coder_text(id)).unwrap_or("string".into());
                let strategy = options.get("windows").map(str::to_owned).or(builder.strategy_text(id)).unwrap_or("global".into());
                builder.collection(id, &coder, &strategy, options.has("unbounded"));
                if options.has("undecided") {
                    builder.components.pcollections.get_mut(id).unwrap().is_bounded = 0;
                }
            }
            ["composite", id, ref options @ ..] => {
                let options = Options::parse(options);
                let urn = options.get("urn").unwrap_or("test:composite");
                let composite = PTransform { unique_name: id.into(), spec: plain_spec(urn), ..Default::default() };
                place(&mut builder, id, composite, &options);
            }
            ["coder", id, kind, ref parts @ ..] => {
                let parts: Vec<String> = parts.iter().map(|&part| part.to_owned()).collect();
                builder.raw_coder(id, &format!("beam:coder:{kind}:v1"), &parts);
            }
            ["remove", what, id] => {
                let components = &mut builder.components;
                let removed = match what {
                    "coder" => components.coders.remove(id).is_some(),
                    "environment" => components.environments.remove(id).is_some(),
                    "collection" => components.pcollections.remove(id).is_some(),
                    "strategy" => components.windowing_strategies.remove(id).is_some(),
                    "transform" => components.transforms.remove(id).is_some(),
                    _ => panic!("cannot remove a {what}"),
                };
                assert!(removed, "there is no {what} {id}");
            }
            _ => panic!("not understood: {line}"),
        }
    }
    Case { pipeline: from_file.unwrap_or_else(|| builder.pipeline()), capabilities }
}

fn declared_environment(id: &str, kind: &str, rest: &[&str]) -> Environment {
    if kind == "anyof" {
        let environments = rest.iter().map(|kind| environment(kind, &all_capabilities())).collect();
        let payload = AnyOfEnvironmentPayload { environments }.encode_to_vec().into();
        return Environment { urn: model::urn::ENV_ANY_OF.to_owned(), payload, ..Default::default() };
    }
    let capabilities = match rest {
        ["all"] => all_capabilities(),
        names => names.iter().map(|name| format!("beam:coder:{name}:v1")).collect(),
    };
    // Told apart by their payload, as environments are.
    Environment { payload: id.as_bytes().to_vec().into(), ..environment(kind, &capabilities) }
}

struct Options<'a>(Vec<&'a str>);

impl<'a> Options<'a> {
    fn parse(words: &[&'a str]) -> Self {
        Options(words.to_vec())
    }

    fn get(&self, name: &str) -> Option<&'a str> {
        self.0.iter().find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
    }

    fn has(&self, name: &str) -> bool {
        self.0.contains(&name)
    }

    /// `name=[a,b:c]` as pairs; the second is empty where there is no colon.
    fn list(&self, name: &str) -> Vec<(String, String)> {
        let text = self.get(name).map_or("", |text| text.trim_matches(['[', ']']));
        let pair = |item: &str| {
            let (first, second) = item.split_once(':').unwrap_or((item, ""));
            (first.to_owned(), second.to_owned())
        };
        split(text, ',').into_iter().map(pair).collect()
    }
}

fn place(builder: &mut Builder, id: &str, transform: PTransform, options: &Options<'_>) {
    builder.transform(id, transform);
    match options.get("inside") {
        Some(outer) => builder.components.transforms.get_mut(outer).unwrap().subtransforms.push(id.to_owned()),
        None => builder.roots.push(id.to_owned()),
    }
}

fn transform(builder: &mut Builder, id: &str, definition: &str) {
    let words = split(definition, ' ');
    let call = Term::parse(words[0]);
    let options = Options::parse(&words[1..]);
    let mains: Vec<String> = call.parts.iter().map(|part| part.name.clone()).collect();
    let main = mains.first().map_or("", String::as_str);
    let input_coder = builder.coder_text(main).unwrap_or("string".into());

    let coder = options.get("coder").map_or_else(|| default_coder(&call.name, &input_coder), str::to_owned);
    let strategy = options.get("windows").map(str::to_owned).or(builder.strategy_text(main)).unwrap_or("global".into());
    let outs = match options.get("outs") {
        Some(_) => options.list("outs").into_iter().map(|(name, _)| name).collect(),
        None => vec![id.to_owned()],
    };
    for out in &outs {
        if !builder.components.pcollections.contains_key(out) {
            builder.collection(out, &coder, &strategy, options.has("unbounded"));
        }
    }

    let sides = options.list("sides");
    let mut inputs: std::collections::BTreeMap<String, String> = match &mains[..] {
        [only] => [("in".to_owned(), only.clone())].into(),
        many => many.iter().enumerate().map(|(index, main)| (format!("in{index}"), main.clone())).collect(),
    };
    inputs.extend(sides.iter().map(|(side, _)| (format!("side_{side}"), side.clone())));
    let message = PTransform {
        spec: specify(builder, &call.name, &options, &sides),
        inputs,
        outputs: tagged(&outs),
        unique_name: options.get("name").unwrap_or(id).to_owned(),
        environment_id: match options.get("env") {
            Some("none") => String::new(),
            Some(environment) => environment.to_owned(),
            None if ["impulse", "gbk", "flatten", "teststream"].contains(&call.name.as_str()) => String::new(),
            None => "py".to_owned(),
        },
        ..Default::default()
    };
    place(builder, id, message, &options);
}

/// `script=[HEX@10,HEX@20:tag,watermark(5):tag,time(1000)]`; every item of elements is a bundle of its own. `elements=CODER` is
/// what they were written with, `endpoint` takes them from a service.
fn test_stream(builder: &mut Builder, options: &Options<'_>) -> TestStreamPayload {
    let event = |(what, tag): (String, String)| {
        let event = match what.split_once('@') {
            Some((hex, time)) => {
                let byte = |at: usize| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).unwrap();
                let encoded_element: Vec<u8> = (0..hex.len() / 2).map(byte).collect();
                let element = TimestampedElement { encoded_element: encoded_element.into(), timestamp: time.parse().unwrap() };
                Event::ElementEvent(AddElements { elements: vec![element], tag })
            }
            None => {
                let term = Term::parse(&what);
                match (term.name.as_str(), term.parts[0].number()) {
                    ("watermark", new_watermark) => Event::WatermarkEvent(AdvanceWatermark { new_watermark, tag }),
                    ("time", advance_duration) => Event::ProcessingTimeEvent(AdvanceProcessingTime { advance_duration }),
                    (other, _) => panic!("unknown in a script: {other}"),
                }
            }
        };
        test_stream_payload::Event { event: Some(event) }
    };
    TestStreamPayload {
        coder_id: builder.coder(options.get("elements").unwrap_or("string")),
        events: options.list("script").into_iter().map(event).collect(),
        endpoint: options.get("endpoint").map(|url| ApiServiceDescriptor { url: url.to_owned(), ..Default::default() }),
    }
}

fn default_coder(kind: &str, input: &str) -> String {
    let term = Term::parse(input.split('#').next().unwrap());
    match kind {
        "impulse" => "bytes".into(),
        "flatten" | "window" | "reshuffle" | "redistribute" | "redistribute_by_key" | "noop" => input.into(),
        "gbk" if term.name == "kv" => format!("kv({},iterable({}))", show(&term.parts[0]), show(&term.parts[1])),
        "combine" if term.name == "kv" => format!("kv({},varint)", show(&term.parts[0])),
        _ => "string".into(),
    }
}

fn specify(builder: &mut Builder, kind: &str, options: &Options<'_>, sides: &[(String, String)]) -> Option<FunctionSpec> {
    let mut par_do = || {
        let pattern = |kind: &str| format!("beam:side_input:{}:v1", if kind.is_empty() { "iterable" } else { kind });
        let mut payload = ParDoPayload { do_fn: plain_spec("test:dofn"), ..Default::default() };
        for (side, kind) in sides {
            let side_input = SideInput { access_pattern: plain_spec(&pattern(kind)), ..Default::default() };
            payload.side_inputs.insert(format!("side_{side}"), side_input);
        }
        for (state, coder) in options.list("state") {
            let spec = state_spec::Spec::BagSpec(BagStateSpec { element_coder_id: builder.coder(&coder) });
            payload.state_specs.insert(state, StateSpec { protocol: None, spec: Some(spec) });
        }
        for (family, domain) in options.list("timers") {
            let time_domain = ["", "event", "processing"].iter().position(|name| *name == domain).unwrap() as i32;
            let timer_family_coder_id = builder.coder("timer(string,global)");
            payload.timer_family_specs.insert(family, TimerFamilySpec { time_domain, timer_family_coder_id });
        }
        payload.requires_stable_input = options.has("stable");
        payload.requires_time_sorted_input = options.has("sorted");
        payload.on_window_expiration_timer_family_spec = options.get("expires").unwrap_or("").to_owned();
        payload.restriction_coder_id = options.get("restriction").map(|coder| builder.coder(coder)).unwrap_or_default();
        payload
    };
    let urn = |name: &str| format!("beam:transform:{name}:v1");
    match kind {
        "impulse" | "flatten" => plain_spec(&urn(kind)),
        "teststream" => spec(&urn(kind), &test_stream(builder, options)),
        "gbk" => plain_spec(&urn("group_by_key")),
        "pardo" => spec(&urn("pardo"), &par_do()),
        "window" => plain_spec(&urn("window_into")),
        "reshuffle" | "redistribute_by_key" => plain_spec(&urn(kind)),
        "redistribute" => plain_spec(&urn("redistribute_arbitrarily")),
        "combine" => {
            let accumulator_coder_id = options.get("acc").map(|coder| builder.coder(coder)).unwrap_or_default();
            spec(&urn("combine_per_key"), &CombinePayload { combine_fn: plain_spec("test:combinefn"), accumulator_coder_id })
        }
        "read" => {
            let source = options.get("source").unwrap_or("beam:source:pickled_python:v1");
            spec(&urn("read"), &ReadPayload { source: plain_spec(source), is_bounded: 2 })
        }
        "garbage" => Some(FunctionSpec { urn: urn("pardo"), payload: vec![0xff; 3].into() }),
        "noop" => plain_spec("beam:transform:pickled_python:v1"),
        "transform" => plain_spec(options.get("urn").unwrap_or("")),
        other => panic!("unknown transform {other}"),
    }
}
