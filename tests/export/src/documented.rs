use crate::Jaeger;
use crate::server::{Server, free_port};

/// An OpenTelemetry Collector with a configuration of the documentation, or a plain one, but for the
/// addresses.
#[derive(Debug)]
pub struct Documented {
    server: Server,
    /// Where it takes OTLP over gRPC.
    pub grpc: String,
}

impl Documented {
    /// Sends every run to one of two collectors. `None` where it was not built.
    ///
    /// # Panics
    ///
    /// When it does not start.
    #[must_use]
    pub fn load_balancer(first: &str, second: &str) -> Option<Self> {
        let text = include_str!("../../../collector/config/load-balancer.yaml");
        let there = [("phasescope-1:4317", first), ("phasescope-2:4317", second)];
        Self::start("loadbalancer", text, &there)
    }

    /// Stands on both sides of a collector, whose next hop is this port, and sends on to a Jaeger.
    /// `None` where it was not built.
    ///
    /// # Panics
    ///
    /// When it does not start.
    #[must_use]
    pub fn both_sides(through: &str, back: u16, jaeger: &Jaeger) -> Option<Self> {
        let text = include_str!("../../../collector/config/open-telemetry.yaml");
        let back = format!("127.0.0.1:{back}");
        let there = [
            ("127.0.0.1:14317", back.as_str()),
            ("127.0.0.1:24317", through),
            ("127.0.0.1:34317", &jaeger.grpc),
        ];
        Self::start("otelcol", text, &there)
    }

    /// Takes OTLP and hands it on, and does nothing else: with a queue in between, as it is by
    /// default, or without. `None` where it was not built.
    ///
    /// # Panics
    ///
    /// When it does not start.
    #[must_use]
    pub fn plain(next: &str, queue: bool) -> Option<Self> {
        let text = format!(
            "receivers:
  otlp:
    protocols:
      grpc:
        endpoint: 127.0.0.1:4317
        max_recv_msg_size_mib: 64
      http:
        endpoint: 127.0.0.1:4318
exporters:
  otlp:
    endpoint: {next}
    compression: none
    tls:
      insecure: true
    sending_queue:
      enabled: {queue}
service:
  pipelines:
    traces:
      receivers: [otlp]
      exporters: [otlp]
"
        );
        Self::start("otelcol", &text, &[])
    }

    /// Its process.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.server.id()
    }

    fn start(program: &str, text: &str, there: &[(&str, &str)]) -> Option<Self> {
        let [grpc, http] = [(); 2].map(|()| format!("127.0.0.1:{}", free_port()));
        let here = [("127.0.0.1:4317", grpc.as_str()), ("127.0.0.1:4318", &http)];
        // Its own metrics would take a port that is not free.
        let quiet = "service:\n  telemetry:\n    metrics:\n      level: none\n";
        let mut config = text.replace("service:\n", quiet);
        for (written, address) in here.iter().chain(there) {
            assert!(config.contains(written), "expected {written} in the configuration");
            config = config.replace(written, address.trim_start_matches("http://"));
        }
        let server = Server::start(program, |_| config)?;
        Some(Self { server, grpc: format!("http://{grpc}") })
    }
}
