//! Error statuses whose text fits into HTTP/2 headers.
//!
//! gRPC sends the text percent-encoded in a header, and clients accept 8 KiB of headers in all. A longer text would turn
//! a clear error into a broken stream.

use tonic::{Code, Status};

/// Most bytes of a text after percent-encoding.
const ENCODED_BYTES_MAX: usize = 6_000;

/// The caller's request is wrong.
pub fn invalid_argument(text: impl AsRef<str>) -> Status {
    status(Code::InvalidArgument, text)
}

/// There is no such thing here.
pub fn not_found(kind: &str, id: &str) -> Status {
    status(Code::NotFound, format!("there is no {kind} {id:?} here"))
}

/// Something else must happen first.
pub fn failed_precondition(text: impl AsRef<str>) -> Status {
    status(Code::FailedPrecondition, text)
}

/// Our fault.
pub fn internal(text: impl AsRef<str>) -> Status {
    status(Code::Internal, text)
}

/// A status of any code, its text cut to what fits.
pub fn status(code: Code, text: impl AsRef<str>) -> Status {
    Status::new(code, fitting(text.as_ref()))
}

fn fitting(text: &str) -> String {
    let encoded = |character: char| if matches!(character, ' '..='~') && character != '%' { 1 } else { 3 * character.len_utf8() };
    let mut bytes = 0;
    for (at, character) in text.char_indices() {
        bytes += encoded(character);
        if bytes > ENCODED_BYTES_MAX {
            return format!("{} ... ({} bytes more)", &text[..at], text.len() - at);
        }
    }
    text.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_cut_by_their_encoded_length() {
        assert_eq!(fitting("a\nb"), "a\nb");
        assert_eq!(fitting(&"a".repeat(6_000)).len(), 6_000);
        assert_eq!(fitting(&"a".repeat(6_001)), format!("{} ... (1 bytes more)", "a".repeat(6_000)));
        assert!(fitting(&"é".repeat(6_000)).starts_with(&"é".repeat(1_000)));
        assert!(!fitting(&"é".repeat(6_000)).starts_with(&"é".repeat(1_001)));
    }
}
