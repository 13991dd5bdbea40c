use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::device::Devices;
use super::recorder::Recorder;
use crate::diagnosis::RunFacts;
use crate::phase::RunIdentity;
use crate::report::Series;

#[cfg(feature = "otlp")]
/// Problems that are told at most; the first ones say what is wrong.
const MAX_PROBLEMS: usize = 16;

/// What the layer and its guard share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) devices: Devices,
    pub(super) identity: RunIdentity,
    pub(super) recorder: Mutex<Recorder>,
    pub(super) problems: Mutex<Vec<String>>,
    #[cfg(feature = "otlp")]
    pub(super) otel: super::otel::Otel,
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

    #[cfg(feature = "otlp")]
    fn tell(&self, problem: &str) {
        let mut problems = self.problems();
        if problems.len() < MAX_PROBLEMS {
            eprintln!("phasescope: {problem}");
            problems.push(problem.to_owned());
        }
    }
}

/// Access to what the layer measures, while it runs and after. Cheap to clone.
///
/// # Examples
///
/// ```
/// let (_layer, guard) = phasescope::builder().build();
/// assert!(guard.series()[0].diagnosis.findings.is_empty());
/// assert!(guard.problems().is_empty());
/// ```
#[derive(Clone, Debug)]
pub struct Guard {
    shared: Arc<Shared>,
}

impl Guard {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
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
}
