//! Beam's conformance file for coders, `standard_coders.yaml` as in the Python wheel of Beam 2.77.0.
//!
//! Every example is decoded, and encoded unless its document says that several encodings are right. The file describes
//! its format in its head; text stands for bytes, one character code for one byte.

use std::collections::BTreeMap;

use model::coder::Coder;
use model::pane::{PaneInfo, Timing};
use model::schema::{FieldType, Schema, TypeInfo};
use model::value::{Pane, Timer, TimerFiring, Value, WindowedValue};
use model::window::IntervalWindow;
use model::{Duration, Reader, Timestamp};
use saphyr::{LoadableYamlNode, Yaml};

use crate::schema_payload;

#[test]
fn every_document_holds() {
    let documents = Yaml::load_from_str(include_str!("../standard_coders.yaml")).unwrap();
    let mut examples_by_urn = BTreeMap::new();
    for document in &documents {
        let urn = text(get(get(document, "coder"), "urn"));
        let (documents, examples) = examples_by_urn.entry(urn).or_insert((0, 0));
        *documents += 1;
        *examples += check_document(document);
    }
    assert_eq!(documents.len(), 45, "{examples_by_urn:#?}");
    assert_eq!(examples_by_urn.len(), 17, "{examples_by_urn:#?}");
    assert_eq!(examples_by_urn.values().map(|counts| counts.1).sum::<usize>(), 124, "{examples_by_urn:#?}");
}

fn check_document(document: &Yaml<'_>) -> usize {
    let spec = get(document, "coder");
    let coder = coder(spec);
    let is_deterministic = spec.as_mapping_get("non_deterministic").is_none();
    let contexts: &[bool] = match document.as_mapping_get("nested").map(|nested| nested.as_bool().unwrap()) {
        Some(true) => &[true],
        Some(false) => &[false],
        None => &[true, false],
    };
    // In this one document state is a property of the coder.
    let state = spec.as_mapping_get("state");
    let examples = get(document, "examples").as_mapping().unwrap();
    for (encoded, expected) in examples {
        let encoded = latin1(encoded);
        let expected = value(&coder, expected);
        for &nested in contexts {
            let place = format!("{coder}, nested {nested}, bytes {encoded:02x?}");
            let decoded = resolve(&coder, decode(&coder, &encoded, nested, &place), state);
            // Debug text, because no NaN equals another.
            assert_eq!(format!("{decoded:?}"), format!("{expected:?}"), "{place}");
            if is_deterministic {
                let again = if nested { expected.encode_nested(&coder) } else { expected.encode(&coder) };
                assert_eq!(again.as_ref(), Ok(&encoded), "{place}");
            }
        }
    }
    examples.len()
}

/// In nested context other bytes follow, and skipping must agree with decoding on where the value ends.
fn decode(coder: &Coder, encoded: &[u8], nested: bool, place: &str) -> Value {
    if !nested {
        return Value::decode(coder, encoded).expect(place);
    }
    let followed = [encoded, b"more"].concat();
    let mut skipped = Reader::new(&followed);
    coder.skip(&mut skipped).expect(place);
    assert_eq!(skipped.rest(), b"more", "{place}");
    let mut reader = Reader::new(&followed);
    let decoded = Value::decode_nested(coder, &mut reader).expect(place);
    assert_eq!(reader.rest(), b"more", "{place}");
    decoded
}

/// Appends the elements that a token stands for.
fn resolve(coder: &Coder, value: Value, state: Option<&Yaml<'_>>) -> Value {
    let (Value::StateBackedIterable { mut inline, token }, Coder::StateBackedIterable(element)) = (value.clone(), coder) else {
        return value;
    };
    let rest = latin1(get(state.unwrap(), std::str::from_utf8(&token).unwrap()));
    let mut reader = Reader::new(&rest);
    while !reader.is_empty() {
        inline.push(Value::decode_nested(element, &mut reader).unwrap());
    }
    Value::Iterable(inline)
}

