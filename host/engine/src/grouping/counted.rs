//! Times that many things hold at once, and the least of them.

use std::collections::BTreeMap;

/// A multiset in order. Adding and removing are exact: what was added is removed once.
#[derive(Clone, Debug)]
pub(super) struct Counted<T> {
    counts: BTreeMap<T, u64>,
}

impl<T> Default for Counted<T> {
    fn default() -> Self {
        Counted { counts: BTreeMap::new() }
    }
}

impl<T: Ord + Copy> Counted<T> {
    pub(super) fn add(&mut self, item: T) {
        *self.counts.entry(item).or_insert(0) += 1;
    }

    pub(super) fn remove(&mut self, item: T) {
        let count = self.counts.get_mut(&item).expect("only what was added is removed");
        *count -= 1;
        if *count == 0 {
            self.counts.remove(&item);
        }
    }

    pub(super) fn least(&self) -> Option<T> {
        self.counts.first_key_value().map(|(item, _)| *item)
    }
}
