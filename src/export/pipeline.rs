use std::env;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use opentelemetry::metrics::{Meter, MeterProvider};
use opentelemetry::trace::TracerProvider;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::metrics::SdkMeterProvider;
use opentelemetry_sdk::trace::{
    BatchConfigBuilder, BatchSpanProcessor, SdkTracer, SdkTracerProvider, SpanExporter,
};
use tokio::runtime::Runtime;

use super::counts::{Counts, SpanCounts};
use super::exporter::{CountedMetrics, CountedSpans, Once};
use super::processor::PhaseProcessor;
use super::sampling::{Plan, StepSampler};
use super::signal::Signal;
use super::{Export, resource};
use crate::phase::RunIdentity;

/// Longest time between a span's end and its export, unless `OTEL_BSP_SCHEDULE_DELAY` says
/// otherwise. The SDK's five seconds are too long for a process that may be killed.
const SCHEDULE_DELAY: Duration = Duration::from_millis(500);
/// Spans that wait for their export at most, unless `OTEL_BSP_MAX_QUEUE_SIZE` says otherwise; beyond
/// it they are dropped and counted. The SDK's own default.
const QUEUE: u64 = 2048;
/// The longest queue that a variable can ask for: the SDK takes the memory for it at once.
const MAX_QUEUE: u64 = 1 << 20;
/// How long the shutdown waits for the last export.
pub(crate) const SHUTDOWN: Duration = Duration::from_secs(5);
/// Attributes of a span at most, unless `OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT` says otherwise: the
/// counters of three devices leave too few of the SDK's 128 for the program's own.
const MAX_ATTRIBUTES: u32 = 256;
/// The instrumentation scope of everything that is sent.
const SCOPE: &str = "phasescope";

/// The providers of one process, and what became of what they sent.
#[derive(Debug)]
pub(crate) struct Pipeline {
    tracers: Option<SdkTracerProvider>,
    meters: Option<SdkMeterProvider>,
    pub(crate) counts: Arc<Counts>,
    metrics_failed: Arc<AtomicU64>,
    pub(crate) plan: Option<Arc<Plan>>,
    destination: String,
    ended: AtomicBool,
    /// Nothing is sent any more.
    muted: Arc<AtomicBool>,
    /// Last: the exporters need it to their end.
    _grpc: Option<GrpcThread>,
}

/// The thread that gRPC runs on. A runtime that is simply dropped waits, and panics inside another.
#[derive(Debug)]
struct GrpcThread(Option<Runtime>);

impl Drop for GrpcThread {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

impl Pipeline {
    /// Begins to export.
    pub(crate) fn start(export: Export, identity: &RunIdentity) -> Result<Self, String> {
        let resource = resource::resource(&export, identity);
        let (traces, metrics) = Signal::both(&export);
        let grpc = [&traces, &metrics].into_iter().flatten().any(Signal::is_grpc);
        let grpc = if grpc { Some(GrpcThread(Some(runtime()?))) } else { None };
        // Without a runtime around it tonic panics when it makes its channel.
        let runtime = grpc.as_ref().and_then(|grpc| grpc.0.as_ref());
        let inside = runtime.map(Runtime::enter);
        let muted = Arc::new(AtomicBool::new(false));
        let counts = Arc::new(Counts::default());
        let metrics_failed = Arc::new(AtomicU64::new(0));
        let plan = plan(&export, &counts);
        let destination = match (&traces, &metrics) {
            (Some(signal), _) | (None, Some(signal)) => signal.name.clone(),
            (None, None) => return Err("expected an endpoint, found none".to_owned()),
        };
        let tracers = traces
            .map(|signal| tracers(&signal, &export, &resource, &counts, plan.as_ref(), &muted))
            .transpose()?;
        let meters = metrics
            .map(|signal| meters(&signal, &export, &resource, &metrics_failed, &muted))
            .transpose()?;
        drop(inside);
        let ended = AtomicBool::new(false);
        Ok(Self {
            tracers,
            meters,
            counts,
            metrics_failed,
            plan,
            destination,
            ended,
            muted,
            _grpc: grpc,
        })
    }

    pub(crate) fn tracer(&self) -> Option<SdkTracer> {
        self.tracers.as_ref().map(|tracers| tracers.tracer(SCOPE))
    }

    pub(crate) fn meter(&self) -> Option<Meter> {
        self.meters.as_ref().map(|meters| meters.meter(SCOPE))
    }

    /// Collections of metrics that did not arrive.
    pub(crate) fn metrics_failed(&self) -> u64 {
        self.metrics_failed.load(Ordering::Relaxed)
    }

    /// Exports what waits, and waits for it at most [`SHUTDOWN`].
    pub(crate) fn flush(&self) -> SpanCounts {
        let (tracers, meters) = (self.tracers.clone(), self.meters.clone());
        let (done, wait) = mpsc::channel();
        // The SDK waits for its meters without a bound.
        let spawned = thread::Builder::new().name("phasescope-flush".to_owned()).spawn(move || {
            // Failures are counted and told by the exporters; nobody may wait for the end any more.
            let _ = tracers.map(|tracers| tracers.force_flush());
            let _ = meters.map(|meters| meters.force_flush());
            let _ = done.send(());
        });
        if spawned.is_ok() {
            let _ = wait.recv_timeout(SHUTDOWN);
        }
        self.counts.snapshot()
    }

