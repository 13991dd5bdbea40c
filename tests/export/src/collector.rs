use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::Jaeger;
use crate::server::{Server, free_port};

/// How long lines may take to appear in the file.
const PATIENCE: Duration = Duration::from_secs(30);

/// An OpenTelemetry Collector that hands spans on to a Jaeger and to a file, and metrics to the file
/// and to Prometheus.
#[derive(Debug)]
pub struct Collector {
    _server: Server,
    /// Where it takes OTLP over HTTP.
    pub http: String,
    /// Where it takes OTLP over gRPC.
    pub grpc: String,
    /// The file that its file exporter writes.
    pub file: PathBuf,
    prometheus: String,
}

impl Collector {
    /// Starts one before a Jaeger; `None` where it was not built.
    ///
    /// # Panics
    ///
    /// When it does not start.
    #[must_use]
    pub fn before(jaeger: &Jaeger) -> Option<Self> {
        Self::start(&[&jaeger.grpc], None)
    }

    /// Starts one that hands everything on by gRPC.
    ///
    /// # Panics
    ///
    /// When it does not start.
    #[must_use]
    pub fn handing_on(next: &str) -> Option<Self> {
        Self::start(&[next], Some(0))
    }

    /// Starts one that hands everything to a Jaeger and to another endpoint.
    ///
    /// # Panics
    ///
    /// When it does not start.
    #[must_use]
    pub fn to_both(jaeger: &Jaeger, other: &str) -> Option<Self> {
        Self::start(&[&jaeger.grpc, other], Some(1))
    }

    /// Spans go to all of these, metrics and logs to one: a Jaeger takes none.
    fn start(next: &[&str], metrics_to: Option<usize>) -> Option<Self> {
        let [http, grpc, prometheus] = [(); 3].map(|()| free_port());
        let names: Vec<_> = (0..next.len()).map(|place| format!("otlp/{place}")).collect();
        let exporters: String = names
            .iter()
            .zip(next)
            .map(|(name, endpoint)| {
                format!("  {name}:\n    endpoint: {endpoint}\n    tls:\n      insecure: true\n")
            })
            .collect();
        let all = names.join(", ");
        let metrics_to = metrics_to.map_or_else(String::new, |place| format!("{}, ", names[place]));
        let server = Server::start("otelcol", |folder| {
            let file = folder.join("out.jsonl");
            format!(
                "receivers:
  otlp:
    protocols:
      http:
        endpoint: 127.0.0.1:{http}
      grpc:
        endpoint: 127.0.0.1:{grpc}
processors:
  memory_limiter:
    check_interval: 1s
    limit_mib: 512
  batch:
    timeout: 100ms
exporters:
{exporters}  file:
    path: {}
  prometheus:
    endpoint: 127.0.0.1:{prometheus}
service:
  telemetry:
    metrics:
      level: none
  pipelines:
    traces:
      receivers: [otlp]
      processors: [memory_limiter, batch]
      exporters: [{all}, file]
    metrics:
      receivers: [otlp]
      processors: [memory_limiter, batch]
      exporters: [{metrics_to}prometheus, file]
    logs:
      receivers: [otlp]
      processors: [memory_limiter, batch]
      exporters: [{metrics_to}file]
",
                file.display()
            )
        })?;
        let address = |port| format!("http://127.0.0.1:{port}");
        Some(Self {
            file: server.folder.path().join("out.jsonl"),
            _server: server,
            http: address(http),
            grpc: address(grpc),
            prometheus: format!("{}/metrics", address(prometheus)),
        })
    }

    /// What Prometheus would be told, as soon as a line satisfies `arrived`.
    ///
    /// # Panics
    ///
    /// When none comes, or the exporter does not answer.
    pub fn wait_for_metrics(&self, arrived: impl Fn(&str) -> bool) -> String {
        let begin = Instant::now();
        loop {
            let text = reqwest::blocking::get(&self.prometheus)
                .and_then(reqwest::blocking::Response::text)
                .unwrap_or_else(|error| panic!("{}: {error}", self.prometheus));
            if text.lines().any(&arrived) {
                return text;
            }
            assert!(begin.elapsed() < PATIENCE, "what was waited for is not in {text}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// The whole lines of the file as soon as they hold so many spans.
    ///
    /// # Panics
    ///
    /// When they do not come.
    pub fn wait_for_spans(&self, count: usize) -> String {
        let begin = Instant::now();
        loop {
            let text = std::fs::read_to_string(&self.file).unwrap_or_default();
            let whole = text.rfind('\n').map_or("", |end| &text[..=end]);
            let found = whole.matches("\"spanId\"").count();
            if found >= count {
                return whole.to_owned();
            }
            assert!(begin.elapsed() < PATIENCE, "expected {count} spans, found {found}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}
