//! The OpenTelemetry Collector's file format: one OTLP/JSON object a line.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::transform::common::tonic::ResourceAttributesWithSchema;
use opentelemetry_proto::transform::trace::tonic::group_spans_by_resource_and_scope;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::{OTelSdkError, OTelSdkResult};
use opentelemetry_sdk::metrics::Temporality;
use opentelemetry_sdk::metrics::data::ResourceMetrics;
use opentelemetry_sdk::metrics::exporter::PushMetricExporter;
use opentelemetry_sdk::trace::{SpanData, SpanExporter};
use serde::Serialize;

/// The largest file that is written, 1 GiB; spans and metrics beyond it are counted as failed. It is
/// also the largest that `phasescope diagnose` reads.
pub const MAX_FILE_BYTES: u64 = crate::report::MAX_REPORT_BYTES;

/// A file that takes whole lines.
#[derive(Debug)]
pub(crate) struct Lines(Mutex<Open>);

#[derive(Debug)]
struct Open {
    file: File,
    written: u64,
}

impl Lines {
    /// Makes the file; one that is there is not touched.
    pub(crate) fn create(path: &Path) -> std::io::Result<Arc<Self>> {
        let file = File::create_new(path)?;
        Ok(Arc::new(Self(Mutex::new(Open { file, written: 0 }))))
    }

    /// Writes a line in one call, so that a reader never sees a part of one. After a line that could
    /// not be written whole nothing more is written: the file stays readable up to it.
    fn write(&self, line: &impl Serialize) -> OTelSdkResult {
        let failed = |reason: String| OTelSdkError::InternalFailure(reason);
        let mut text = serde_json::to_vec(line).map_err(|error| failed(error.to_string()))?;
        text.push(b'\n');
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let end = open.written.saturating_add(text.len() as u64);
        if end > MAX_FILE_BYTES {
            return Err(failed(format!("expected at most {MAX_FILE_BYTES} bytes, found {end}")));
        }
        if let Err(error) = open.file.write_all(&text) {
            open.written = MAX_FILE_BYTES;
            return Err(failed(error.to_string()));
        }
        open.written = end;
        Ok(())
    }
}

/// Spans to a file.
#[derive(Debug)]
pub(crate) struct FileSpans {
    lines: Arc<Lines>,
    resource: ResourceAttributesWithSchema,
}

impl FileSpans {
    pub(crate) fn new(lines: Arc<Lines>) -> Self {
        Self { lines, resource: ResourceAttributesWithSchema::default() }
    }
}

impl SpanExporter for FileSpans {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let resource_spans = group_spans_by_resource_and_scope(batch, &self.resource);
        self.lines.write(&ExportTraceServiceRequest { resource_spans })
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.resource = resource.into();
    }
}

/// Metrics to the same file.
#[derive(Debug)]
pub(crate) struct FileMetrics(pub(crate) Arc<Lines>);

impl PushMetricExporter for FileMetrics {
    async fn export(&self, metrics: &ResourceMetrics) -> OTelSdkResult {
        self.0.write(&ExportMetricsServiceRequest::from(metrics))
    }

    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    fn shutdown_with_timeout(&self, _timeout: Duration) -> OTelSdkResult {
        Ok(())
    }

    fn temporality(&self) -> Temporality {
        Temporality::Cumulative
    }
}
