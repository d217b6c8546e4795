//! Damaged pipelines are refused, or planned correctly, but never end the process.

use plan::Capabilities;
use prost::Message;
use proto::pipeline::{Components, PTransform, ParDoPayload, Pipeline};

use crate::build::{Builder, plain_spec, tagged};
use crate::invariants;
use crate::random::{Random, seeds};

fn originals() -> Vec<Pipeline> {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    let mut files: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let text = |path| std::fs::read_to_string(path).unwrap();
    files.into_iter().map(|path| crate::language::parse(text(path).split("\n----\n").next().unwrap(), &folder).pipeline).collect()
}

/// Every map key and reference of a pipeline, to put one in another's place.
fn ids(components: &Components) -> Vec<String> {
    let Components { transforms, pcollections, windowing_strategies, coders, environments } = components;
    let keys = transforms.keys().chain(pcollections.keys()).chain(windowing_strategies.keys()).chain(coders.keys());
    keys.chain(environments.keys()).cloned().chain([String::new(), "nowhere".into()]).collect()
}

fn damage(random: &mut Random, components: &mut Components) {
    let ids = ids(components);
    let other = random.pick(&ids).clone();
    fn any<'m, V>(random: &mut Random, map: &'m mut std::collections::BTreeMap<String, V>) -> Option<&'m mut V> {
        let index = random.below(map.len().max(1));
        map.values_mut().nth(index)
    }
    fn remove<V>(random: &mut Random, map: &mut std::collections::BTreeMap<String, V>) {
        if let Some(key) = map.keys().nth(random.below(map.len().max(1))).cloned() {
            map.remove(&key);
        }
    }
    match random.below(16) {
        0 => remove(random, &mut components.transforms),
        1 => remove(random, &mut components.pcollections),
        2 => remove(random, &mut components.coders),
        3 => remove(random, &mut components.windowing_strategies),
        4 => remove(random, &mut components.environments),
        5 => any(random, &mut components.transforms).iter_mut().for_each(|transform| remove(random, &mut transform.inputs)),
        6 => any(random, &mut components.transforms).iter_mut().for_each(|transform| remove(random, &mut transform.outputs)),
        7 => any(random, &mut components.transforms).into_iter().for_each(|transform| {
            transform.inputs.insert(if random.below(2) == 0 { "in".into() } else { "more".into() }, other.clone());
        }),
        8 => any(random, &mut components.transforms).into_iter().for_each(|transform| {
            transform.outputs.insert(if random.below(2) == 0 { "out".into() } else { "more".into() }, other.clone());
        }),
        9 => {
            any(random, &mut components.transforms).into_iter().for_each(|transform| transform.subtransforms.push(other.clone()))
        }
        10 => any(random, &mut components.transforms).into_iter().for_each(|transform| transform.environment_id = other.clone()),
        11 => any(random, &mut components.transforms).into_iter().for_each(|transform| {
            let Some(spec) = &mut transform.spec else { return };
            let mut payload = spec.payload.to_vec();
            match random.below(3) {
                0 => payload.truncate(random.below(payload.len() + 1)),
                1 => payload.push(random.next() as u8),
                _ => {
                    let at = random.below(payload.len().max(1));
                    payload.iter_mut().skip(at).take(1).for_each(|byte| *byte = random.next() as u8);
                }
            }
            spec.payload = payload.into();
        }),
        12 => any(random, &mut components.coders).into_iter().for_each(|coder| match random.below(2) {
            0 => coder.component_coder_ids.push(other.clone()),
            _ => coder.component_coder_ids.iter_mut().take(1).for_each(|id| *id = other.clone()),
        }),
        13 => any(random, &mut components.pcollections).into_iter().for_each(|collection| match random.below(3) {
            0 => collection.coder_id = other.clone(),
            1 => collection.windowing_strategy_id = other.clone(),
            _ => collection.is_bounded = random.below(5) as i32 - 1,
        }),
        14 => any(random, &mut components.windowing_strategies).into_iter().for_each(|strategy| match random.below(4) {
            0 => strategy.window_coder_id = other.clone(),
            1 => strategy.merge_status = random.below(5) as i32,
            2 => strategy.environment_id = other.clone(),
            _ => strategy.window_fn = None,
        }),
        _ => {
            let urns: Vec<_> = components.transforms.values().filter_map(|transform| transform.spec.clone()).collect();
            if let (Some(transform), false) = (any(random, &mut components.transforms), urns.is_empty()) {
                transform.spec.get_or_insert_default().urn = random.pick(&urns).urn.clone();
            }
        }
    }
}

#[test]
fn damaged_pipelines_are_planned_or_refused() {
    let originals = originals();
    for seed in seeds(1500) {
        let mut random = Random(seed);
        let mut pipeline = random.pick(&originals).clone();
        for _ in 0..1 + random.below(4) {
            damage(&mut random, pipeline.components.as_mut().unwrap());
        }
        let outcome = std::panic::catch_unwind(|| match plan::plan(&pipeline, &Capabilities::default()) {
            Ok(plan) => {
                invariants::check(&plan);
                plan.explain().len()
            }
            Err(problems) => {
                assert!(!problems.list.is_empty());
                assert!(!problems.to_string().contains("this is a bug"), "{problems}");
                0
            }
        });
        assert!(outcome.is_ok(), "seed {seed}");
    }
}

