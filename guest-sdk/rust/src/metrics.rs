//! User metrics: counters and distributions that a DoFn adds to, handed to the host as changes after every call.
//!
//! ```
//! use purlin::Counter;
//!
//! static WORDS: Counter = Counter::new("words");
//! WORDS.add(3);
//! ```
//!
//! A component runs one call at a time, so what was added during a call belongs to the transform that was called.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::Relaxed};

/// A sum of integers.
#[derive(Debug)]
pub struct Counter {
    name: Name,
    sum: AtomicI64,
}

/// Count, sum, least and greatest of integers.
#[derive(Debug)]
pub struct Distribution {
    name: Name,
    count: AtomicU64,
    sum: AtomicI64,
    min: AtomicI64,
    max: AtomicI64,
}

#[derive(Debug)]
struct Name {
    namespace: &'static str,
    name: &'static str,
    listed: AtomicBool,
}

/// A change of a metric since it was taken last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Empty: that of the transform.
    pub namespace: &'static str,
    /// The metric's name.
    pub name: &'static str,
    /// By how much.
    pub by: ChangeBy,
}

/// See [`Change`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChangeBy {
    /// Added to a counter.
    Counter(i64),
    /// Added to a distribution.
    #[allow(missing_docs, reason = "the fields are what their names say")]
    Distribution { count: u64, sum: i64, min: i64, max: i64 },
}

#[derive(Clone, Copy)]
enum Listed {
    Counter(&'static Counter),
    Distribution(&'static Distribution),
}

/// Every metric that was ever added to.
static LISTED: Mutex<Vec<Listed>> = Mutex::new(Vec::new());

impl Name {
    const fn new(namespace: &'static str, name: &'static str) -> Self {
        Name { namespace, name, listed: AtomicBool::new(false) }
    }

    #[inline]
    fn list(&self, metric: Listed) {
        if !self.listed.load(Relaxed) && !self.listed.swap(true, Relaxed) {
            LISTED.lock().expect("nothing panics while it holds the list").push(metric);
        }
    }
}

impl Counter {
    /// A counter in the namespace of the transform that adds to it.
    pub const fn new(name: &'static str) -> Self {
        Self::in_namespace("", name)
    }

    /// A counter in a namespace of its own.
    pub const fn in_namespace(namespace: &'static str, name: &'static str) -> Self {
        Counter { name: Name::new(namespace, name), sum: AtomicI64::new(0) }
    }

    /// Adds; negative numbers subtract.
    #[inline]
    pub fn add(&'static self, by: i64) {
        self.name.list(Listed::Counter(self));
        self.sum.fetch_add(by, Relaxed);
    }
}

impl Distribution {
    /// A distribution in the namespace of the transform that adds to it.
    pub const fn new(name: &'static str) -> Self {
        Self::in_namespace("", name)
    }

    /// A distribution in a namespace of its own.
    pub const fn in_namespace(namespace: &'static str, name: &'static str) -> Self {
        Distribution {
            name: Name::new(namespace, name),
            count: AtomicU64::new(0),
            sum: AtomicI64::new(0),
            min: AtomicI64::new(i64::MAX),
            max: AtomicI64::new(i64::MIN),
        }
    }

    /// Adds a value.
    #[inline]
    pub fn add(&'static self, value: i64) {
        self.name.list(Listed::Distribution(self));
        self.count.fetch_add(1, Relaxed);
        self.sum.fetch_add(value, Relaxed);
        self.min.fetch_min(value, Relaxed);
        self.max.fetch_max(value, Relaxed);
    }
}

/// What was added since the last time, and nothing of it afterwards. For whoever calls DoFns.
pub fn take_changes() -> Vec<Change> {
    let listed = LISTED.lock().expect("nothing panics while it holds the list");
    let change = |name: &'static Name, by| Change { namespace: name.namespace, name: name.name, by };
    let changes = listed.iter().filter_map(|metric| match *metric {
        Listed::Counter(counter) => {
            let by = counter.sum.swap(0, Relaxed);
            (by != 0).then(|| change(&counter.name, ChangeBy::Counter(by)))
        }
        Listed::Distribution(distribution) => {
            let by = ChangeBy::Distribution {
                count: match distribution.count.swap(0, Relaxed) {
                    0 => return None,
                    count => count,
                },
                sum: distribution.sum.swap(0, Relaxed),
                min: distribution.min.swap(i64::MAX, Relaxed),
                max: distribution.max.swap(i64::MIN, Relaxed),
            };
            Some(change(&distribution.name, by))
        }
    });
    changes.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_taken_once() {
        static SEEN: Counter = Counter::in_namespace("test", "seen");
        static SIZES: Distribution = Distribution::in_namespace("test", "sizes");
        SEEN.add(2);
        SEEN.add(3);
        SIZES.add(-4);
        SIZES.add(9);
        let expected = [
            Change { namespace: "test", name: "seen", by: ChangeBy::Counter(5) },
            Change { namespace: "test", name: "sizes", by: ChangeBy::Distribution { count: 2, sum: 5, min: -4, max: 9 } },
        ];
        let ours = || take_changes().into_iter().filter(|change| change.namespace == "test").collect::<Vec<_>>();
        assert_eq!(ours(), expected);
        assert_eq!(ours(), []);
    }
}
