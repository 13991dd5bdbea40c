//! The messages of OTLP 1.10: what a known field has to look like. Fields that are not here are
//! passed on as they are.

/// A kind of message.
#[derive(Debug)]
pub(crate) struct Message {
    pub(super) name: &'static str,
    /// What is counted: a span, a data point, a log record.
    pub(super) counted: bool,
    pub(super) fields: &'static [(u32, Kind)],
}

/// What a field holds.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    Varint,
    Fixed64,
    Fixed32,
    Text,
    Bytes,
    /// An id of so many bytes, or empty.
    Id(usize),
    Message(&'static Message),
    /// Numbers, packed or one by one.
    Fixed64s,
    Varints,
}

use Kind::{Bytes, Fixed32, Fixed64, Fixed64s, Id, Text, Varint, Varints};

const TRACE_ID: Kind = Id(16);
const SPAN_ID: Kind = Id(8);

const fn of(message: &'static Message) -> Kind {
    Kind::Message(message)
}

macro_rules! messages {
    ($($(#[$doc:meta])* $vis:vis $place:ident = $name:literal $($counted:ident)? { $($number:literal: $kind:expr),* $(,)? })*) => {$(
        $(#[$doc])*
        $vis static $place: Message = Message {
            name: $name,
            counted: messages!(@ $($counted)?),
            fields: &[$(($number, $kind)),*],
        };
    )*};
    (@ counted) => { true };
    (@) => { false };
}

messages! {
    /// `ExportTraceServiceRequest`.
    pub(crate) TRACES = "traces" { 1: of(&RESOURCE_SPANS) }
    RESOURCE_SPANS = "ResourceSpans" { 1: of(&RESOURCE), 2: of(&SCOPE_SPANS), 3: Text }
    SCOPE_SPANS = "ScopeSpans" { 1: of(&SCOPE), 2: of(&SPAN), 3: Text }
    SPAN = "Span" counted {
        1: TRACE_ID, 2: SPAN_ID, 3: Text, 4: SPAN_ID, 5: Text, 6: Varint, 7: Fixed64, 8: Fixed64,
        9: of(&KEY_VALUE), 10: Varint, 11: of(&EVENT), 12: Varint, 13: of(&LINK), 14: Varint,
        15: of(&STATUS), 16: Fixed32,
    }
    EVENT = "Event" { 1: Fixed64, 2: Text, 3: of(&KEY_VALUE), 4: Varint }
    LINK = "Link" { 1: TRACE_ID, 2: SPAN_ID, 3: Text, 4: of(&KEY_VALUE), 5: Varint, 6: Fixed32 }
    STATUS = "Status" { 2: Text, 3: Varint }

    /// `ExportLogsServiceRequest`.
    pub(crate) LOGS = "logs" { 1: of(&RESOURCE_LOGS) }
    RESOURCE_LOGS = "ResourceLogs" { 1: of(&RESOURCE), 2: of(&SCOPE_LOGS), 3: Text }
    SCOPE_LOGS = "ScopeLogs" { 1: of(&SCOPE), 2: of(&LOG_RECORD), 3: Text }
    LOG_RECORD = "LogRecord" counted {
        1: Fixed64, 2: Varint, 3: Text, 5: of(&ANY_VALUE), 6: of(&KEY_VALUE), 7: Varint, 8: Fixed32,
        9: TRACE_ID, 10: SPAN_ID, 11: Fixed64, 12: Text,
    }

    /// `ExportMetricsServiceRequest`.
    pub(crate) METRICS = "metrics" { 1: of(&RESOURCE_METRICS) }
    RESOURCE_METRICS = "ResourceMetrics" { 1: of(&RESOURCE), 2: of(&SCOPE_METRICS), 3: Text }
    SCOPE_METRICS = "ScopeMetrics" { 1: of(&SCOPE), 2: of(&METRIC), 3: Text }
    METRIC = "Metric" {
        1: Text, 2: Text, 3: Text, 5: of(&GAUGE), 7: of(&SUM), 9: of(&HISTOGRAM),
        10: of(&EXPONENTIAL), 11: of(&SUMMARY), 12: of(&KEY_VALUE),
    }
    GAUGE = "Gauge" { 1: of(&NUMBER_POINT) }
    SUM = "Sum" { 1: of(&NUMBER_POINT), 2: Varint, 3: Varint }
    HISTOGRAM = "Histogram" { 1: of(&HISTOGRAM_POINT), 2: Varint }
    EXPONENTIAL = "ExponentialHistogram" { 1: of(&EXPONENTIAL_POINT), 2: Varint }
    SUMMARY = "Summary" { 1: of(&SUMMARY_POINT) }
    NUMBER_POINT = "NumberDataPoint" counted {
        2: Fixed64, 3: Fixed64, 4: Fixed64, 5: of(&EXEMPLAR), 6: Fixed64, 7: of(&KEY_VALUE), 8: Varint,
    }
    HISTOGRAM_POINT = "HistogramDataPoint" counted {
        2: Fixed64, 3: Fixed64, 4: Fixed64, 5: Fixed64, 6: Fixed64s, 7: Fixed64s, 8: of(&EXEMPLAR),
        9: of(&KEY_VALUE), 10: Varint, 11: Fixed64, 12: Fixed64,
    }
    EXPONENTIAL_POINT = "ExponentialHistogramDataPoint" counted {
        1: of(&KEY_VALUE), 2: Fixed64, 3: Fixed64, 4: Fixed64, 5: Fixed64, 6: Varint, 7: Fixed64,
        8: of(&BUCKETS), 9: of(&BUCKETS), 10: Varint, 11: of(&EXEMPLAR), 12: Fixed64, 13: Fixed64,
        14: Fixed64,
    }
    BUCKETS = "Buckets" { 1: Varint, 2: Varints }
    SUMMARY_POINT = "SummaryDataPoint" counted {
        2: Fixed64, 3: Fixed64, 4: Fixed64, 5: Fixed64, 6: of(&QUANTILE), 7: of(&KEY_VALUE), 8: Varint,
    }
    QUANTILE = "ValueAtQuantile" { 1: Fixed64, 2: Fixed64 }
    EXEMPLAR = "Exemplar" {
        2: Fixed64, 3: Fixed64, 4: SPAN_ID, 5: TRACE_ID, 6: Fixed64, 7: of(&KEY_VALUE),
    }

    RESOURCE = "Resource" { 1: of(&KEY_VALUE), 2: Varint, 3: of(&ENTITY) }
    ENTITY = "EntityRef" { 1: Text, 2: Text, 3: Text, 4: Text }
    SCOPE = "InstrumentationScope" { 1: Text, 2: Text, 3: of(&KEY_VALUE), 4: Varint }
    KEY_VALUE = "KeyValue" { 1: Text, 2: of(&ANY_VALUE), 3: Varint }
    ANY_VALUE = "AnyValue" {
        1: Text, 2: Varint, 3: Varint, 4: Fixed64, 5: of(&ARRAY), 6: of(&MAP), 7: Bytes, 8: Varint,
    }
    ARRAY = "ArrayValue" { 1: of(&ANY_VALUE) }
    MAP = "KeyValueList" { 1: of(&KEY_VALUE) }
}
