//! Metric values as harnesses encode them.

use std::collections::{BTreeMap, BTreeSet};

use model::metrics::{
    BoundedTrie, Distribution, Extremes, Histogram, Latest, MetricName, MetricValue, TRIE_BOUND_DEFAULT, TrieNode,
};
use model::{DecodeError, Reader};
use prost::Message;
use proto::pipeline as pb;

/// What a short id stands for.
#[derive(Clone, Debug)]
pub(crate) struct MetricKind {
    pub(crate) name: MetricName,
    pub(crate) type_urn: String,
}

impl MetricKind {
    pub(crate) fn of(info: &mut pb::MonitoringInfo) -> Self {
        let name = MetricName { urn: std::mem::take(&mut info.urn), labels: std::mem::take(&mut info.labels) };
        MetricKind { name, type_urn: std::mem::take(&mut info.r#type) }
    }
}

/// The value in `payload`, or none if it says nothing: an empty distribution, a type that Purlin does not know, or a
/// malformed payload, which is not worth a bundle.
pub(crate) fn value(kind: &MetricKind, payload: &[u8]) -> Option<MetricValue> {
    decode(&kind.type_urn, payload).unwrap_or_else(|error| {
        tracing::debug!(urn = kind.name.urn, r#type = kind.type_urn, %error, "malformed metric dropped");
        None
    })
}

/// The index in a data channel's input that is being processed, which SDKs report among the metrics.
pub(crate) fn read_index(metrics: &[(MetricName, MetricValue)], source: &str) -> Option<u64> {
    metrics.iter().find_map(|(name, value)| match value {
        MetricValue::SumInt(index) if name.urn == READ_INDEX && name.labels.get("PTRANSFORM").is_some_and(|id| id == source) => {
            u64::try_from(*index).ok()
        }
        _ => None,
    })
}

const READ_INDEX: &str = "beam:metric:data_channel:read_index:v1";

fn decode(type_urn: &str, payload: &[u8]) -> Result<Option<MetricValue>, DecodeError> {
    let reader = &mut Reader::new(payload);
    let Some(kind) = type_urn.strip_prefix("beam:metrics:") else { return Ok(None) };
    Ok(Some(match kind {
        "sum_int64:v1" => MetricValue::SumInt(int(reader)?),
        "sum_double:v1" => MetricValue::SumDouble(double(reader)?),
        "distribution_int64:v1" => match distribution(reader, int)? {
            None => return Ok(None),
            Some(distribution) => MetricValue::DistributionInt(distribution),
        },
        "distribution_double:v1" => match distribution(reader, double)? {
            None => return Ok(None),
            Some(distribution) => MetricValue::DistributionDouble(distribution),
        },
        "latest_int64:v1" => MetricValue::LatestInt(Latest { at_ms: int(reader)?, value: int(reader)? }),
        "latest_double:v1" => MetricValue::LatestDouble(Latest { at_ms: int(reader)?, value: double(reader)? }),
        "top_n_int64:v1" => MetricValue::ExtremesInt(Extremes { top: true, values: iterable(reader, int)? }),
        "bottom_n_int64:v1" => MetricValue::ExtremesInt(Extremes { top: false, values: iterable(reader, int)? }),
        "top_n_double:v1" => MetricValue::ExtremesDouble(Extremes { top: true, values: iterable(reader, double)? }),
        "bottom_n_double:v1" => MetricValue::ExtremesDouble(Extremes { top: false, values: iterable(reader, double)? }),
        "progress:v1" => MetricValue::Progress(iterable(reader, double)?),
        "set_string:v1" => MetricValue::StringSet(iterable(reader, text)?.into_iter().collect::<BTreeSet<_>>()),
        "bounded_trie:v1" => return trie(payload),
        "histogram_int64:v1" => MetricValue::Histogram(histogram(payload)?),
        _ => return Ok(None),
    }))
}

fn int(reader: &mut Reader<'_>) -> Result<i64, DecodeError> {
    Ok(reader.varint()? as i64)
}

fn double(reader: &mut Reader<'_>) -> Result<f64, DecodeError> {
    Ok(f64::from_bits(reader.be_u64()?))
}

fn text(reader: &mut Reader<'_>) -> Result<String, DecodeError> {
    let bytes = reader.length_prefixed()?;
    String::from_utf8(bytes.to_vec()).map_err(|_| DecodeError::malformed("string", "not UTF-8"))
}

/// SDKs may send nothing but a count of 0, or nothing at all, before the first value.
fn distribution<T>(
    reader: &mut Reader<'_>,
    item: fn(&mut Reader<'_>) -> Result<T, DecodeError>,
) -> Result<Option<Distribution<T>>, DecodeError> {
    if reader.is_empty() {
        return Ok(None);
    }
    match int(reader)? {
        0 => Ok(None),
        count => Ok(Some(Distribution { count, sum: item(reader)?, min: item(reader)?, max: item(reader)? })),
    }
}

fn iterable<T>(reader: &mut Reader<'_>, item: fn(&mut Reader<'_>) -> Result<T, DecodeError>) -> Result<Vec<T>, DecodeError> {
    let count = reader.be_i32()?;
    let mut values = Vec::new();
    if count != -1 {
        // Every item takes a byte at least, so a lie about the count ends at the end of the payload.
        for _ in 0..count {
            values.push(item(reader)?);
        }
        return Ok(values);
    }
    loop {
        match reader.varint()? {
            0 => return Ok(values),
            count => {
                for _ in 0..count {
                    values.push(item(reader)?);
                }
            }
        }
    }
}

fn trie(payload: &[u8]) -> Result<Option<MetricValue>, DecodeError> {
    let trie = pb::BoundedTrie::decode(payload).map_err(|_| DecodeError::malformed("bounded trie", "not the message"))?;
    let bound = if trie.bound > 0 { trie.bound } else { TRIE_BOUND_DEFAULT };
    let mut root = trie.root.map(node).unwrap_or_default();
    if !trie.singleton.is_empty() {
        let mut end = &mut root;
        for segment in trie.singleton {
            end = end.children.entry(segment).or_default();
        }
    }
    Ok(if root == TrieNode::default() { None } else { Some(MetricValue::BoundedTrie(BoundedTrie { bound, root })) })
}

fn node(node: pb::BoundedTrieNode) -> TrieNode {
    let children = match node.truncated {
        true => BTreeMap::new(),
        false => node.children.into_iter().map(|(segment, child)| (segment, self::node(child))).collect(),
    };
    TrieNode { truncated: node.truncated, children }
}

fn histogram(payload: &[u8]) -> Result<Histogram, DecodeError> {
    let value = pb::HistogramValue::decode(payload).map_err(|_| DecodeError::malformed("histogram", "not the message"))?;
    let buckets = value.bucket_options.map(|options| options.encode_to_vec()).unwrap_or_default();
    Ok(Histogram { count: value.count.unwrap_or_default(), buckets, counts: value.bucket_counts })
}

#[cfg(test)]
mod tests {
    use super::*;
    use MetricValue::*;

    fn check(kind: &str, payload: &[u8], expected: Option<MetricValue>) {
        let name = MetricName { urn: String::new(), labels: BTreeMap::new() };
        let kind = MetricKind { name, type_urn: format!("beam:metrics:{kind}:v1") };
        assert_eq!(value(&kind, payload), expected, "{}", kind.type_urn);
    }

    #[test]
    fn every_type_is_decoded() {
        let half = 0.5f64.to_be_bytes();
        check("sum_int64", &[0xac, 2], Some(SumInt(300)));
        check("sum_int64", &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1], Some(SumInt(-1)));
        check("sum_double", &half, Some(SumDouble(0.5)));
        check("distribution_int64", &[2, 4, 1, 3], Some(DistributionInt(Distribution { count: 2, sum: 4, min: 1, max: 3 })));
        let doubles = [&[1], half.as_slice(), &half, &half].concat();
        check("distribution_double", &doubles, Some(DistributionDouble(Distribution { count: 1, sum: 0.5, min: 0.5, max: 0.5 })));
        check("latest_int64", &[7, 9], Some(LatestInt(Latest { at_ms: 7, value: 9 })));
        check("latest_double", &[&[7], half.as_slice()].concat(), Some(LatestDouble(Latest { at_ms: 7, value: 0.5 })));
        check("top_n_int64", &[0, 0, 0, 2, 9, 8], Some(ExtremesInt(Extremes { top: true, values: vec![9, 8] })));
        check("bottom_n_int64", &[0xff, 0xff, 0xff, 0xff, 1, 9, 0], Some(ExtremesInt(Extremes { top: false, values: vec![9] })));
        check("progress", &[&[0, 0, 0, 1], half.as_slice()].concat(), Some(Progress(vec![0.5])));
        check("set_string", b"\0\0\0\x02\x01b\x01a", Some(StringSet(["a", "b"].map(str::to_owned).into())));
    }

    #[test]
    fn tries_and_histograms_are_messages() {
        let leaf = pb::BoundedTrieNode { truncated: true, children: BTreeMap::new() };
        let root = pb::BoundedTrieNode { truncated: false, children: BTreeMap::from([("a".to_owned(), leaf)]) };
        let sent = pb::BoundedTrie { bound: 0, root: Some(root), singleton: vec![] };
        let child = TrieNode { truncated: true, children: BTreeMap::new() };
        let root = TrieNode { truncated: false, children: BTreeMap::from([("a".to_owned(), child)]) };
        check("bounded_trie", &sent.encode_to_vec(), Some(BoundedTrie(model::metrics::BoundedTrie { bound: 100, root })));
        let sent = pb::BoundedTrie { bound: 5, root: None, singleton: vec!["x".to_owned(), "y".to_owned()] };
        let x = TrieNode { truncated: false, children: BTreeMap::from([("y".to_owned(), TrieNode::default())]) };
        let root = TrieNode { truncated: false, children: BTreeMap::from([("x".to_owned(), x)]) };
        check("bounded_trie", &sent.encode_to_vec(), Some(BoundedTrie(model::metrics::BoundedTrie { bound: 5, root })));
        let sent = pb::HistogramValue { count: Some(3), bucket_options: None, bucket_counts: vec![1, 2] };
        let histogram = model::metrics::Histogram { count: 3, buckets: vec![], counts: vec![1, 2] };
        check("histogram_int64", &sent.encode_to_vec(), Some(Histogram(histogram)));
    }

    #[test]
    fn what_says_nothing_is_dropped() {
        check("distribution_int64", &[0], None);
        check("distribution_int64", &[], None);
        check("distribution_double", &[0], None);
        check("sum_int64", &[], None);
        check("set_string", &[0x7f, 0xff, 0xff, 0xff, 1], None);
        check("bounded_trie", &[], None);
        check("from_the_future", &[1], None);
    }
}