    /// Exports what waits and ends, after [`SHUTDOWN`] at the latest. Says on standard error what
    /// became of the spans. A second call only gives the counts.
    pub(crate) fn shutdown(&self) -> SpanCounts {
        if self.ended.swap(true, Ordering::AcqRel) {
            return self.counts.snapshot();
        }
        // Both at once, so that a dead endpoint is waited for once.
        let tracers = self.tracers.clone();
        let spans =
            thread::Builder::new().name("phasescope-shutdown".to_owned()).spawn(move || {
                // Success is reported even when the last export failed: our own counts tell.
                tracers.map(|tracers| tracers.shutdown_with_timeout(SHUTDOWN))
            });
        if let Some(meters) = &self.meters {
            let _ = meters.shutdown_with_timeout(SHUTDOWN);
        }
        if let Ok(spans) = spans {
            let _ = spans.join();
        }
        self.counts.close();
        let counts = self.counts.snapshot();
        self.tell(counts);
        counts
    }

    /// Ends without a word, for a pipeline that nothing goes through.
    pub(crate) fn abandon(&self) {
        self.muted.store(true, Ordering::Release);
        self.ended.store(true, Ordering::Release);
    }

    fn tell(&self, counts: SpanCounts) {
        let SpanCounts { exported, failed, dropped, .. } = counts;
        let metrics = match self.metrics_failed() {
            0 => String::new(),
            failed => format!("; {failed} exports of metrics failed"),
        };
        let destination = &self.destination;
        crate::tell::line(&format!(
            "{exported} spans exported to {destination}, {failed} failed, {dropped} dropped{metrics}"
        ));
    }
}

impl Drop for Pipeline {
    fn drop(&mut self) {
        self.shutdown();
    }
}

/// gRPC needs a runtime, which a training program does not have: one of a single thread.
fn runtime() -> Result<Runtime, String> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .thread_name("phasescope-grpc")
        .enable_all()
        .build()
        .map_err(|error| format!("no thread for gRPC: {error}"))
}

/// Which steps' spans are exported; `None` leaves it to the SDK's sampler.
fn plan(export: &Export, counts: &Arc<Counts>) -> Option<Arc<Plan>> {
    let own = env::var_os("OTEL_TRACES_SAMPLER").is_some_and(|value| !value.is_empty());
    match export.sampling {
        None if own => None,
        sampling => Some(Arc::new(Plan::new(sampling.unwrap_or_default(), counts.clone()))),
    }
}

fn tracers(
    signal: &Signal,
    export: &Export,
    resource: &Resource,
    counts: &Arc<Counts>,
    plan: Option<&Arc<Plan>>,
    muted: &Arc<AtomicBool>,
) -> Result<SdkTracerProvider, String> {
    let once = Once::new("spans", &signal.name);
    let to = signal.spans(&export.headers)?;
    let mut exporter = CountedSpans { to, counts: counts.clone(), once, muted: muted.clone() };
    exporter.set_resource(resource);
    let queue = number("OTEL_BSP_MAX_QUEUE_SIZE").filter(|queue| *queue > 0);
    let queue = queue.unwrap_or(QUEUE).min(MAX_QUEUE);
    // The batch processor reads its other variables itself.
    let mut config = BatchConfigBuilder::default().with_max_queue_size(queue as usize);
    if number("OTEL_BSP_SCHEDULE_DELAY").is_none() {
        config = config.with_scheduled_delay(SCHEDULE_DELAY);
    }
    let batch = BatchSpanProcessor::builder(exporter).with_batch_config(config.build()).build();
    let processor = PhaseProcessor::new(batch, queue, counts.clone(), plan.cloned())
        .map_err(|error| format!("no thread for the export: {error}"))?;
    let mut builder =
        SdkTracerProvider::builder().with_resource(resource.clone()).with_span_processor(processor);
    if number("OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT").is_none() {
        builder = builder.with_max_attributes_per_span(MAX_ATTRIBUTES);
    }
    if let Some(plan) = plan {
        builder = builder.with_sampler(StepSampler(plan.clone()));
    }
    Ok(builder.build())
}

fn meters(
    signal: &Signal,
    export: &Export,
    resource: &Resource,
    failed: &Arc<AtomicU64>,
    muted: &Arc<AtomicBool>,
) -> Result<SdkMeterProvider, String> {
    let once = Once::new("metrics", &signal.name);
    let to = signal.metrics(&export.headers)?;
    let exporter = CountedMetrics { to, failed: failed.clone(), once, muted: muted.clone() };
    // The reader reads its interval from OTEL_METRIC_EXPORT_INTERVAL itself.
    Ok(SdkMeterProvider::builder()
        .with_resource(resource.clone())
        .with_periodic_exporter(exporter)
        .build())
}

fn number(variable: &str) -> Option<u64> {
    env::var(variable).ok()?.parse().ok()
}
