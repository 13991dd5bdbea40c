//! Spans and metrics by OTLP: to an endpoint (Jaeger, Tempo, an OpenTelemetry Collector), or to a
//! file.
//!
//! [`Builder::install`](crate::layer::Builder::install) exports as soon as the environment names an
//! endpoint, and nothing is sent before:
//!
//! ```text
//! OTEL_EXPORTER_OTLP_ENDPOINT=http://localhost:4318 ./train
//! ```
//!
//! A program decides for itself with [`Export`] and [`Builder::export`](crate::layer::Builder::export).
//!
//! # A stack of your own
//!
//! A program with a tracing-opentelemetry stack of its own needs neither: the phase layer goes inside
//! it, and the phases' counters go to its spans. Phases are then children of the program's spans
//! around them, the program's spans inside a phase are its children, and provider, sampler and
//! exporter stay the program's. A meter of its own provider gives the metrics.
//!
//! ```
//! use opentelemetry::metrics::MeterProvider;
//! use opentelemetry::trace::TracerProvider;
//! use opentelemetry_sdk::{metrics::SdkMeterProvider, trace::SdkTracerProvider};
//! use tracing_subscriber::layer::SubscriberExt;
//!
//! // Yours, with your exporters.
//! let tracers = SdkTracerProvider::builder().build();
//! let meters = SdkMeterProvider::builder().build();
//!
//! let (phases, guard) = phasescope::builder().meter(meters.meter("phasescope")).build();
//! let spans = tracing_opentelemetry::layer().with_tracer(tracers.tracer("training"));
//! // The phase layer first: inner layers see a span's end first.
//! let subscriber = tracing_subscriber::registry().with(phases).with(spans);
//! # let _ = (subscriber, guard);
//! ```
//!
//! # Cost and limits
//!
//! Training never waits for an endpoint. Spans wait in a queue of 2048 (`OTEL_BSP_MAX_QUEUE_SIZE`)
//! for at most 500 ms (`OTEL_BSP_SCHEDULE_DELAY`); what finds it full is dropped and counted. The
//! first failure is told on standard error, further ones are counted, and what became of all spans
//! is told at the shutdown and by [`Guard::span_counts`](crate::layer::Guard::span_counts). The
//! shutdown, when the last [`Guard`](crate::layer::Guard) is dropped, waits 5 s at most.
//!
//! A phase that fails is exported at once. A process that is killed or calls [`std::process::exit`]
//! loses the spans that are open and those of the last half second; the [`ring`](crate::ring) file
//! keeps those.

mod counts;
mod environment;
mod exporter;
mod file;
mod metrics;
mod pipeline;
mod processor;
mod read;
mod resource;
mod sampling;
mod settings;
mod signal;
mod spans;

pub use counts::SpanCounts;
pub(crate) use exporter::note_rejected;
pub use file::MAX_FILE_BYTES;
pub(crate) use metrics::{Instruments, Observed};
pub(crate) use pipeline::Pipeline;
pub use read::{ProcessSeries, ReadError, read};
pub(crate) use sampling::Plan;
pub use sampling::{MAX_HELD_SPANS, Sampling};
pub use settings::{Export, ExportError, Protocol};
