//! A component as a file: which kind it is, its custom sections, and making a component of a core module.
//!
//! Reads only what it must; whether the code is valid is the compiler's business.

use model::Reader;
use model::reader::put_length_prefixed;

use crate::Error;

/// Name of the custom section with the manifest.
pub const MANIFEST_SECTION: &str = "purlin:manifest";

/// How deep modules and components may nest while a section is looked for.
const DEPTH_MAX: usize = 8;

/// What a WebAssembly file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A core module, as `cargo build --target wasm32-unknown-unknown` makes it.
    CoreModule,
    /// A component.
    Component,
}

impl Kind {
    /// Tells the kind by the first eight bytes.
    pub fn of(bytes: &[u8]) -> Result<Kind, Error> {
        match bytes.get(..8) {
            Some([b'\0', b'a', b's', b'm', 1, 0, 0, 0]) => Ok(Kind::CoreModule),
            // Version 13 of layer 1.
            Some([b'\0', b'a', b's', b'm', 0x0d, 0, 1, 0]) => Ok(Kind::Component),
            // Compiled code is an ELF file.
            Some([0x7f, b'E', b'L', b'F', ..]) => Err(Error::Precompiled),
            _ => Err(Error::NotWasm { begin: worker::body::hex(&bytes[..bytes.len().min(8)]) }),
        }
    }
}

/// The file as a component: a core module is wrapped, and its manifest is put at the end, where readers find it at once.
pub fn pack(bytes: &[u8]) -> Result<Vec<u8>, Error> {
    if Kind::of(bytes)? == Kind::Component {
        return Ok(bytes.to_vec());
    }
    // wit-component trusts its input and panics on some that is cut short.
    let wrapped = std::panic::catch_unwind(|| wit_component::ComponentEncoder::default().validate(true).module(bytes)?.encode());
    let mut component = match wrapped {
        Ok(Ok(component)) => component,
        Ok(Err(error)) => return Err(Error::Convert(format!("{error:#}"))),
        Err(_) => return Err(Error::Convert("it is malformed".to_owned())),
    };
    if let Some(manifest) = manifest_section(bytes)? {
        let mut section = Vec::new();
        put_length_prefixed(&mut section, MANIFEST_SECTION.as_bytes());
        section.extend_from_slice(manifest);
        component.push(0);
        put_length_prefixed(&mut component, &section);
    }
    Ok(component)
}

/// The content of the manifest section, in the file itself or in the first module inside that has one.
pub fn manifest_section(bytes: &[u8]) -> Result<Option<&[u8]>, Error> {
    Kind::of(bytes)?;
    section_within(bytes, DEPTH_MAX).map_err(|error| Error::Invalid(format!("sections: {error}")))
}

fn section_within(bytes: &[u8], depth: usize) -> Result<Option<&[u8]>, model::DecodeError> {
    let Some(depth) = depth.checked_sub(1) else { return Ok(None) };
    let component = Kind::of(bytes).is_ok_and(|kind| kind == Kind::Component);
    let mut reader = Reader::new(bytes);
    reader.take(8)?;
    let mut inner = None;
    while !reader.is_empty() {
        let id = reader.u8()?;
        let content = reader.length_prefixed()?;
        match id {
            0 => {
                let mut section = Reader::new(content);
                if section.length_prefixed()? == MANIFEST_SECTION.as_bytes() {
                    return Ok(Some(section.rest()));
                }
            }
            // In a component, 1 is a core module and 4 a component.
            1 | 4 if component && inner.is_none() && Kind::of(content).is_ok() => inner = section_within(content, depth)?,
            _ => {}
        }
    }
    Ok(inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn section(id: u8, content: &[u8]) -> Vec<u8> {
        let mut section = vec![id];
        put_length_prefixed(&mut section, content);
        section
    }

    fn manifest(text: &str) -> Vec<u8> {
        let mut content = Vec::new();
        put_length_prefixed(&mut content, MANIFEST_SECTION.as_bytes());
        content.extend_from_slice(text.as_bytes());
        section(0, &content)
    }

    const CORE: &[u8] = b"\0asm\x01\0\0\0";
    const COMPONENT: &[u8] = b"\0asm\x0d\0\x01\0";

    #[test]
    fn the_manifest_is_found_wherever_it_is() {
        let check = |bytes: &[u8], expected: Option<&str>| {
            assert_eq!(manifest_section(bytes).unwrap(), expected.map(str::as_bytes));
        };
        let core = [CORE, &section(1, b"types"), &manifest("core")].concat();
        check(CORE, None);
        check(&core, Some("core"));
        check(&[COMPONENT, &section(1, CORE), &section(1, &core)].concat(), Some("core"));
        check(&[COMPONENT, &section(1, &core), &manifest("outer")].concat(), Some("outer"));
        let nested = [COMPONENT, &section(1, &core)].concat();
        check(&[COMPONENT, &section(4, &nested)].concat(), Some("core"));
        let deep = (0..20).fold(core, |inner, _| [COMPONENT, &section(4, &inner)].concat());
        check(&deep, None);
    }

    #[test]
    fn other_files_are_refused_by_name() {
        assert!(matches!(Kind::of(b"\x7fELF\x02\x01\x01\0\0\0"), Err(Error::Precompiled)));
        let text = |bytes| Kind::of(bytes).unwrap_err().to_string();
        assert_eq!(text(b"PK\x03\x04"), "not a WebAssembly file: it begins with 0x504b0304");
        assert_eq!(text(b""), "not a WebAssembly file: it begins with none");
        assert!(manifest_section(&[CORE, &[0, 50, 1]].concat()).is_err());
    }
}
