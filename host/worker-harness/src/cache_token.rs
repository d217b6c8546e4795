//! The token under which a harness may keep user state in its memory from bundle to bundle (`beam-model` 3.7).
//!
//! A token says: what was kept under it has been changed by nothing but the harness's own successful bundles. So a slot has a new
//! one whenever its last bundle did not succeed there, or ran elsewhere. Keys belong to one slot each.

use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use proto::fnapi::process_bundle_request::{CacheToken, cache_token};

/// Tokens are never used twice in a process, whatever slot they are of.
static NEXT: AtomicU64 = AtomicU64::new(0);

/// What one slot's harness may remember.
#[derive(Debug, Default)]
pub(crate) struct Remembered {
    /// The harness that ran the last bundle, which succeeded, and its token.
    last: Option<(String, Bytes)>,
}

impl Remembered {
    /// A bundle begins on a harness: its token. Unless it succeeds, the token is not used again.
    pub(crate) fn begin(&mut self, harness: &str) -> Bytes {
        let known = self.last.take().filter(|(last, _)| last == harness);
        known.map_or_else(|| NEXT.fetch_add(1, Ordering::Relaxed).to_be_bytes().to_vec().into(), |(_, token)| token)
    }

    /// The bundle succeeded.
    pub(crate) fn succeeded(&mut self, harness: &str, token: Bytes) {
        self.last = Some((harness.to_owned(), token));
    }
}

/// As a bundle's request carries it.
pub(crate) fn of_user_state(token: Bytes) -> CacheToken {
    CacheToken { token, r#type: Some(cache_token::Type::UserState(cache_token::UserState {})) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_lasts_while_bundles_succeed_in_one_place() {
        let mut remembered = Remembered::default();
        let first = remembered.begin("a");
        remembered.succeeded("a", first.clone());
        let again = remembered.begin("a");
        assert_eq!(again, first);
        // It failed.
        let after_failure = remembered.begin("a");
        assert_ne!(after_failure, first);
        remembered.succeeded("a", after_failure.clone());
        let elsewhere = remembered.begin("b");
        remembered.succeeded("b", elsewhere.clone());
        let back = remembered.begin("a");
        assert!(elsewhere != after_failure && back != after_failure && back != elsewhere);
        assert_ne!(Remembered::default().begin("a"), Remembered::default().begin("a"));
    }
}
