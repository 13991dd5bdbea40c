//! Writes a phase's counters to the OpenTelemetry span that tracing-opentelemetry made for it.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use opentelemetry::KeyValue;
use opentelemetry::trace::{Status, TraceContextExt};
use tracing::Dispatch;
use tracing::dispatcher::{self, WeakDispatch};
use tracing::span::Id;
use tracing::subscriber::NoSubscriber;

use crate::counters::DeviceName;
use crate::phase::{Outcome, PhaseRecord, RunIdentity, signed_difference};

/// Devices whose counters go to one span; with three, their attributes stay below the SDK's limit
/// of 128 a span. Further ones are in the diagnosis and the report only.
const MAX_DEVICES: usize = 3;

/// The way to the OpenTelemetry layer of the same subscriber, if it has one.
#[derive(Debug, Default)]
pub(super) struct Otel {
    dispatch: OnceLock<WeakDispatch>,
    checked: AtomicBool,
}

impl Otel {
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

    /// Sets all attributes in one call; the SDK does not take duplicates out, so each key is set
    /// once.
    pub(super) fn write(
        &self,
        id: &Id,
        identity: &RunIdentity,
        records: &[(DeviceName, PhaseRecord)],
    ) {
        let Some(context) = self.context(id) else { return };
        let span = context.span();
        if !span.is_recording() {
            return;
        }
        let mut attributes = vec![
            KeyValue::new("phasescope.run_id", identity.run_id.clone()),
            KeyValue::new("phasescope.rank", i64::from(identity.rank)),
            KeyValue::new("phasescope.world_size", i64::from(identity.world_size)),
        ];
        for (place, (device, record)) in records.iter().take(MAX_DEVICES).enumerate() {
            let prefix = match place {
                0 => "phasescope".to_owned(),
                _ => format!("phasescope.device{place}"),
            };
            attributes
                .push(KeyValue::new(format!("{prefix}.device.name"), device.as_str().to_owned()));
            counters(&prefix, record, &mut attributes);
        }
        if let Some((_, record)) = records.first() {
            failure(record, &span, &mut attributes);
        }
        span.set_attributes(attributes);
    }
}

/// Start, end, delta and peak of what was measured; the rest is left out.
fn counters(prefix: &str, record: &PhaseRecord, attributes: &mut Vec<KeyValue>) {
    let mut add = |name: &str, edge: &str, value: Option<i64>| {
        if let Some(value) = value {
            attributes.push(KeyValue::new(format!("{prefix}.{name}.{edge}"), value));
        }
    };
    let number = |value: Option<u64>| value.and_then(|value| i64::try_from(value).ok());
    let edges = record.start.edge_values().into_iter().zip(record.end.edge_values());
    for ((name, start), (_, end)) in edges {
        add(name, "start", number(start));
        add(name, "end", number(end));
        add(name, "delta", start.zip(end).and_then(|(start, end)| signed_difference(end, start)));
    }
    add("allocated", "peak", number(record.peak_allocated));
    add("allocated", "outside_delta", record.outside_change);
    if record.peak_disturbed {
        attributes.push(KeyValue::new(format!("{prefix}.allocated.peak_disturbed"), true));
    }
}

fn failure(
    record: &PhaseRecord,
    span: &opentelemetry::trace::SpanRef<'_>,
    attributes: &mut Vec<KeyValue>,
) {
    let (kind, text) = match &record.outcome {
        Outcome::Completed => return,
        Outcome::Failed(message) => ("error", message.clone()),
        Outcome::Panicked(message) => {
            ("panic", message.clone().unwrap_or_else(|| "panicked".to_owned()))
        }
        Outcome::OutOfMemory(oom) => {
            if let Some(bytes) = oom.requested.and_then(|bytes| i64::try_from(bytes).ok()) {
                attributes.push(KeyValue::new("phasescope.out_of_memory.requested", bytes));
            }
            ("out_of_memory", oom.to_string())
        }
    };
    attributes.push(KeyValue::new("error.type", kind));
    span.set_status(Status::error(text));
}
