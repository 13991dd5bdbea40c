//! Requests that are wrong in every way that the generator knows, a million in CI: each is answered,
//! nothing breaks, and memory stays within the limits.

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fastrand::Rng;
use flate2::Compression;
use flate2::write::GzEncoder;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use phasescope_export_tests::{Answer, Made, Serve, Sink};
use prost::Message;
use tokio::sync::Mutex;

/// Requests in all, over both protocols, unless `PHASESCOPE_HOSTILE_REQUESTS` says otherwise.
const REQUESTS: u64 = if cfg!(debug_assertions) { 20_000 } else { 100_000 };
/// Requests at once.
const TASKS: u64 = 32;
const SEED: u64 = 4;
const MIB: usize = 1 << 20;

/// Bodies that are costly to make, made once.
struct Bodies {
    valid: Vec<u8>,
    json: Vec<u8>,
    bomb: Vec<u8>,
    oversized: Vec<u8>,
    empty_messages: Vec<u8>,
    tiny_objects: Vec<u8>,
}

/// What is sent, and whether it is OTLP where that is known.
struct Request {
    kind: &'static str,
    body: Vec<u8>,
    content_type: &'static str,
    encoding: Option<&'static str>,
    /// `Some(false)`: must be refused; `Some(true)`: must be taken.
    valid: Option<bool>,
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes).unwrap_or_else(|error| panic!("{error}"));
    encoder.finish().unwrap_or_else(|error| panic!("{error}"))
}

impl Bodies {
    fn new() -> Self {
        let request = Made::new("valid", 0, 1).request(0..2);
        Self {
            valid: request.encode_to_vec(),
            json: serde_json::to_vec(&request).unwrap_or_else(|error| panic!("{error}")),
            bomb: gzip(&vec![0; 64 * MIB]),
            oversized: vec![0x0a; 2 * MIB],
            empty_messages: [0x0a, 0x00].repeat(MIB / 4),
            tiny_objects: format!("{{\"resourceSpans\":[{}{{}}]}}", "{},".repeat(MIB / 4))
                .into_bytes(),
        }
    }

    fn request(&self, random: &mut Rng) -> Request {
        const PROTOBUF: &str = "application/x-protobuf";
        const JSON: &str = "application/json";
        let of = |kind, body, content_type, encoding, valid| Request {
            kind,
            body,
            content_type,
            encoding,
            valid,
        };
        // What costs the server some milliseconds comes rarely.
        if random.u32(..1000) == 0 {
            return match random.u32(..4) {
                0 => of("bomb", self.bomb.clone(), PROTOBUF, Some("gzip"), Some(false)),
                1 => of("oversized", self.oversized.clone(), PROTOBUF, None, Some(false)),
                2 => of("empty messages", self.empty_messages.clone(), PROTOBUF, None, None),
                _ => of("tiny objects", self.tiny_objects.clone(), JSON, None, None),
            };
        }
        match random.u32(..12) {
            0 => {
                let body = (0..random.usize(1..300)).map(|_| random.u8(..)).collect();
                checked("random bytes", body, PROTOBUF)
            }
            1 | 2 => checked("flipped bytes", self.flipped(&self.valid, random), PROTOBUF),
            3 => {
                let cut = random.usize(1..self.valid.len());
                checked("truncated", self.valid[..cut].to_vec(), PROTOBUF)
            }
            4 => of("wrong type", self.valid.clone(), "text/plain", None, Some(false)),
            5 => of("no gzip", self.valid.clone(), PROTOBUF, Some("gzip"), Some(false)),
            6 => {
                let mut packed = gzip(&self.valid);
                packed.truncate(random.usize(1..packed.len()));
                of("truncated gzip", packed, PROTOBUF, Some("gzip"), Some(false))
            }
            7 => of("unknown encoding", self.valid.clone(), PROTOBUF, Some("br"), Some(false)),
            8 => checked("deep nesting", deep(random.usize(1..400)), PROTOBUF),
            9 => of("flipped JSON", self.flipped(&self.json, random), JSON, None, None),
            10 => of("hostile values", hostile(random), PROTOBUF, None, Some(true)),
            _ => of("valid", self.valid.clone(), PROTOBUF, None, Some(true)),
        }
    }

    fn flipped(&self, valid: &[u8], random: &mut Rng) -> Vec<u8> {
        let mut body = valid.to_vec();
        for _ in 0..random.usize(1..8) {
            let place = random.usize(..body.len());
            body[place] = random.u8(..);
        }
        body
    }
}

/// What a full decoder cannot read must be refused.
fn checked(kind: &'static str, body: Vec<u8>, content_type: &'static str) -> Request {
    let readable = ExportTraceServiceRequest::decode(&body[..]).is_ok();
    let valid = if readable { None } else { Some(false) };
    Request { kind, body, content_type, encoding: None, valid }
}

