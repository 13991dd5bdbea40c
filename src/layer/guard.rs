use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
#[cfg(feature = "otlp")]
use std::sync::{OnceLock, Weak};

#[cfg(feature = "otlp")]
use tracing::{Subscriber, span::Id};
#[cfg(feature = "otlp")]
use tracing_subscriber::{Layer, registry::LookupSpan};

use super::device::Devices;
use super::recorder::Recorder;
#[cfg(feature = "otlp")]
use super::span::PhaseSpan;
#[cfg(feature = "otlp")]
use super::verdict::{Judge, Judged};
#[cfg(feature = "otlp")]
use crate::counters::{Counters, DeviceName};
#[cfg(feature = "otlp")]
use crate::diagnosis::Diagnosis;
use crate::diagnosis::RunFacts;
#[cfg(feature = "otlp")]
use crate::export::{Instruments, Observed, Pipeline, Plan, SpanCounts};
#[cfg(feature = "otlp")]
use crate::phase::PhaseRecord;
use crate::phase::RunIdentity;
use crate::report::Series;
use crate::ring::RingWriter;

/// Problems that are told at most; the first ones say what is wrong.
const MAX_PROBLEMS: usize = 16;

/// What the layer and its guard share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) devices: Devices,
    pub(super) identity: RunIdentity,
    pub(super) recorder: Mutex<Recorder>,
    pub(super) problems: Mutex<Vec<String>>,
    pub(super) ring: Option<RingWriter>,
    #[cfg(feature = "otlp")]
    pub(super) otel: super::otel::Otel,
    #[cfg(feature = "otlp")]
    pub(super) judge: Mutex<Judge>,
    #[cfg(feature = "otlp")]
    pub(super) plan: Option<Arc<Plan>>,
    /// Set once, right after the rest: its callbacks refer to the whole.
    #[cfg(feature = "otlp")]
    pub(super) instruments: OnceLock<Instruments>,
}

impl Shared {
    pub(super) fn recorder(&self) -> MutexGuard<'_, Recorder> {
        self.recorder.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn problems(&self) -> MutexGuard<'_, Vec<String>> {
        self.problems.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// At the first phase: is an OpenTelemetry layer inside this one?
    #[cfg(feature = "otlp")]
    pub(super) fn check_order(&self, id: &tracing::span::Id) {
        if self.otel.is_inside(id) {
            self.tell(
                "the OpenTelemetry layer is inside the phase layer, so it closes spans before \
                 their counters are written: expected \
                 registry().with(phase_layer).with(opentelemetry_layer), found the reverse",
            );
        }
    }

    /// A phase has ended: its attributes, and the metrics.
    #[cfg(feature = "otlp")]
    pub(super) fn export_phase(
        &self,
        id: &Id,
        phase: &PhaseSpan,
        records: &[(DeviceName, PhaseRecord)],
    ) {
        self.otel.write_phase(id, phase, self.recorder().facts(), records);
        if let Some(instruments) = self.instruments.get() {
            instruments.phase(records.iter().map(|(_, record)| record));
        }
        // A phase that says its step itself stands in no step's span: nothing else ends the step.
        if phase.own_step && phase.depth == 0 && self.judge().begins(phase.step) {
            self.end_step();
        }
    }

    /// A step has ended: what the engine says, on its span.
    #[cfg(feature = "otlp")]
    pub(super) fn export_step(&self, id: &Id) {
        let judged = self.end_step();
        self.otel.write_step(id, &judged);
    }

    #[cfg(feature = "otlp")]
    fn end_step(&self) -> Judged {
        let judged = self.judge().end_step(&self.recorder());
        if let (Some(plan), Some(_)) = (&self.plan, &judged.change) {
            plan.verdict_changed();
        }
        judged
    }

    #[cfg(feature = "otlp")]
    fn judge(&self) -> MutexGuard<'_, Judge> {
        self.judge.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn tell(&self, problem: &str) {
        let mut problems = self.problems();
        if problems.len() < MAX_PROBLEMS {
            eprintln!("phasescope: {problem}");
            problems.push(problem.to_owned());
        }
    }
}

