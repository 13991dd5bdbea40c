//! OTLP/JSON to protobuf and back.

use bytes::Bytes;
use opentelemetry_proto::tonic::collector::logs::v1::{
    ExportLogsServiceRequest, ExportLogsServiceResponse,
};
use opentelemetry_proto::tonic::collector::metrics::v1::{
    ExportMetricsServiceRequest, ExportMetricsServiceResponse,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use prost::Message;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::serve::failure::Failure;
use crate::serve::signal::Signal;

/// What the largest object of OTLP takes in memory when it is read, a span.
const OBJECT: usize = 400;

/// What a body takes in memory while it is read, at the most: an object may be two characters.
pub(super) fn cost(body: &[u8]) -> usize {
    let objects = body.iter().filter(|byte| **byte == b'{').count();
    objects.saturating_mul(OBJECT).saturating_add(body.len().saturating_mul(8))
}

/// A request's protobuf.
pub(super) fn request(signal: Signal, body: &[u8]) -> Result<Bytes, Failure> {
    match signal {
        Signal::Traces => convert::<ExportTraceServiceRequest>(body),
        Signal::Metrics => convert::<ExportMetricsServiceRequest>(body),
        Signal::Logs => convert::<ExportLogsServiceRequest>(body),
    }
}

fn convert<T: DeserializeOwned + Message>(body: &[u8]) -> Result<Bytes, Failure> {
    let request: T = serde_json::from_slice(body)
        .map_err(|error| Failure::Malformed(format!("expected OTLP/JSON: {error}")))?;
    Ok(request.encode_to_vec().into())
}

/// The next hop's answer in JSON. An answer that cannot be read is one without remarks.
pub(super) fn answer(signal: Signal, answer: &[u8]) -> Bytes {
    match signal {
        Signal::Traces => tell::<ExportTraceServiceResponse>(answer),
        Signal::Metrics => tell::<ExportMetricsServiceResponse>(answer),
        Signal::Logs => tell::<ExportLogsServiceResponse>(answer),
    }
}

fn tell<T: Serialize + Message + Default>(answer: &[u8]) -> Bytes {
    let answer = T::decode(answer).unwrap_or_default();
    serde_json::to_vec(&answer).unwrap_or_else(|_| b"{}".to_vec()).into()
}
