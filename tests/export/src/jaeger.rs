use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::server::{Server, free_port};

/// How long spans may take to appear.
const PATIENCE: Duration = Duration::from_secs(30);
/// Traces that are asked for at once.
const LIMIT: usize = 100_000;

/// A Jaeger with its storage in memory.
#[derive(Debug)]
pub struct Jaeger {
    server: Server,
    /// Where it takes OTLP over HTTP.
    pub http: String,
    /// Where it takes OTLP over gRPC.
    pub grpc: String,
    query: String,
}

/// A span as Jaeger's API tells it.
#[derive(Clone, Debug, PartialEq)]
pub struct Span {
    /// Its trace.
    pub trace: String,
    /// Its id.
    pub id: String,
    /// The id of the span around it.
    pub parent: Option<String>,
    /// Its name.
    pub name: String,
    /// Microseconds since 1970.
    pub start: u64,
    /// Microseconds.
    pub duration: u64,
    /// Its attributes, and what Jaeger makes of its status.
    pub tags: BTreeMap<String, Value>,
    /// The attributes of its events.
    pub events: Vec<BTreeMap<String, Value>>,
    /// The attributes of its resource.
    pub resource: BTreeMap<String, Value>,
}

impl Span {
    /// An integer attribute.
    #[must_use]
    pub fn number(&self, key: &str) -> Option<i64> {
        self.tags.get(key)?.as_i64()
    }

    /// A text attribute.
    #[must_use]
    pub fn text(&self, key: &str) -> Option<&str> {
        self.tags.get(key)?.as_str()
    }
}

impl Jaeger {
    /// Starts one; `None` where it was not built.
    ///
    /// # Panics
    ///
    /// When it does not start.
    #[must_use]
    pub fn start() -> Option<Self> {
        let [http, grpc, query, other] = [(); 4].map(|()| free_port());
        let server = Server::start("jaeger", |_| {
            format!(
                "extensions:
  jaeger_storage:
    backends:
      memory:
        memory:
          max_traces: {LIMIT}
  jaeger_query:
    storage:
      traces: memory
    http:
      endpoint: 127.0.0.1:{query}
    grpc:
      endpoint: 127.0.0.1:{other}
receivers:
  otlp:
    protocols:
      http:
        endpoint: 127.0.0.1:{http}
      grpc:
        endpoint: 127.0.0.1:{grpc}
exporters:
  jaeger_storage_exporter:
    trace_storage: memory
service:
  extensions: [jaeger_storage, jaeger_query]
  telemetry:
    metrics:
      level: none
  pipelines:
    traces:
      receivers: [otlp]
      exporters: [jaeger_storage_exporter]
"
            )
        })?;
        let address = |port| format!("http://127.0.0.1:{port}");
        Some(Self { server, http: address(http), grpc: address(grpc), query: address(query) })
    }

    /// Kills it.
    pub fn kill(&mut self) {
        self.server.kill();
    }

    /// All spans of a service, by start.
    ///
    /// # Panics
    ///
    /// When the API does not answer as it should.
    #[must_use]
    pub fn spans(&self, service: &str) -> Vec<Span> {
        let url = format!("{}/api/traces?service={service}&limit={LIMIT}", self.query);
        let answer: Value = reqwest::blocking::get(&url)
            .and_then(reqwest::blocking::Response::json)
            .unwrap_or_else(|error| panic!("{url}: {error}"));
        let mut spans: Vec<_> = array(&answer["data"]).flat_map(of_trace).collect();
        spans.sort_by_key(|span| (span.start, span.number("phasescope.sequence")));
        spans
    }

    /// The spans of a service as soon as there are so many; a collector in between takes its time.
    ///
    /// # Panics
    ///
    /// When they do not come.
    #[must_use]
    pub fn wait_for(&self, service: &str, count: usize) -> Vec<Span> {
        let begin = Instant::now();
        loop {
            let spans = self.spans(service);
            if spans.len() >= count {
                return spans;
            }
            let found = spans.len();
            assert!(begin.elapsed() < PATIENCE, "expected {count} spans, found {found}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

fn of_trace(trace: &Value) -> Vec<Span> {
    let span = |span: &Value| {
        let process = span["processID"].as_str().unwrap_or_default();
        let parent = array(&span["references"]).find(|other| other["refType"] == "CHILD_OF");
        Span {
            trace: text(&span["traceID"]),
            id: text(&span["spanID"]),
            parent: parent.map(|parent| text(&parent["spanID"])),
            name: text(&span["operationName"]),
            start: span["startTime"].as_u64().unwrap_or_default(),
            duration: span["duration"].as_u64().unwrap_or_default(),
            tags: tags(&span["tags"]),
            events: array(&span["logs"]).map(|log| tags(&log["fields"])).collect(),
            resource: tags(&trace["processes"][process]["tags"]),
        }
    };
    array(&trace["spans"]).map(span).collect()
}

fn array(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("expected text, found {value}")).to_owned()
}

/// Numbers come as numbers, text as text.
fn tags(value: &Value) -> BTreeMap<String, Value> {
    array(value).map(|tag| (text(&tag["key"]), tag["value"].clone())).collect()
}
