//! Files that are not components, components that are not DoFns, stages that do not fit.

use std::collections::BTreeMap;

use model::{Coder, EnvironmentId, ShardId};
use worker_wasm::{Error, Kind, Options, WasmEngine, artifact, pack};

use crate::guests::guest;
use crate::running::{Transform, test_guest};

fn refused(bytes: &[u8]) -> String {
    let error = test_guest().0.component(bytes).err().expect("it is refused");
    error.to_string()
}

fn section(id: u8, content: &[u8]) -> Vec<u8> {
    [&[id, u8::try_from(content.len()).expect("short")], content].concat()
}

/// The least component that imports an instance of this name.
fn importing(name: &str) -> Vec<u8> {
    let header = b"\0asm\x0d\0\x01\0".to_vec();
    // One type: an instance without exports. One import of it.
    let types = section(7, &[1, 0x42, 0]);
    let import = section(10, &[&[1, 0, u8::try_from(name.len()).expect("short")], name.as_bytes(), &[5, 0]].concat());
    [header, types, import].concat()
}

#[test]
fn a_core_module_and_its_component_are_the_same() {
    let (engine, component) = test_guest();
    let core = guest("test-guest");
    assert_eq!(Kind::of(&core).unwrap(), Kind::CoreModule);
    let packed = pack(&core).unwrap();
    assert_eq!(Kind::of(&packed).unwrap(), Kind::Component);
    assert_eq!(pack(&packed).unwrap(), packed);
    let again = engine.component(&packed).unwrap();
    assert_eq!(again.manifest(), component.manifest());
    assert_ne!(again.digest(), component.digest());
    let section = artifact::manifest_section(&packed).unwrap().unwrap();
    assert_eq!(section, artifact::manifest_section(&core).unwrap().unwrap());
    assert_eq!(std::str::from_utf8(section).unwrap(), component.manifest().to_json());
}

#[test]
fn a_component_is_compiled_once() {
    let (engine, component) = test_guest();
    let again = engine.component(&guest("test-guest")).unwrap();
    assert!(std::sync::Arc::ptr_eq(&again, &component));
}

#[test]
fn guests_of_the_sdk_import_only_their_host() {
    let packed = pack(&guest("wordcount")).unwrap();
    let text = String::from_utf8_lossy(&packed);
    assert!(!text.contains("wasi"), "a guest without WASI has no word of it");
}

#[test]
fn other_files_are_refused() {
    assert_eq!(refused(b"#!/bin/sh"), "not a WebAssembly file: it begins with 0x23212f62696e2f73");
    assert_eq!(refused(b"\x7fELF\x02\x01\x01\0"), "precompiled code is refused: submit the portable .wasm file");
    assert_eq!(refused(b"\0asm\x01\0\0\0"), "component does not export purlin:dofn/describe@0.1.0");
    for header in [b"\0asm\x01\0\0\0", b"\0asm\x0d\0\x01\0"] {
        assert!(refused(&[header, b"\x63\x01\0".as_slice()].concat()).starts_with("not a valid WebAssembly file: "));
    }
    assert_eq!(refused(b"\0asm\x0d\0\x01\0"), "component does not export purlin:dofn/describe@0.1.0");
}

#[test]
fn files_that_are_cut_or_changed_are_refused_or_run() {
    let whole = guest("wordcount");
    for part in 1..20 {
        assert!(test_guest().0.component(&whole[..whole.len() * part / 20]).is_err(), "cut to {part} of 20");
    }
    // Any outcome but a crash will do.
    for at in (0..whole.len()).step_by(4_999) {
        let mut changed = whole.clone();
        changed[at] ^= 0x55;
        let _ = test_guest().0.component(&changed);
    }
}

#[test]
fn unknown_imports_are_named() {
    assert!(
        refused(&importing("wasi:cli/environment@0.2.0"))
            .starts_with("component imports wasi:cli/environment@0.2.0, which is not offered")
    );
}

#[test]
fn a_manifest_that_lies_is_refused() {
    let mut core = guest("wordcount");
    let name = b"\"name\":\"format\"";
    let at = core.windows(name.len()).position(|window| window == name).expect("the manifest is plain text");
    core[at..at + name.len()].copy_from_slice(b"\"name\":\"fortan\"");
    let message = refused(&core);
    assert!(message.starts_with("manifest: the file says {") && message.contains("\"fortan\""), "{message}");
}

