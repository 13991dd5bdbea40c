use std::collections::VecDeque;
use std::sync::mpsc::{self, SyncSender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use opentelemetry::Context;
use opentelemetry::trace::{SpanContext, Status};
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{BatchSpanProcessor, Span, SpanData, SpanProcessor};

use super::counts::Counts;
use super::sampling::{MAX_HELD_SPANS, Plan};
use crate::contract;

/// Before the SDK's batch processor: counts what goes in, holds back the spans of steps left out,
/// and asks for an export at once when a phase has failed.
///
/// `span ends -> (left out: hold) -> (queue full: drop, count) -> batch processor -> exporter`
#[derive(Debug)]
pub(crate) struct PhaseProcessor {
    batch: Arc<BatchSpanProcessor>,
    counts: Arc<Counts>,
    plan: Option<Arc<Plan>>,
    queue: u64,
    held: Mutex<Held>,
    hurry: SyncSender<()>,
}

/// The spans of the last steps that were left out.
#[derive(Debug, Default)]
struct Held {
    /// Each with the turn in which it ended.
    spans: VecDeque<(u64, SpanData)>,
    /// Steps so far, whatever their numbers: those may begin again.
    turn: u64,
    /// The number of the present step; `None` after its span has ended.
    step: Option<u64>,
}

impl PhaseProcessor {
    /// `queue` is the capacity of `batch`'s queue.
    pub(crate) fn new(
        batch: BatchSpanProcessor,
        queue: u64,
        counts: Arc<Counts>,
        plan: Option<Arc<Plan>>,
    ) -> std::io::Result<Self> {
        let batch = Arc::new(batch);
        let hurry = hurrying(batch.clone())?;
        Ok(Self { batch, counts, plan, queue, held: Mutex::default(), hurry })
    }

    fn forward(&self, span: SpanData) {
        let failed = matches!(span.status, Status::Error { .. }) && has(&span, contract::PHASE);
        if self.counts.admit(self.queue) {
            self.batch.on_end(span);
        }
        if failed {
            // Full means that an export is asked for already.
            let _ = self.hurry.try_send(());
        }
    }

    fn hold(&self, plan: &Plan, span: SpanData) {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let step = step(&span);
        if step.is_some() && step != held.step {
            held.turn += 1;
            held.step = step;
        }
        if step.is_some() && !has(&span, contract::PHASE) {
            held.step = None;
        }
        let turn = held.turn;
        held.spans.push_back((turn, span));
        let oldest = turn.saturating_sub(plan.sampling().around_change);
        let mut left_out = 0;
        while held.spans.len() > MAX_HELD_SPANS
            || held.spans.front().is_some_and(|(turn, _)| *turn < oldest)
        {
            held.spans.pop_front();
            left_out += 1;
        }
        drop(held);
        self.counts.unsampled(left_out);
    }

    /// Sends what is held: the verdict has changed.
    fn release(&self) {
        let spans = {
            let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::take(&mut held.spans)
        };
        for (_, mut span) in spans {
            let context = &span.span_context;
            span.span_context = SpanContext::new(
                context.trace_id(),
                context.span_id(),
                context.trace_flags().with_sampled(true),
                context.is_remote(),
                context.trace_state().clone(),
            );
            self.forward(span);
        }
    }
}

impl SpanProcessor for PhaseProcessor {
    fn on_start(&self, span: &mut Span, context: &Context) {
        self.batch.on_start(span, context);
    }

    fn on_end(&self, span: SpanData) {
        let Some(plan) = &self.plan else {
            // The program's own sampler decides: what it records without sampling stays here.
            if span.span_context.is_sampled() {
                self.forward(span);
            }
            return;
        };
        if span.span_context.is_sampled() {
            self.forward(span);
        } else {
            self.hold(plan, span);
        }
        if plan.take_change() {
            self.release();
        }
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.batch.force_flush()
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        let left_out = {
            let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::take(&mut held.spans).len()
        };
        self.counts.unsampled(left_out as u64);
        self.batch.shutdown_with_timeout(timeout)
    }

    // The resource is set on the exporter before the batch processor takes it: the default of
    // `set_resource` is enough.
}

/// A thread that has `batch` export at once when it is told to, and ends with its sender.
fn hurrying(batch: Arc<BatchSpanProcessor>) -> std::io::Result<SyncSender<()>> {
    let (sender, receiver) = mpsc::sync_channel::<()>(1);
    thread::Builder::new().name("phasescope-hurry".to_owned()).spawn(move || {
        while receiver.recv().is_ok() {
            // A failure is counted and told by the exporter.
            let _ = batch.force_flush();
        }
    })?;
    Ok(sender)
}

fn has(span: &SpanData, key: &str) -> bool {
    span.attributes.iter().any(|pair| pair.key.as_str() == key)
}

fn step(span: &SpanData) -> Option<u64> {
    let pair = span.attributes.iter().find(|pair| pair.key.as_str() == contract::STEP)?;
    u64::try_from(contract::integer(&pair.value)?).ok()
}
