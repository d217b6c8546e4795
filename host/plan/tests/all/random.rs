//! Random pipelines: every plan has the invariants, and as many elements arrive at every transform and side input as the
//! pipeline says, when each transform makes a number of elements of its own out of each.

use std::collections::BTreeMap;

use plan::{Capabilities, Input, Plan};
use proto::pipeline::{CombinePayload, Environment, FunctionSpec, PTransform, ParDoPayload, SideInput};

use crate::build::*;
use crate::invariants;

/// SplitMix64.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    pub(crate) fn pick<'t, T>(&mut self, from: &'t [T]) -> &'t T {
        &from[self.below(from.len())]
    }
}

/// The seeds of a test: the one in `PURLIN_SEED`, or some.
pub(crate) fn seeds(count: u64) -> Vec<u64> {
    match std::env::var("PURLIN_SEED") {
        Ok(seed) => vec![seed.parse().unwrap()],
        Err(_) => (0..count).collect(),
    }
}

const CODERS: [&str; 5] = ["string", "kv(string,varint)", "kv(string,varint)#2", "kv(odd,pickled)", "pickled"];
const ENVIRONMENTS: [&str; 5] = ["py", "py", "java", "wasm1", "wasm2"];

/// A pipeline together with what it does, counted.
struct Made {
    builder: Builder,
    /// Elements in each collection.
    counts: BTreeMap<String, u64>,
    /// Elements that each SDK transform is given.
    arrives: BTreeMap<String, u64>,
    collections: Vec<String>,
}

