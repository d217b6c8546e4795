//! Byte vectors that were checked against the Python SDK, in both directions. They cover what Beam's conformance file
//! leaves out: length prefixes, panes other than the default one, state tokens, many windows.

use model::coder::Coder;
use model::pane::{PaneInfo, Timing};
use model::schema::{Field, FieldType, Schema, TypeInfo};
use model::value::{Pane, Timer, TimerFiring, Value, WindowedValue};
use model::window::IntervalWindow;
use model::{Duration, Reader, Timestamp};

use crate::{iterable, kv, length_prefix, state_backed_iterable, timer, windowed_value};

/// Both contexts give the same bytes.
#[track_caller]
fn check(coder: Coder, value: Value, hex: &str) {
    check_outer(&coder, &value, hex);
    check_nested(&coder, &value, hex);
}

#[track_caller]
fn check_outer(coder: &Coder, value: &Value, hex: &str) {
    let bytes = unhex(hex);
    assert_eq!(value.encode(coder).as_ref(), Ok(&bytes), "{coder}");
    assert_eq!(Value::decode(coder, &bytes).as_ref(), Ok(value), "{coder}");
}

#[track_caller]
fn check_nested(coder: &Coder, value: &Value, hex: &str) {
    assert_eq!(value.encode_nested(coder), Ok(unhex(hex)), "{coder}");
    decodes_nested(coder, value, hex);
}

/// For one of several encodings of a value, which need not be the one that we write.
#[track_caller]
fn decodes_nested(coder: &Coder, value: &Value, hex: &str) {
    let followed = [unhex(hex), vec![0xee]].concat();
    let mut reader = Reader::new(&followed);
    assert_eq!(Value::decode_nested(coder, &mut reader).as_ref(), Ok(value), "{coder}");
    assert_eq!(reader.rest(), [0xee], "{coder}");
    let mut skipped = Reader::new(&followed);
    assert_eq!(coder.skip(&mut skipped), Ok(()), "{coder}");
    assert_eq!(skipped.rest(), [0xee], "{coder}");
}

fn unhex(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter(|byte| *byte != b' ').collect();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks(2).map(byte).collect()
}

fn bytes(text: &str) -> Value {
    Value::Bytes(text.as_bytes().to_vec())
}

fn string(text: &str) -> Value {
    Value::String(text.to_owned())
}

fn ints(values: &[i64]) -> Value {
    Value::Iterable(values.iter().copied().map(Value::Int).collect())
}

fn interval(end_ms: i64, span_ms: i64) -> Value {
    let end = Timestamp::from_millis(end_ms);
    Value::IntervalWindow(IntervalWindow { start: end.minus(Duration(span_ms)), end })
}

fn pane(info: PaneInfo) -> Pane {
    Pane { info, metadata: None }
}

fn element(value: Value, timestamp: Timestamp, windows: Vec<Value>, info: PaneInfo) -> Value {
    Value::WindowedValue(Box::new(WindowedValue { value, timestamp, windows, pane: pane(info) }))
}

#[test]
fn atoms() {
    check(Coder::VarInt, Value::Int(0), "00");
    check(Coder::VarInt, Value::Int(300), "ac02");
    check(Coder::VarInt, Value::Int(-1), "ffffffffffffffffff01");
    check(Coder::Bool, Value::Bool(true), "01");
    check(Coder::Double, Value::Double(1.5), "3ff8000000000000");
    check_outer(&Coder::Bytes, &bytes("abc"), "616263");
    check_nested(&Coder::Bytes, &bytes("abc"), "03616263");
    check_outer(&Coder::StringUtf8, &string("é"), "c3a9");
    check_nested(&Coder::StringUtf8, &string("é"), "02c3a9");
}

