//! Writes a phase's counters to the OpenTelemetry span that tracing-opentelemetry made for it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use opentelemetry::trace::{Status, TraceContextExt};
use opentelemetry::{Key, KeyValue, StringValue, Value};
use opentelemetry_sdk::trace::SdkTracer;
use tracing::dispatcher::{self, WeakDispatch};
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::Id;
use tracing::subscriber::NoSubscriber;
use tracing::{Dispatch, Event, Level, Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::FilterFn;
use tracing_subscriber::registry::LookupSpan;

use super::span::PhaseSpan;
use super::verdict::Judged;
use crate::contract::{self, DeviceKeys, FindingValue, MAX_DEVICES};
use crate::counters::DeviceName;
use crate::diagnosis::RunFacts;
use crate::phase::{Outcome, PhaseRecord, RunIdentity, signed_difference};

/// The way to the OpenTelemetry layer of the same subscriber, if it has one.
#[derive(Debug)]
pub(super) struct Otel {
    dispatch: OnceLock<WeakDispatch>,
    checked: AtomicBool,
    run: [KeyValue; 3],
    devices: [DeviceKeys; MAX_DEVICES],
}

impl Otel {
    pub(super) fn new(identity: &RunIdentity) -> Self {
        Self {
            dispatch: OnceLock::new(),
            checked: AtomicBool::new(false),
            run: [
                KeyValue::new(contract::RUN_ID, Arc::<str>::from(identity.run_id.as_str())),
                KeyValue::new(contract::RANK, i64::from(identity.rank)),
                KeyValue::new(contract::WORLD_SIZE, i64::from(identity.world_size)),
            ],
            devices: DeviceKeys::all(),
        }
    }

    pub(super) fn set_dispatch(&self, dispatch: &Dispatch) {
        // A second subscriber with the same layer cannot be: the first is the only one.
        let _ = self.dispatch.set(dispatch.downgrade());
    }

    /// `Option` and `Vec` of layers do not pass the dispatch on, so it is looked for at an enter.
    pub(super) fn find_dispatch(&self) {
        if self.dispatch.get().is_none() {
            dispatcher::get_default(|dispatch| {
                if !dispatch.is::<NoSubscriber>() {
                    self.set_dispatch(dispatch);
                }
            });
        }
    }

    fn context(&self, id: &Id) -> Option<opentelemetry::Context> {
        let dispatch = self.dispatch.get()?.upgrade()?;
        tracing_opentelemetry::get_otel_context(id, &dispatch)
    }

    /// Whether the OpenTelemetry layer has seen a span that is new to the phase layer: then it is
    /// the inner one. Looked at once, at the first phase.
    pub(super) fn is_inside(&self, id: &Id) -> bool {
        self.dispatch.get().is_some()
            && !self.checked.swap(true, Ordering::Relaxed)
            && self.context(id).is_some()
    }

    /// Sets all attributes of a phase in one call; the SDK does not take duplicates out, so each key
    /// is set once, and not where the program has set it as a field.
    pub(super) fn write_phase(
        &self,
        id: &Id,
        phase: &PhaseSpan,
        facts: RunFacts,
        records: &[(DeviceName, PhaseRecord)],
    ) {
        let Some(context) = self.context(id) else { return };
        let span = context.span();
        let Some((_, first)) = records.first().filter(|_| span.is_recording()) else { return };
        let mut attributes = self.run.to_vec();
        let mut add = |key: &'static str, value: Option<u64>| {
            attributes.extend(integer(value).map(|value| KeyValue::new(key, value)));
        };
        add(contract::SEQUENCE, Some(phase.order));
        add(contract::DEPTH, Some(phase.depth.into()));
        add(contract::STEP, phase.step.filter(|_| !phase.own_step));
        add(contract::PARAMETER_BYTES, facts.parameter_bytes);
        add(contract::DEVICE_BYTES, facts.device_total);
        add(contract::BATCH_SIZE, facts.local_batch_size);
        if let Some(stepped) = phase.optimizer_stepped.filter(|_| !phase.own_optimizer_stepped) {
            attributes.push(KeyValue::new(contract::OPTIMIZER_STEPPED, stepped));
        }
        attributes.extend(
            first.host_seconds.map(|seconds| KeyValue::new(contract::HOST_DURATION, seconds)),
        );
        for (keys, (device, record)) in self.devices.iter().zip(records) {
            attributes.push(KeyValue::new(keys.name.clone(), device.shared()));
            counters(keys, record, &mut attributes);
        }
        failure(first, &span, &mut attributes);
        span.set_attributes(attributes);
    }

    /// Sets whose step it is and what the engine says; the finding too, when that has changed.
    pub(super) fn write_step(&self, id: &Id, judged: &Judged) {
        let Some(context) = self.context(id) else { return };
        let span = context.span();
        if !span.is_recording() {
            return;
        }
        let mut attributes = self.run.to_vec();
        if let Some(verdict) = judged.verdict {
            attributes.extend(
                contract::verdict_fields(verdict).map(|(key, text)| KeyValue::new(key, text)),
            );
        }
        span.set_attributes(attributes);
        if let Some(finding) = &judged.change {
            let fields = contract::finding_fields(finding).into_iter();
            let attributes = fields.map(|(key, value)| KeyValue::new(key, of_finding(value)));
            span.add_event(contract::VERDICT_CHANGED, attributes.collect());
        }
    }
}

