//! Metrics of user code in one bundle, summed from the changes that calls report. Guests are not believed here either.

use std::collections::BTreeMap;

use model::TransformId;
use model::metrics::{Distribution, MetricName, MetricValue};
use worker::reference::{USER_COUNTER, USER_DISTRIBUTION, user_metric};

use crate::Options;
use crate::bindings::types;

/// More values than any call can add: counts beyond it are made up.
const COUNT_MAX: u64 = 1 << 40;

/// Sums of one transform.
#[derive(Default)]
pub(crate) struct Sums {
    values: BTreeMap<(bool, String, String), MetricValue>,
}

impl Sums {
    /// Adds what a call reported; the error says what is wrong with it.
    pub(crate) fn add(&mut self, metrics: Vec<types::Metric>, options: &Options) -> Result<(), String> {
        for metric in metrics {
            let longest = options.metric_name_bytes_max;
            if metric.name.is_empty() || metric.name.len() > longest || metric.namespace.len() > longest {
                return Err(format!("the name of a metric is empty or longer than {longest} bytes"));
            }
            let (counter, value) = match metric.change {
                types::Change::Counter(by) => (true, MetricValue::SumInt(by)),
                types::Change::Distribution(change) => (false, distribution(&change)?),
            };
            let key = (counter, metric.namespace, metric.name);
            if let Some(sum) = self.values.get_mut(&key) {
                assert!(sum.merge(&value), "the key says which kind of value it is");
            } else if self.values.len() < options.metrics_max {
                self.values.insert(key, value);
            } else {
                return Err(format!("more than {} metrics", options.metrics_max));
            }
        }
        Ok(())
    }

    /// Names them for the pipeline. An empty namespace is that of the component's transform.
    pub(crate) fn named(self, transform: &TransformId, namespace: &str) -> impl Iterator<Item = (MetricName, MetricValue)> {
        self.values.into_iter().map(move |((counter, own, name), value)| {
            let urn = if counter { USER_COUNTER } else { USER_DISTRIBUTION };
            (user_metric(urn, transform, if own.is_empty() { namespace } else { &own }, &name), value)
        })
    }
}

fn distribution(change: &types::Distribution) -> Result<MetricValue, String> {
    if change.count == 0 || change.count > COUNT_MAX || change.min > change.max {
        return Err(format!("a distribution of {} values between {} and {}", change.count, change.min, change.max));
    }
    let count = i64::try_from(change.count).expect("the count was compared with its limit");
    Ok(MetricValue::DistributionInt(Distribution { count, sum: change.sum, min: change.min, max: change.max }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metric(name: &str, change: types::Change) -> types::Metric {
        types::Metric { namespace: String::new(), name: name.to_owned(), change }
    }

    #[test]
    fn changes_add_up_under_one_name() {
        let mut sums = Sums::default();
        let sizes = |value| types::Change::Distribution(types::Distribution { count: 1, sum: value, min: value, max: value });
        for value in [4, 9] {
            sums.add(vec![metric("n", types::Change::Counter(value)), metric("n", sizes(value))], &Options::default()).unwrap();
        }
        let named: Vec<_> = sums.named(&TransformId::from("t"), "split").collect();
        let both = Distribution { count: 2, sum: 13, min: 4, max: 9 };
        assert_eq!(named[0].1, MetricValue::DistributionInt(both));
        assert_eq!(named[1].1, MetricValue::SumInt(13));
        assert_eq!(named[1].0.labels["NAMESPACE"], "split");
    }

    #[test]
    fn impossible_metrics_are_refused() {
        let check = |metrics: Vec<types::Metric>, expected: &str| {
            let options = Options { metrics_max: 2, ..Options::default() };
            let error = Sums::default().add(metrics, &options).unwrap_err();
            assert!(error.contains(expected), "{error}");
        };
        let distribution = |count, min, max| types::Change::Distribution(types::Distribution { count, sum: 0, min, max });
        check(vec![metric("", types::Change::Counter(1))], "is empty or longer");
        check(vec![metric(&"n".repeat(300), types::Change::Counter(1))], "is empty or longer");
        check(vec![metric("n", distribution(0, 0, 0))], "a distribution of 0 values");
        check(vec![metric("n", distribution(u64::MAX, 0, 0))], "a distribution of");
        check(vec![metric("n", distribution(1, 2, 1))], "between 2 and 1");
        check(["a", "b", "c"].map(|name| metric(name, types::Change::Counter(1))).into(), "more than 2 metrics");
    }
}