#[test]
fn composites() {
    check(kv(Coder::Bytes, Coder::VarInt), Value::kv(bytes("k"), Value::Int(5)), "016b05");
    check_outer(&kv(Coder::VarInt, Coder::Bytes), &Value::kv(Value::Int(5), bytes("v")), "0576");
    check_nested(&kv(Coder::VarInt, Coder::Bytes), &Value::kv(Value::Int(5), bytes("v")), "050176");
    check(length_prefix(Coder::VarInt), Value::Int(300), "02ac02");
    check(length_prefix(Coder::Bytes), bytes("abc"), "03616263");
    check(Coder::LengthPrefix(None), bytes("abc"), "03616263");
    check(Coder::Nullable(Box::new(Coder::VarInt)), Value::Null, "00");
    check(Coder::Nullable(Box::new(Coder::VarInt)), Value::Int(5), "0105");
    let sharded = Value::ShardedKey { shard_id: b"id".to_vec(), key: Box::new(string("k")) };
    check(Coder::ShardedKey(Box::new(Coder::StringUtf8)), sharded, "026964 016b");
}

#[test]
fn iterables() {
    check(iterable(Coder::VarInt), ints(&[1, 2, 3]), "00000003 010203");
    check(iterable(Coder::VarInt), ints(&[]), "00000000");
    check(iterable(Coder::Bytes), Value::Iterable(vec![bytes("a"), bytes("bc")]), "00000002 0161 026263");
    decodes_nested(&iterable(Coder::Bytes), &Value::Iterable(vec![]), "ffffffff 00");
    decodes_nested(&iterable(Coder::Bytes), &Value::Iterable(vec![bytes("abc")]), "ffffffff 01 03616263 00");
    let token = b"emptySuffix".to_vec();
    check(
        state_backed_iterable(Coder::VarInt),
        Value::StateBackedIterable { inline: vec![], token: token.clone() },
        "ffffffff ffffffffffffffffff01 0b 656d707479537566666978",
    );
    check(
        state_backed_iterable(Coder::VarInt),
        Value::StateBackedIterable { inline: vec![Value::Int(200), Value::Int(1000)], token },
        "ffffffff 02c801e807 ffffffffffffffffff01 0b 656d707479537566666978",
    );
}

#[test]
fn timestamps() {
    let cases = [
        (Timestamp::from_millis(0), "8000000000000000"),
        (Timestamp::from_millis(1), "8000000000000001"),
        (Timestamp::from_millis(-1), "7fffffffffffffff"),
        (Timestamp::MIN, "7fdf3b645a1cac09"),
        (Timestamp::MAX, "8020c49ba5e353f7"),
        (Timestamp::GLOBAL_WINDOW_END, "8020c49ba0bcf7f7"),
    ];
    for (timestamp, hex) in cases {
        assert_eq!(timestamp.encode().as_slice(), unhex(hex));
        assert_eq!(Timestamp::decode(&mut Reader::new(&unhex(hex))), Ok(timestamp));
    }
}

#[test]
fn windows() {
    check(Coder::IntervalWindow, interval(10_000, 10_000), "8000000000002710 904e");
    check(Coder::IntervalWindow, interval(1_454_293_425_000, 3_600_000), "800001529aa49b68 80dddb01");
    let custom = Value::CustomWindow {
        max_timestamp: Timestamp::from_millis(1_454_293_424_999),
        window: Box::new(interval(1_454_293_425_000, 3_600_000)),
    };
    check(Coder::CustomWindow(Box::new(Coder::IntervalWindow)), custom, "800001529aa49b67 800001529aa49b68 80dddb01");
}

#[test]
fn panes() {
    let cases = [
        (true, true, Timing::OnTime, 0, 0, "07"),
        (true, false, Timing::OnTime, 0, 0, "05"),
        (true, false, Timing::Early, 0, -1, "1100"),
        (false, false, Timing::Early, 1, -1, "1001"),
        (false, false, Timing::Early, 2, -1, "1002"),
        (false, true, Timing::OnTime, 2, 0, "260200"),
        (false, false, Timing::Late, 3, 1, "280301"),
    ];
    for (is_first, is_last, timing, index, nonspeculative_index, hex) in cases {
        let info = PaneInfo { is_first, is_last, timing, index, nonspeculative_index };
        let value = element(Value::Int(2), Timestamp::from_millis(0), vec![Value::GlobalWindow], info);
        let hex = format!("8000000000000000 00000001 {hex} 02");
        check(windowed_value(Coder::VarInt, Coder::GlobalWindow), value, &hex);
    }
}

