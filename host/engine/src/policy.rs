//! How large a bundle may become. Tests run every script under every policy; production is greedy.

use crate::keyed;
use crate::topology::Head;

/// Bounds of one engine. All of them are limits of a bundle but `backlog_bytes_max`, which bounds the shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Rows of a bundle, or timers, at most.
    pub rows_max: usize,
    /// Bytes of a bundle's input, and of the panes of one firing, about; a bundle has at least one row whatever its size.
    pub bytes_max: u64,
    /// Panes that one bundle of a grouping stage fires, and keys for which one of a keyed stage does, at most.
    pub keys_max: usize,
    /// Rows of a bundle of restrictions, at most: each may take long.
    pub restrictions_max: usize,
    /// Bytes that wait in the stages below a source before the source stops.
    pub backlog_bytes_max: u64,
    /// What a bundle may combine.
    pub policy: BundlePolicy,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            rows_max: 10_000,
            bytes_max: 4 << 20,
            keys_max: 10_000,
            restrictions_max: 64,
            backlog_bytes_max: 64 << 20,
            policy: BundlePolicy::Greedy,
        }
    }
}

/// What a bundle may combine. A pipeline's results must not depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BundlePolicy {
    /// As much as the limits allow.
    Greedy,
    /// Rows of one entry, or panes or timers of one key.
    OneKey,
    /// One row, panes of one key, or one timer.
    OneElement,
}

impl BundlePolicy {
    /// All of them, for tests.
    pub const ALL: [BundlePolicy; 3] = [BundlePolicy::Greedy, BundlePolicy::OneKey, BundlePolicy::OneElement];
}

/// Limits of one bundle's input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InputLimits {
    pub(crate) entries_max: usize,
    pub(crate) rows_max: usize,
    pub(crate) bytes_max: u64,
}

impl Options {
    /// Limits of the input of a bundle of a stage with this head.
    pub(crate) fn input_limits(&self, head: &Head) -> InputLimits {
        let rows_max = match head {
            Head::Restrictions { .. } => self.restrictions_max,
            Head::Plain | Head::Grouping(_) | Head::Keyed(_) | Head::Script => self.rows_max,
        };
        let (entries_max, rows_max) = match self.policy {
            BundlePolicy::Greedy => (usize::MAX, rows_max),
            BundlePolicy::OneKey => (1, rows_max),
            BundlePolicy::OneElement => (1, 1),
        };
        InputLimits { entries_max, rows_max: rows_max.max(1), bytes_max: self.bytes_max }
    }

    /// Limits of what a bundle of a keyed stage fires.
    pub(crate) fn key_limits(&self) -> keyed::Limits {
        let items_max = match self.policy {
            BundlePolicy::Greedy | BundlePolicy::OneKey => self.rows_max.max(1),
            BundlePolicy::OneElement => 1,
        };
        keyed::Limits { items_max, keys_max: self.firing_keys_max(), bytes_max: self.bytes_max }
    }

    /// Keys whose panes or timers one bundle may fire.
    pub(crate) fn firing_keys_max(&self) -> usize {
        match self.policy {
            BundlePolicy::Greedy => self.keys_max.max(1),
            BundlePolicy::OneKey | BundlePolicy::OneElement => 1,
        }
    }
}
