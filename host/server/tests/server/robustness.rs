//! Hostile and broken clients get a status, and everyone else is served as before.

// Beam has a message of that name.
use std::option::Option;
use std::panic::AssertUnwindSafe;

use bytes::{Buf, BufMut, Bytes};
use futures_util::FutureExt;
use prost::Message;
use proto::job::*;
use proto::pipeline::*;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::codegen::http::uri::PathAndQuery;
use tonic::{Code, Request, Status};

use crate::rig::*;

/// Sends bytes as they are.
#[derive(Clone, Copy, Default)]
struct Raw;

impl Codec for Raw {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Raw;
    type Decoder = Raw;

    fn encoder(&mut self) -> Raw {
        Raw
    }

    fn decoder(&mut self) -> Raw {
        Raw
    }
}

impl Encoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.put(item);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        let length = buffer.remaining();
        Ok(Some(buffer.copy_to_bytes(length)))
    }
}

const JOB: &str = "org.apache.beam.model.job_management.v1.JobService";
const STAGING: &str = "org.apache.beam.model.job_management.v1.ArtifactStagingService";

/// What a call with arbitrary bytes answers.
async fn call(rig: &Rig, path: &str, body: Bytes) -> Result<(), Status> {
    let mut grpc = tonic::client::Grpc::new(rig.channel().await);
    grpc.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
    let path = PathAndQuery::try_from(path.to_string()).unwrap();
    let one = tokio_stream::iter([body]);
    let mut stream = within(grpc.streaming(Request::new(one), path, Raw)).await?.into_inner();
    // Streams of jobs go on for ever; their first answer is enough.
    within(stream.message()).await.map(|_| ())
}

#[tokio::test(flavor = "multi_thread")]
async fn arbitrary_bytes_in_every_call() {
    let mut rig = Rig::start(Behaviour::Obedient).await;
    let seed = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(0x5eed_5eed);
    println!("SEED={seed}");
    let mut random = Random(seed);
    let good = request("good", pipeline(vec![file_artifact("x", "")])).encode_to_vec();
    let methods = [
        "Prepare",
        "Run",
        "GetJobs",
        "GetState",
        "GetPipeline",
        "Cancel",
        "Drain",
        "GetStateStream",
        "GetMessageStream",
        "GetJobMetrics",
        "DescribePipelineOptions",
    ];
    let mut paths: Vec<String> = methods.iter().map(|method| format!("/{JOB}/{method}")).collect();
    paths.push(format!("/{STAGING}/ReverseArtifactRetrievalService"));
    paths.extend(["Jobs", "Describe", "Messages"].map(|method| format!("/purlin.v1.Inspect/{method}")));
    for path in &paths {
        for round in 0..12 {
            let body: Vec<u8> = match round % 3 {
                // Noise, a message cut short, and a message with a few bytes changed.
                0 => (0..random.below(200)).map(|_| random.next() as u8).collect(),
                1 => good[..random.below(good.len())].to_vec(),
                _ => {
                    let mut changed = good.clone();
                    (0..1 + random.below(5)).for_each(|_| {
                        let at = random.below(changed.len());
                        changed[at] = random.next() as u8;
                    });
                    changed
                }
            };
            if let Err(status) = call(&rig, path, body.clone().into()).await {
                let mut clear = vec![Code::InvalidArgument, Code::NotFound, Code::FailedPrecondition];
                // tonic's own answer to bytes that are no message.
                if status.message().contains("failed to decode Protobuf message") {
                    clear.push(Code::Internal);
                }
                assert!(clear.contains(&status.code()), "{path} answered {status:?} to {body:02x?}");
            }
        }
    }
    let (job, _) = rig.submit("still here").await;
    assert!(job.starts_with("still-here-"));
}

