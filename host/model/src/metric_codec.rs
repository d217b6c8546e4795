//! Metric values as bytes, for a ledger to keep. Not a wire format: only this file reads what it writes.
//!
//! Names and values are apart: names are most of it, and hardly ever change.

use std::collections::{BTreeMap, BTreeSet};

use crate::metrics::{BoundedTrie, Distribution, Extremes, Histogram, Latest, MetricName, MetricValue, TrieNode};
use crate::reader::{put_length_prefixed, put_varint};
use crate::{DecodeError, Reader};

/// Appends the names.
pub fn encode_names(values: &BTreeMap<MetricName, MetricValue>, out: &mut Vec<u8>) {
    put_varint(out, values.len() as u64);
    for name in values.keys() {
        put_length_prefixed(out, name.urn.as_bytes());
        put_varint(out, name.labels.len() as u64);
        for (key, label) in &name.labels {
            put_length_prefixed(out, key.as_bytes());
            put_length_prefixed(out, label.as_bytes());
        }
    }
}

/// Appends the values, in the order of their names.
pub fn encode_values(values: &BTreeMap<MetricName, MetricValue>, out: &mut Vec<u8>) {
    values.values().for_each(|value| put_value(out, value));
}

/// Reads what [`encode_names`] and [`encode_values`] wrote of the same metrics.
pub fn decode(names: &[u8], values: &[u8]) -> Result<BTreeMap<MetricName, MetricValue>, DecodeError> {
    let (mut names, mut values) = (Reader::new(names), Reader::new(values));
    let mut metrics = BTreeMap::new();
    for _ in 0..names.length()? {
        metrics.insert(name(&mut names)?, value(&mut values)?);
    }
    if names.is_empty() && values.is_empty() {
        Ok(metrics)
    } else {
        Err(DecodeError::malformed("metrics", "more than its names"))
    }
}

fn name(reader: &mut Reader<'_>) -> Result<MetricName, DecodeError> {
    let urn = text(reader)?;
    let mut labels = BTreeMap::new();
    for _ in 0..reader.length()? {
        labels.insert(text(reader)?, text(reader)?);
    }
    Ok(MetricName { urn, labels })
}

fn put_value(out: &mut Vec<u8>, value: &MetricValue) {
    match value {
        MetricValue::SumInt(sum) => put(out, 0, &[*sum as u64]),
        MetricValue::SumDouble(sum) => put(out, 1, &[sum.to_bits()]),
        MetricValue::DistributionInt(d) => put(out, 2, &[d.count as u64, d.sum as u64, d.min as u64, d.max as u64]),
        MetricValue::DistributionDouble(d) => {
            put(out, 3, &[d.count as u64, d.sum.to_bits(), d.min.to_bits(), d.max.to_bits()]);
        }
        MetricValue::LatestInt(latest) => put(out, 4, &[latest.at_ms as u64, latest.value as u64]),
        MetricValue::LatestDouble(latest) => put(out, 5, &[latest.at_ms as u64, latest.value.to_bits()]),
        MetricValue::ExtremesInt(extremes) => {
            put(out, 6, &[u64::from(extremes.top)]);
            put_many(out, extremes.values.iter().map(|value| *value as u64));
        }
        MetricValue::ExtremesDouble(extremes) => {
            put(out, 7, &[u64::from(extremes.top)]);
            put_many(out, extremes.values.iter().map(|value| value.to_bits()));
        }
        MetricValue::Progress(parts) => {
            put(out, 8, &[]);
            put_many(out, parts.iter().map(|part| part.to_bits()));
        }
        MetricValue::StringSet(set) => {
            put(out, 9, &[set.len() as u64]);
            set.iter().for_each(|text| put_length_prefixed(out, text.as_bytes()));
        }
        MetricValue::BoundedTrie(trie) => {
            put(out, 10, &[trie.bound as u64]);
            put_node(out, &trie.root);
        }
        MetricValue::Histogram(histogram) => {
            put(out, 11, &[histogram.count as u64]);
            put_length_prefixed(out, &histogram.buckets);
            put_many(out, histogram.counts.iter().map(|count| *count as u64));
        }
    }
}

fn put(out: &mut Vec<u8>, kind: u8, numbers: &[u64]) {
    out.push(kind);
    numbers.iter().for_each(|number| put_varint(out, *number));
}

fn put_many(out: &mut Vec<u8>, numbers: impl ExactSizeIterator<Item = u64>) {
    put_varint(out, numbers.len() as u64);
    numbers.for_each(|number| put_varint(out, number));
}

fn put_node(out: &mut Vec<u8>, node: &TrieNode) {
    put(out, u8::from(node.truncated), &[node.children.len() as u64]);
    for (segment, child) in &node.children {
        put_length_prefixed(out, segment.as_bytes());
        put_node(out, child);
    }
}

