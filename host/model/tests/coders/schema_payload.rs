//! Reads the serialized `Schema` messages of the conformance file into model schemas.
//!
//! The model crate knows no protocol buffers, so this reads the few fields that matter off the wire format by itself.

use model::Reader;
use model::schema::{Field, FieldType, Schema, TypeInfo};

/// Field number to what it holds, in order.
enum Content<'a> {
    Varint(u64),
    Bytes(&'a [u8]),
}

impl<'a> Content<'a> {
    fn bytes(&self) -> &'a [u8] {
        match self {
            Content::Bytes(bytes) => bytes,
            Content::Varint(_) => panic!("a varint where a message was expected"),
        }
    }

    fn varint(&self) -> u64 {
        match self {
            Content::Varint(value) => *value,
            Content::Bytes(_) => panic!("bytes where a varint was expected"),
        }
    }
}

fn message(bytes: &[u8]) -> Vec<(u64, Content<'_>)> {
    let mut reader = Reader::new(bytes);
    let mut fields = Vec::new();
    while !reader.is_empty() {
        let tag = reader.varint().unwrap();
        let content = match tag & 7 {
            0 => Content::Varint(reader.varint().unwrap()),
            2 => Content::Bytes(reader.length_prefixed().unwrap()),
            other => panic!("wire type {other}"),
        };
        fields.push((tag >> 3, content));
    }
    fields
}

/// `Schema { fields=1; encoding_positions_set=4 }`
pub(crate) fn schema(payload: &[u8]) -> Schema {
    let mut fields = Vec::new();
    let mut positions = Vec::new();
    let mut positions_set = false;
    for (number, content) in message(payload) {
        match number {
            1 => {
                let (field, position) = field(content.bytes());
                fields.push(field);
                positions.push(position);
            }
            4 => positions_set = content.varint() != 0,
            _ => {}
        }
    }
    match positions_set {
        true => Schema::with_encoding_positions(fields, &positions).unwrap(),
        false => Schema::new(fields),
    }
}

/// `Field { name=1; type=3; encoding_position=5 }`
fn field(bytes: &[u8]) -> (Field, i32) {
    let (mut name, mut kind, mut position) = (String::new(), None, 0);
    for (number, content) in message(bytes) {
        match number {
            1 => name = String::from_utf8(content.bytes().to_vec()).unwrap(),
            3 => kind = Some(field_type(content.bytes())),
            5 => position = content.varint() as i32,
            _ => {}
        }
    }
    (Field { name, field_type: kind.unwrap() }, position)
}

/// `FieldType { nullable=1; atomic_type=2 | array_type=3 | iterable_type=4 | map_type=5 | row_type=6 | logical_type=7 }`
fn field_type(bytes: &[u8]) -> FieldType {
    let (mut nullable, mut type_info) = (false, None);
    for (number, content) in message(bytes) {
        match number {
            1 => nullable = content.varint() != 0,
            2 => type_info = Some(atomic(content.varint())),
            3 => type_info = Some(TypeInfo::Array(part(content.bytes(), 1))),
            4 => type_info = Some(TypeInfo::Iterable(part(content.bytes(), 1))),
            5 => type_info = Some(TypeInfo::Map(part(content.bytes(), 1), part(content.bytes(), 2))),
            6 => type_info = Some(TypeInfo::Row(schema(message(content.bytes())[0].1.bytes()))),
            7 => type_info = Some(logical(content.bytes())),
            other => panic!("field type {other}"),
        }
    }
    FieldType { nullable, type_info: type_info.unwrap() }
}

fn part(bytes: &[u8], number: u64) -> Box<FieldType> {
    let parts = message(bytes);
    Box::new(field_type(parts.iter().find(|part| part.0 == number).unwrap().1.bytes()))
}

/// `LogicalType { urn=1; representation=3 }`
fn logical(bytes: &[u8]) -> TypeInfo {
    let urn = String::from_utf8(message(bytes)[0].1.bytes().to_vec()).unwrap();
    TypeInfo::logical(&urn, *part(bytes, 3))
}

fn atomic(number: u64) -> TypeInfo {
    match number {
        1 => TypeInfo::Byte,
        2 => TypeInfo::Int16,
        3 => TypeInfo::Int32,
        4 => TypeInfo::Int64,
        5 => TypeInfo::Float,
        6 => TypeInfo::Double,
        7 => TypeInfo::String,
        8 => TypeInfo::Boolean,
        9 => TypeInfo::Bytes,
        other => panic!("atomic type {other}"),
    }
}
