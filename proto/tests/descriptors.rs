//! Our `.proto` files say what Beam's say: compared message by message with a listing of Beam 2.77.0.
//!
//! `beam-2.77.0.txt` was written by `tools/dump_descriptors.py`, which also documents its format. What Beam has and
//! we do not is named in `LEFT_OUT`, so that a new release's additions are noticed.

#![allow(clippy::unwrap_used, reason = "a test that cannot read its files has failed")]

use std::collections::BTreeMap;
use std::path::Path;

use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{DescriptorProto, EnumDescriptorProto, FieldDescriptorProto, FileDescriptorProto, ServiceDescriptorProto};

const BEAM: &str = include_str!("beam-2.77.0.txt");
const MODEL: &str = "org.apache.beam.model.";

/// Parts of Beam's listing that Purlin has no use for, without the common prefix; each with all that is nested in it.
const LEFT_OUT: &[&str] = &[
    // Enums that exist to carry URNs in options; `model::urn` has the URNs that the host tells apart.
    "fn_execution.v1.FnApiTransforms",
    "pipeline.v1.Annotations",
    "pipeline.v1.BeamConstants",
    "pipeline.v1.ExpansionMethods",
    "pipeline.v1.FixedWindowsPayload.Enum",
    "pipeline.v1.GlobalWindowsPayload.Enum",
    "pipeline.v1.LogicalTypes",
    "pipeline.v1.ManagedTransforms",
    "pipeline.v1.MonitoringInfo.MonitoringInfoLabels",
    "pipeline.v1.MonitoringInfoLabelProps",
    "pipeline.v1.MonitoringInfoSpec",
    "pipeline.v1.MonitoringInfoSpecs",
    "pipeline.v1.MonitoringInfoTypeUrns",
    "pipeline.v1.Annotation",
    "pipeline.v1.SessionWindowsPayload.Enum",
    "pipeline.v1.SlidingWindowsPayload.Enum",
    "pipeline.v1.StandardArtifacts",
    "pipeline.v1.StandardCoders",
    "pipeline.v1.StandardDisplayData",
    "pipeline.v1.StandardEnvironments",
    "pipeline.v1.StandardPTransforms",
    "pipeline.v1.StandardProtocols",
    "pipeline.v1.StandardRequirements",
    "pipeline.v1.StandardResourceHints",
    "pipeline.v1.StandardRunnerProtocols",
    "pipeline.v1.StandardSideInputTypes",
    "pipeline.v1.StandardUserStateTypes",
    // The artifact services that clients used before artifacts had types and roles.
    "job_management.v1.ArtifactChunk",
    "job_management.v1.ArtifactMetadata",
    "job_management.v1.CommitManifestRequest",
    "job_management.v1.CommitManifestResponse",
    "job_management.v1.GetManifestRequest",
    "job_management.v1.GetManifestResponse",
    "job_management.v1.LegacyArtifactRetrievalService",
    "job_management.v1.LegacyArtifactStagingService",
    "job_management.v1.LegacyGetArtifactRequest",
    "job_management.v1.Manifest",
    "job_management.v1.ProxyManifest",
    "job_management.v1.PutArtifactMetadata",
    "job_management.v1.PutArtifactRequest",
    "job_management.v1.PutArtifactResponse",
    // Expansion of transforms of other languages happens before a pipeline reaches the runner.
    "expansion.v1",
    "pipeline.v1.BuilderMethod",
    "pipeline.v1.ExternalConfigurationPayload",
    "pipeline.v1.JavaClassLookupPayload",
    "pipeline.v1.SchemaTransformPayload",
    // Interactive notebooks replaying recorded streams.
    "interactive.v1",
    // Payloads of transforms and display data that stay opaque, and messages internal to Beam's own runners.
    "pipeline.v1.ExecutableStagePayload",
    "pipeline.v1.LabelledPayload",
    "pipeline.v1.MessageWithComponents",
    "pipeline.v1.PubSubReadPayload",
    "pipeline.v1.PubSubWritePayload",
    "pipeline.v1.WriteFilesPayload",
];

/// Kind and full name to lines, as `message a.b.C` to `1 field single string`.
type Listing = BTreeMap<String, Vec<String>>;