/// Lists in lists in an attribute of a resource, so many.
fn deep(levels: usize) -> Vec<u8> {
    let wrap = |number: u8, inner: &[u8]| {
        let mut outer = vec![number << 3 | 2];
        prost::encode_length_delimiter(inner.len(), &mut outer)
            .unwrap_or_else(|error| panic!("{error}"));
        outer.extend_from_slice(inner);
        outer
    };
    // AnyValue { array_value: ArrayValue { values: [AnyValue ...] } }
    let value = (0..levels).fold(Vec::new(), |inner, _| wrap(5, &wrap(1, &inner)));
    // KeyValue, Resource, ResourceSpans, request.
    wrap(1, &wrap(1, &wrap(1, &wrap(2, &value))))
}

/// OTLP that is right, with values that nobody should send.
fn hostile(random: &mut Rng) -> Vec<u8> {
    let run = match random.u32(..4) {
        0 => "r".repeat(random.usize(..5000)),
        1 => format!("run-{}", random.u32(..)),
        2 => "quote\"back\\slash\nline {x=\"y\"} 1".to_owned(),
        _ => "few".to_owned(),
    };
    let mut request = Made::new(&run, random.u32(..), random.u32(..)).request(0..2);
    let spans = &mut request.resource_spans[0].scope_spans[0].spans;
    for span in spans.iter_mut() {
        for pair in &mut span.attributes {
            let Some(value) = pair.value.as_mut() else { continue };
            match (&value.value, random.u32(..8)) {
                (Some(Value::IntValue(_)), 0) => value.value = Some(Value::IntValue(i64::MIN)),
                (Some(Value::IntValue(_)), 1) => value.value = Some(Value::IntValue(i64::MAX)),
                (Some(Value::IntValue(_)), 2) => value.value = Some(Value::DoubleValue(f64::NAN)),
                (Some(Value::StringValue(_)), 0) => {
                    value.value = Some(Value::StringValue(format!("cuda:{}", random.u32(..))));
                }
                _ => {}
            }
        }
        span.end_time_unix_nano = random.u64(..);
    }
    random.shuffle(spans);
    request.encode_to_vec()
}

/// Sends it by HTTP: the status.
async fn by_http(
    client: &reqwest::Client,
    url: &str,
    request: &Request,
) -> Result<u16, reqwest::Error> {
    let mut post = client.post(url).header("content-type", request.content_type);
    if let Some(encoding) = request.encoding {
        post = post.header("content-encoding", encoding);
    }
    let answer = post.body(request.body.clone()).send().await?;
    let status = answer.status().as_u16();
    let text = answer.bytes().await?;
    if status != 200 {
        assert!(!text.is_empty(), "a refusal says why: {} {status}", request.kind);
    }
    Ok(status)
}

/// Sends it by gRPC, at times in a frame that is wrong: the gRPC status.
async fn by_grpc(
    client: &reqwest::Client,
    url: &str,
    request: &mut Request,
    random: &mut Rng,
) -> Result<u16, reqwest::Error> {
    let compressed = request.encoding == Some("gzip");
    let length = u32::try_from(request.body.len()).unwrap_or(u32::MAX);
    let (mut flag, mut told) = (u8::from(compressed), length);
    match random.u32(..20) {
        0 => {
            (request.kind, request.valid) = ("wrong flag", Some(false));
            flag = 7;
        }
        1 => {
            (request.kind, request.valid) = ("wrong length", Some(false));
            told = length.saturating_add(random.u32(1..));
        }
        _ => {}
    }
    let mut frame = vec![flag];
    frame.extend(told.to_be_bytes());
    frame.extend(&request.body);
    let mut post =
        client.post(url).header("content-type", "application/grpc").header("te", "trailers");
    // What is about HTTP's headers is right in gRPC.
    if matches!(request.kind, "wrong type" | "unknown encoding") {
        request.valid = None;
    }
    if matches!(request.kind, "flipped JSON" | "tiny objects") {
        request.valid = Some(false);
    }
    if compressed {
        post = post.header("grpc-encoding", "gzip");
    }
    let answer = post.body(frame).send().await?;
    assert_eq!(answer.status(), 200, "{}", request.kind);
    let status = answer.headers().get("grpc-status").and_then(|status| status.to_str().ok());
    let status = status.map_or(0, |status| status.parse().unwrap_or(u16::MAX));
    answer.bytes().await?;
    Ok(status)
}

type Counts = BTreeMap<(&'static str, &'static str, u16), u64>;

