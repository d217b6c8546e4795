//! What is true of every plan.

use std::collections::{BTreeMap, BTreeSet};

use model::{Coder, StageId, urn};
use plan::{Body, Head, Input, Plan, Reader, Routing, SideInput, Sink, Stage};
use prost::Message;
use proto::fnapi::{ProcessBundleDescriptor, RemoteGrpcPort};
use proto::pipeline::{Coder as CoderMessage, CombinePayload, ParDoPayload};

pub(crate) fn check(plan: &Plan) {
    check_scripts(plan);
    let mut placed = BTreeSet::new();
    for (index, stage) in plan.stages.iter().enumerate() {
        assert_eq!(stage.id.0 as usize, index);
        check_inputs(plan, stage);
        check_side_inputs(plan, stage);
        for sink in &stage.sinks {
            check_readers(plan, stage, sink);
        }
        match &stage.body {
            Some(body) => {
                assert!((body.environment.0 as usize) < plan.environments.len());
                check_body(stage, body);
                check_keyed(stage, body);
                for transform in &body.transforms {
                    assert!(placed.insert(transform.id.clone()), "{} is in two stages", transform.id);
                }
            }
            None => assert_eq!(stage.sinks.len(), 1, "stage {index} has no body and not exactly one sink"),
        }
    }
}

fn sink_of(plan: &Plan, stage: StageId) -> &[Sink] {
    &plan.stages[stage.0 as usize].sinks
}

/// The transform that asks for keys is the first, and the only one that reads what arrives.
fn check_keyed(stage: &Stage, body: &Body) {
    let Head::Keyed(keyed) = &stage.head else {
        return assert!(body.timer_families.is_empty(), "stage {} has timers and is not keyed", stage.id.0);
    };
    let readers = body.transforms.iter().filter(|transform| transform.input == body.source_collection);
    assert_eq!(readers.map(|reader| &reader.id).collect::<Vec<_>>(), [&body.transforms[0].id]);
    assert_ne!(keyed.windowing.merging, model::windowing::Merging::NeedsMerge);
    assert_eq!(keyed.timer_families.len(), body.timer_families.len());
    assert!(keyed.expiration_family.is_none_or(|family| family < keyed.timer_families.len()));
    let Coder::Kv(key, _) = &stage.input_coder else { panic!("stage {} is keyed and has no keys", stage.id.0) };
    for (family, domain) in body.timer_families.iter().zip(&keyed.timer_families) {
        assert_eq!(family.transform, body.transforms[0].id);
        assert_eq!(family.key_coder, **key);
        assert_eq!(family.window_coder, stage.input_windows);
        assert_eq!(family.event_time, *domain == model::TimeDomain::Event);
    }
}

/// Scripts and their stages belong to each other.
fn check_scripts(plan: &Plan) {
    let mut fed = BTreeSet::new();
    for stage in plan.stages.iter().filter(|stage| stage.head == Head::Script) {
        let [Input::Script { script, output }] = stage.inputs[..] else { panic!("stage {} has no script", stage.id.0) };
        assert!(stage.body.is_none() && fed.insert((script, output)));
        assert_eq!(stage.input_coder, stage.sinks[0].coder);
        for event in &plan.scripts[script as usize].events {
            let plan::ScriptEvent::Elements { output: to, batch } = event else { continue };
            for row in batch.iter().filter(|_| *to == output) {
                let mut reader = model::Reader::new(row.value);
                stage.input_coder.skip(&mut reader).unwrap();
                assert_eq!(reader.position(), row.value.len());
            }
        }
    }
    assert_eq!(fed.len(), plan.scripts.iter().map(|script| script.outputs.len()).sum::<usize>());
}

/// Every input has exactly one reader entry at its producer, which comes before.
fn check_inputs(plan: &Plan, stage: &Stage) {
    for (index, input) in stage.inputs.iter().enumerate() {
        let Input::Stage { stage: producer, local } = input else { continue };
        assert!(producer.0 < stage.id.0, "stage {} reads from stage {}", stage.id.0, producer.0);
        let readers = sink_of(plan, *producer).iter().flat_map(|sink| &sink.readers);
        let mine: Vec<_> = readers
            .filter_map(|reader| match reader {
                Reader::Main { stage: to, input, routing } if *to == stage.id && *input == index as u32 => Some(*routing),
                _ => None,
            })
            .collect();
        assert_eq!(mine.len(), 1, "input {index} of stage {} has {} producers", stage.id.0, mine.len());
        assert_eq!(mine[0] == Routing::Local, *local);
    }
}

