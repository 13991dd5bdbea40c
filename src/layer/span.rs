use std::str::FromStr;
use std::time::Instant;

use tracing::field::{Field, Visit};

use super::device::Edges;
use crate::counters::DeviceName;
use crate::phase::{Outcome, Phase, PhaseRecord};

/// The reserved fields of a span.
#[derive(Debug, Default)]
pub(super) struct Fields {
    pub(super) phase: Option<Phase>,
    pub(super) step: Option<u64>,
    pub(super) input_elements: Option<u64>,
    pub(super) optimizer_stepped: Option<bool>,
}

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "phasescope.phase" {
            // An unknown name is a phase all the same: it is measured, as `other`.
            self.phase = Some(Phase::from_str(value).unwrap_or(Phase::Other));
        }
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        match field.name() {
            "phasescope.step" => self.step = Some(value),
            "phasescope.input_elements" => self.input_elements = Some(value),
            _ => {}
        }
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        if let Ok(value) = u64::try_from(value) {
            self.record_u64(field, value);
        }
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        if field.name() == "phasescope.optimizer_stepped" {
            self.optimizer_stepped = Some(value);
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        // `%phase` and `?phase` arrive here.
        if field.name() == "phasescope.phase" {
            self.record_str(field, format!("{value:?}").trim_matches('"'));
        }
    }
}

/// What the layer keeps in the extensions of a step's span.
#[derive(Debug)]
pub(super) struct StepSpan {
    pub(super) step: u64,
    pub(super) optimizer_stepped: Option<bool>,
}

/// What the layer keeps in the extensions of a phase's span.
#[derive(Debug)]
pub(super) struct PhaseSpan {
    pub(super) phase: Phase,
    pub(super) step: Option<u64>,
    /// Whether the program has set the step on this very span.
    #[cfg(feature = "otlp")]
    pub(super) own_step: bool,
    /// Whether it does so without a step or another such phase around it.
    #[cfg(feature = "otlp")]
    pub(super) steps_alone: bool,
    pub(super) depth: u32,
    pub(super) input_elements: Option<u64>,
    pub(super) optimizer_stepped: Option<bool>,
    /// Whether the program has said so on this very span.
    #[cfg(feature = "otlp")]
    pub(super) own_optimizer_stepped: bool,
    pub(super) outcome: Outcome,
    /// How often it is entered and not left yet.
    pub(super) entered: u32,
    pub(super) since: Option<Instant>,
    pub(super) host_seconds: f64,
    pub(super) edges: Vec<Edges>,
    /// Place among all exits of the process, which is the order of the records.
    pub(super) order: u64,
}

impl PhaseSpan {
    pub(super) fn new(phase: Phase, fields: &Fields, step: Option<u64>, depth: u32) -> Self {
        Self {
            phase,
            step: fields.step.or(step),
            #[cfg(feature = "otlp")]
            own_step: fields.step.is_some(),
            #[cfg(feature = "otlp")]
            steps_alone: fields.step.is_some() && step.is_none(),
            depth,
            input_elements: fields.input_elements,
            optimizer_stepped: fields.optimizer_stepped,
            #[cfg(feature = "otlp")]
            own_optimizer_stepped: fields.optimizer_stepped.is_some(),
            outcome: Outcome::Completed,
            entered: 0,
            since: None,
            host_seconds: 0.0,
            edges: Vec::new(),
            order: 0,
        }
    }

    /// The record of one device, or nothing for a span that was never entered.
    pub(super) fn record(&self, name: &str, device: usize) -> Option<PhaseRecord> {
        let edges = self.edges.get(device)?;
        let mut record = PhaseRecord::new(self.step, self.phase);
        record.name = (name != self.phase.name()).then(|| Box::from(name));
        record.depth = self.depth;
        record.start = edges.start;
        record.end = edges.end;
        record.peak_allocated = edges.peak.bytes;
        record.peak_disturbed = edges.peak.disturbed;
        record.outside_change = edges.outside_change;
        record.host_seconds = Some(self.host_seconds);
        record.input_elements = self.input_elements;
        record.optimizer_stepped = self.optimizer_stepped;
        record.outcome = self.outcome.clone();
        Some(record)
    }
}

/// A measured phase, in the extensions of its span from its close on: layers outside this one read
/// it in their `on_close`.
///
/// # Examples
///
/// ```
/// use phasescope::layer::MeasuredPhase;
/// use tracing::{Subscriber, span::Id};
/// use tracing_subscriber::{Layer, layer::Context, registry::LookupSpan};
///
/// struct Print;
///
/// impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Print {
///     fn on_close(&self, id: Id, ctx: Context<'_, S>) {
///         let span = ctx.span(&id).expect("a span that closes is known");
///         if let Some(measured) = span.extensions().get::<MeasuredPhase>() {
///             for (device, record) in &measured.records {
///                 println!("{device} {} {:?}", record.phase, record.end.allocated);
///             }
///         }
///     }
/// }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct MeasuredPhase {
    /// One record a device, the first device first.
    pub records: Vec<(DeviceName, PhaseRecord)>,
}
