#![doc = include_str!("../../docs/fields.md")]

mod keys;
mod names;

pub(crate) use keys::{DeviceKeys, EdgeKeys};
pub(crate) use names::*;

/// An integer attribute; text too, since tracing-opentelemetry writes unsigned fields as text.
pub(crate) fn integer(value: &opentelemetry::Value) -> Option<i64> {
    match value {
        opentelemetry::Value::I64(number) => Some(*number),
        opentelemetry::Value::String(text) => text.as_str().parse().ok(),
        _ => None,
    }
}
