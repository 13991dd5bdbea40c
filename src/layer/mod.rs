//! The `tracing` layer: reads counters at the edges of phases and writes them to their spans.
//!
//! Any span with the field `phasescope.phase` is a phase, whoever made it: the macros, a plain
//! `info_span!`, or `#[tracing::instrument(fields(phasescope.phase = "forward"))]`. A phase is
//! measured from the first time its span is entered until the last time it is left; its record is
//! made when the span closes.
//!
//! The layer goes **inside** an OpenTelemetry layer, `registry().with(phase_layer).with(otel)`,
//! since inner layers close first. In the other order its attributes would be lost without a word,
//! so it looks, and says so on standard error and in [`Guard::problems`].

mod builder;
mod device;
#[cfg(feature = "otlp")]
mod exports;
mod guard;
#[cfg(feature = "otlp")]
mod otel;
mod panics;
mod peaks;
mod recorder;
mod span;
#[cfg(feature = "otlp")]
mod verdict;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use tracing::span::{Attributes, Id, Record};
use tracing::{Dispatch, Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::{LookupSpan, SpanRef};

pub use builder::{Builder, InstallError};
pub use guard::Guard;
use guard::Shared;
pub use peaks::PeakMode;
pub use recorder::MAX_KEPT_RECORDS;
pub use span::MeasuredPhase;
use span::{Fields, PhaseSpan, StepSpan};

use crate::phase::Outcome;

/// Order of the exits of phases over all threads.
static EXITS: AtomicU64 = AtomicU64::new(0);

/// The layer. Made by [`Builder::build`].
///
/// # Examples
///
/// ```
/// use std::sync::Arc;
///
/// use phasescope::counters::scripted::Scripted;
/// use tracing_subscriber::layer::SubscriberExt;
///
/// let device = Arc::new(Scripted::new("cuda:0"));
/// let (layer, guard) = phasescope::builder().source(device.clone()).keep_records().build();
/// let subscriber = tracing_subscriber::registry().with(layer);
/// tracing::subscriber::with_default(subscriber, || {
///     phasescope::phase!(forward).in_scope(|| device.allocate(4096));
/// });
/// assert_eq!(guard.series()[0].records[0].end.allocated, Some(4096));
/// ```
#[derive(Debug)]
pub struct PhaseLayer {
    shared: Arc<Shared>,
}

impl PhaseLayer {
    fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }

    fn close_phase<S>(&self, span: &SpanRef<'_, S>, phase: PhaseSpan)
    where
        S: Subscriber + for<'a> LookupSpan<'a>,
    {
        let records: Vec<_> = self
            .shared
            .devices
            .names()
            .enumerate()
            .filter_map(|(place, name)| Some((name.clone(), phase.record(span.name(), place)?)))
            .collect();
        let mut recorder = self.shared.recorder();
        for (place, (_, record)) in records.iter().enumerate() {
            recorder.push(phase.order, place, record.clone());
        }
        drop(recorder);
        if let Some(ring) = &self.shared.ring {
            let records = records.iter().map(|(_, record)| record);
            ring.close(span.id().into_u64(), phase.order, records);
        }
        #[cfg(feature = "otlp")]
        self.shared.export_phase(&span.id(), &phase, &records);
        span.extensions_mut().replace(MeasuredPhase { records });
    }
}

impl<S> Layer<S> for PhaseLayer
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    fn on_register_dispatch(&self, _dispatch: &Dispatch) {
        #[cfg(feature = "otlp")]
        self.shared.exports.otel.set_dispatch(_dispatch);
    }

    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, ctx: Context<'_, S>) {
        let names = attributes.metadata().fields();
        if names.iter().all(|field| !field.name().starts_with("phasescope.")) {
            return;
        }
        let Some(span) = ctx.span(id) else { return };
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        match (fields.phase, fields.step) {
            (Some(phase), _) => {
                #[cfg(feature = "otlp")]
                self.shared.check_order(id);
                let (step, depth) = surroundings(&span);
                let phase = PhaseSpan::new(phase, &fields, step, depth);
                span.extensions_mut().insert(phase);
            }
            (None, Some(step)) => {
                let optimizer_stepped = fields.optimizer_stepped;
                span.extensions_mut().insert(StepSpan { step, optimizer_stepped });
            }
            (None, None) => {}
        }
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, ctx: Context<'_, S>) {
        let Some(span) = ctx.span(id) else { return };
        let mut extensions = span.extensions_mut();
        let mut fields = Fields::default();
        if let Some(phase) = extensions.get_mut::<PhaseSpan>() {
            values.record(&mut fields);
            phase.input_elements = fields.input_elements.or(phase.input_elements);
            phase.optimizer_stepped = fields.optimizer_stepped.or(phase.optimizer_stepped);
        } else if let Some(step) = extensions.get_mut::<StepSpan>() {
            values.record(&mut fields);
            step.optimizer_stepped = fields.optimizer_stepped.or(step.optimizer_stepped);
        }
    }

    fn on_enter(&self, id: &Id, ctx: Context<'_, S>) {
        let Some(span) = ctx.span(id) else { return };
        let mut extensions = span.extensions_mut();
        let Some(phase) = extensions.get_mut::<PhaseSpan>() else { return };
        phase.entered += 1;
        if phase.entered > 1 {
            return;
        }
        let mut edges = std::mem::take(&mut phase.edges);
        let (step, kind, depth) = (phase.step, phase.phase, phase.depth);
        // A source that writes to the log comes back to this span: it must not be locked.
        drop(extensions);
        #[cfg(feature = "otlp")]
        self.shared.exports.otel.find_dispatch();
        let first = edges.is_empty();
        self.shared.devices.open(id.into_u64(), first, depth == 0, &mut edges);
        if let (Some(ring), true, Some(edges)) = (&self.shared.ring, first, edges.first()) {
            ring.open(id.into_u64(), (step, kind, span.name(), depth), edges.start);
        }
        if let Some(phase) = span.extensions_mut().get_mut::<PhaseSpan>() {
            phase.edges = edges;
            phase.since = Some(Instant::now());
        }
    }

    fn on_exit(&self, id: &Id, ctx: Context<'_, S>) {
        let Some(span) = ctx.span(id) else { return };
        let mut extensions = span.extensions_mut();
        let Some(phase) = extensions.get_mut::<PhaseSpan>() else { return };
        phase.entered = phase.entered.saturating_sub(1);
        if phase.entered > 0 {
            return;
        }
        if let Some(since) = phase.since.take() {
            phase.host_seconds += since.elapsed().as_secs_f64();
        }
        let mut edges = std::mem::take(&mut phase.edges);
        let outer = phase.depth == 0;
        // As in `on_enter`.
        drop(extensions);
        self.shared.devices.close(id.into_u64(), outer, &mut edges);
        let mut extensions = span.extensions_mut();
        let Some(phase) = extensions.get_mut::<PhaseSpan>() else { return };
        phase.edges = edges;
        phase.order = EXITS.fetch_add(1, Ordering::Relaxed);
        if std::thread::panicking() && phase.outcome == Outcome::Completed {
            phase.outcome = panics::outcome();
        }
    }

    fn on_event(&self, event: &Event<'_>, ctx: Context<'_, S>) {
        #[cfg(feature = "otlp")]
        if event.metadata().target() == otel::EXPORTER {
            otel::note_rejected(event);
            return;
        }
        if *event.metadata().level() != Level::ERROR {
            return;
        }
        let Some(scope) = ctx.event_scope(event) else { return };
        for span in scope {
            if let Some(phase) = span.extensions_mut().get_mut::<PhaseSpan>() {
                if phase.outcome == Outcome::Completed {
                    phase.outcome = panics::outcome_of(event);
                }
                return;
            }
        }
    }

    fn on_close(&self, id: Id, ctx: Context<'_, S>) {
        let Some(span) = ctx.span(&id) else { return };
        let phase = span.extensions_mut().remove::<PhaseSpan>();
        if let Some(mut phase) = phase {
            phase.optimizer_stepped = phase.optimizer_stepped.or_else(|| step_of(&span));
            self.close_phase(&span, phase);
        } else if span.extensions().get::<StepSpan>().is_some() {
            self.shared.recorder().flush();
            #[cfg(feature = "otlp")]
            self.shared.export_step(&id);
        }
    }
}

/// The step around a span and the number of phases around it.
fn surroundings<S>(span: &SpanRef<'_, S>) -> (Option<u64>, u32)
where
    S: for<'a> LookupSpan<'a>,
{
    let mut step = None;
    let mut depth = 0;
    for outer in span.scope().skip(1) {
        let extensions = outer.extensions();
        if let Some(phase) = extensions.get::<PhaseSpan>() {
            depth += 1;
            step = step.or(phase.step);
        }
        step = step.or_else(|| extensions.get::<StepSpan>().map(|around| around.step));
    }
    (step, depth)
}

/// Whether the step around a span says that its optimizer ran.
fn step_of<S>(span: &SpanRef<'_, S>) -> Option<bool>
where
    S: for<'a> LookupSpan<'a>,
{
    span.scope()
        .skip(1)
        .find_map(|outer| outer.extensions().get::<StepSpan>().map(|step| step.optimizer_stepped))?
}