#[test]
fn large_files_are_refused() {
    let engine = WasmEngine::new(Options { component_bytes_max: 1000, ..Options::default() }).unwrap();
    let error = engine.component(&guest("wordcount")).err().unwrap();
    assert!(matches!(error, Error::TooLarge { max: 1000, .. }), "{error}");
}

#[test]
fn stages_that_do_not_fit_are_refused() {
    let (engine, component) = test_guest();
    let check = |name: &str, input: Coder, outputs: &[(&str, Coder)], expected: &str| {
        let transform = Transform { name, config: b"", input, outputs };
        let error = transform.open_in(engine, component.clone()).err().expect("it is refused").to_string();
        assert!(error.contains(expected), "{error}");
    };
    check("nothing", Coder::Bytes, &[], "My step: the component has no transform `nothing`, only Identity, Even,");
    check(
        "pass_text",
        Coder::Bytes,
        &[],
        "(`pass_text` of its component): its input must have coder string_utf8, but the collection has Bytes",
    );
    check(
        "pass_text",
        Coder::StringUtf8,
        &[("output", Coder::VarInt)],
        "is declared with coder VarInt, but what makes it has coder Some(StringUtf8)",
    );
    check("pass_text", Coder::StringUtf8, &[("late", Coder::StringUtf8)], "`pass_text` has no output `late`, only output");
    let transform = Transform { name: "pass_text", config: b"", input: Coder::StringUtf8, outputs: &[] };
    let mut stage = transform.stage();
    stage.transforms[0].dofn_urn = "beam:dofn:pickled_python_info:v1".to_owned();
    let worker = engine.worker(BTreeMap::from([(EnvironmentId(0), component.clone())]));
    let error = worker.open(stage.into(), ShardId(0)).err().unwrap().to_string();
    assert_eq!(error, "My step: beam:dofn:pickled_python_info:v1 does not run in components");
    let error = engine.worker(BTreeMap::new()).open(transform.stage().into(), ShardId(0)).err().unwrap().to_string();
    assert_eq!(error, "environment 0 of transform t1 has no component");
}

#[test]
fn compiled_code_is_kept_and_damage_is_noticed() {
    let dir = tempfile::tempdir().unwrap();
    let cache = dir.path().join("compiled");
    let options = Options { cache_dir: Some(cache.clone()), ..Options::default() };
    let make = || WasmEngine::new(options.clone()).unwrap().component(&guest("wordcount")).unwrap();
    let files = || std::fs::read_dir(&cache).unwrap().map(|entry| entry.unwrap().path()).collect::<Vec<_>>();
    let manifest = make().manifest().clone();
    let [file] = files().try_into().unwrap();
    let written = std::fs::read(&file).unwrap();
    assert_eq!(make().manifest(), &manifest);
    // A changed byte of code must not be run.
    let mut damaged = written.clone();
    let last = damaged.len() - 1;
    damaged[last] ^= 1;
    std::fs::write(&file, &damaged).unwrap();
    assert_eq!(make().manifest(), &manifest);
    assert_eq!(std::fs::read(&file).unwrap(), written, "it was compiled again");
}

#[test]
fn a_cache_that_others_can_write_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let open = |mode| {
        std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(mode)).unwrap();
        WasmEngine::new(Options { cache_dir: Some(dir.path().to_owned()), ..Options::default() })
    };
    assert!(open(0o700).is_ok());
    let error = open(0o777).err().unwrap().to_string();
    assert!(error.ends_with("others can write it (mode 777); compiled code must be out of their reach"), "{error}");
}

#[test]
fn the_cache_has_a_bound() {
    let dir = tempfile::tempdir().unwrap();
    let cache = dir.path().join("compiled");
    let engine = WasmEngine::new(Options { cache_dir: Some(cache.clone()), cache_bytes_max: 1, ..Options::default() }).unwrap();
    let first = engine.component(&guest("wordcount")).unwrap();
    let second = engine.component(&guest("test-guest")).unwrap();
    assert_ne!(first.digest(), second.digest());
    assert_eq!(std::fs::read_dir(&cache).unwrap().count(), 1, "only the newest stays");
}
