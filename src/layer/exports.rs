//! The layer's side of the export: what it hands on when a phase or a step has ended.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use opentelemetry::metrics::Meter;
use tracing::{Subscriber, span::Id};
use tracing_subscriber::{Layer, registry::LookupSpan};

use super::Guard;
use super::guard::Shared;
use super::otel::Otel;
use super::span::PhaseSpan;
use super::verdict::{Judge, Judged};
use crate::counters::{Counters, DeviceName};
use crate::diagnosis::Diagnosis;
use crate::export::{Instruments, Observed, Pipeline, Plan, SpanCounts};
use crate::phase::{PhaseRecord, RunIdentity};

/// Where the numbers of phases and steps go.
#[derive(Debug)]
pub(super) struct Exports {
    pub(super) otel: Otel,
    judge: Mutex<Judge>,
    plan: Option<Arc<Plan>>,
    /// Set once, right after the rest: its callbacks refer to the whole.
    instruments: OnceLock<Instruments>,
}

impl Exports {
    pub(super) fn new(identity: &RunIdentity, pipeline: Option<&Pipeline>) -> Self {
        Self {
            otel: Otel::new(identity),
            judge: Mutex::default(),
            plan: pipeline.and_then(|pipeline| pipeline.plan.clone()),
            instruments: OnceLock::new(),
        }
    }
}

impl Shared {
    /// Makes the metrics, with the program's meter or with our own.
    pub(super) fn measure(self: &Arc<Self>, own: Option<Meter>, pipeline: Option<&Pipeline>) {
        let Some(meter) = own.or_else(|| pipeline.and_then(Pipeline::meter)) else { return };
        let devices = self.devices.names().cloned().collect();
        let observer = Arc::new(Observer(Arc::downgrade(self)));
        let counts = pipeline.map(|pipeline| pipeline.counts.clone());
        let instruments = Instruments::new(&meter, &self.identity, devices, observer, counts);
        // Nobody else has the place yet.
        let _ = self.exports.instruments.set(instruments);
    }

    /// At the first phase: is an OpenTelemetry layer inside this one?
    pub(super) fn check_order(&self, id: &Id) {
        if self.exports.otel.is_inside(id) {
            self.tell(
                "the OpenTelemetry layer is inside the phase layer, so it closes spans before \
                 their counters are written: expected \
                 registry().with(phase_layer).with(opentelemetry_layer), found the reverse",
            );
        }
    }

    /// A phase has ended: its attributes, and the metrics.
    pub(super) fn export_phase(
        &self,
        id: &Id,
        phase: &PhaseSpan,
        records: &[(DeviceName, PhaseRecord)],
    ) {
        let facts = self.recorder().facts();
        self.exports.otel.write_phase(id, phase, facts, records);
        if let Some(instruments) = self.exports.instruments.get() {
            instruments.phase(records.iter().map(|(_, record)| record));
        }
        // Where no step's span is around, the next step's first phase ends the step.
        if phase.steps_alone && self.judge().begins(phase.step) {
            self.recorder().flush();
            self.end_step();
        }
    }

    /// A step has ended: what the engine says, on its span.
    pub(super) fn export_step(&self, id: &Id) {
        let judged = self.end_step();
        self.exports.otel.write_step(id, &judged);
    }

    fn end_step(&self) -> Judged {
        if let Some(instruments) = self.exports.instruments.get() {
            instruments.step();
        }
        let judged = self.judge().end_step(&self.recorder());
        if let (Some(plan), Some(_)) = (&self.exports.plan, &judged.change) {
            plan.verdict_changed();
        }
        judged
    }

    fn judge(&self) -> MutexGuard<'_, Judge> {
        self.exports.judge.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a collection of metrics asks. Weak: the meters must not keep the layer alive.
#[derive(Debug)]
struct Observer(Weak<Shared>);

impl Observed for Observer {
    fn diagnoses(&self) -> Vec<(DeviceName, Diagnosis)> {
        self.0.upgrade().map(|shared| shared.recorder().diagnoses()).unwrap_or_default()
    }

    fn sampled(&self) -> Vec<(DeviceName, Counters)> {
        self.0.upgrade().map(|shared| shared.devices.sampled()).unwrap_or_default()
    }
}

impl Guard {
    pub(super) fn tell(&self, problem: &str) {
        self.shared.tell(problem);
    }

    /// Nothing has come through the layer and nothing will: the export ends without a word, and the ring file goes.
    pub(super) fn abandon(&self) {
        if let Some(pipeline) = &self.held.pipeline {
            pipeline.abandon();
        }
        if let Some(ring) = &self.shared.ring {
            ring.remove();
        }
    }

    /// What became of the spans that phasescope exports; `None` where it exports none.
    #[must_use]
    pub fn span_counts(&self) -> Option<SpanCounts> {
        self.held.pipeline.as_ref().map(|pipeline| pipeline.counts.snapshot())
    }

    /// Collections of metrics that did not arrive.
    #[must_use]
    pub fn failed_metric_exports(&self) -> u64 {
        self.held.pipeline.as_ref().map_or(0, Pipeline::metrics_failed)
    }

    /// Exports what waits now, and waits for it, five seconds at most. Not for a training loop: there
    /// the export goes on by itself.
    pub fn flush(&self) -> Option<SpanCounts> {
        self.held.pipeline.as_ref().map(Pipeline::flush)
    }

    /// Exports what waits, for at most five seconds, and ends the export, as dropping the last guard
    /// does. For a program that ends with [`std::process::exit`], which drops nothing. Says on
    /// standard error what became of the spans.
    pub fn shutdown(&self) -> Option<SpanCounts> {
        if let Some(ring) = &self.shared.ring {
            ring.end();
        }
        self.held.pipeline.as_ref().map(Pipeline::shutdown)
    }

    /// The OpenTelemetry layer of phasescope's own export, for a subscriber of your own: it goes
    /// outside the phase layer. `None` where phasescope exports no spans.
    ///
    /// # Examples
    ///
    /// ```
    /// use phasescope::export::Export;
    /// use tracing_subscriber::layer::SubscriberExt;
    ///
    /// let folder = tempfile::tempdir()?;
    /// let export = Export::to_file(folder.path().join("run.jsonl"))?;
    /// let (layer, guard) = phasescope::builder().export(export).build();
    /// let subscriber = tracing_subscriber::registry()
    ///     .with(layer)
    ///     .with(guard.opentelemetry_layer())
    ///     .with(tracing_subscriber::fmt::layer());
    /// # drop(subscriber);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn opentelemetry_layer<S>(&self) -> Option<impl Layer<S> + Send + Sync + use<S>>
    where
        S: Subscriber + for<'a> LookupSpan<'a> + Send + Sync,
    {
        self.held.pipeline.as_ref()?.tracer().map(super::otel::layer)
    }
}