#[test]
fn windowed_values() {
    check(
        windowed_value(Coder::VarInt, Coder::GlobalWindow),
        element(Value::Int(2), Timestamp::MIN, vec![Value::GlobalWindow], PaneInfo::NO_FIRING),
        "7fdf3b645a1cac09 00000001 0f 02",
    );
    let windows = vec![interval(10_000, 10_000), interval(15_000, 10_000)];
    check_outer(
        &windowed_value(Coder::Bytes, Coder::IntervalWindow),
        &element(bytes("x"), Timestamp::from_millis(1000), windows, PaneInfo::NO_FIRING),
        "80000000000003e8 00000002 8000000000002710904e 8000000000003a98904e 0f 78",
    );
    let windows = vec![interval(1_454_293_425_000, 280_000)];
    check(
        windowed_value(Coder::VarInt, Coder::IntervalWindow),
        element(Value::Int(4), Timestamp::from_millis(-400_000), windows, PaneInfo::NO_FIRING),
        "7ffffffffff9e580 00000001 800001529aa49b68c08b11 0f 04",
    );
}

#[test]
fn a_windowed_values_metadata_is_kept() {
    let metadata = Some(b"\x08\x02".to_vec());
    let value = Value::WindowedValue(Box::new(WindowedValue {
        value: Value::Int(2),
        timestamp: Timestamp::from_millis(0),
        windows: vec![Value::GlobalWindow],
        pane: Pane { info: PaneInfo::NO_FIRING, metadata },
    }));
    let hex = "8000000000000000 00000001 8f 02 0802 02";
    check(windowed_value(Coder::VarInt, Coder::GlobalWindow), value, hex);
}

#[test]
fn param_windowed_values() {
    let payload = unhex("80000000000003e8 00000001 8000000000000014 0a 261e28 00");
    let info = PaneInfo { is_first: false, is_last: true, timing: Timing::OnTime, index: 30, nonspeculative_index: 40 };
    let parts = (Box::new(Coder::VarInt), Box::new(Coder::IntervalWindow));
    check(
        Coder::ParamWindowedValue(parts.0, parts.1, payload.into()),
        element(Value::Int(7), Timestamp::from_millis(1000), vec![interval(20, 10)], info),
        "07",
    );
}

#[test]
fn timers() {
    let firing = TimerFiring {
        fire_timestamp: Timestamp::from_millis(1234),
        hold_timestamp: Timestamp::from_millis(5678),
        pane: pane(PaneInfo::NO_FIRING),
    };
    let value = |firing| {
        Value::Timer(Box::new(Timer {
            user_key: string("key"),
            dynamic_timer_tag: "tag".to_owned(),
            windows: vec![Value::GlobalWindow],
            firing,
        }))
    };
    let coder = || timer(Coder::StringUtf8, Coder::GlobalWindow);
    let set = "036b6579 03746167 00000001 00 80000000000004d2 800000000000162e 0f";
    check(coder(), value(Some(firing)), set);
    check(coder(), value(None), "036b6579 03746167 00000001 01");
}

fn schema(fields: &[(&str, bool, TypeInfo)]) -> Schema {
    let field = |(name, nullable, type_info): &(&str, bool, TypeInfo)| Field {
        name: (*name).to_owned(),
        field_type: FieldType { nullable: *nullable, type_info: type_info.clone() },
    };
    Schema::new(fields.iter().map(field).collect())
}

fn plain(type_info: TypeInfo) -> FieldType {
    FieldType { nullable: false, type_info }
}

