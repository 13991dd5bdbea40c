//! From a request to the answer: check, judge, hand on, and only then say that it was taken.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTracePartialSuccess, ExportTraceServiceResponse,
};
use prost::Message;
use tracing::{info, warn};

use super::config::Limits;
use super::failure::{Failure, Refusal};
use super::gate::{Charge, Gate};
use super::metrics::Counts;
use super::next::Next;
use super::runs::Enricher;
use super::signal::Signal;
use super::wire;

/// How long a client may take to send one request.
pub(crate) const READ_TIMEOUT: Duration = Duration::from_secs(30);

/// What is told of spans that come back.
const LOOPED: &str = "these spans have been through this collector already: what it sends to sends \
                      them back, and they were not sent on again";

/// How a request came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transport {
    Grpc,
    Http,
}

impl Transport {
    /// The label of the metric.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Grpc => "grpc",
            Self::Http => "http",
        }
    }
}

/// The limits of a request, in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestLimits {
    pub(crate) message: usize,
    pub(crate) decompressed: usize,
}

/// What every request goes through.
#[derive(Debug)]
pub(crate) struct Pipeline {
    enricher: Enricher,
    next: Next,
    gate: Gate,
    limits: RequestLimits,
    counts: Arc<Counts>,
    /// Requests that the next hop has not taken since it took one last.
    failing: AtomicU64,
    /// Spans have come back.
    looped: AtomicBool,
}

impl Pipeline {
    pub(crate) fn new(
        enricher: Enricher,
        next: Next,
        gate: Gate,
        limits: &Limits,
        counts: Arc<Counts>,
    ) -> Self {
        let bytes = |size: bytesize::ByteSize| usize::try_from(size.as_u64()).unwrap_or(usize::MAX);
        let limits = RequestLimits {
            message: bytes(limits.message),
            decompressed: bytes(limits.decompressed),
        };
        let (failing, looped) = (AtomicU64::new(0), AtomicBool::new(false));
        Self { enricher, next, gate, limits, counts, failing, looped }
    }

    pub(crate) fn gate(&self) -> &Gate {
        &self.gate
    }

    pub(crate) fn limits(&self) -> RequestLimits {
        self.limits
    }

    pub(crate) fn counts(&self) -> &Arc<Counts> {
        &self.counts
    }

    /// Takes a request and answers when the next hop has taken it: with the next hop's own answer.
    ///
    /// # Errors
    ///
    /// When it is not OTLP, or the next hop did not take it.
    pub(crate) async fn export(
        &self,
        signal: Signal,
        request: Bytes,
        mut charge: Charge,
    ) -> Result<Bytes, Failure> {
        let items = wire::check(signal.message(), &request)
            .map_err(|error| Failure::Malformed(error.to_string()))?;
        if signal != Signal::Traces {
            let answer = self.send(signal, request).await?;
            self.counts.forwarded(signal, items);
            return Ok(answer);
        }
        // The request is written anew.
        charge.grow(request.len())?;
        let enriched = self.enricher.enrich(&request, Instant::now());
        drop(request);
        if enriched.looped > 0 {
            self.counts.looped(enriched.looped);
            if !self.looped.swap(true, Ordering::Relaxed) {
                warn!(spans = enriched.looped, "{LOOPED}; further ones are counted, not told");
            }
        }
        let answer = match enriched.empty {
            true => Bytes::new(),
            false => self.send(signal, enriched.request).await?,
        };
        enriched.verdicts.delivered();
        self.counts.forwarded(signal, items - enriched.looped);
        Ok(if enriched.looped > 0 { rejected(&answer, enriched.looped) } else { answer })
    }

    async fn send(&self, signal: Signal, request: Bytes) -> Result<Bytes, Failure> {
        let begin = Instant::now();
        let sent = self.next.send(signal, request).await;
        self.counts.next_hop(begin.elapsed());
        // Each change is told once.
        match &sent {
            Err(Failure::Next { refusal: Refusal::Unavailable, reason, .. }) => {
                if self.failing.fetch_add(1, Ordering::Relaxed) == 0 {
                    warn!("the next hop {reason}; clients are told to try again");
                }
            }
            _ => {
                let failed = self.failing.swap(0, Ordering::Relaxed);
                if failed > 0 {
                    info!(failed, "the next hop takes requests again");
                }
            }
        }
        sent
    }
}

/// The answer with spans that were left out, beside those that the next hop left out.
fn rejected(answer: &[u8], spans: u64) -> Bytes {
    let next = ExportTraceServiceResponse::decode(answer).unwrap_or_default();
    let next = next.partial_success.unwrap_or_default();
    let spans = i64::try_from(spans).unwrap_or(i64::MAX);
    let error_message = match next.error_message.is_empty() {
        true => LOOPED.to_owned(),
        false => format!("{LOOPED}; the next hop: {}", next.error_message),
    };
    let partial = ExportTracePartialSuccess {
        rejected_spans: next.rejected_spans.saturating_add(spans),
        error_message,
    };
    ExportTraceServiceResponse { partial_success: Some(partial) }.encode_to_vec().into()
}