fn coder(spec: &Yaml<'_>) -> Coder {
    let components = spec.as_mapping_get("components").and_then(Yaml::as_sequence).into_iter().flatten();
    let mut components = components.map(|component| Box::new(coder(component)));
    let mut next = || components.next().unwrap();
    let payload = || latin1(get(spec, "payload"));
    match text(get(spec, "urn")).strip_prefix("beam:coder:").unwrap() {
        "bytes:v1" => Coder::Bytes,
        "bool:v1" => Coder::Bool,
        "string_utf8:v1" => Coder::StringUtf8,
        "varint:v1" => Coder::VarInt,
        "double:v1" => Coder::Double,
        "kv:v1" => Coder::Kv(next(), next()),
        "iterable:v1" => Coder::Iterable(next()),
        "state_backed_iterable:v1" => Coder::StateBackedIterable(next()),
        "nullable:v1" => Coder::Nullable(next()),
        "global_window:v1" => Coder::GlobalWindow,
        "interval_window:v1" => Coder::IntervalWindow,
        "custom_window:v1" => Coder::CustomWindow(next()),
        "windowed_value:v1" => Coder::WindowedValue(next(), next()),
        "param_windowed_value:v1" => Coder::ParamWindowedValue(next(), next(), payload().into()),
        "timer:v1" => Coder::Timer(next(), next()),
        "sharded_key:v1" => Coder::ShardedKey(next()),
        "row:v1" => Coder::Row(schema_payload::schema(&payload())),
        other => panic!("coder {other}"),
    }
}

fn value(coder: &Coder, yaml: &Yaml<'_>) -> Value {
    match coder {
        Coder::Bytes => Value::Bytes(latin1(yaml)),
        Coder::StringUtf8 => Value::String(text(yaml).to_owned()),
        Coder::Bool => Value::Bool(yaml.as_bool().unwrap()),
        Coder::VarInt => Value::Int(integer(yaml)),
        Coder::Double => Value::Double(text(yaml).parse().unwrap()),
        Coder::Kv(key, second) => Value::kv(value(key, get(yaml, "key")), value(second, get(yaml, "value"))),
        Coder::Iterable(element) | Coder::StateBackedIterable(element) => Value::Iterable(values(element, yaml)),
        Coder::Nullable(_) if yaml.is_null() => Value::Null,
        Coder::Nullable(inner) => value(inner, yaml),
        Coder::GlobalWindow => Value::GlobalWindow,
        Coder::IntervalWindow => Value::IntervalWindow(interval(yaml)),
        Coder::CustomWindow(inner) => Value::CustomWindow {
            max_timestamp: interval(get(yaml, "window")).max_timestamp(),
            window: Box::new(value(inner, get(yaml, "window"))),
        },
        Coder::WindowedValue(inner, window) | Coder::ParamWindowedValue(inner, window, _) => {
            Value::WindowedValue(Box::new(WindowedValue {
                value: value(inner, get(yaml, "value")),
                timestamp: timestamp(get(yaml, "timestamp")),
                windows: values(window, get(yaml, "windows")),
                pane: pane(get(yaml, "pane")),
            }))
        }
        Coder::Timer(key, window) => {
            let is_cleared = get(yaml, "clearBit").as_bool().unwrap();
            let firing = (!is_cleared).then(|| TimerFiring {
                fire_timestamp: timestamp(get(yaml, "fireTimestamp")),
                hold_timestamp: timestamp(get(yaml, "holdTimestamp")),
                pane: pane(get(yaml, "pane")),
            });
            Value::Timer(Box::new(Timer {
                user_key: value(key, get(yaml, "userKey")),
                dynamic_timer_tag: text(get(yaml, "dynamicTimerTag")).to_owned(),
                windows: values(window, get(yaml, "windows")),
                firing,
            }))
        }
        Coder::ShardedKey(key) => {
            Value::ShardedKey { shard_id: latin1(get(yaml, "shardId")), key: Box::new(value(key, get(yaml, "key"))) }
        }
        Coder::Row(schema) => row(schema, yaml),
        Coder::LengthPrefix(_) => panic!("the file has no length prefix"),
    }
}

fn values(element: &Coder, yaml: &Yaml<'_>) -> Vec<Value> {
    yaml.as_sequence().unwrap().iter().map(|item| value(element, item)).collect()
}

fn interval(yaml: &Yaml<'_>) -> IntervalWindow {
    let end = timestamp(get(yaml, "end"));
    IntervalWindow { start: end.minus(Duration(integer(get(yaml, "span")))), end }
}

