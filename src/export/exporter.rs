use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use opentelemetry::{Array, Value};
use opentelemetry_otlp::{MetricExporter, SpanExporter as OtlpSpans};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::metrics::Temporality;
use opentelemetry_sdk::metrics::data::ResourceMetrics;
use opentelemetry_sdk::metrics::exporter::PushMetricExporter;
use opentelemetry_sdk::trace::{SpanData, SpanExporter};

use super::counts::Counts;
use super::file::{FileMetrics, FileSpans};
use crate::contract;

thread_local! {
    /// Spans that the endpoint has rejected in the export that runs on this thread.
    static REJECTED: Cell<u64> = const { Cell::new(0) };
}

/// The exporter on this thread learns that the endpoint took a batch but for so many spans.
pub(crate) fn note_rejected(spans: u64) {
    // A thread whose locals are gone exports no longer.
    let _ = REJECTED.try_with(|rejected| rejected.set(rejected.get().saturating_add(spans)));
}

/// Tells the first failure of one kind, and only that.
#[derive(Debug)]
pub(crate) struct Once {
    what: &'static str,
    destination: String,
    told: AtomicBool,
}

impl Once {
    pub(crate) fn new(what: &'static str, destination: &str) -> Self {
        Self { what, destination: destination.to_owned(), told: AtomicBool::new(false) }
    }

    fn tell(&self, error: &str) {
        if self.told.swap(true, Ordering::Relaxed) {
            return;
        }
        let Self { what, destination, .. } = self;
        // What an endpoint answers that does not know the signal, as Jaeger does of metrics.
        let unknown = error.contains("status code: 404") || error.contains("Unimplemented");
        crate::tell::line(&if unknown {
            format!("{destination} takes no {what} ({error})")
        } else {
            format!(
                "{what} could not be exported to {destination}: {error}; further failures are \
                 counted, not told"
            )
        });
    }
}

/// Where spans go.
#[derive(Debug)]
pub(crate) enum Spans {
    Otlp(Box<OtlpSpans>),
    File(FileSpans),
}

/// Counts what becomes of each batch.
#[derive(Debug)]
pub(crate) struct CountedSpans {
    pub(crate) to: Spans,
    pub(crate) counts: Arc<Counts>,
    pub(crate) once: Once,
    pub(crate) muted: Arc<AtomicBool>,
}

impl SpanExporter for CountedSpans {
    async fn export(&self, mut batch: Vec<SpanData>) -> OTelSdkResult {
        if self.muted.load(Ordering::Acquire) {
            return Ok(());
        }
        let spans = batch.len() as u64;
        batch.iter_mut().for_each(mend);
        REJECTED.set(0);
        let result = match &self.to {
            Spans::Otlp(exporter) => exporter.export(batch).await,
            Spans::File(exporter) => exporter.export(batch).await,
        };
        match &result {
            Ok(()) => {
                let rejected = REJECTED.take().min(spans);
                self.counts.done(spans - rejected, rejected);
                if rejected > 0 {
                    self.once.tell(&format!("the endpoint rejected {rejected} of {spans} spans"));
                }
            }
            Err(error) => {
                self.counts.done(0, spans);
                self.once.tell(&error.to_string());
            }
        }
        result
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        match &self.to {
            Spans::Otlp(exporter) => exporter.shutdown_with_timeout(timeout),
            Spans::File(exporter) => exporter.shutdown_with_timeout(timeout),
        }
    }

    fn set_resource(&mut self, resource: &Resource) {
        match &mut self.to {
            Spans::Otlp(exporter) => exporter.set_resource(resource),
            Spans::File(exporter) => exporter.set_resource(resource),
        }
    }
}

/// Makes values what the contract and the wire want.
fn mend(span: &mut SpanData) {
    let events = span.events.events.iter_mut().map(|event| &mut event.attributes);
    for pair in std::iter::once(&mut span.attributes).chain(events).flatten() {
        match pair.key.as_str() {
            // A program's unsigned field, which has become text.
            contract::STEP | contract::INPUT_ELEMENTS => {
                if let Some(number) = contract::integer(&pair.value) {
                    pair.value = number.into();
                }
            }
            _ => word_for_nan(&mut pair.value),
        }
    }
}

/// OTLP/JSON has no number for these, and one of them would have the whole request refused: they go
/// as words.
fn word_for_nan(value: &mut Value) {
    match value {
        Value::F64(number) if !number.is_finite() => *value = number.to_string().into(),
        Value::Array(Array::F64(numbers)) if numbers.iter().any(|number| !number.is_finite()) => {
            let words = numbers.iter().map(|number| number.to_string().into()).collect();
            *value = Value::Array(Array::String(words));
        }
        _ => {}
    }
}

/// Where metrics go.
#[derive(Debug)]
pub(crate) enum Metrics {
    Otlp(Box<MetricExporter>),
    File(FileMetrics),
}

/// Counts the collections that did not arrive.
#[derive(Debug)]
pub(crate) struct CountedMetrics {
    pub(crate) to: Metrics,
    pub(crate) failed: Arc<AtomicU64>,
    pub(crate) once: Once,
    pub(crate) muted: Arc<AtomicBool>,
}

impl PushMetricExporter for CountedMetrics {
    async fn export(&self, metrics: &ResourceMetrics) -> OTelSdkResult {
        if self.muted.load(Ordering::Acquire) {
            return Ok(());
        }
        let result = match &self.to {
            Metrics::Otlp(exporter) => exporter.export(metrics).await,
            Metrics::File(exporter) => exporter.export(metrics).await,
        };
        if let Err(error) = &result {
            self.failed.fetch_add(1, Ordering::Relaxed);
            self.once.tell(&error.to_string());
        }
        result
    }

    fn force_flush(&self) -> OTelSdkResult {
        match &self.to {
            Metrics::Otlp(exporter) => exporter.force_flush(),
            Metrics::File(exporter) => exporter.force_flush(),
        }
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        match &self.to {
            Metrics::Otlp(exporter) => exporter.shutdown_with_timeout(timeout),
            Metrics::File(exporter) => exporter.shutdown_with_timeout(timeout),
        }
    }

    fn temporality(&self) -> Temporality {
        match &self.to {
            Metrics::Otlp(exporter) => exporter.temporality(),
            Metrics::File(exporter) => exporter.temporality(),
        }
    }
}
