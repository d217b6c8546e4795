//! Schemas of rows as plain data, and delimiting encoded rows.
//!
//! On the data plane rows are opaque (length-prefixed); the row coder is here for values that the host itself makes,
//! shows or hands to a component. What is not here: options, ids and descriptions of schemas, and conversion between a
//! logical type's representation and its language type.
//!
//! ```text
//! row: varint fields | varint bytes of null bitmap | bitmap | non-null fields, nested, in encoding order
//! ```

use crate::coder::{self, Coder};
use crate::{DecodeError, Reader};

/// The fields of a row, and the order in which they are encoded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Schema {
    fields: Vec<Field>,
    /// Indices into `fields`, one per field.
    encoding_order: Vec<usize>,
}

/// A named field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// Unique within its schema.
    pub name: String,
    /// What the field holds.
    pub field_type: FieldType,
}

/// What a field, an item or an entry holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldType {
    /// Whether there may be no value.
    pub nullable: bool,
    /// The type of a value that is there.
    pub type_info: TypeInfo,
}

/// A type of values, nulls aside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TypeInfo {
    /// One signed byte.
    Byte,
    /// Two bytes, big-endian.
    Int16,
    /// A varint of the 32-bit two's complement.
    Int32,
    /// A varint of the 64-bit two's complement.
    Int64,
    /// Four bytes, IEEE 754.
    Float,
    /// Eight bytes, IEEE 754.
    Double,
    /// UTF-8 with its length.
    String,
    /// One byte.
    Boolean,
    /// Bytes with their length.
    Bytes,
    /// Items, encoded as by the iterable coder.
    Array(Box<FieldType>),
    /// The same as an array on the wire.
    Iterable(Box<FieldType>),
    /// Keys and values, after an int32 count.
    Map(Box<FieldType>, Box<FieldType>),
    /// A row.
    Row(Schema),
    /// `millis_instant`: a timestamp, not the int64 of its representation.
    MillisInstant,
    /// `decimal`: a varint scale and the unscaled two's complement with its length, not its bytes representation.
    Decimal,
    /// Any other logical type, encoded as its representation.
    Logical {
        /// Which logical type.
        urn: String,
        /// What its values are encoded as.
        representation: Box<FieldType>,
    },
}

impl TypeInfo {
    /// The logical type of a URN: two have an encoding of their own, all others have that of `representation`.
    pub fn logical(urn: &str, representation: FieldType) -> Self {
        match urn {
            "beam:logical_type:millis_instant:v1" => TypeInfo::MillisInstant,
            "beam:logical_type:decimal:v1" => TypeInfo::Decimal,
            _ => TypeInfo::Logical { urn: urn.to_owned(), representation: Box::new(representation) },
        }
    }
}

impl Schema {
    /// A schema whose fields are encoded in the order given.
    pub fn new(fields: Vec<Field>) -> Self {
        let encoding_order = (0..fields.len()).collect();
        Schema { fields, encoding_order }
    }

    /// A schema whose fields are encoded in the order of their positions, as after fields were added or moved.
    ///
    /// # Errors
    /// When there is not exactly one position for each field.
    pub fn with_encoding_positions(fields: Vec<Field>, positions: &[i32]) -> Result<Self, DecodeError> {
        let mut encoding_order: Vec<usize> = (0..positions.len()).collect();
        encoding_order.sort_by_key(|&index| positions[index]);
        let shared = encoding_order.windows(2).any(|pair| positions[pair[0]] == positions[pair[1]]);
        if shared || positions.len() != fields.len() {
            return Err(DecodeError::malformed("schema", "not one encoding position per field"));
        }
        Ok(Schema { fields, encoding_order })
    }

    /// The fields in schema order, which is the order of a row's values.
    pub fn fields(&self) -> &[Field] {
        &self.fields
    }

    /// Indices of the fields in the order in which they are encoded.
    pub fn encoding_order(&self) -> &[usize] {
        &self.encoding_order
    }

    pub(crate) fn skip(&self, reader: &mut Reader<'_>, depth: usize) -> Result<(), DecodeError> {
        let header = RowHeader::read(reader)?;
        if header.fields > self.fields.len() {
            return Err(more_fields_than_schema());
        }
        for &index in self.encoding_order.iter().take(header.fields) {
            if !header.is_null(index) {
                self.fields[index].field_type.type_info.skip(reader, depth)?;
            }
        }
        Ok(())
    }
}

/// What comes before the fields of an encoded row.
pub(crate) struct RowHeader<'a> {
    /// How many fields the writer knew. Fewer than the schema's: the rest are null.
    pub(crate) fields: usize,
    nulls: &'a [u8],
}

impl<'a> RowHeader<'a> {
    pub(crate) fn read(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        Ok(RowHeader { fields: reader.length()?, nulls: reader.length_prefixed()? })
    }

    /// Whether the field of this index in schema order is null.
    pub(crate) fn is_null(&self, index: usize) -> bool {
        self.nulls.get(index / 8).is_some_and(|bits| bits >> (index % 8) & 1 != 0)
    }
}

/// Inside other values such a row has no end that could be found; at the end of a value its extra fields are ignored.
pub(crate) fn more_fields_than_schema() -> DecodeError {
    DecodeError::malformed("row", "more fields than its schema")
}

impl FieldType {
    /// Reads over one value; nulls are marked by a byte, as items and entries have it. (Fields have the bitmap.)
    pub(crate) fn skip(&self, reader: &mut Reader<'_>, depth: usize) -> Result<(), DecodeError> {
        if self.nullable && !coder::read_presence(reader)? {
            return Ok(());
        }
        self.type_info.skip(reader, depth)
    }
}

impl TypeInfo {
    pub(crate) fn skip(&self, reader: &mut Reader<'_>, depth: usize) -> Result<(), DecodeError> {
        let depth = coder::deeper(depth)?;
        match self {
            TypeInfo::Byte | TypeInfo::Boolean => reader.take(1).map(drop),
            TypeInfo::Int16 => reader.take(2).map(drop),
            TypeInfo::Int32 | TypeInfo::Int64 => reader.varint().map(drop),
            TypeInfo::Float => reader.take(4).map(drop),
            TypeInfo::Double | TypeInfo::MillisInstant => reader.take(8).map(drop),
            TypeInfo::String | TypeInfo::Bytes => reader.length_prefixed().map(drop),
            TypeInfo::Array(item) | TypeInfo::Iterable(item) => {
                coder::skip_iterable(reader, false, |reader| item.skip(reader, depth))
            }
            TypeInfo::Map(key, value) => {
                let count = coder::read_count(reader)?;
                coder::skip_many(reader, count, |reader| {
                    key.skip(reader, depth)?;
                    value.skip(reader, depth)
                })
            }
            TypeInfo::Row(schema) => schema.skip(reader, depth),
            TypeInfo::Decimal => {
                reader.varint()?;
                reader.length_prefixed().map(drop)
            }
            TypeInfo::Logical { representation, .. } => representation.skip(reader, depth),
        }
    }
}

impl From<Schema> for Coder {
    fn from(schema: Schema) -> Self {
        Coder::Row(schema)
    }
}