fn check_readers(plan: &Plan, from: &Stage, sink: &Sink) {
    assert!(!sink.readers.is_empty(), "nobody reads {} of stage {}", sink.collection, from.id.0);
    assert!(sink.readers.iter().filter(|reader| **reader == Reader::Side).count() <= 1);
    for reader in &sink.readers {
        let Reader::Main { stage, input, routing } = reader else { continue };
        let to = &plan.stages[stage.0 as usize];
        assert!(matches!(to.inputs[*input as usize], Input::Stage { stage, .. } if stage == from.id));
        assert_eq!(to.input_coder, sink.coder, "{} changes its coder on the way to stage {}", sink.collection, stage.0);
        assert_eq!(to.input_windows, sink.windows);
        if *routing == Routing::ByKey {
            assert!(matches!(sink.coder, Coder::Kv(..)), "{} has no keys to route by", sink.collection);
        }
        match to.head {
            Head::Grouping(_) => assert_eq!(*routing, Routing::ByKey),
            Head::Restrictions { .. } => assert_eq!(*routing, Routing::RoundRobin),
            Head::Keyed(_) => assert_eq!(*routing, Routing::ByKey),
            Head::Script => panic!("stage {} is fed by its script only", stage.0),
            Head::Plain => {}
        }
    }
}

fn check_side_inputs(plan: &Plan, stage: &Stage) {
    for side in &stage.side_inputs {
        let distinct: BTreeSet<_> = side.producers.iter().collect();
        assert_eq!(distinct.len(), side.producers.len());
        for (producer, sink) in &side.producers {
            assert!(producer.0 < stage.id.0);
            let sink = &sink_of(plan, *producer)[*sink as usize];
            assert!(sink.readers.contains(&Reader::Side));
            assert_eq!(sink.coder, side.coder);
        }
        let body = stage.body.as_ref().expect("side inputs are read by transforms");
        assert!(body.transforms.iter().any(|transform| transform.id == side.transform));
    }
}

/// One source, transforms in order, and a descriptor that is complete in itself.
fn check_body(stage: &Stage, body: &Body) {
    let mut available = BTreeSet::from([body.source_collection.clone()]);
    for transform in &body.transforms {
        assert!(available.contains(&transform.input), "{} runs before its input is there", transform.id);
        available.extend(transform.outputs.iter().map(|(_, collection)| collection.clone()));
    }
    for sink in &stage.sinks {
        assert!(available.contains(&sink.collection));
    }
    if matches!(stage.head, Head::Restrictions { .. }) {
        let heads: Vec<_> = body.transforms.iter().filter(|transform| transform.input == body.source_collection).collect();
        assert!(matches!(heads[..], [only] if only.urn == urn::SDF_PROCESS));
    }
    if let Head::Grouping(_) = stage.head {
        let (Coder::Kv(key, value), Coder::Kv(source_key, groups)) = (&stage.input_coder, &body.source_coder) else {
            panic!("a grouping of {:?}", stage.input_coder);
        };
        assert_eq!((source_key, &**groups), (key, &Coder::Iterable(value.clone())));
    } else {
        assert_eq!(stage.input_coder, body.source_coder);
    }
    check_descriptor(&stage.side_inputs, &stage.sinks, body);
    let asides = stage.merging.iter().map(|merging| (&merging.aside, &[][..]));
    for (aside, sides) in asides.chain(stage.truncation.iter().map(|aside| (aside, &stage.side_inputs[..]))) {
        check_descriptor(sides, std::slice::from_ref(&aside.sink), &aside.body);
    }
}

