//! Metric values as Beam's `MonitoringInfo` carries them, and how two of the same metric become one.
//!
//! Only values: collecting is the workers' business, naming and publishing the server's. Bytes and protocol buffers stay
//! at the edges.

use std::collections::{BTreeMap, BTreeSet};

/// What tells one metric from another.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MetricName {
    /// For example `beam:metric:user:sum_int64:v1`.
    pub urn: String,
    /// For example `PTRANSFORM`, `NAMESPACE` and `NAME`.
    pub labels: BTreeMap<String, String>,
}

/// A metric's value. The comment of each variant is the tail of its type URN, `beam:metrics:...`.
#[derive(Clone, Debug, PartialEq)]
pub enum MetricValue {
    /// `sum_int64:v1`
    SumInt(i64),
    /// `sum_double:v1`
    SumDouble(f64),
    /// `distribution_int64:v1`
    DistributionInt(Distribution<i64>),
    /// `distribution_double:v1`
    DistributionDouble(Distribution<f64>),
    /// `latest_int64:v1`
    LatestInt(Latest<i64>),
    /// `latest_double:v1`
    LatestDouble(Latest<f64>),
    /// `top_n_int64:v1` and `bottom_n_int64:v1`
    ExtremesInt(Extremes<i64>),
    /// `top_n_double:v1` and `bottom_n_double:v1`
    ExtremesDouble(Extremes<f64>),
    /// `progress:v1`: fractions or sizes of work, one per active element.
    Progress(Vec<f64>),
    /// `set_string:v1`
    StringSet(BTreeSet<String>),
    /// `bounded_trie:v1`
    BoundedTrie(BoundedTrie),
    /// `histogram_int64:v1`
    Histogram(Histogram),
}

/// Count, sum, least and greatest. A count of 0 says nothing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Distribution<T> {
    /// How many values.
    pub count: i64,
    /// Their sum.
    pub sum: T,
    /// The least.
    pub min: T,
    /// The greatest.
    pub max: T,
}

/// A gauge: the value that was set last.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Latest<T> {
    /// When, in milliseconds since the epoch.
    pub at_ms: i64,
    /// To what.
    pub value: T,
}

/// The best few values, best first.
#[derive(Clone, Debug, PartialEq)]
pub struct Extremes<T> {
    /// Whether great values are the best.
    pub top: bool,
    /// At most as many as the SDK keeps.
    pub values: Vec<T>,
}

/// A histogram whose bucket layout is opaque: equal layouts add up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Histogram {
    /// Values counted, those outside all buckets included.
    pub count: i64,
    /// The serialized `BucketOptions`.
    pub buckets: Vec<u8>,
    /// Values per bucket.
    pub counts: Vec<i64>,
}

/// Paths of string segments with a bound on the number of leaves; branches beyond it are cut off.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BoundedTrie {
    /// Most leaves to keep.
    pub bound: i32,
    /// All paths; its `children` are the first segments.
    pub root: TrieNode,
}

/// One node of a [`BoundedTrie`]: a leaf if it has no children.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrieNode {
    /// Whether longer paths went through here and were cut off.
    pub truncated: bool,
    /// Next segments.
    pub children: BTreeMap<String, TrieNode>,
}

/// Bound of a trie whose SDK did not send one.
pub const TRIE_BOUND_DEFAULT: i32 = 100;

impl TrieNode {
    fn size(&self) -> i64 {
        if self.truncated || self.children.is_empty() { 1 } else { self.children.values().map(TrieNode::size).sum() }
    }

    fn merge(&mut self, other: &TrieNode) {
        if self.truncated || other.truncated {
            *self = TrieNode { truncated: true, children: BTreeMap::new() };
            return;
        }
        for (segment, child) in &other.children {
            self.children.entry(segment.clone()).or_default().merge(child);
        }
    }

    /// Cuts off the largest branch that consists of leaves only.
    fn trim(&mut self) {
        let largest = self.children.values_mut().max_by_key(|child| child.size());
        match largest {
            Some(child) if child.size() > 1 => child.trim(),
            _ => *self = TrieNode { truncated: true, children: BTreeMap::new() },
        }
    }
}

impl BoundedTrie {
    /// Adds the paths of another trie, then cuts down to the smaller bound.
    pub fn merge(&mut self, other: &BoundedTrie) {
        self.bound = self.bound.min(other.bound);
        self.root.merge(&other.root);
        while self.root.size() > i64::from(self.bound.max(1)) {
            self.root.trim();
        }
    }
}