#[test]
fn rows() {
    let strings = TypeInfo::Array(Box::new(plain(TypeInfo::String)));
    let four = schema(&[
        ("str", false, TypeInfo::String),
        ("i32", false, TypeInfo::Int32),
        ("f64", false, TypeInfo::Double),
        ("arr", false, strings),
    ]);
    let items = Value::Iterable(vec![string("foo"), string("bar"), string("baz")]);
    check(
        Coder::Row(four),
        Value::Row(vec![string("foo"), Value::Int(9001), Value::Double(0.1), items]),
        "04 00 03666f6f a946 3fb999999999999a 00000003 03666f6f 03626172 0362617a",
    );
    let three = schema(&[("str", true, TypeInfo::String), ("i32", true, TypeInfo::Int32), ("f64", true, TypeInfo::Double)]);
    check(Coder::Row(three), Value::Row(vec![Value::Null, Value::Null, Value::Null]), "03 01 07");
    let decimal = schema(&[("f", false, TypeInfo::logical("beam:logical_type:decimal:v1", plain(TypeInfo::Bytes)))]);
    let value = Value::Decimal { scale: 4, unscaled: vec![0x7a, 0xb7] };
    check(Coder::Row(decimal), Value::Row(vec![value]), "01 00 04 027ab7");
}

#[test]
fn small_and_negative_integers_of_rows() {
    let numbers = schema(&[
        ("byte", false, TypeInfo::Byte),
        ("i16", false, TypeInfo::Int16),
        ("i32", false, TypeInfo::Int32),
        ("i64", false, TypeInfo::Int64),
    ]);
    let value = Value::Row(vec![Value::Int(-1), Value::Int(-2), Value::Int(-3), Value::Int(-4)]);
    let coder = Coder::Row(numbers);
    check(coder.clone(), value.clone(), "04 00 ff fffe fdffffff0f fcffffffffffffffff01");
    decodes_nested(&coder, &value, "04 00 ff fffe fdffffffffffffffff01 fcffffffffffffffff01");
}

#[test]
fn rows_of_other_versions_of_a_schema() {
    let two = Coder::Row(schema(&[("a", false, TypeInfo::Int64), ("b", true, TypeInfo::Int64)]));
    let value = Value::Row(vec![Value::Int(7), Value::Null]);
    decodes_nested(&two, &value, "01 00 07");
    // At the end of a value, fields that the schema lacks are ignored; inside one they cannot be delimited.
    let value = Value::Row(vec![Value::Int(7), Value::Int(8)]);
    assert_eq!(Value::decode(&length_prefix(two.clone()), &unhex("05 03 00 07 08 09")), Ok(value.clone()));
    assert_eq!(Value::decode(&two, &unhex("03 00 07 08 09")), Ok(value));
    assert!(Value::decode_nested(&two, &mut Reader::new(&unhex("03 00 07 08 09"))).is_err());
    assert!(two.skip(&mut Reader::new(&unhex("03 00 07 08 09"))).is_err());
}

#[test]
fn metric_payloads() {
    let four_numbers = kv(Coder::VarInt, kv(Coder::VarInt, kv(Coder::VarInt, Coder::VarInt)));
    let distribution = Value::kv(Value::Int(2), Value::kv(Value::Int(4), Value::kv(Value::Int(1), Value::Int(3))));
    check(four_numbers, distribution, "02040103");
    check(iterable(Coder::StringUtf8), Value::Iterable(vec![string("a")]), "00000001 0161");
}

#[test]
fn the_length_of_a_key() {
    let coder = kv(Coder::StringUtf8, Coder::VarInt);
    assert_eq!(coder.key_len(&unhex("036b6579 05")), Ok(4));
    assert!(coder.key_len(&unhex("036b65")).is_err());
    assert!(Coder::Bytes.key_len(&unhex("036b6579")).is_err());
}

#[test]
fn values_that_do_not_fit_their_coder() {
    let message = |value: Value, coder: &Coder| value.encode(coder).unwrap_err().to_string();
    assert_eq!(message(Value::Int(1), &Coder::Bytes), "bytes cannot encode an integer");
    assert_eq!(message(Value::Null, &iterable(Coder::Bool)), "iterable<bool> cannot encode null");
    let byte = Coder::Row(schema(&[("b", false, TypeInfo::Byte)]));
    assert_eq!(message(Value::Row(vec![Value::Int(128)]), &byte), "byte is out of range");
    assert_eq!(message(Value::Row(vec![]), &byte), "row of 0 values for a schema of 1 fields");
    assert!(Value::Row(vec![Value::Null]).encode(&byte).is_err(), "null in a field that is not nullable");
}
