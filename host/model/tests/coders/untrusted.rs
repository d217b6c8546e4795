//! Untrusted bytes: whatever comes, decoding and skipping answer, without a panic and without memory for what is not
//! there. Failures print the seed; `CODERS_SEED` runs one seed again.

use model::coder::{Coder, DEPTH_MAX};
use model::schema::{Field, FieldType, Schema, TypeInfo};
use model::value::Value;
use model::{DecodeError, Reader};

use crate::{iterable, kv, length_prefix, state_backed_iterable, timer, windowed_value};

/// Marsaglia's xorshift: enough randomness for tests, and the same on every machine.
struct Xorshift(u64);

impl Xorshift {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    /// Mostly the bytes that begin something: small counts, -1, and continued varints.
    fn byte(&mut self) -> u8 {
        match self.below(4) {
            0 => self.below(4) as u8,
            1 => [0xff, 0x80, 0x7f, 0x8f][self.below(4)],
            _ => self.next() as u8,
        }
    }

    fn bytes(&mut self, length_max: usize) -> Vec<u8> {
        (0..self.below(length_max + 1)).map(|_| self.byte()).collect()
    }
}

fn coders() -> Vec<Coder> {
    let window = Coder::CustomWindow(Box::new(Coder::LengthPrefix(None)));
    let payload = [0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0x0f];
    let atoms = [Coder::Bytes, Coder::StringUtf8, Coder::Bool, Coder::VarInt, Coder::Double, Coder::GlobalWindow];
    let mut coders = vec![
        Coder::IntervalWindow,
        window.clone(),
        Coder::ParamWindowedValue(Box::new(Coder::Bytes), Box::new(Coder::GlobalWindow), payload.to_vec().into()),
        windowed_value(kv(Coder::LengthPrefix(None), iterable(Coder::VarInt)), Coder::IntervalWindow),
        windowed_value(Coder::StringUtf8, window),
        timer(Coder::Bytes, Coder::IntervalWindow),
        Coder::ShardedKey(Box::new(Coder::StringUtf8)),
        iterable(iterable(Coder::GlobalWindow)),
        state_backed_iterable(kv(Coder::Bool, Coder::Bytes)),
        length_prefix(state_backed_iterable(Coder::Bytes)),
        Coder::Row(every_type(2)),
    ];
    for atom in &atoms {
        coders.push(iterable(atom.clone()));
        coders.push(state_backed_iterable(atom.clone()));
        coders.push(length_prefix(atom.clone()));
        coders.push(Coder::Nullable(Box::new(atom.clone())));
        coders.push(kv(atom.clone(), Coder::Bytes));
    }
    coders.extend(atoms);
    coders
}

/// A schema with a field of each type, nullable and not, and rows in rows.
fn every_type(levels: usize) -> Schema {
    let item = |type_info| Box::new(FieldType { nullable: true, type_info });
    let mut types = vec![
        TypeInfo::Byte,
        TypeInfo::Int16,
        TypeInfo::Int32,
        TypeInfo::Int64,
        TypeInfo::Float,
        TypeInfo::Double,
        TypeInfo::String,
        TypeInfo::Boolean,
        TypeInfo::Bytes,
        TypeInfo::Array(item(TypeInfo::Int64)),
        TypeInfo::Iterable(item(TypeInfo::String)),
        TypeInfo::Map(item(TypeInfo::Bytes), item(TypeInfo::Boolean)),
        TypeInfo::MillisInstant,
        TypeInfo::Decimal,
        TypeInfo::logical("beam:logical_type:var_bytes:v1", *item(TypeInfo::Bytes)),
    ];
    if levels > 0 {
        types.push(TypeInfo::Row(every_type(levels - 1)));
    }
    let field =
        |(index, type_info)| Field { name: format!("f{index}"), field_type: FieldType { nullable: index % 2 == 0, type_info } };
    Schema::new(types.into_iter().enumerate().map(field).collect())
}

/// Decoding, where it succeeds, agrees with skipping, and encoding what was decoded loses nothing.
fn check(coder: &Coder, bytes: &[u8]) {
    let mut skipped = Reader::new(bytes);
    let skipping = coder.skip(&mut skipped);
    let mut reader = Reader::new(bytes);
    if let Ok(value) = Value::decode_nested(coder, &mut reader) {
        assert_eq!(skipping, Ok(()), "what can be decoded can be skipped");
        assert_eq!(skipped.position(), reader.position(), "both end at the same place");
        let Some(encoded) = encode_again(coder, &value) else { return };
        let again = Value::decode_nested(coder, &mut Reader::new(&encoded)).expect("an encoded value can be decoded");
        assert_eq!(again.encode_nested(coder), Ok(encoded));
    }
    let _ = Value::decode(coder, bytes);
    let _ = coder.key_len(bytes);
}

