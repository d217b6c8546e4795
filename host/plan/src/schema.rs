//! Schemas of rows: from Beam's message to the host's.

use model::coder::DEPTH_MAX;
use model::schema::{Field, FieldType, Schema, TypeInfo};
use prost::Message;
use proto::pipeline::{self, field_type};

/// The schema in the payload of a `row` coder, if the host can read its rows.
pub(crate) fn from_payload(payload: &bytes::Bytes) -> Option<Schema> {
    schema(&pipeline::Schema::decode(payload.clone()).ok()?, DEPTH_MAX)
}

fn schema(message: &pipeline::Schema, depth: usize) -> Option<Schema> {
    let depth = depth.checked_sub(1)?;
    let field = |field: &pipeline::Field| {
        Some(Field { name: field.name.clone(), field_type: field_type(field.r#type.as_ref()?, depth)? })
    };
    let fields: Vec<Field> = message.fields.iter().map(field).collect::<Option<_>>()?;
    if !message.encoding_positions_set {
        return Some(Schema::new(fields));
    }
    let positions: Vec<i32> = message.fields.iter().map(|field| field.encoding_position).collect();
    Schema::with_encoding_positions(fields, &positions).ok()
}

fn field_type(message: &pipeline::FieldType, depth: usize) -> Option<FieldType> {
    use field_type::TypeInfo as Proto;
    let depth = depth.checked_sub(1)?;
    let inner = |message: &Option<Box<pipeline::FieldType>>| field_type(message.as_deref()?, depth).map(Box::new);
    let type_info = match message.type_info.as_ref()? {
        Proto::AtomicType(atomic) => atomic_type(*atomic)?,
        Proto::ArrayType(array) => TypeInfo::Array(inner(&array.element_type)?),
        Proto::IterableType(iterable) => TypeInfo::Iterable(inner(&iterable.element_type)?),
        Proto::MapType(map) => TypeInfo::Map(inner(&map.key_type)?, inner(&map.value_type)?),
        Proto::RowType(row) => TypeInfo::Row(schema(row.schema.as_ref()?, depth)?),
        Proto::LogicalType(logical) => TypeInfo::logical(&logical.urn, *inner(&logical.representation)?),
    };
    Some(FieldType { nullable: message.nullable, type_info })
}

fn atomic_type(number: i32) -> Option<TypeInfo> {
    use pipeline::AtomicType;
    Some(match AtomicType::try_from(number).ok()? {
        AtomicType::Byte => TypeInfo::Byte,
        AtomicType::Int16 => TypeInfo::Int16,
        AtomicType::Int32 => TypeInfo::Int32,
        AtomicType::Int64 => TypeInfo::Int64,
        AtomicType::Float => TypeInfo::Float,
        AtomicType::Double => TypeInfo::Double,
        AtomicType::String => TypeInfo::String,
        AtomicType::Boolean => TypeInfo::Boolean,
        AtomicType::Bytes => TypeInfo::Bytes,
        AtomicType::Unspecified => return None,
    })
}
