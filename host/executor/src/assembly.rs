//! From a plan to what engine and workers want to know of it. No decisions are made here.

use std::sync::Arc;

use engine::{GateMapping, SideGate, StageShape, Topology, Upstream};
use model::windowing::WindowFn;
use model::{ShardId, StageId};
use plan::{Head, Input, Plan, Reader, SideInput, Stage, WindowMapping};
use worker::{Delivery, PortSpec, Routing, SinkSpec, StageSpec, TimerFamily, TransformSpec};

/// The engine's view of all stages, from one shard.
pub fn topology(plan: &Plan, shards: u32, shard: ShardId) -> Topology {
    Topology { shards, shard, stages: plan.stages.iter().map(shape).collect() }
}

/// Grouping stages that may wait for all of their input: it is bounded, and their trigger counts elements.
pub fn gathering(plan: &Plan) -> Vec<StageId> {
    let mut unbounded = vec![false; plan.stages.len()];
    for (index, stage) in plan.stages.iter().enumerate() {
        let from = |input: &Input| matches!(input, Input::Stage { stage, .. } if unbounded[stage.0 as usize]);
        let endless = matches!(stage.head, Head::Restrictions { unbounded: true } | Head::Script);
        unbounded[index] = endless || stage.inputs.iter().any(from);
    }
    let counts = |head: &Head| matches!(head, Head::Grouping(strategy) if strategy.trigger.counts_elements());
    let stages = plan.stages.iter().filter(|stage| !unbounded[stage.id.0 as usize] && counts(&stage.head));
    stages.map(|stage| stage.id).collect()
}

fn shape(stage: &Stage) -> StageShape {
    let upstream = |input: &Input| match input {
        Input::Impulse | Input::Script { .. } => None,
        Input::Stage { stage, local } => Some(Upstream { stage: *stage, local: *local }),
    };
    StageShape {
        name: stage.name.clone(),
        head: match &stage.head {
            Head::Plain => engine::Head::Plain,
            Head::Grouping(strategy) => engine::Head::Grouping(strategy.clone()),
            Head::Restrictions { unbounded } => engine::Head::Restrictions { unbounded: *unbounded },
            Head::Keyed(keyed) => engine::Head::Keyed(keyed.clone()),
            Head::Script => engine::Head::Script,
        },
        inputs: stage.inputs.iter().filter_map(upstream).collect(),
        timer_names: stage.body.iter().flat_map(|body| &body.timer_families).map(|family| family.family.clone()).collect(),
        gates: stage.side_inputs.iter().map(|side| gate(side, stage)).collect(),
        input_coder: stage.input_coder.clone(),
        window_coder: stage.input_windows,
    }
}

fn gate(side: &SideInput, reader: &Stage) -> SideGate {
    let mapping = match (&side.mapping, &side.windowing.window_fn) {
        (WindowMapping::ToGlobal, _) | (_, WindowFn::Global) => GateMapping::Global,
        (WindowMapping::ByEnd, WindowFn::Fixed { size, offset }) => GateMapping::Fixed { size: *size, offset: *offset },
        (WindowMapping::ByEnd, WindowFn::Sliding { size, period, offset }) => {
            GateMapping::Sliding { size: *size, period: *period, offset: *offset }
        }
        _ => GateMapping::Same,
    };
    let mut transforms = reader.body.iter().flat_map(|body| &body.transforms);
    let transform = transforms.find(|transform| transform.id == side.transform).map(|transform| transform.name.as_str());
    SideGate {
        name: format!("\"{}\" of \"{}\"", side.tag, transform.unwrap_or(side.transform.as_str())),
        producers: side.producers.iter().map(|(stage, _)| *stage).collect(),
        mapping,
    }
}

/// The workers' view of one stage.
pub fn stage_spec(plan: &Plan, id: StageId) -> Arc<StageSpec> {
    let stage = &plan.stages[id.0 as usize];
    let sinks = stage.sinks.iter().enumerate().map(|(index, sink)| SinkSpec {
        port: port(sink),
        deliveries: sink.readers.iter().map(|reader| delivery(plan, id, index as u32, reader)).collect(),
    });
    let mut spec = StageSpec {
        stage: id,
        name: stage.name.clone(),
        environment: model::EnvironmentId(0),
        transforms: Vec::new(),
        descriptor: bytes::Bytes::new(),
        source: PortSpec {
            transform: "".into(),
            collection: String::new(),
            coder: stage.input_coder.clone(),
            window_coder: stage.input_windows,
        },
        sinks: sinks.collect(),
        timer_families: Vec::new(),
        splittable: matches!(stage.head, Head::Restrictions { .. }),
    };
    if let Some(body) = &stage.body {
        set_body(&mut spec, body);
    }
    Arc::new(spec)
}

/// The workers' view of what is asked on the side of a stage; no stage has two of them. Their numbers are behind those of the plan.
pub fn aside_spec(plan: &Plan, id: StageId, aside: &plan::Aside) -> Arc<StageSpec> {
    let stage = &plan.stages[id.0 as usize];
    let mut spec = (*stage_spec(plan, id)).clone();
    spec.stage = StageId(plan.stages.len() as u32 + id.0);
    spec.name = format!("{} of {}", aside.body.transforms.first().map_or("aside", |transform| &transform.urn), stage.name);
    spec.splittable = false;
    let answer = Delivery { stage: spec.stage, input: 0, routing: Routing::Local, per_window: false };
    spec.sinks = vec![SinkSpec { port: port(&aside.sink), deliveries: vec![answer] }];
    set_body(&mut spec, &aside.body);
    Arc::new(spec)
}

fn port(sink: &plan::Sink) -> PortSpec {
    PortSpec {
        transform: sink.transform.clone(),
        collection: sink.collection.clone(),
        coder: sink.coder.clone(),
        window_coder: sink.windows,
    }
}

fn set_body(spec: &mut StageSpec, body: &plan::Body) {
    spec.environment = body.environment;
    spec.transforms = body.transforms.iter().map(transform).collect();
    spec.descriptor = body.descriptor.clone();
    spec.source = PortSpec {
        transform: body.source.clone(),
        collection: body.source_collection.clone(),
        coder: body.source_coder.clone(),
        window_coder: body.source_windows,
    };
    spec.timer_families = body.timer_families.iter().map(timer_family).collect();
}

fn delivery(plan: &Plan, producer: StageId, sink: u32, reader: &Reader) -> Delivery {
    match reader {
        Reader::Side => Delivery { stage: producer, input: sink, routing: Routing::Broadcast, per_window: false },
        Reader::Main { stage, input, routing } => Delivery {
            stage: *stage,
            input: *input,
            routing: match routing {
                plan::Routing::Local => Routing::Local,
                plan::Routing::ByKey => Routing::ByKey,
                plan::Routing::RoundRobin => Routing::RoundRobin,
            },
            per_window: !plan.stages[stage.0 as usize].side_inputs.is_empty(),
        },
    }
}

fn transform(transform: &plan::Transform) -> TransformSpec {
    TransformSpec {
        id: transform.id.clone(),
        name: transform.name.clone(),
        environment: transform.environment,
        urn: transform.urn.clone(),
        dofn_urn: transform.dofn_urn.clone(),
        dofn_payload: transform.dofn_payload.clone(),
        input: transform.input.clone(),
        outputs: transform.outputs.clone(),
    }
}

fn timer_family(family: &plan::TimerFamily) -> TimerFamily {
    TimerFamily {
        transform: family.transform.clone(),
        family: family.family.clone(),
        event_time: family.event_time,
        key_coder: family.key_coder.clone(),
        window_coder: family.window_coder,
    }
}