fn pane(yaml: &Yaml<'_>) -> Pane {
    let timing = match text(get(yaml, "timing")) {
        "EARLY" => Timing::Early,
        "ON_TIME" => Timing::OnTime,
        "LATE" => Timing::Late,
        _ => Timing::Unknown,
    };
    let info = PaneInfo {
        is_first: get(yaml, "is_first").as_bool().unwrap(),
        is_last: get(yaml, "is_last").as_bool().unwrap(),
        timing,
        index: integer(get(yaml, "index")),
        nonspeculative_index: integer(get(yaml, "on_time_index")),
    };
    Pane { info, metadata: None }
}

fn row(schema: &Schema, yaml: &Yaml<'_>) -> Value {
    Value::Row(schema.fields().iter().map(|field| typed(&field.field_type, get(yaml, &field.name))).collect())
}

fn typed(field_type: &FieldType, yaml: &Yaml<'_>) -> Value {
    if yaml.is_null() {
        assert!(field_type.nullable);
        return Value::Null;
    }
    match &field_type.type_info {
        TypeInfo::Byte | TypeInfo::Int16 | TypeInfo::Int32 | TypeInfo::Int64 => Value::Int(integer(yaml)),
        TypeInfo::Float => Value::Float(text(yaml).parse().unwrap()),
        TypeInfo::Double => Value::Double(text(yaml).parse().unwrap()),
        TypeInfo::String => Value::String(text(yaml).to_owned()),
        TypeInfo::Boolean => Value::Bool(yaml.as_bool().unwrap()),
        TypeInfo::Bytes => Value::Bytes(latin1(yaml)),
        TypeInfo::Array(item) | TypeInfo::Iterable(item) => {
            Value::Iterable(yaml.as_sequence().unwrap().iter().map(|yaml| typed(item, yaml)).collect())
        }
        TypeInfo::Map(key, item) => {
            let entries = yaml.as_mapping().unwrap().iter();
            Value::Map(entries.map(|entry| (typed(key, entry.0), typed(item, entry.1))).collect())
        }
        TypeInfo::Row(schema) => row(schema, yaml),
        // The file gives the eight bytes as one big-endian number.
        TypeInfo::MillisInstant => Value::Timestamp(Timestamp::from_millis(integer(yaml) ^ i64::MIN)),
        TypeInfo::Decimal => decimal(text(yaml)),
        TypeInfo::Logical { representation, .. } => typed(representation, yaml),
    }
}

fn decimal(text: &str) -> Value {
    let (_, fraction) = text.split_once('.').unwrap_or((text, ""));
    let unscaled: i64 = text.replace('.', "").parse().unwrap();
    let bytes = unscaled.to_be_bytes();
    // The shortest two's complement: leading bytes that only repeat the sign are dropped.
    let shortest = (0..8).rev().find(|&from| sign_extended(&bytes[from..]) == unscaled).unwrap();
    Value::Decimal { scale: fraction.len() as i64, unscaled: bytes[shortest..].to_vec() }
}

fn sign_extended(bytes: &[u8]) -> i64 {
    let sign = i64::from(bytes[0] as i8) >> 7;
    bytes.iter().fold(sign, |so_far, &byte| so_far << 8 | i64::from(byte))
}

fn get<'y>(yaml: &'y Yaml<'y>, name: &str) -> &'y Yaml<'y> {
    yaml.as_mapping_get(name).unwrap_or_else(|| panic!("no {name} in {yaml:?}"))
}

fn text<'y>(yaml: &'y Yaml<'_>) -> &'y str {
    yaml.as_str().unwrap_or_else(|| panic!("no text: {yaml:?}"))
}

fn integer(yaml: &Yaml<'_>) -> i64 {
    yaml.as_integer().unwrap_or_else(|| panic!("no integer: {yaml:?}"))
}

fn timestamp(yaml: &Yaml<'_>) -> Timestamp {
    Timestamp::from_millis(integer(yaml))
}

fn latin1(yaml: &Yaml<'_>) -> Vec<u8> {
    text(yaml).chars().map(|character| u8::try_from(u32::from(character)).unwrap()).collect()
}
