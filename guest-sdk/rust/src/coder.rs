//! Model coders as constants: how the elements of a Rust type look on the wire.
//!
//! Only descriptions; the bytes are made and read in [`crate::element`].

/// A coder of Beam's model. Names are the tails of the URNs, `beam:coder:...:v1`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coder {
    /// `bytes`
    Bytes,
    /// `string_utf8`
    StringUtf8,
    /// `bool`
    Bool,
    /// `varint`
    VarInt,
    /// `double`
    Double,
    /// `kv`
    Kv(&'static Coder, &'static Coder),
    /// `iterable`
    Iterable(&'static Coder),
    /// `nullable`
    Nullable(&'static Coder),
}

impl Coder {
    /// The full URN.
    pub const fn urn(&self) -> &'static str {
        match self {
            Coder::Bytes => "beam:coder:bytes:v1",
            Coder::StringUtf8 => "beam:coder:string_utf8:v1",
            Coder::Bool => "beam:coder:bool:v1",
            Coder::VarInt => "beam:coder:varint:v1",
            Coder::Double => "beam:coder:double:v1",
            Coder::Kv(..) => "beam:coder:kv:v1",
            Coder::Iterable(_) => "beam:coder:iterable:v1",
            Coder::Nullable(_) => "beam:coder:nullable:v1",
        }
    }

    /// Coders of the parts, in the order of the model.
    pub const fn parts(&self) -> [Option<&'static Coder>; 2] {
        match self {
            Coder::Kv(key, value) => [Some(key), Some(value)],
            Coder::Iterable(part) | Coder::Nullable(part) => [Some(part), None],
            _ => [None, None],
        }
    }
}