#[test]
fn damaged_bytes_are_planned_or_refused() {
    let originals: Vec<Vec<u8>> = originals().iter().map(Message::encode_to_vec).collect();
    for seed in seeds(600) {
        let mut random = Random(seed);
        let mut bytes = random.pick(&originals).clone();
        for _ in 0..1 + random.below(3) {
            let at = random.below(bytes.len());
            bytes[at] = random.next() as u8;
        }
        let outcome = std::panic::catch_unwind(|| {
            if let Ok(pipeline) = Pipeline::decode(&bytes[..])
                && let Ok(plan) = plan::plan(&pipeline, &Capabilities::default())
            {
                invariants::check(&plan);
            }
        });
        assert!(outcome.is_ok(), "seed {seed}");
    }
}

fn one_impulse(builder: &mut Builder) {
    builder.environment("py", crate::build::environment("external", &crate::build::all_capabilities()));
    builder.collection("a", "bytes", "global", false);
    let outputs = tagged(&["a".to_owned()]);
    builder.transform(
        "a",
        PTransform { spec: plain_spec(model::urn::IMPULSE), outputs, unique_name: "a".into(), ..Default::default() },
    );
    builder.roots.push("a".into());
}

fn reader(builder: &mut Builder, coder: &str) {
    builder.collection("b", "bytes", "global", false);
    builder.components.pcollections.get_mut("b").unwrap().coder_id = coder.to_owned();
    let payload = ParDoPayload::default();
    let transform = PTransform {
        spec: crate::build::spec(model::urn::PAR_DO, &payload),
        inputs: [("in".to_owned(), "a".to_owned())].into(),
        outputs: tagged(&["b".to_owned()]),
        unique_name: "b".into(),
        environment_id: "py".into(),
        ..Default::default()
    };
    builder.transform("b", transform);
    builder.roots.push("b".into());
}

fn refusal(builder: Builder) -> String {
    plan::plan(&builder.pipeline(), &Capabilities::default()).unwrap_err().to_string()
}

#[test]
fn bottomless_coders_are_refused() {
    let mut builder = Builder::default();
    one_impulse(&mut builder);
    builder.coder("bytes");
    builder.raw_coder("c0", "beam:coder:bytes:v1", &[]);
    for level in 1..50_000 {
        builder.raw_coder(&format!("c{level}"), "beam:coder:iterable:v1", &[format!("c{}", level - 1)]);
    }
    reader(&mut builder, "c49999");
    assert!(refusal(builder).contains("nests deeper than"));
}

#[test]
fn coders_that_double_with_each_level_are_refused() {
    let mut builder = Builder::default();
    one_impulse(&mut builder);
    builder.raw_coder("c0", "beam:coder:bytes:v1", &[]);
    for level in 1..40 {
        let below = format!("c{}", level - 1);
        builder.raw_coder(&format!("c{level}"), "beam:coder:kv:v1", &[below.clone(), below]);
    }
    reader(&mut builder, "c39");
    assert!(refusal(builder).contains("consists of more than"));
}

#[test]
fn flattens_that_double_with_each_level_are_gathered() {
    let mut builder = Builder::default();
    one_impulse(&mut builder);
    let mut last = "a".to_owned();
    for level in 0..60 {
        let id = format!("f{level}");
        builder.collection(&id, "bytes", "global", false);
        let inputs = [("x".to_owned(), last.clone()), ("y".to_owned(), last.clone())].into();
        let outputs = tagged(std::slice::from_ref(&id));
        let flatten =
            PTransform { spec: plain_spec(model::urn::FLATTEN), inputs, outputs, unique_name: id.clone(), ..Default::default() };
        builder.transform(&id, flatten);
        builder.roots.push(id.clone());
        last = id;
    }
    builder.coder("bytes");
    reader(&mut builder, "bytes");
    builder.components.transforms.get_mut("b").unwrap().inputs = [("in".to_owned(), last)].into();
    let plan = plan::plan(&builder.pipeline(), &Capabilities::default()).unwrap();
    invariants::check(&plan);
    assert!(plan.stages.iter().map(|stage| stage.inputs.len()).sum::<usize>() < 20_000);
}

#[test]
fn a_pipeline_of_nothing_is_a_plan_of_nothing() {
    assert!(plan::plan(&Pipeline::default(), &Capabilities::default()).unwrap().stages.is_empty());
}

#[test]
fn composites_that_contain_themselves_end() {
    let mut builder = Builder::default();
    builder.roots.push("x".into());
    let transform = PTransform { subtransforms: vec!["x".into(), "x".into()], unique_name: "x".into(), ..Default::default() };
    builder.transform("x", transform);
    assert!(plan::plan(&builder.pipeline(), &Capabilities::default()).unwrap().stages.is_empty());
}