fn check_descriptor(sides: &[SideInput], sinks: &[Sink], body: &Body) {
    let descriptor = ProcessBundleDescriptor::decode(body.descriptor.clone()).unwrap();
    let ids: BTreeSet<String> = body.transforms.iter().map(|transform| transform.id.to_string()).collect();
    let ports = sinks.iter().map(|sink| sink.transform.to_string());
    let all: BTreeSet<String> = ids.iter().cloned().chain(ports).chain([body.source.to_string()]).collect();
    assert_eq!(descriptor.transforms.keys().cloned().collect::<BTreeSet<_>>(), all);
    for (id, transform) in &descriptor.transforms {
        for collection in transform.inputs.values().chain(transform.outputs.values()) {
            assert!(descriptor.pcollections.contains_key(collection), "{id} refers to {collection}");
        }
        if ids.contains(id) {
            assert!(descriptor.environments.contains_key(&transform.environment_id));
        }
        let spec = transform.spec.clone().unwrap();
        if let Ok(payload) = ParDoPayload::decode(spec.payload.clone())
            && spec.urn == urn::PAR_DO
        {
            for timer in payload.timer_family_specs.values() {
                has_coder(&descriptor.coders, &timer.timer_family_coder_id);
            }
        }
        if spec.urn.starts_with("beam:transform:combine_") {
            let payload = CombinePayload::decode(spec.payload).unwrap();
            if !payload.accumulator_coder_id.is_empty() {
                has_coder(&descriptor.coders, &payload.accumulator_coder_id);
            }
        }
    }
    for collection in descriptor.pcollections.values() {
        has_coder(&descriptor.coders, &collection.coder_id);
        let strategy = &descriptor.windowing_strategies[&collection.windowing_strategy_id];
        has_coder(&descriptor.coders, &strategy.window_coder_id);
    }
    let port = |transform: &str, collection: &str, wire: &Coder| {
        let transform = &descriptor.transforms[transform];
        let coder_id = RemoteGrpcPort::decode(transform.spec.clone().unwrap().payload).unwrap().coder_id;
        let windowed = &descriptor.coders[&coder_id];
        assert_eq!(windowed.spec.clone().unwrap().urn, "beam:coder:windowed_value:v1");
        has_coder(&descriptor.coders, &coder_id);
        // The host's view, the port and the SDK's view of the collection agree.
        assert_eq!(windowed.component_coder_ids[0], descriptor.pcollections[collection].coder_id);
        same(&descriptor.coders, &windowed.component_coder_ids[0], wire);
    };
    port(body.source.as_str(), &body.source_collection, &body.source_coder);
    for sink in sinks {
        port(sink.transform.as_str(), &sink.collection, &sink.coder);
    }
    for side in sides {
        same(&descriptor.coders, &descriptor.pcollections[&side.collection].coder_id, &side.coder);
    }
}

fn has_coder(coders: &BTreeMap<String, CoderMessage>, id: &str) {
    let mut open = vec![id];
    let mut seen = BTreeSet::new();
    while let Some(id) = open.pop() {
        let coder = coders.get(id).unwrap_or_else(|| panic!("coder {id} is missing"));
        if seen.insert(id) {
            open.extend(coder.component_coder_ids.iter().map(String::as_str));
        }
    }
}

/// Whether a coder of the descriptor is what the host takes it for.
fn same(coders: &BTreeMap<String, CoderMessage>, id: &str, host: &Coder) {
    let coder = &coders[id];
    let urn = coder.spec.clone().unwrap().urn;
    let parts: Vec<(&String, &Coder)> = match host {
        Coder::Kv(key, value) => coder.component_coder_ids.iter().zip([&**key, &**value]).collect(),
        Coder::Iterable(element) | Coder::Nullable(element) => coder.component_coder_ids.iter().zip([&**element]).collect(),
        _ => Vec::new(),
    };
    let name = match host {
        Coder::Bytes => "bytes",
        Coder::StringUtf8 => "string_utf8",
        Coder::Bool => "bool",
        Coder::VarInt => "varint",
        Coder::Double => "double",
        Coder::Kv(..) => "kv",
        Coder::Iterable(_) => "iterable",
        Coder::LengthPrefix(_) => "length_prefix",
        Coder::Nullable(_) => "nullable",
        _ => return,
    };
    assert_eq!(urn, format!("beam:coder:{name}:v1"));
    parts.into_iter().for_each(|(id, host)| same(coders, id, host));
}
