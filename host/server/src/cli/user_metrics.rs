//! What user code counts, by the steps that it counts in: a table under a job's description.

use std::collections::BTreeMap;

use bytes::Buf;
use proto::job::MetricResults;
use proto::pipeline::MonitoringInfo;

use super::figures;
use super::table::{Side, table};

/// Metrics that are shown.
const METRICS_MAX: usize = 40;

/// Step and name.
type Key = (String, String);

/// Lines of a table; nothing where user code counts nothing. Sums and distributions are shown, and the latest values of gauges.
pub(super) fn shown(results: &MetricResults) -> String {
    let mut values: BTreeMap<Key, [Option<String>; 2]> = BTreeMap::new();
    for (column, list) in [&results.committed, &results.attempted].into_iter().enumerate() {
        for (key, value) in list.iter().filter_map(user_metric) {
            values.entry(key).or_default()[column] = Some(value);
        }
    }
    if values.is_empty() {
        return String::new();
    }
    let columns = [("step", Side::Left), ("metric", Side::Left), ("committed", Side::Right), ("attempted", Side::Right)];
    let row = |((step, name), value): (&Key, &[Option<String>; 2])| {
        let [committed, attempted] = value.each_ref().map(|value| value.clone().unwrap_or_else(|| "-".into()));
        vec![step.clone(), name.clone(), committed, attempted]
    };
    let text = table(&columns, &values.iter().take(METRICS_MAX).map(row).collect::<Vec<_>>());
    match values.len().saturating_sub(METRICS_MAX) {
        0 => text,
        more => format!("{text} and {more} more\n"),
    }
}

fn user_metric(info: &MonitoringInfo) -> Option<(Key, String)> {
    let label = |name: &str| info.labels.get(name).map(|text| super::jobs::printable(text));
    let kind = info.urn.strip_prefix("beam:metric:user:")?;
    let payload = &mut &info.payload[..];
    let value = match kind {
        "sum_int64:v1" => signed(integer(payload)?),
        "sum_double:v1" => payload.try_get_f64().ok()?.to_string(),
        "distribution_int64:v1" => {
            let [count, sum, min, max] = [integer(payload)?, integer(payload)?, integer(payload)?, integer(payload)?].map(signed);
            format!("{count} of {min} to {max}, sum {sum}")
        }
        "latest_int64:v1" => {
            integer(payload)?;
            signed(integer(payload)?)
        }
        _ => return None,
    };
    Some(((label("PTRANSFORM")?, format!("{}:{}", label("NAMESPACE")?, label("NAME")?)), value))
}

fn integer(payload: &mut &[u8]) -> Option<i64> {
    prost::encoding::decode_varint(payload).ok().map(|bits| bits as i64)
}

fn signed(number: i64) -> String {
    let sign = if number < 0 { "-" } else { "" };
    format!("{sign}{}", figures::count(number.unsigned_abs()))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn info(kind: &str, step: &str, name: &str, payload: &'static [u8]) -> MonitoringInfo {
        let labels = [("PTRANSFORM", step), ("NAMESPACE", "main"), ("NAME", name)];
        MonitoringInfo {
            urn: format!("beam:metric:user:{kind}:v1"),
            labels: labels.map(|(key, value)| (key.to_string(), value.to_string())).into(),
            payload: Bytes::from_static(payload),
            ..MonitoringInfo::default()
        }
    }

    #[test]
    fn what_user_code_counts_is_shown_by_step() {
        let results = MetricResults {
            committed: vec![
                info("sum_int64", "Read/Parse", "bad", b"\xac\x02"),
                info("distribution_int64", "Read/Parse", "size", b"\x02\x05\x01\x04"),
                info("sum_int64", "Read/Parse", "malformed", b"\xac"),
            ],
            attempted: vec![
                info("sum_int64", "Read/Parse", "bad", b"\xe8\x07"),
                info("sum_double", "Write", "cost", b"\x3f\xf8\0\0\0\0\0\0"),
                info("latest_int64", "Write", "left", b"\x01\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"),
                info("set_string", "Write", "names", b""),
            ],
        };
        let expected = [
            " step        metric                committed  attempted",
            " Read/Parse  main:bad                    300      1,000",
            " Read/Parse  main:size     2 of 1 to 4, sum 5          -",
            " Write       main:cost                     -        1.5",
            " Write       main:left                     -         -1",
        ];
        let seen = shown(&results);
        let squeezed = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(seen.lines().map(squeezed).collect::<Vec<_>>(), expected.map(squeezed));
        assert_eq!(shown(&MetricResults::default()), "");
    }
}
