//! How a pipeline names a DoFn in a component.
//!
//! Payload of DoFn URN `purlin:dofn:wasm:v1`:
//!
//! ```text
//!  varint length, that many bytes of UTF-8      name of the transform
//!  varint length, that many bytes               configuration, as the guest's `open` gets it
//! ```
//!
//! Payload of environment URN `purlin:env:wasm_component:v1`, JSON; the file itself is an artifact of the environment:
//!
//! ```text
//!  {"sha256":"<64 hex digits of the file's digest>","world":"purlin:dofn/stateless@0.1.0"}
//!
//! The world is the least that has what is used of the component.
//! ```

use model::reader::put_length_prefixed;
use model::{DecodeError, Reader};
use serde::{Deserialize, Serialize};

use crate::compile_cache::to_hex;

/// The worlds of components, the least first.
pub const WORLDS: [&str; 2] = ["purlin:dofn/stateless@0.1.0", "purlin:dofn/stateful@0.1.0"];

/// A decoded payload of an environment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EnvironmentPayload {
    /// sha256 of the component's file: SDKs lose the digest that an artifact has beside it.
    pub digest: [u8; 32],
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct EnvironmentJson {
    sha256: String,
    world: String,
}

impl EnvironmentPayload {
    /// The payload's bytes.
    pub fn encode(&self) -> Vec<u8> {
        let json = EnvironmentJson { sha256: to_hex(&self.digest), world: WORLDS[0].to_owned() };
        serde_json::to_vec(&json).expect("two strings are always JSON")
    }

    /// Reads what [`EnvironmentPayload::encode`] writes; the error says what is wrong with it.
    pub fn decode(bytes: &[u8]) -> Result<Self, String> {
        let json: EnvironmentJson = serde_json::from_slice(bytes).map_err(|error| format!("component environment: {error}"))?;
        if !WORLDS.contains(&json.world.as_str()) {
            return Err(format!("component environment: world {} is not supported, only {}", json.world, WORLDS.join(", ")));
        }
        let digest = from_hex(&json.sha256).ok_or_else(|| format!("component environment: `{}` is not a sha256", json.sha256))?;
        Ok(EnvironmentPayload { digest })
    }
}

fn from_hex(text: &str) -> Option<[u8; 32]> {
    let mut digest = [0; 32];
    if text.len() != 64 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    for (byte, at) in digest.iter_mut().zip((0..64).step_by(2)) {
        *byte = u8::from_str_radix(&text[at..at + 2], 16).ok()?;
    }
    Some(digest)
}

/// A decoded payload of a DoFn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DofnPayload {
    /// The transform's name in the component.
    pub name: String,
    /// Its configuration.
    pub config: Vec<u8>,
}

impl DofnPayload {
    /// The payload's bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        put_length_prefixed(&mut bytes, self.name.as_bytes());
        put_length_prefixed(&mut bytes, &self.config);
        bytes
    }

    /// Reads what [`DofnPayload::encode`] writes, and nothing more.
    pub fn decode(bytes: &[u8]) -> Result<DofnPayload, DecodeError> {
        let mut reader = Reader::new(bytes);
        let name =
            std::str::from_utf8(reader.length_prefixed()?).map_err(|_| DecodeError::malformed("transform name", "not UTF-8"))?;
        let config = reader.length_prefixed()?;
        if !reader.is_empty() {
            return Err(DecodeError::malformed("DoFn payload", "bytes are left over"));
        }
        Ok(DofnPayload { name: name.to_owned(), config: config.to_vec() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn environments_name_their_component() {
        let payload = EnvironmentPayload { digest: [0xab; 32] };
        let text = format!(r#"{{"sha256":"{}","world":"purlin:dofn/stateless@0.1.0"}}"#, "ab".repeat(32));
        assert_eq!(payload.encode(), text.as_bytes());
        assert_eq!(EnvironmentPayload::decode(text.as_bytes()), Ok(payload));
        assert_eq!(EnvironmentPayload::decode(text.replace("stateless", "stateful").as_bytes()), Ok(payload));
        for (from, to, expected) in
            [("stateless", "source", "is not supported"), ("abab", "xyz", "is not a sha256"), ("world", "earth", "unknown field")]
        {
            let error = EnvironmentPayload::decode(text.replace(from, to).as_bytes()).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn payloads_round_trip() {
        let payload = DofnPayload { name: "split".to_owned(), config: b"{}".to_vec() };
        assert_eq!(payload.encode(), b"\x05split\x02{}");
        assert_eq!(DofnPayload::decode(&payload.encode()), Ok(payload.clone()));
        for cut in 0..payload.encode().len() {
            assert!(DofnPayload::decode(&payload.encode()[..cut]).is_err());
        }
        assert!(DofnPayload::decode(b"\x01a\0x").is_err());
        assert!(DofnPayload::decode(b"\x01\xff\0").is_err());
    }
}