#[tokio::test(flavor = "multi_thread")]
async fn malformed_graphs_are_refused() {
    let rig = Rig::start(Behaviour::Obedient).await;
    let change = |change: fn(&mut Components)| {
        let mut pipeline = pipeline(vec![]);
        change(pipeline.components.as_mut().unwrap());
        pipeline
    };
    for (what, pipeline) in [
        ("nothing in it", Pipeline { root_transform_ids: vec!["t0".into()], ..Pipeline::default() }),
        (
            "a cycle",
            change(|c| {
                c.transforms.get_mut("t1").unwrap().inputs.insert("in".into(), "c1".into());
            }),
        ),
        (
            "no such collection",
            change(|c| {
                c.pcollections.remove("c0");
            }),
        ),
        (
            "no such coder",
            change(|c| {
                c.coders.clear();
            }),
        ),
        (
            "no such windowing",
            change(|c| {
                c.windowing_strategies.clear();
            }),
        ),
        (
            "no such environment",
            change(|c| {
                c.environments.clear();
            }),
        ),
        (
            "a coder inside itself",
            change(|c| {
                c.coders.get_mut("bytes").unwrap().spec.as_mut().unwrap().urn = "beam:coder:iterable:v1".into();
                c.coders.get_mut("bytes").unwrap().component_coder_ids = vec!["bytes".into()];
            }),
        ),
        (
            "a payload that is none",
            change(|c| {
                c.transforms.get_mut("t1").unwrap().spec.as_mut().unwrap().payload = Bytes::from_static(b"\xff\xff\xff");
            }),
        ),
        ("no roots", Pipeline { root_transform_ids: vec!["t9".into()], ..change(|_| {}) }),
    ] {
        let status = match within(rig.jobs().await.prepare(request("bad", pipeline))).await {
            Ok(_) => panic!("{what} was accepted"),
            Err(status) => status,
        };
        assert_eq!(status.code(), Code::InvalidArgument, "{what}: {status}");
        assert!(status.message().starts_with("this job cannot run here:\n"), "{what}: {status}");
    }
    let none = rig.jobs().await.prepare(PrepareJobRequest::default()).await.unwrap_err();
    assert_eq!(none.code(), Code::InvalidArgument);
}

#[tokio::test(flavor = "multi_thread")]
async fn names_of_any_length_and_kind() {
    let mut rig = Rig::start(Behaviour::Obedient).await;
    for name in ["", "../..", "\0\n\u{1b}[31m", "ü", &"n".repeat(4 << 20)] {
        let (job, started) = rig.submit(name).await;
        let safe = job.len() <= 60 && job.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-');
        assert!(safe, "{job}");
        assert!(started.submission.name.chars().count() <= 1_000);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_pipeline_is_no_large_message() {
    let mut rig = Rig::start(Behaviour::Obedient).await;
    let mut large = pipeline(vec![]);
    let coder = large.components.as_mut().unwrap().coders.get_mut("bytes").unwrap();
    coder.spec.as_mut().unwrap().payload = vec![7; 32 << 20].into();
    let mut jobs = rig.jobs().await.max_decoding_message_size(usize::MAX);
    let prepared = jobs.prepare(request("large", large.clone())).await.unwrap().into_inner();
    let job_id = jobs.run(run_request(&prepared)).await.unwrap().into_inner().job_id;
    rig.started().await;
    assert_eq!(jobs.get_pipeline(GetJobPipelineRequest { job_id }).await.unwrap().into_inner().pipeline, Some(large));
}

#[tokio::test]
async fn a_panic_in_a_call_is_an_internal_error() {
    use tonic::body::Body;
    use tonic::codegen::{Service, http};

    #[derive(Clone)]
    struct Panics;

    impl Service<http::Request<Body>> for Panics {
        type Response = http::Response<Body>;
        type Error = std::convert::Infallible;
        type Future = std::pin::Pin<Box<dyn Future<Output = Result<http::Response<Body>, Self::Error>> + Send>>;

        fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> std::task::Poll<Result<(), Self::Error>> {
            std::task::Poll::Ready(Ok(()))
        }

        fn call(&mut self, _: http::Request<Body>) -> Self::Future {
            Box::pin(async { panic!("deliberate panic in a call") })
        }
    }

    let answer =
        AssertUnwindSafe(server::panics::CatchPanic(Panics).call(http::Request::new(Body::empty()))).catch_unwind().await;
    let answer = answer.expect("the layer catches it").unwrap();
    let status = Status::from_header_map(answer.headers()).unwrap();
    assert_eq!(
        (status.code(), status.message()),
        (Code::Internal, "the server panicked, please report it: deliberate panic in a call")
    );
}
