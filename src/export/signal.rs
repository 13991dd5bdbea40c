use std::collections::HashMap;
use std::sync::Arc;

use http::HeaderMap;
use opentelemetry_otlp::tonic_types::metadata::MetadataMap;
use opentelemetry_otlp::{
    ExporterBuildError, MetricExporter, SpanExporter, WithExportConfig, WithHttpConfig,
    WithTonicConfig,
};

use super::environment;
use super::exporter::{Metrics, Spans};
use super::file::{FileMetrics, FileSpans, Lines};
use super::settings::{Target, shown};
use super::{Export, Protocol};

/// Where one signal goes.
#[derive(Debug)]
pub(super) struct Signal {
    /// For people, without secrets.
    pub(super) name: String,
    /// As it was given.
    address: String,
    route: Route,
}

/// The address is `None` where the exporter reads it from the environment itself.
#[derive(Debug)]
enum Route {
    Http(Option<String>),
    Grpc(Option<String>),
    File(Arc<Lines>),
}

impl Signal {
    /// Where traces and metrics go.
    pub(super) fn both(export: &Export) -> (Option<Self>, Option<Self>) {
        match &export.target {
            Target::Endpoint { url, protocol } => {
                let signal = |path: &str| Self {
                    name: shown(url),
                    address: url.clone(),
                    route: match protocol {
                        Protocol::Grpc => Route::Grpc(Some(url.clone())),
                        Protocol::HttpProtobuf => {
                            Route::Http(Some(format!("{}{path}", url.trim_end_matches('/'))))
                        }
                    },
                };
                (Some(signal("/v1/traces")), Some(signal("/v1/metrics")))
            }
            Target::Environment(environment) => {
                let signal = |signal: &environment::Signal| Self {
                    name: shown(&signal.endpoint),
                    address: signal.endpoint.clone(),
                    route: match signal.protocol {
                        Protocol::Grpc => Route::Grpc(None),
                        Protocol::HttpProtobuf => Route::Http(None),
                    },
                };
                (environment.traces.as_ref().map(signal), environment.metrics.as_ref().map(signal))
            }
            Target::File { path, lines } => {
                let signal = || Self {
                    name: path.display().to_string(),
                    address: String::new(),
                    route: Route::File(lines.clone()),
                };
                (Some(signal()), Some(signal()))
            }
        }
    }

    pub(super) fn is_grpc(&self) -> bool {
        matches!(self.route, Route::Grpc(_))
    }

    /// What the exporter says against its settings, without the secrets of the address.
    fn told(&self, error: &ExporterBuildError) -> String {
        let told = error.to_string();
        if self.address.is_empty() { told } else { told.replace(&self.address, &self.name) }
    }

    /// The exporter of spans. gRPC's must be made inside a runtime.
    pub(super) fn spans(&self, headers: &HeaderMap) -> Result<Spans, String> {
        let exporter = match &self.route {
            Route::File(lines) => return Ok(Spans::File(FileSpans::new(lines.clone()))),
            Route::Http(url) => {
                let builder = SpanExporter::builder()
                    .with_http()
                    .with_protocol(opentelemetry_otlp::Protocol::HttpBinary)
                    .with_headers(words(headers));
                addressed(builder, url).build()
            }
            Route::Grpc(url) => {
                let builder = SpanExporter::builder()
                    .with_tonic()
                    .with_metadata(MetadataMap::from_headers(headers.clone()));
                addressed(builder, url).build()
            }
        };
        exporter.map(|exporter| Spans::Otlp(exporter.into())).map_err(|error| self.told(&error))
    }

    /// The exporter of metrics. gRPC's must be made inside a runtime.
    pub(super) fn metrics(&self, headers: &HeaderMap) -> Result<Metrics, String> {
        let exporter = match &self.route {
            Route::File(lines) => return Ok(Metrics::File(FileMetrics(lines.clone()))),
            Route::Http(url) => {
                let builder = MetricExporter::builder()
                    .with_http()
                    .with_protocol(opentelemetry_otlp::Protocol::HttpBinary)
                    .with_headers(words(headers));
                addressed(builder, url).build()
            }
            Route::Grpc(url) => {
                let builder = MetricExporter::builder()
                    .with_tonic()
                    .with_metadata(MetadataMap::from_headers(headers.clone()));
                addressed(builder, url).build()
            }
        };
        exporter.map(|exporter| Metrics::Otlp(exporter.into())).map_err(|error| self.told(&error))
    }
}

fn addressed<B: WithExportConfig>(builder: B, url: &Option<String>) -> B {
    match url {
        Some(url) => builder.with_endpoint(url),
        None => builder,
    }
}

/// The headers as the HTTP exporter takes them; `Export::header` lets only text in.
fn words(headers: &HeaderMap) -> HashMap<String, String> {
    let word = |value: &http::HeaderValue| value.to_str().ok().map(str::to_owned);
    headers.iter().filter_map(|(name, value)| Some((name.to_string(), word(value)?))).collect()
}