async fn attack(serve: &Serve, bodies: Arc<Bodies>, requests: u64) -> Counts {
    let counts = Arc::new(Mutex::new(Counts::new()));
    let http = format!("{}/v1/traces", serve.http);
    let method = "opentelemetry.proto.collector.trace.v1.TraceService/Export";
    let grpc = format!("{}/{method}", serve.grpc);
    let tasks = (0..TASKS).map(|task| {
        let (bodies, counts) = (bodies.clone(), counts.clone());
        let (http, grpc) = (http.clone(), grpc.clone());
        tokio::spawn(async move {
            let one = reqwest::Client::builder();
            let two = reqwest::Client::builder().http2_prior_knowledge();
            let [one, two] = [one, two].map(|builder| {
                let builder = builder.timeout(Duration::from_secs(60));
                builder.build().unwrap_or_else(|error| panic!("{error}"))
            });
            let mut random = Rng::with_seed(SEED << 32 | task);
            let mut own = Counts::new();
            for _ in 0..requests / TASKS {
                let mut request = bodies.request(&mut random);
                let (protocol, sent) = match random.bool() {
                    true => ("http", by_http(&one, &http, &request).await),
                    false => ("grpc", by_grpc(&two, &grpc, &mut request, &mut random).await),
                };
                // A server may answer and close before it has read all of what is too large.
                let early = matches!(request.kind, "oversized" | "bomb" | "empty messages");
                let status = match sent {
                    Ok(status) => status,
                    Err(error) if early && error.is_request() => u16::MAX,
                    Err(error) => panic!("{}: {error:?}", request.kind),
                };
                *own.entry((protocol, request.kind, status)).or_default() += 1;
                // Busy is an answer to everything.
                let taken = matches!(status, 0 | 200);
                let busy = matches!(status, 14 | 429 | 503);
                if let (Some(valid), false) = (request.valid, busy) {
                    assert_eq!(taken, valid, "{protocol} {}: {status}", request.kind);
                }
            }
            let mut counts = counts.lock().await;
            own.into_iter().for_each(|(key, count)| *counts.entry(key).or_default() += count);
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.unwrap_or_else(|error| panic!("{error}"));
    }
    Arc::into_inner(counts).map_or_else(Counts::new, Mutex::into_inner)
}

#[test]
fn hostile_requests_are_answered_and_memory_stays_within_the_limits() {
    let sink = Sink::start(Answer::Discard);
    let limits = [
        "limits.message=1MiB",
        "limits.decompressed=4MiB",
        "limits.in_flight=64MiB",
        "limits.runs=128",
        "limits.ranks=512",
    ];
    let options: Vec<_> = limits.iter().flat_map(|limit| ["--set", limit]).collect();
    let mut serve = Serve::with(&sink.address, &options);
    let told = std::env::var("PHASESCOPE_HOSTILE_REQUESTS").ok();
    let requests = told.map_or(REQUESTS, |told| {
        told.parse().unwrap_or_else(|_| panic!("expected a number of requests, found {told}"))
    });
    let begin = Instant::now();
    let runtime = tokio::runtime::Runtime::new().unwrap_or_else(|error| panic!("{error}"));
    let counts = runtime.block_on(attack(&serve, Arc::new(Bodies::new()), requests));
    let total: u64 = counts.values().sum();
    println!("{total} requests in {:.0} s, seed {SEED}", begin.elapsed().as_secs_f64());
    for ((protocol, kind, status), count) in &counts {
        println!("{protocol:<5} {kind:<17} {status:>5} {count:>8}");
    }
    assert_eq!(total, requests / TASKS * TASKS);
    // 16 is internal trouble nowhere: HTTP 500 and gRPC UNKNOWN (2) and INTERNAL (13).
    let broken: Vec<_> = counts.keys().filter(|key| matches!(key.2, 2 | 13 | 500)).collect();
    assert_eq!(broken, Vec::<&(&str, &str, u16)>::new());

    assert!(serve.alive(), "it did not crash");
    let panics = serve.log().iter().filter(|line| line.to_string().contains("panicked")).count();
    assert_eq!(panics, 0);
    let runs = serve.metric("phasescope_collector_runs", &[]);
    let ranks = serve.metric("phasescope_collector_ranks", &[]);
    assert!(runs <= 128.0 && ranks <= 512.0, "{runs} runs, {ranks} ranks");
    assert_eq!(serve.metric("phasescope_collector_in_flight_bytes", &[]), 0.0);
    let peak = serve.peak_memory() >> 20;
    println!("peak memory {peak} MiB, {runs} runs, {ranks} ranks");
    // In flight, the engine's state, and what a process has anyway.
    assert!(peak < 64 + 512 / 4 + 64, "{peak} MiB");
    // It still judges.
    let text = serve.metrics();
    assert!(text.lines().all(|line| line.starts_with('#') || line.split(' ').count() >= 2));
}
