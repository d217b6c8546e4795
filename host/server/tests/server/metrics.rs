//! GetJobMetrics: during the run, after it, and by the names that the client knows.

use model::metrics::{MetricName, MetricValue};
use proto::job::*;
use server::run::{End, Metrics};

use crate::rig::*;

/// A user's counter of a step, by its id.
pub(crate) fn counter(step: &str, value: i64) -> (MetricName, MetricValue) {
    let labels = [("PTRANSFORM", step), ("NAMESPACE", "n"), ("NAME", "c")];
    let labels = labels.map(|(key, value)| (key.to_string(), value.to_string())).into();
    (MetricName { urn: "beam:metric:user:sum_int64:v1".into(), labels }, MetricValue::SumInt(value))
}

/// Step and first payload byte of each metric.
fn shown(list: &[proto::pipeline::MonitoringInfo]) -> Vec<(String, u8)> {
    list.iter().map(|info| (info.labels["PTRANSFORM"].clone(), info.payload[0])).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_during_and_after_a_job() {
    let mut rig = Rig::start(Behaviour::Obedient).await;
    let mut jobs = rig.jobs().await;
    for (names, step) in [("id", "t1"), ("unique_name", "Work"), ("", "Work")] {
        let request = PrepareJobRequest {
            pipeline_options: (!names.is_empty()).then(|| options(&[("metrics_step_names", names)])),
            ..request("m", pipeline(vec![]))
        };
        let prepared = jobs.prepare(request).await.unwrap().into_inner();
        let job_id = jobs.run(run_request(&prepared)).await.unwrap().into_inner().job_id;
        let started = rig.started().await;
        started.figures.lock().unwrap().metrics =
            Metrics { attempted: vec![counter("t1", 3)], committed: vec![counter("t1", 2)] };

        let mut metrics = async || {
            jobs.get_job_metrics(GetJobMetricsRequest { job_id: job_id.clone() }).await.unwrap().into_inner().metrics.unwrap()
        };
        let during = within(async {
            loop {
                let metrics = metrics().await;
                if !metrics.attempted.is_empty() {
                    return metrics;
                }
            }
        })
        .await;
        assert_eq!((shown(&during.attempted), shown(&during.committed)), (vec![(step.into(), 3)], vec![(step.into(), 2)]));
        assert_eq!(during.attempted[0].r#type, "beam:metrics:sum_int64:v1");

        started.figures.lock().unwrap().metrics =
            Metrics { attempted: vec![counter("t1", 9)], committed: vec![counter("t1", 8)] };
        started.finish(End::Done);
        for _ in 0..2 {
            let after = metrics().await;
            assert_eq!((shown(&after.attempted), shown(&after.committed)), (vec![(step.into(), 9)], vec![(step.into(), 8)]));
        }
    }
}