/// What was decoded can be encoded, with one exception: a row of fewer fields than its schema has nulls where there can
/// be none.
fn encode_again(coder: &Coder, value: &Value) -> Option<Vec<u8>> {
    let encoded = value.encode_nested(coder);
    assert!(encoded.is_ok() || matches!(coder, Coder::Row(_)), "{coder}: {encoded:?}");
    encoded.ok()
}

/// Runs one seed; the panic message of any assertion in it is preceded by the seed.
fn run(seed: u64) {
    struct Announce(u64);
    impl Drop for Announce {
        fn drop(&mut self) {
            if std::thread::panicking() {
                eprintln!("failed with CODERS_SEED={}", self.0);
            }
        }
    }
    let _announce = Announce(seed);
    let mut random = Xorshift(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    for coder in coders() {
        for _ in 0..20 {
            let bytes = random.bytes(60);
            check(&coder, &bytes);
            mutate_decodable(&coder, &bytes, &mut random);
        }
    }
}

/// Random bytes rarely get far into a composite; what could be decoded is cut and changed to get further.
fn mutate_decodable(coder: &Coder, bytes: &[u8], random: &mut Xorshift) {
    let Ok(value) = Value::decode_nested(coder, &mut Reader::new(bytes)) else { return };
    let Some(encoded) = encode_again(coder, &value) else { return };
    for cut in 0..encoded.len().min(100) {
        assert!(coder.skip(&mut Reader::new(&encoded[..cut])).is_err(), "a cut value cannot be skipped: {coder}");
        check(coder, &encoded[..cut]);
    }
    for _ in 0..encoded.len().min(20) {
        let mut changed = encoded.clone();
        let at = random.below(changed.len());
        changed[at] = random.byte();
        check(coder, &changed);
    }
}

#[test]
fn random_and_truncated_bytes_never_panic() {
    match std::env::var("CODERS_SEED") {
        Ok(seed) => run(seed.parse().unwrap()),
        Err(_) => (0..40).for_each(run),
    }
}

#[test]
fn declared_lengths_and_counts_reserve_nothing() {
    let huge_length = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f];
    for coder in [Coder::Bytes, Coder::StringUtf8, Coder::LengthPrefix(None)] {
        assert!(coder.skip(&mut Reader::new(&huge_length)).is_err());
        assert!(Value::decode_nested(&coder, &mut Reader::new(&huge_length)).is_err());
    }
    let many = [0x7f, 0xff, 0xff, 0xff, 1, 1];
    assert!(iterable(Coder::Bool).skip(&mut Reader::new(&many)).is_err());
    assert!(Value::decode(&iterable(Coder::Bool), &many).is_err());
}

#[test]
fn elements_without_bytes_are_bounded() {
    let windows = iterable(Coder::GlobalWindow);
    let many = [0x7f, 0xff, 0xff, 0xff];
    assert_eq!(windows.skip(&mut Reader::new(&many)), Ok(()), "skipping them takes no time");
    assert!(Value::decode(&windows, &many).is_err());
    // The bound holds for a value as a whole, not for each iterable in it.
    let one_list = [&[0, 0, 0, 100][..], &[0, 0, 0, 0xff].repeat(100)].concat();
    assert!(Value::decode(&iterable(windows), &one_list).is_err());
}

#[test]
fn nesting_is_bounded() {
    let nested = |levels: usize| (1..levels).fold(Coder::Bool, |inner, _| Coder::Nullable(Box::new(inner)));
    let bytes = vec![1; DEPTH_MAX];
    let fits = nested(DEPTH_MAX);
    assert_eq!(fits.skip(&mut Reader::new(&bytes)), Ok(()));
    assert_eq!(Value::decode(&fits, &bytes), Ok(Value::Bool(true)));
    let too_deep = nested(DEPTH_MAX + 1);
    let bytes = vec![1; DEPTH_MAX + 1];
    assert_eq!(too_deep.skip(&mut Reader::new(&bytes)), Err(DecodeError::TooDeep(DEPTH_MAX)));
    assert_eq!(Value::decode(&too_deep, &bytes), Err(DecodeError::TooDeep(DEPTH_MAX)));
}

#[test]
fn malformed_values_are_refused() {
    let refused = |coder: Coder, bytes: &[u8]| {
        assert!(Value::decode(&coder, bytes).is_err(), "{coder} {bytes:02x?}");
    };
    refused(Coder::Bool, &[2]);
    refused(Coder::Bool, &[1, 1]);
    refused(Coder::StringUtf8, &[0xff]);
    refused(Coder::Nullable(Box::new(Coder::Bool)), &[2, 1]);
    refused(iterable(Coder::Bool), &[0xff, 0xff, 0xff, 0xfe]);
    refused(iterable(Coder::Bool), &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 0]);
    refused(length_prefix(Coder::Bool), &[2, 1, 1]);
    refused(windowed_value(Coder::Bool, Coder::GlobalWindow), &[0x80, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 15, 1]);
}
