//! Tests of the model coders: Beam's own conformance file, byte vectors, and untrusted input.

#![allow(clippy::unwrap_used, reason = "a test says what went wrong by failing")]

mod schema_payload;
mod standard;
mod untrusted;
mod vectors;

use model::coder::Coder;

/// Shorthand for the coder trees in the tests.
fn kv(key: Coder, value: Coder) -> Coder {
    Coder::Kv(Box::new(key), Box::new(value))
}

fn iterable(element: Coder) -> Coder {
    Coder::Iterable(Box::new(element))
}

fn state_backed_iterable(element: Coder) -> Coder {
    Coder::StateBackedIterable(Box::new(element))
}

fn length_prefix(value: Coder) -> Coder {
    Coder::LengthPrefix(Some(Box::new(value)))
}

fn windowed_value(value: Coder, window: Coder) -> Coder {
    Coder::WindowedValue(Box::new(value), Box::new(window))
}

fn timer(key: Coder, window: Coder) -> Coder {
    Coder::Timer(Box::new(key), Box::new(window))
}
