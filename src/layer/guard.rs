use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::device::Devices;
use super::recorder::Recorder;
use crate::diagnosis::RunFacts;
#[cfg(feature = "otlp")]
use crate::export::Pipeline;
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
    pub(super) exports: super::exports::Exports,
}

impl Shared {
    pub(super) fn recorder(&self) -> MutexGuard<'_, Recorder> {
        self.recorder.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn problems(&self) -> MutexGuard<'_, Vec<String>> {
        self.problems.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn tell(&self, problem: &str) {
        let mut problems = self.problems();
        if problems.len() < MAX_PROBLEMS {
            crate::tell::line(problem);
            problems.push(problem.to_owned());
        }
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
    pub(super) held: Arc<Held>,
    pub(super) shared: Arc<Shared>,
}

/// What ends with the last guard.
#[derive(Debug)]
pub(super) struct Held {
    #[cfg(feature = "otlp")]
    pub(super) pipeline: Option<Pipeline>,
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

    /// The ring file, where [`Builder::ring_in`](super::Builder::ring_in) has made one.
    #[must_use]
    pub fn ring_path(&self) -> Option<&Path> {
        self.shared.ring.as_ref().map(RingWriter::path)
    }
}
