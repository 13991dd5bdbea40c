#![doc = include_str!("../../docs/fields.md")]

mod finding;
mod keys;
mod names;
mod read;

pub use finding::{FindingValue, finding_fields, verdict_fields};
pub(crate) use keys::DeviceKeys;
pub(crate) use names::*;
pub use names::{COLLECTOR_PATH, VERDICT_CHANGED};
pub use read::{AbsurdNumber, Origin, PhaseSpan, Scalar, SpanHead, SpanRead, SpanReader, StepSpan};

/// An integer attribute; text too, since tracing-opentelemetry writes unsigned fields as text.
pub(crate) fn integer(value: &opentelemetry::Value) -> Option<i64> {
    match value {
        opentelemetry::Value::I64(number) => Some(*number),
        opentelemetry::Value::String(text) => text.as_str().parse().ok(),
        _ => None,
    }
}