impl MetricValue {
    /// Makes one value of two of the same metric, `later` being the one that was committed later.
    /// Values of different kinds, or histograms of different layouts, do not merge: the earlier is kept and false returned.
    pub fn merge(&mut self, later: &MetricValue) -> bool {
        use MetricValue::*;
        match (self, later) {
            (SumInt(a), SumInt(b)) => *a = a.wrapping_add(*b),
            (SumDouble(a), SumDouble(b)) => *a += b,
            (DistributionInt(a), DistributionInt(b)) => merge_distribution(a, b, i64::wrapping_add),
            (DistributionDouble(a), DistributionDouble(b)) => merge_distribution(a, b, |x, y| x + y),
            (LatestInt(a), LatestInt(b)) if b.at_ms >= a.at_ms => *a = *b,
            (LatestDouble(a), LatestDouble(b)) if b.at_ms >= a.at_ms => *a = *b,
            (LatestInt(_), LatestInt(_)) | (LatestDouble(_), LatestDouble(_)) => {}
            (ExtremesInt(a), ExtremesInt(b)) => merge_extremes(a, b, i64::cmp),
            (ExtremesDouble(a), ExtremesDouble(b)) => merge_extremes(a, b, f64::total_cmp),
            (Progress(a), Progress(b)) => *a = b.clone(),
            (StringSet(a), StringSet(b)) => a.extend(b.iter().cloned()),
            (BoundedTrie(a), BoundedTrie(b)) => a.merge(b),
            (Histogram(a), Histogram(b)) if a.buckets == b.buckets => a.merge(b),
            _ => return false,
        }
        true
    }
}

impl Histogram {
    fn merge(&mut self, other: &Histogram) {
        self.count += other.count;
        self.counts.resize(self.counts.len().max(other.counts.len()), 0);
        self.counts.iter_mut().zip(&other.counts).for_each(|(mine, theirs)| *mine += theirs);
    }
}

fn merge_distribution<T: Copy + PartialOrd>(a: &mut Distribution<T>, b: &Distribution<T>, add: impl Fn(T, T) -> T) {
    if b.count == 0 {
        return;
    }
    if a.count == 0 {
        *a = *b;
        return;
    }
    a.count += b.count;
    a.sum = add(a.sum, b.sum);
    if b.min < a.min {
        a.min = b.min;
    }
    if b.max > a.max {
        a.max = b.max;
    }
}

fn merge_extremes<T: Copy>(a: &mut Extremes<T>, b: &Extremes<T>, compare: impl Fn(&T, &T) -> std::cmp::Ordering) {
    let keep = a.values.len().max(b.values.len());
    a.values.extend_from_slice(&b.values);
    a.values.sort_by(|x, y| if a.top { compare(y, x) } else { compare(x, y) });
    a.values.truncate(keep);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trie(bound: i32, paths: &[&[&str]]) -> BoundedTrie {
        let mut trie = BoundedTrie { bound, root: TrieNode::default() };
        for path in paths {
            let mut node = &mut trie.root;
            for segment in *path {
                node = node.children.entry(segment.to_string()).or_default();
            }
        }
        trie
    }

    #[test]
    fn an_empty_distribution_says_nothing() {
        let empty = Distribution { count: 0, sum: 0, min: i64::MAX, max: i64::MIN };
        let some = Distribution { count: 2, sum: 4, min: 1, max: 3 };
        for (a, b) in [(empty, some), (some, empty)] {
            let mut merged = MetricValue::DistributionInt(a);
            assert!(merged.merge(&MetricValue::DistributionInt(b)));
            assert_eq!(merged, MetricValue::DistributionInt(some));
        }
    }

    #[test]
    fn a_gauge_keeps_the_latest_and_the_later_of_ties() {
        let latest = |at_ms, value| MetricValue::LatestInt(Latest { at_ms, value });
        let mut value = latest(5, 1);
        value.merge(&latest(4, 2));
        assert_eq!(value, latest(5, 1));
        value.merge(&latest(5, 3));
        assert_eq!(value, latest(5, 3));
    }

    #[test]
    fn a_trie_over_its_bound_loses_its_largest_branch() {
        let mut merged = trie(3, &[&["a", "1"], &["a", "2"]]);
        merged.merge(&trie(3, &[&["a", "3"], &["b", "1"]]));
        assert!(merged.root.children["a"].truncated);
        assert!(!merged.root.children["b"].truncated);
    }

    #[test]
    fn different_kinds_do_not_merge() {
        assert!(!MetricValue::SumInt(1).merge(&MetricValue::SumDouble(1.0)));
    }
}