fn factor(id: &str, output: &str) -> u64 {
    let mix = id.bytes().chain(output.bytes()).fold(7u64, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
    2 + mix % 11
}

impl Made {
    fn new() -> Self {
        let mut builder = Builder::default();
        builder.environment("py", environment("external", &all_capabilities()));
        let java = Environment { payload: b"java".to_vec().into(), ..environment("external", &all_capabilities()[..6]) };
        builder.environment("java", java);
        for wasm in ["wasm1", "wasm2"] {
            let payload = wasm.as_bytes().to_vec().into();
            builder.environment(wasm, Environment { payload, ..environment("wasm", &all_capabilities()) });
        }
        Made { builder, counts: BTreeMap::new(), arrives: BTreeMap::new(), collections: Vec::new() }
    }

    fn add(
        &mut self,
        id: &str,
        spec: Option<FunctionSpec>,
        mains: &[String],
        sides: &[String],
        outs: &[(String, String, u64)],
        env: &str,
    ) {
        let mut inputs: BTreeMap<String, String> =
            mains.iter().enumerate().map(|(index, main)| (format!("in{index}"), main.clone())).collect();
        inputs.extend(sides.iter().enumerate().map(|(index, side)| (format!("side{index}"), side.clone())));
        for (out, coder, count) in outs {
            self.builder.collection(out, coder, "global", false);
            self.counts.insert(out.clone(), *count);
            self.collections.push(out.clone());
        }
        let names: Vec<String> = outs.iter().map(|(out, ..)| out.clone()).collect();
        let transform = PTransform {
            spec,
            inputs,
            outputs: tagged(&names),
            unique_name: id.to_owned(),
            environment_id: env.to_owned(),
            ..Default::default()
        };
        self.builder.transform(id, transform);
        self.builder.roots.push(id.to_owned());
    }

    fn coder(&self, collection: &str) -> String {
        self.builder.coder_text(collection).unwrap()
    }

    fn par_do(&mut self, random: &mut Random, id: &str, main: &str, coder: &str) -> String {
        let env = *random.pick(&ENVIRONMENTS);
        let mut sides = Vec::new();
        while random.below(4) == 0 {
            sides.push(random.pick(&self.collections).clone());
        }
        let mut payload = ParDoPayload { do_fn: plain_spec("test:dofn"), ..Default::default() };
        for index in 0..sides.len() {
            let side = SideInput { access_pattern: plain_spec(model::urn::SIDE_INPUT_ITERABLE), ..Default::default() };
            payload.side_inputs.insert(format!("side{index}"), side);
        }
        if random.below(6) == 0 {
            payload.restriction_coder_id = self.builder.coder("pickled");
        }
        payload.requires_stable_input = random.below(12) == 0;
        let given = self.counts[main];
        let outs: Vec<_> = (0..random.below(3).max(1))
            .map(|index| {
                let out = format!("{id}.{index}");
                let count = given.wrapping_mul(factor(id, &out));
                (out, coder.to_owned(), count)
            })
            .collect();
        self.arrives.insert(id.to_owned(), given);
        self.add(id, spec(model::urn::PAR_DO, &payload), &[main.to_owned()], &sides, &outs, env);
        outs[0].0.clone()
    }

    fn step(&mut self, random: &mut Random, step: usize) {
        let id = format!("t{step}");
        if step == 0 || random.below(12) == 0 {
            let out = format!("{id}.0");
            return self.add(&id, plain_spec(model::urn::IMPULSE), &[], &[], &[(out, "bytes".into(), 1)], "");
        }
        let main = random.pick(&self.collections).clone();
        let coder = self.coder(&main);
        let given = self.counts[&main];
        let out = format!("{id}.0");
        match random.below(10) {
            0 => {
                let keyed = self.keyed(random, &id, &main);
                let grouped = match self.coder(&keyed).as_str() {
                    "kv(odd,pickled)" => "kv(odd,iterable(pickled))",
                    _ => "kv(string,iterable(varint))",
                };
                let count = self.counts[&keyed];
                self.add(&id, plain_spec(model::urn::GROUP_BY_KEY), &[keyed], &[], &[(out, grouped.into(), count)], "");
            }
            1 => {
                let keyed = self.keyed(random, &id, &main);
                let (coder, count) = (self.coder(&keyed), self.counts[&keyed]);
                let accumulator_coder_id = if random.below(3) == 0 { String::new() } else { self.builder.coder("pickled") };
                let payload = CombinePayload { combine_fn: None, accumulator_coder_id };
                self.add(&id, spec(model::urn::COMBINE_PER_KEY, &payload), &[keyed], &[], &[(out, coder, count)], "py");
            }
            2 | 3 => {
                let inputs: Vec<String> = (0..random.below(4)).map(|_| random.pick(&self.collections).clone()).collect();
                let count = inputs.iter().map(|input| self.counts[input]).fold(0, u64::wrapping_add);
                let coder = inputs.first().map_or("string".to_owned(), |input| self.coder(input));
                self.add(&id, plain_spec(model::urn::FLATTEN), &inputs, &[], &[(out, coder, count)], "");
            }
            4 => {
                let urn = *random.pick(&[model::urn::RESHUFFLE, model::urn::REDISTRIBUTE_ARBITRARILY]);
                self.add(&id, plain_spec(urn), &[main], &[], &[(out, coder, given)], "");
            }
            _ => {
                let coder = *random.pick(&CODERS);
                self.par_do(random, &id, &main, coder);
            }
        }
    }

    fn keyed(&mut self, random: &mut Random, id: &str, main: &str) -> String {
        match self.coder(main).as_str() {
            coder if coder.starts_with("kv(") && !coder.contains("iterable") => main.to_owned(),
            _ => {
                let coder = *random.pick(&CODERS[1..4]);
                self.par_do(random, &format!("{id}k"), main, coder)
            }
        }
    }
}

#[test]
fn random_pipelines_deliver_every_element() {
    let all = seeds(400);
    let (count, mut planned) = (all.len(), 0);
    for seed in all {
        let mut random = Random(seed);
        let mut made = Made::new();
        for step in 0..4 + random.below(26) {
            made.step(&mut random, step);
        }
        let Made { builder, counts, arrives, .. } = made;
        let pipeline = builder.pipeline();
        match plan::plan(&pipeline, &Capabilities::default()) {
            Ok(plan) => {
                let outcome = std::panic::catch_unwind(|| {
                    invariants::check(&plan);
                    count_arrivals(&plan, &counts, &arrives);
                });
                assert!(outcome.is_ok(), "seed {seed}\n{}", plan.explain());
                planned += 1;
            }
            // The only thing that such a pipeline can do wrong.
            Err(problems) => {
                assert!(
                    problems.list.iter().all(|problem| problem.what.contains("no SDK there converts it")),
                    "seed {seed}: {problems}"
                );
            }
        }
    }
    assert!(count == 1 || planned * 2 > count, "only {planned} of {count} pipelines were planned");
}

fn count_arrivals(plan: &Plan, counts: &BTreeMap<String, u64>, arrives: &BTreeMap<String, u64>) {
    let mut sinks: BTreeMap<(u32, u32), u64> = BTreeMap::new();
    let mut arrived: BTreeMap<String, u64> = BTreeMap::new();
    for stage in &plan.stages {
        let mut given = 0u64;
        for (index, input) in stage.inputs.iter().enumerate() {
            given = given.wrapping_add(match input {
                Input::Impulse | Input::Script { .. } => 1,
                Input::Stage { stage: from, .. } => {
                    let is_mine = |reader: &plan::Reader| {
                        matches!(reader, plan::Reader::Main { stage: to, input, .. } if *to == stage.id && *input == index as u32)
                    };
                    let from = &plan.stages[from.0 as usize];
                    let sink = from.sinks.iter().position(|sink| sink.readers.iter().any(is_mine)).unwrap();
                    sinks[&(from.id.0, sink as u32)]
                }
            });
        }
        for side in &stage.side_inputs {
            let sum = side.producers.iter().map(|(stage, sink)| sinks[&(stage.0, *sink)]).fold(0, u64::wrapping_add);
            assert_eq!(sum, counts[&side.collection], "side input {} of {}", side.tag, side.transform);
        }
        let mut values = BTreeMap::new();
        if let Some(body) = &stage.body {
            values.insert(body.source_collection.clone(), given);
            for transform in &body.transforms {
                let given = values[&transform.input];
                let origin = plan.origins.transforms.get(transform.id.as_str()).map_or(transform.id.as_str(), String::as_str);
                let is_last = arrives.contains_key(origin) && !plan.origins.collections.contains(&transform.outputs[0].1);
                if is_last {
                    arrived.insert(origin.to_owned(), given);
                }
                for (_, output) in &transform.outputs {
                    values.insert(output.clone(), given.wrapping_mul(if is_last { factor(origin, output) } else { 1 }));
                }
            }
        }
        for (index, sink) in stage.sinks.iter().enumerate() {
            sinks.insert((stage.id.0, index as u32), values.get(&sink.collection).copied().unwrap_or(given));
        }
    }
    assert_eq!(&arrived, arrives);
}