/// What a collection of metrics asks. Weak: the meters must not keep the layer alive.
#[cfg(feature = "otlp")]
#[derive(Debug)]
pub(super) struct Observer(pub(super) Weak<Shared>);

#[cfg(feature = "otlp")]
impl Observed for Observer {
    fn diagnoses(&self) -> Vec<(DeviceName, Diagnosis)> {
        self.0.upgrade().map(|shared| shared.recorder().diagnoses()).unwrap_or_default()
    }

    fn sampled(&self) -> Vec<(DeviceName, Counters)> {
        self.0.upgrade().map(|shared| shared.devices.sampled()).unwrap_or_default()
    }
}

/// Access to what the layer measures, while it runs and after. Cheap to clone.
///
/// Keep it until the run is over: when the last clone is dropped, what still waits is exported, for
/// at most five seconds, and the export ends.
///
/// # Examples
///
/// ```
/// let (_layer, guard) = phasescope::builder().build();
/// assert!(guard.series()[0].diagnosis.findings.is_empty());
/// assert!(guard.problems().is_empty());
/// ```
#[derive(Clone, Debug)]
#[must_use = "the export ends when the guard is dropped"]
pub struct Guard {
    /// First, so that it ends while its last collection can still ask what is behind it.
    #[cfg_attr(not(feature = "otlp"), expect(dead_code, reason = "held for its drop"))]
    held: Arc<Held>,
    shared: Arc<Shared>,
}

/// What ends with the last guard.
#[derive(Debug)]
struct Held {
    #[cfg(feature = "otlp")]
    pipeline: Option<Pipeline>,
    shared: Arc<Shared>,
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(ring) = &self.shared.ring {
            ring.end();
        }
    }
}

impl Guard {
    pub(super) fn new(
        shared: Arc<Shared>,
        #[cfg(feature = "otlp")] pipeline: Option<Pipeline>,
    ) -> Self {
        let held = Held {
            #[cfg(feature = "otlp")]
            pipeline,
            shared: shared.clone(),
        };
        Self { held: Arc::new(held), shared }
    }

    /// Records and diagnosis of every device, the first source's device first. Costs a copy of the
    /// kept records and some microseconds a device. A step that is still open counts as far as
    /// its phases have closed.
    #[must_use]
    pub fn series(&self) -> Vec<Series> {
        self.shared.recorder().series()
    }

    /// Sets what is known only after the model is built.
    pub fn set_facts(&self, facts: RunFacts) {
        self.shared.recorder().set_facts(facts);
        if let Some(ring) = &self.shared.ring {
            ring.set_facts(facts);
        }
    }

    /// Which run and rank this is.
    #[must_use]
    pub fn identity(&self) -> &RunIdentity {
        &self.shared.identity
    }

    /// Records that were not kept because [`MAX_KEPT_RECORDS`](super::MAX_KEPT_RECORDS) were there.
    #[must_use]
    pub fn dropped_records(&self) -> u64 {
        self.shared.recorder().dropped
    }

    /// What is wrong with how the layer is set up, in words; empty when nothing is.
    #[must_use]
    pub fn problems(&self) -> Vec<String> {
        self.shared.problems().clone()
    }

    #[cfg(feature = "otlp")]
    pub(super) fn tell(&self, problem: &str) {
        self.shared.tell(problem);
    }

    /// Nothing has come through the layer and nothing will: the export ends without a word.
    #[cfg(feature = "otlp")]
    pub(super) fn abandon(&self) {
        if let Some(pipeline) = &self.held.pipeline {
            pipeline.abandon();
        }
    }

    /// The ring file, where [`Builder::ring_in`](super::Builder::ring_in) has made one.
    #[must_use]
    pub fn ring_path(&self) -> Option<&Path> {
        self.shared.ring.as_ref().map(RingWriter::path)
    }
}

#[cfg(feature = "otlp")]
impl Guard {
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

    /// Exports what waits now, and waits for it, some seconds at most. Not for a training loop: there
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
