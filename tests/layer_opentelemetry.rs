//! The layer's attributes on the spans of tracing-opentelemetry.
#![cfg(feature = "otlp")]

use std::sync::Arc;

use opentelemetry::trace::{Status, TracerProvider};
use opentelemetry::{Key, Value};
use opentelemetry_sdk::trace::{InMemorySpanExporter, SdkTracerProvider, SpanData};
use phasescope::counters::scripted::Scripted;
use phasescope::layer::{Guard, PhaseLayer};
use phasescope::{phase, step};
use tracing_subscriber::Registry;
use tracing_subscriber::layer::SubscriberExt;

struct Setup {
    device: Arc<Scripted>,
    layer: PhaseLayer,
    guard: Guard,
    exporter: InMemorySpanExporter,
    provider: SdkTracerProvider,
}

fn setup() -> Setup {
    let device = Arc::new(Scripted::new("cuda:0"));
    let (layer, guard) = phasescope::builder().source(device.clone()).build();
    let exporter = InMemorySpanExporter::default();
    let provider = SdkTracerProvider::builder().with_simple_exporter(exporter.clone()).build();
    Setup { device, layer, guard, exporter, provider }
}

fn spans(exporter: &InMemorySpanExporter) -> Vec<SpanData> {
    exporter.get_finished_spans().unwrap_or_else(|error| panic!("{error}"))
}

fn attribute(span: &SpanData, key: &'static str) -> Option<Value> {
    let key = Key::from_static_str(key);
    let values: Vec<_> = span.attributes.iter().filter(|pair| pair.key == key).collect();
    assert!(values.len() <= 1, "{key} is set {} times", values.len());
    values.first().map(|pair| pair.value.clone())
}

#[test]
fn a_phase_span_carries_start_end_delta_and_peak_once_each() {
    let setup = setup();
    let otel = tracing_opentelemetry::layer().with_tracer(setup.provider.tracer("test"));
    let stack = Registry::default().with(setup.layer).with(otel);
    tracing::subscriber::with_default(stack, || {
        let _step = step!(0_u64).entered();
        phase!(forward).in_scope(|| {
            setup.device.allocate(100);
            setup.device.free(40);
        });
    });
    let spans = spans(&setup.exporter);
    let forward = &spans[0];
    assert_eq!(forward.name, "forward");
    for (key, value) in [
        ("phasescope.allocated.start", 0),
        ("phasescope.allocated.end", 60),
        ("phasescope.allocated.delta", 60),
        ("phasescope.allocated.peak", 100),
    ] {
        assert_eq!(attribute(forward, key), Some(Value::I64(value)), "{key}");
    }
    assert_eq!(attribute(forward, "phasescope.reserved.end"), None, "absent stays absent");
    assert_eq!(forward.parent_span_id, spans[1].span_context.span_id(), "a child of its step");
    assert!(setup.guard.problems().is_empty());
}

#[test]
fn the_wrong_order_of_layers_is_told_at_the_first_phase() {
    let setup = setup();
    let otel = tracing_opentelemetry::layer().with_tracer(setup.provider.tracer("test"));
    let stack = Registry::default().with(otel).with(setup.layer);
    tracing::subscriber::with_default(stack, || {
        let _open = phase!(forward).entered();
        let problems = setup.guard.problems();
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert!(problems[0].contains("registry().with(phase_layer).with(opentelemetry_layer)"));
    });
}

#[test]
fn a_layer_in_an_option_still_writes_its_attributes() {
    let setup = setup();
    let otel = tracing_opentelemetry::layer().with_tracer(setup.provider.tracer("test"));
    let stack = Registry::default().with(Some(setup.layer)).with(Some(otel));
    tracing::subscriber::with_default(stack, || {
        phase!(forward).in_scope(|| setup.device.allocate(100));
    });
    let spans = spans(&setup.exporter);
    assert_eq!(attribute(&spans[0], "phasescope.allocated.end"), Some(Value::I64(100)));
}

#[test]
fn a_phase_that_runs_out_of_memory_ends_with_an_error_and_its_request() {
    let setup = setup();
    let otel = tracing_opentelemetry::layer().with_tracer(setup.provider.tracer("test"));
    let stack = Registry::default().with(setup.layer).with(otel);
    tracing::subscriber::with_default(stack, || {
        let unwound = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _forward = phase!(forward).entered();
            panic!("CUDA out of memory. Tried to allocate 20.00 MiB.");
        }));
        assert!(unwound.is_err());
    });
    let spans = spans(&setup.exporter);
    assert!(matches!(spans[0].status, Status::Error { .. }), "{:?}", spans[0].status);
    let requested = attribute(&spans[0], "phasescope.out_of_memory.requested");
    assert_eq!(requested, Some(Value::I64(20 << 20)));
}
