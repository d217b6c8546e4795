//! Metric values as `MonitoringInfo`s of the Job API, under names that SDKs know.
//!
//! Plans contain transforms and collections that nobody submitted: parts of lifted combines and of splittable DoFns. Values of
//! such transforms are added to the transform that they stand for; values of such collections, and of the sources and sinks at
//! the edges of a stage, are dropped. Each (URN, labels) appears once per list, since Python does not add up repetitions.
//!
//! Byte forms are those of Beam's `metrics.proto`: variable-length integers, big-endian doubles, iterables with a count of four
//! bytes in front.

use std::collections::BTreeMap;

use bytes::{BufMut, Bytes};
use model::metrics::{BoundedTrie, Distribution, Extremes, Histogram, Latest, MetricName, MetricValue, TrieNode};
use plan::Origins;
use prost::Message;
use proto::job::MetricResults;
use proto::pipeline::{self, MonitoringInfo};

use crate::options::StepNames;
use crate::run::Metrics;

const PTRANSFORM: &str = "PTRANSFORM";
const PCOLLECTION: &str = "PCOLLECTION";

/// Both lists of a job's metrics.
pub fn results(metrics: &Metrics, origins: &Origins, names: StepNames) -> MetricResults {
    let list = |metrics| named(metrics, origins, names).iter().map(|(name, value)| info(name, value)).collect();
    MetricResults { attempted: list(&metrics.attempted), committed: list(&metrics.committed) }
}

/// Metrics by the names that the user's pipeline has for them.
pub fn named(metrics: &[(MetricName, MetricValue)], origins: &Origins, names: StepNames) -> BTreeMap<MetricName, MetricValue> {
    let mut merged: BTreeMap<MetricName, MetricValue> = BTreeMap::new();
    for (name, value) in metrics {
        let Some(name) = submitted(name, origins, names) else { continue };
        match merged.entry(name) {
            std::collections::btree_map::Entry::Vacant(entry) => {
                entry.insert(value.clone());
            }
            std::collections::btree_map::Entry::Occupied(mut entry) => {
                if !entry.get_mut().merge(value) {
                    tracing::warn!(metric = ?entry.key(), "values of different kinds for one metric; the first is reported");
                }
            }
        }
    }
    merged
}

/// The name in terms of the submitted pipeline; none if the metric is of no use to its user.
fn submitted(name: &MetricName, origins: &Origins, names: StepNames) -> Option<MetricName> {
    let mut name = name.clone();
    let is_user = name.urn.starts_with("beam:metric:user:");
    if name.labels.get(PCOLLECTION).is_some_and(|collection| origins.collections.contains(collection)) {
        return None;
    }
    if let Some(step) = name.labels.get_mut(PTRANSFORM) {
        if let Some(origin) = origins.transforms.get(step) {
            step.clone_from(origin);
        }
        match origins.names.get(step) {
            Some(unique) if names == StepNames::UniqueName => step.clone_from(unique),
            Some(_) => {}
            // Nobody submitted it; what user code counts is never lost, though.
            None if is_user => {}
            None => return None,
        }
    }
    // Python fails to list any metric when a user's one lacks a label.
    let complete = [PTRANSFORM, "NAMESPACE", "NAME"].iter().all(|label| name.labels.contains_key(*label));
    (!is_user || complete).then_some(name)
}

fn info(name: &MetricName, value: &MetricValue) -> MonitoringInfo {
    let (tail, payload) = encoded(value);
    MonitoringInfo {
        urn: name.urn.clone(),
        r#type: format!("beam:metrics:{tail}:v1"),
        payload,
        labels: name.labels.clone(),
        start_time: None,
    }
}

