//! What goes into descriptors beyond what holds for all of them: the coders of state and timers, and origins.

use plan::Plan;
use prost::Message;
use proto::fnapi::ProcessBundleDescriptor;
use proto::pipeline::{ParDoPayload, state_spec};

fn plan(text: &str) -> Plan {
    let case = crate::language::parse(text, std::path::Path::new("."));
    plan::plan(&case.pipeline, &case.capabilities).unwrap_or_else(|problems| panic!("{problems}"))
}

fn descriptor(plan: &Plan, stage: usize) -> ProcessBundleDescriptor {
    ProcessBundleDescriptor::decode(plan.stages[stage].body.as_ref().unwrap().descriptor.clone()).unwrap()
}

/// A coder in short: `kv(length_prefix(odd),varint)`.
fn show(descriptor: &ProcessBundleDescriptor, id: &str) -> String {
    let coder = &descriptor.coders[id];
    let urn = coder.spec.clone().unwrap().urn;
    let name = urn.trim_end_matches(":v1").rsplit(':').next().unwrap();
    let parts: Vec<String> = coder.component_coder_ids.iter().map(|id| show(descriptor, id)).collect();
    if parts.is_empty() { name.to_owned() } else { format!("{name}({})", parts.join(",")) }
}

#[test]
fn state_and_timers_have_wire_coders_and_the_key_of_the_input() {
    let plan = plan(
        "\
         a = impulse\n\
         b = pardo(a) coder=kv(odd,string) windows=fixed(1000)\n\
         c = pardo(b) state=[bag:odd,count:varint] timers=[end:event,tick:processing]",
    );
    let descriptor = descriptor(&plan, 1);
    let payload = ParDoPayload::decode(descriptor.transforms["c"].spec.clone().unwrap().payload).unwrap();
    let bag = |name: &str| match &payload.state_specs[name].spec {
        Some(state_spec::Spec::BagSpec(bag)) => show(&descriptor, &bag.element_coder_id),
        _ => panic!("not a bag"),
    };
    assert_eq!((bag("bag").as_str(), bag("count").as_str()), ("length_prefix(odd)", "varint"));
    for family in payload.timer_family_specs.values() {
        assert_eq!(show(&descriptor, &family.timer_family_coder_id), "timer(length_prefix(odd),interval_window)");
    }
    assert_eq!(show(&descriptor, &descriptor.pcollections["b"].coder_id), "kv(length_prefix(odd),string_utf8)");
}

#[test]
fn collections_inside_a_stage_keep_their_coders() {
    let plan = plan("a = impulse\nb = pardo(a) coder=odd\nc = pardo(b) coder=odd\nd = reshuffle(c)\ne = pardo(d) outs=[]");
    let descriptor = descriptor(&plan, 0);
    assert_eq!(show(&descriptor, &descriptor.pcollections["b"].coder_id), "odd");
    assert_eq!(show(&descriptor, &descriptor.pcollections["c"].coder_id), "length_prefix(odd)");
}

#[test]
fn custom_windows_are_opaque_behind_their_last_timestamp() {
    let plan = plan("a = impulse\nb = pardo(a) coder=kv(string,varint) windows=custom\nc = gbk(b)\nd = pardo(c) outs=[]");
    let descriptor = descriptor(&plan, 0);
    let port = |id: &str| {
        let payload = descriptor.transforms[id].spec.clone().unwrap().payload;
        show(&descriptor, &proto::fnapi::RemoteGrpcPort::decode(payload).unwrap().coder_id)
    };
    assert_eq!(port("stage0/source"), "windowed_value(bytes,global_window)");
    assert_eq!(port("stage0/sink0"), "windowed_value(kv(string_utf8,varint),custom_window(length_prefix(windows)))");
}

#[test]
fn made_up_transforms_have_origins() {
    let plan =
        plan("a = impulse\nb = pardo(a) restriction=odd name=Read/Text coder=kv(string,varint)\nc = combine(b) acc=odd name=Sum");
    let origin = |id: &str| plan.origins.transforms[id].clone();
    assert_eq!((origin("b/Process"), origin("c/Merge")), ("b".to_owned(), "c".to_owned()));
    assert_eq!(plan.origins.names["b"], "Read/Text");
    for collection in ["b/PairWithRestriction.out", "b/SplitAndSizeRestriction.out", "c/Precombine.out"] {
        assert!(plan.origins.collections.contains(collection));
    }
}

#[test]
fn equal_environments_are_one_and_resource_hints_count() {
    let text =
        "environment x external all\nenvironment y external all\na = impulse\nb = pardo(a) env=x\nc = pardo(b) env=y outs=[]";
    let mut case = crate::language::parse(text, std::path::Path::new("."));
    let environments = &mut case.pipeline.components.as_mut().unwrap().environments;
    let same = environments["x"].clone();
    environments.insert("y".into(), same);
    let planned = plan::plan(&case.pipeline, &case.capabilities).unwrap();
    assert_eq!((planned.environments.len(), planned.stages.len()), (1, 1));

    let environments = &mut case.pipeline.components.as_mut().unwrap().environments;
    let hints = &mut environments.get_mut("y").unwrap().resource_hints;
    hints.insert("beam:resources:min_ram_bytes:v1".into(), b"1".to_vec().into());
    let planned = plan::plan(&case.pipeline, &case.capabilities).unwrap();
    assert_eq!((planned.environments.len(), planned.stages.len()), (2, 2));
}