fn of_finding(value: FindingValue) -> Value {
    match value {
        FindingValue::Text(text) => text.into(),
        FindingValue::Bytes(bytes) => Value::I64(bytes.try_into().unwrap_or(i64::MAX)),
        FindingValue::Texts(texts) => {
            Value::Array(texts.into_iter().map(Into::into).collect::<Vec<StringValue>>().into())
        }
    }
}

fn integer(value: Option<u64>) -> Option<i64> {
    value.and_then(|value| i64::try_from(value).ok())
}

/// Start, end, delta and peak of what was measured; the rest is left out.
fn counters(keys: &DeviceKeys, record: &PhaseRecord, attributes: &mut Vec<KeyValue>) {
    let mut add = |key: &Key, value: Option<i64>| {
        attributes.extend(value.map(|value| KeyValue::new(key.clone(), value)));
    };
    let edges = record.start.edge_values().into_iter().zip(record.end.edge_values());
    for (keys, ((_, start), (_, end))) in keys.edges.iter().zip(edges) {
        add(&keys.start, integer(start));
        add(&keys.end, integer(end));
        let delta = start.zip(end).and_then(|(start, end)| signed_difference(end, start));
        add(&keys.delta, delta);
    }
    add(&keys.peak, integer(record.peak_allocated));
    add(&keys.outside_delta, record.outside_change);
    if record.peak_disturbed {
        attributes.push(KeyValue::new(keys.peak_disturbed.clone(), true));
    }
}

fn failure(
    record: &PhaseRecord,
    span: &opentelemetry::trace::SpanRef<'_>,
    attributes: &mut Vec<KeyValue>,
) {
    let (kind, text) = match &record.outcome {
        Outcome::Completed => return,
        Outcome::Failed(message) => (contract::ERROR, message.clone()),
        Outcome::Panicked(message) => {
            (contract::PANIC, message.clone().unwrap_or_else(|| "panicked".to_owned()))
        }
        Outcome::OutOfMemory(oom) => {
            if let Some(bytes) = oom.requested.and_then(|bytes| i64::try_from(bytes).ok()) {
                attributes.push(KeyValue::new(contract::OOM_REQUESTED, bytes));
            }
            (contract::OUT_OF_MEMORY, oom.to_string())
        }
    };
    attributes.push(KeyValue::new(contract::ERROR_TYPE, kind));
    span.set_status(Status::error(text));
}

/// The target of the exporter's own events.
pub(super) const EXPORTER: &str = "opentelemetry-otlp";

/// The exporter has no other way to say that the endpoint took a batch but for some spans.
pub(super) fn note_rejected(event: &Event<'_>) {
    struct Rejected;
    impl Visit for Rejected {
        fn record_i64(&mut self, field: &Field, value: i64) {
            if field.name() == "rejected_spans" {
                note(u64::try_from(value).unwrap_or(0));
            }
        }

        fn record_debug(&mut self, _: &Field, _: &dyn std::fmt::Debug) {}
    }
    use crate::export::note_rejected as note;
    event.record(&mut Rejected);
}

/// Crates that export runs on: their own spans and events must not be exported.
const TRANSPORT: [&str; 14] = [
    "h2",
    "hyper",
    "hyper_rustls",
    "hyper_util",
    "opentelemetry",
    "opentelemetry-http",
    "opentelemetry-otlp",
    "opentelemetry_sdk",
    "reqwest",
    "rustls",
    "tonic",
    "tower",
    "tower_http",
    "tracing-opentelemetry",
];

/// Whether a span or an event comes from what the export runs on, whatever a program's crate is
/// called that begins like one of those.
fn is_transport(metadata: &Metadata<'_>) -> bool {
    let name = metadata.target().split("::").next().unwrap_or_default();
    TRANSPORT.contains(&name)
}

/// The OpenTelemetry layer of phasescope's own export: spans and events of level INFO and above,
/// without location, thread and busy time, which are a third of a span's cost.
pub(super) fn layer<S>(tracer: SdkTracer) -> impl Layer<S> + Send + Sync + use<S>
where
    S: Subscriber + for<'a> LookupSpan<'a> + Send + Sync,
{
    let filter =
        FilterFn::new(|metadata| *metadata.level() <= Level::INFO && !is_transport(metadata))
            .with_max_level_hint(LevelFilter::INFO);
    tracing_opentelemetry::layer()
        .with_tracer(tracer)
        .with_location(false)
        .with_threads(false)
        .with_target(false)
        .with_tracked_inactivity(false)
        .with_filter(filter)
}