/// The middle of the type URN, and the bytes.
fn encoded(value: &MetricValue) -> (&'static str, Bytes) {
    let mut bytes = Vec::new();
    let tail = match value {
        MetricValue::SumInt(sum) => {
            integer(*sum, &mut bytes);
            "sum_int64"
        }
        MetricValue::SumDouble(sum) => {
            bytes.put_f64(*sum);
            "sum_double"
        }
        MetricValue::DistributionInt(distribution) => {
            put_distribution(distribution, integer, &mut bytes);
            "distribution_int64"
        }
        MetricValue::DistributionDouble(distribution) => {
            put_distribution(distribution, double, &mut bytes);
            "distribution_double"
        }
        MetricValue::LatestInt(latest) => {
            put_latest(latest, integer, &mut bytes);
            "latest_int64"
        }
        MetricValue::LatestDouble(latest) => {
            put_latest(latest, double, &mut bytes);
            "latest_double"
        }
        MetricValue::ExtremesInt(Extremes { top, values }) => {
            iterable(values.iter().copied(), integer, &mut bytes);
            if *top { "top_n_int64" } else { "bottom_n_int64" }
        }
        MetricValue::ExtremesDouble(Extremes { top, values }) => {
            iterable(values.iter().copied(), double, &mut bytes);
            if *top { "top_n_double" } else { "bottom_n_double" }
        }
        MetricValue::Progress(values) => {
            iterable(values.iter().copied(), double, &mut bytes);
            "progress"
        }
        MetricValue::StringSet(texts) => {
            iterable(texts.iter(), text, &mut bytes);
            "set_string"
        }
        MetricValue::BoundedTrie(BoundedTrie { bound, root }) => {
            let is_empty = !root.truncated && root.children.is_empty();
            let root = (!is_empty).then(|| trie_node(root));
            bytes = pipeline::BoundedTrie { bound: *bound, root, singleton: Vec::new() }.encode_to_vec();
            "bounded_trie"
        }
        MetricValue::Histogram(histogram) => {
            bytes = histogram_message(histogram).encode_to_vec();
            "histogram_int64"
        }
    };
    (tail, bytes.into())
}

fn put_distribution<T: Copy>(distribution: &Distribution<T>, put: fn(T, &mut Vec<u8>), bytes: &mut Vec<u8>) {
    integer(distribution.count, bytes);
    put(distribution.sum, bytes);
    put(distribution.min, bytes);
    put(distribution.max, bytes);
}

fn put_latest<T: Copy>(latest: &Latest<T>, put: fn(T, &mut Vec<u8>), bytes: &mut Vec<u8>) {
    integer(latest.at_ms, bytes);
    put(latest.value, bytes);
}

fn iterable<T>(values: impl ExactSizeIterator<Item = T>, put: fn(T, &mut Vec<u8>), bytes: &mut Vec<u8>) {
    bytes.put_i32(i32::try_from(values.len()).expect("a metric has fewer than 2^31 values"));
    values.for_each(|value| put(value, bytes));
}

fn integer(value: i64, bytes: &mut Vec<u8>) {
    prost::encoding::encode_varint(value as u64, bytes);
}

fn double(value: f64, bytes: &mut Vec<u8>) {
    bytes.put_f64(value);
}

fn text(value: &String, bytes: &mut Vec<u8>) {
    prost::encoding::encode_varint(value.len() as u64, bytes);
    bytes.extend_from_slice(value.as_bytes());
}

fn trie_node(node: &TrieNode) -> pipeline::BoundedTrieNode {
    let children = node.children.iter().map(|(segment, child)| (segment.clone(), trie_node(child))).collect();
    pipeline::BoundedTrieNode { truncated: node.truncated, children }
}