#[test]
fn our_messages_are_beams() {
    let (ours, beams) = (our_listing(), parse(BEAM));
    let mut differences = Vec::new();
    for (heading, lines) in &ours {
        match beams.get(heading) {
            None => differences.push(format!("{heading}: Beam has no such thing")),
            Some(expected) => compare(heading, lines, expected, &mut differences),
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

#[test]
fn whatever_beam_has_is_ours_or_left_out() {
    let (ours, beams) = (our_listing(), parse(BEAM));
    let missing: Vec<&str> = beams.keys().filter(|heading| !ours.contains_key(*heading)).map(|heading| name(heading)).collect();
    let unexplained: Vec<_> = missing.iter().filter(|name| !LEFT_OUT.iter().any(|entry| covers(entry, name))).collect();
    assert!(unexplained.is_empty(), "neither ours nor left out: {unexplained:#?}");
    let needless: Vec<_> = LEFT_OUT.iter().filter(|entry| !missing.iter().any(|name| covers(entry, name))).collect();
    assert!(needless.is_empty(), "left out in vain: {needless:#?}");
}

#[test]
fn the_listing_is_not_empty() {
    let ours = our_listing();
    let count = |kind: &str| ours.keys().filter(|heading| heading.starts_with(kind)).count();
    assert!(count("message ") > 180 && count("enum ") > 12 && count("service ") == 10, "{:#?}", ours.keys());
}

fn name(heading: &str) -> &str {
    let full = heading.split(' ').next_back().unwrap_or_default();
    full.strip_prefix(MODEL).unwrap_or(full)
}

fn covers(entry: &str, name: &str) -> bool {
    name.strip_prefix(entry).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

fn compare(heading: &str, ours: &[String], beams: &[String], differences: &mut Vec<String>) {
    let only = |these: &[String], those: &[String]| -> Vec<String> {
        these.iter().filter(|line| !those.contains(line)).cloned().collect()
    };
    differences.extend(only(ours, beams).iter().map(|line| format!("{heading}: only ours: {line}")));
    differences.extend(only(beams, ours).iter().map(|line| format!("{heading}: only Beam's: {line}")));
}

fn parse(text: &str) -> Listing {
    let mut listing = Listing::new();
    let mut heading = String::new();
    for line in text.lines() {
        match line.strip_prefix("  ") {
            Some(item) => listing.get_mut(&heading).expect("a block has a heading").push(item.to_owned()),
            None => {
                heading = line.to_owned();
                listing.insert(heading.clone(), Vec::new());
            }
        }
    }
    listing
}

fn our_listing() -> Listing {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let sources: Vec<_> = ["fn", "job", "pipeline"]
        .iter()
        .flat_map(|package| std::fs::read_dir(root.join("beam").join(package)).unwrap())
        .map(|entry| entry.unwrap().path())
        .collect();
    let files = protox::compile(sources, [root]).unwrap();
    let mut listing = Listing::new();
    for file in files.file.iter().filter(|file| file.package().starts_with(MODEL)) {
        list_file(file, &mut listing);
    }
    listing
}

fn list_file(file: &FileDescriptorProto, listing: &mut Listing) {
    for message in &file.message_type {
        list_message(message, file.package(), listing);
    }
    for item in &file.enum_type {
        list_enum(item, file.package(), listing);
    }
    for service in &file.service {
        list_service(service, file.package(), listing);
    }
}

fn list_message(message: &DescriptorProto, scope: &str, listing: &mut Listing) {
    let name = format!("{scope}.{}", message.name());
    let lines = message.field.iter().map(|field| field_line(field, message, &name)).collect();
    listing.insert(format!("message {name}"), lines);
    for nested in message.nested_type.iter().filter(|nested| !is_map_entry(nested)) {
        list_message(nested, &name, listing);
    }
    for item in &message.enum_type {
        list_enum(item, &name, listing);
    }
}

fn list_enum(item: &EnumDescriptorProto, scope: &str, listing: &mut Listing) {
    let lines = item.value.iter().map(|value| format!("{} {}", value.number(), value.name())).collect();
    listing.insert(format!("enum {scope}.{}", item.name()), lines);
}

fn list_service(service: &ServiceDescriptorProto, scope: &str, listing: &mut Listing) {
    let side =
        |streams: bool, message: &str| format!("{}{}", if streams { "stream " } else { "" }, message.trim_start_matches('.'));
    let lines = service.method.iter().map(|method| {
        let request = side(method.client_streaming(), method.input_type());
        let response = side(method.server_streaming(), method.output_type());
        format!("{} {request} -> {response}", method.name())
    });
    listing.insert(format!("service {scope}.{}", service.name()), lines.collect());
}

fn field_line(field: &FieldDescriptorProto, message: &DescriptorProto, scope: &str) -> String {
    let entry = message
        .nested_type
        .iter()
        .find(|nested| is_map_entry(nested) && field.type_name() == format!(".{scope}.{}", nested.name()));
    let (label, kind) = match entry {
        Some(entry) => ("map", entry.field.iter().map(type_name).collect::<Vec<_>>().join(",")),
        None if field.label() == Label::Repeated => ("repeated", type_name(field)),
        None if field.proto3_optional() => ("optional", type_name(field)),
        None => ("single", type_name(field)),
    };
    let mut line = format!("{} {} {label} {kind}", field.number(), field.name());
    if let Some(oneof) = field.oneof_index.filter(|_| !field.proto3_optional()) {
        line += " ";
        line += message.oneof_decl[oneof as usize].name();
    }
    line
}

fn type_name(field: &FieldDescriptorProto) -> String {
    match field.r#type() {
        Type::Message | Type::Enum => field.type_name().trim_start_matches('.').to_owned(),
        scalar => scalar.as_str_name().trim_start_matches("TYPE_").to_lowercase(),
    }
}

fn is_map_entry(message: &DescriptorProto) -> bool {
    message.options.as_ref().is_some_and(|options| options.map_entry())
}
