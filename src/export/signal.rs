use std::collections::HashMap;
use std::sync::Arc;

use http::HeaderMap;
use opentelemetry_otlp::tonic_types::metadata::MetadataMap;
use opentelemetry_otlp::{
    MetricExporter, SpanExporter, WithExportConfig, WithHttpConfig, WithTonicConfig,
};
use url::Url;

use super::environment;
use super::exporter::{Metrics, Spans};
use super::file::{FileMetrics, FileSpans, Lines};
use super::settings::Target;
use super::{Export, Protocol};

/// Where one signal goes.
#[derive(Debug)]
pub(super) struct Signal {
    /// For people, without a password.
    pub(super) name: String,
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
                    name: without_password(url),
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
                    name: without_password(&signal.endpoint),
                    route: match signal.protocol {
                        Protocol::Grpc => Route::Grpc(None),
                        Protocol::HttpProtobuf => Route::Http(None),
                    },
                };
                (environment.traces.as_ref().map(signal), environment.metrics.as_ref().map(signal))
            }
            Target::File { path, lines } => {
                let signal =
                    || Self { name: path.display().to_string(), route: Route::File(lines.clone()) };
                (Some(signal()), Some(signal()))
            }
        }
    }

    pub(super) fn is_grpc(&self) -> bool {
        matches!(self.route, Route::Grpc(_))
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
        exporter.map(|exporter| Spans::Otlp(exporter.into())).map_err(|error| error.to_string())
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
        exporter.map(|exporter| Metrics::Otlp(exporter.into())).map_err(|error| error.to_string())
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

/// An address may carry a password, which is nothing for a log.
fn without_password(address: &str) -> String {
    let Ok(mut url) = Url::parse(address) else { return address.to_owned() };
    // Of an address with a host the password can be taken away.
    if url.password().is_none() || url.set_password(None).is_err() {
        return address.to_owned();
    }
    url.to_string()
}