fn histogram_message(histogram: &Histogram) -> pipeline::HistogramValue {
    pipeline::HistogramValue {
        count: Some(histogram.count),
        // Kept as the SDK sent it, so that it decodes unless the SDK sent garbage; then it has no layout.
        bucket_options: pipeline::histogram_value::BucketOptions::decode(histogram.buckets.as_slice()).ok(),
        bucket_counts: histogram.counts.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::hex;

    fn name(urn: &str, labels: &str) -> MetricName {
        let labels = labels.split_whitespace().filter_map(|label| label.split_once('='));
        MetricName { urn: urn.into(), labels: labels.map(|(key, value)| (key.into(), value.into())).collect() }
    }

    #[test]
    fn payloads_of_every_type() {
        let trie = BoundedTrie {
            bound: 100,
            root: TrieNode {
                truncated: false,
                children: [("a".to_string(), TrieNode { truncated: true, ..TrieNode::default() })].into(),
            },
        };
        for (value, tail, bytes) in [
            (MetricValue::SumInt(300), "sum_int64", "ac02"),
            (MetricValue::SumInt(-1), "sum_int64", "ffffffffffffffffff01"),
            (MetricValue::SumDouble(1.5), "sum_double", "3ff8000000000000"),
            (MetricValue::DistributionInt(Distribution { count: 2, sum: 5, min: 1, max: 4 }), "distribution_int64", "02050104"),
            (
                MetricValue::DistributionDouble(Distribution { count: 1, sum: 1.5, min: 1.5, max: 1.5 }),
                "distribution_double",
                "013ff80000000000003ff80000000000003ff8000000000000",
            ),
            (MetricValue::LatestInt(Latest { at_ms: 1, value: 2 }), "latest_int64", "0102"),
            (MetricValue::LatestDouble(Latest { at_ms: 1, value: 1.5 }), "latest_double", "013ff8000000000000"),
            (MetricValue::ExtremesInt(Extremes { top: true, values: vec![9, 3] }), "top_n_int64", "000000020903"),
            (MetricValue::ExtremesInt(Extremes { top: false, values: vec![] }), "bottom_n_int64", "00000000"),
            (
                MetricValue::ExtremesDouble(Extremes { top: false, values: vec![1.5] }),
                "bottom_n_double",
                "000000013ff8000000000000",
            ),
            (MetricValue::Progress(vec![1.5]), "progress", "000000013ff8000000000000"),
            (MetricValue::StringSet(["b".into(), "a".into()].into()), "set_string", "0000000201610162"),
            (MetricValue::BoundedTrie(trie), "bounded_trie", "0864120912070a016112020801"),
            (MetricValue::BoundedTrie(BoundedTrie { bound: 7, root: TrieNode::default() }), "bounded_trie", "0807"),
            (
                MetricValue::Histogram(Histogram { count: 3, buckets: vec![], counts: vec![1, 2] }),
                "histogram_int64",
                "080312001a020102",
            ),
        ] {
            let info = info(&name("u", ""), &value);
            assert_eq!((info.r#type, hex(&info.payload)), (format!("beam:metrics:{tail}:v1"), bytes.to_string()), "{value:?}");
        }
    }

    #[test]
    fn parts_are_added_to_the_transform_that_was_submitted() {
        let user = "beam:metric:user:sum_int64:v1";
        let metrics = [
            (name(user, "PTRANSFORM=a NAMESPACE=n NAME=c"), MetricValue::SumInt(1)),
            (name(user, "PTRANSFORM=a/part NAMESPACE=n NAME=c"), MetricValue::SumInt(2)),
            (name(user, "NAMESPACE=n NAME=c"), MetricValue::SumInt(4)),
            (name("beam:metric:data_channel:read_index:v1", "PTRANSFORM=stage0/source"), MetricValue::SumInt(4)),
            (name("beam:metric:element_count:v1", "PCOLLECTION=real"), MetricValue::SumInt(8)),
            (name("beam:metric:element_count:v1", "PCOLLECTION=made-up"), MetricValue::SumInt(16)),
        ];
        let origins = Origins {
            transforms: [("a/part".to_string(), "a".to_string())].into(),
            names: [("a".to_string(), "My Step".to_string())].into(),
            collections: ["made-up".to_string()].into(),
        };
        let check = |names, step: &str| {
            let found = named(&metrics, &origins, names).into_iter().collect::<Vec<_>>();
            let mut labels = name(user, "NAMESPACE=n NAME=c");
            labels.labels.insert(PTRANSFORM.into(), step.into());
            let expected = vec![
                (name("beam:metric:element_count:v1", "PCOLLECTION=real"), MetricValue::SumInt(8)),
                (labels, MetricValue::SumInt(3)),
            ];
            assert_eq!(found, expected);
        };
        check(StepNames::Id, "a");
        check(StepNames::UniqueName, "My Step");
    }
}