fn value(reader: &mut Reader<'_>) -> Result<MetricValue, DecodeError> {
    Ok(match reader.u8()? {
        0 => MetricValue::SumInt(int(reader)?),
        1 => MetricValue::SumDouble(double(reader)?),
        2 => MetricValue::DistributionInt(distribution(reader, int)?),
        3 => MetricValue::DistributionDouble(distribution(reader, double)?),
        4 => MetricValue::LatestInt(Latest { at_ms: int(reader)?, value: int(reader)? }),
        5 => MetricValue::LatestDouble(Latest { at_ms: int(reader)?, value: double(reader)? }),
        6 => MetricValue::ExtremesInt(Extremes { top: int(reader)? != 0, values: many(reader, int)? }),
        7 => MetricValue::ExtremesDouble(Extremes { top: int(reader)? != 0, values: many(reader, double)? }),
        8 => MetricValue::Progress(many(reader, double)?),
        9 => MetricValue::StringSet(many(reader, text)?.into_iter().collect::<BTreeSet<_>>()),
        10 => MetricValue::BoundedTrie(BoundedTrie { bound: int(reader)? as i32, root: node(reader)? }),
        11 => MetricValue::Histogram(Histogram {
            count: int(reader)?,
            buckets: reader.length_prefixed()?.to_vec(),
            counts: many(reader, int)?,
        }),
        _ => return Err(DecodeError::malformed("metric", "unknown kind")),
    })
}

fn distribution<T>(
    reader: &mut Reader<'_>,
    number: fn(&mut Reader<'_>) -> Result<T, DecodeError>,
) -> Result<Distribution<T>, DecodeError> {
    Ok(Distribution { count: int(reader)?, sum: number(reader)?, min: number(reader)?, max: number(reader)? })
}

fn many<T>(reader: &mut Reader<'_>, one: fn(&mut Reader<'_>) -> Result<T, DecodeError>) -> Result<Vec<T>, DecodeError> {
    (0..reader.length()?).map(|_| one(reader)).collect()
}

fn node(reader: &mut Reader<'_>) -> Result<TrieNode, DecodeError> {
    let truncated = reader.u8()? != 0;
    let mut children = BTreeMap::new();
    for _ in 0..reader.length()? {
        children.insert(text(reader)?, node(reader)?);
    }
    Ok(TrieNode { truncated, children })
}

fn int(reader: &mut Reader<'_>) -> Result<i64, DecodeError> {
    Ok(reader.varint()? as i64)
}

fn double(reader: &mut Reader<'_>) -> Result<f64, DecodeError> {
    Ok(f64::from_bits(reader.varint()?))
}

fn text(reader: &mut Reader<'_>) -> Result<String, DecodeError> {
    let bytes = reader.length_prefixed()?;
    String::from_utf8(bytes.to_vec()).map_err(|_| DecodeError::malformed("text", "not UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_survives() {
        let mut trie = BoundedTrie { bound: 5, root: TrieNode::default() };
        trie.root.children.entry("a".into()).or_default().truncated = true;
        let kinds = [
            MetricValue::SumInt(-1),
            MetricValue::SumDouble(1.5),
            MetricValue::DistributionInt(Distribution { count: 2, sum: 4, min: -1, max: 5 }),
            MetricValue::DistributionDouble(Distribution { count: 2, sum: 4.0, min: -1.0, max: 5.0 }),
            MetricValue::LatestInt(Latest { at_ms: 7, value: 8 }),
            MetricValue::LatestDouble(Latest { at_ms: 7, value: 8.5 }),
            MetricValue::ExtremesInt(Extremes { top: true, values: vec![3, 2] }),
            MetricValue::ExtremesDouble(Extremes { top: false, values: vec![2.0] }),
            MetricValue::Progress(vec![0.5]),
            MetricValue::StringSet(BTreeSet::from(["x".into(), "y".into()])),
            MetricValue::BoundedTrie(trie),
            MetricValue::Histogram(Histogram { count: 3, buckets: vec![1, 2], counts: vec![1, 2] }),
        ];
        let name = |number| MetricName { urn: format!("u{number}"), labels: BTreeMap::from([("K".into(), "v".into())]) };
        let values: BTreeMap<_, _> = kinds.into_iter().enumerate().map(|(number, kind)| (name(number), kind)).collect();
        let (mut names, mut bytes) = (Vec::new(), Vec::new());
        encode_names(&values, &mut names);
        encode_values(&values, &mut bytes);
        assert_eq!(decode(&names, &bytes), Ok(values));
        for cut in 0..bytes.len() {
            assert!(decode(&names, &bytes[..cut]).is_err(), "values cut at {cut}");
        }
        for cut in 0..names.len() {
            assert!(decode(&names[..cut], &bytes).is_err(), "names cut at {cut}");
        }
        assert!(decode(&[0], &bytes).is_err(), "values without names");
    }
}
