//! A host with one environment, and running one bundle there.

use std::sync::Arc;

use bytes::Bytes;
use model::ShardId;
use worker::{Error, Slot, Worker};
use worker_harness::{EnvironmentOptions, HarnessEnvironment, HarnessHost, HostOptions, Timeouts};

use crate::fake::{Pool, Sdk};
use crate::stage::*;

/// A host and one environment whose harnesses run a script.
pub(crate) struct Setup {
    pub(crate) host: HarnessHost,
    pub(crate) environment: Arc<HarnessEnvironment>,
    pub(crate) pool: Pool,
}

pub(crate) fn setup<F>(
    capabilities: &[&str],
    tune: impl FnOnce(&mut Timeouts),
    script: impl Fn(Sdk) -> F + Send + Sync + 'static,
) -> Setup
where
    F: Future<Output = ()> + Send + 'static,
{
    let pool = Pool::start(script);
    let host = HarnessHost::start(HostOptions::loopback("test"), tokio::runtime::Handle::current()).unwrap();
    let mut options: EnvironmentOptions = options(external(pool.address, capabilities), Arc::default());
    tune(&mut options.timeouts);
    let environment = host.environment(options).unwrap();
    Setup { host, environment, pool }
}

impl Setup {
    pub(crate) fn slot(&self, spec: &worker::StageSpec) -> Box<dyn Slot> {
        self.environment.open(Arc::new(spec.clone()), ShardId(0)).unwrap()
    }
}

pub(crate) fn run(slot: &mut dyn Slot, spec: &worker::StageSpec, values: &[&[u8]]) -> Result<worker::Outcome, Error> {
    start(slot, spec, 1, vec![batch(values)], vec![], Arc::default()).wait()
}

/// Echoes each bundle's input to every sink, in as many messages as it came in.
pub(crate) async fn echo(mut sdk: Sdk, stream: &str, sinks: &[&str]) {
    let mut data = None;
    while let Some((id, request)) = sdk.next_bundle().await {
        assert_eq!(request.data_stream_id, stream);
        if data.is_none() {
            data = Some(sdk.data(stream).await);
        }
        let data = data.as_mut().unwrap();
        let input = data.input(&id, 0).await;
        for sink in sinks {
            input.data.iter().for_each(|rows| data.send(&id, sink, rows.clone(), false));
            data.send(&id, sink, Bytes::new(), true);
        }
        sdk.finish(&id, Default::default());
    }
}
