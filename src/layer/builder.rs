use std::sync::{Arc, Mutex};

use tracing_subscriber::layer::SubscriberExt;

use super::device::Devices;
use super::guard::Shared;
use super::recorder::Recorder;
use super::{Guard, PeakMode, PhaseLayer, panics};
use crate::counters::CounterSource;
use crate::diagnosis::{Policy, RunFacts};
use crate::phase::RunIdentity;

/// Sets up the layer. Begin with [`phasescope::builder()`](crate::builder).
///
/// # Examples
///
/// ```
/// use std::sync::Arc;
///
/// use phasescope::counters::host::HostMemory;
/// use phasescope::phase::RunIdentity;
///
/// let (_layer, guard) = phasescope::builder()
///     .identity(RunIdentity::new("nightly-42"))
///     .source(Arc::new(HostMemory::new()))
///     .build();
/// assert_eq!(guard.identity().run_id, "nightly-42");
/// ```
#[derive(Debug, Default)]
#[must_use]
pub struct Builder {
    sources: Vec<Arc<dyn CounterSource>>,
    identity: Option<RunIdentity>,
    policy: Policy,
    facts: RunFacts,
    peak_mode: PeakMode,
    keep_records: bool,
}

impl Builder {
    /// Adds a source of counters. Sources of the same device complete each other.
    pub fn source(mut self, source: Arc<dyn CounterSource>) -> Self {
        self.sources.push(source);
        self
    }

    /// Says which run and rank this is; the default asks the environment
    /// ([`RunIdentity::from_env`]).
    pub fn identity(mut self, identity: RunIdentity) -> Self {
        self.identity = Some(identity);
        self
    }

    /// Sets the thresholds of the diagnosis.
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = policy;
        self
    }

    /// Sets what is known of the run before it begins.
    pub fn facts(mut self, facts: RunFacts) -> Self {
        self.facts = facts;
        self
    }

    /// Sets whether the allocator's peak may be reset.
    pub fn peak_mode(mut self, mode: PeakMode) -> Self {
        self.peak_mode = mode;
        self
    }

    /// Keeps every phase's record, at most [`MAX_KEPT_RECORDS`](super::MAX_KEPT_RECORDS), for a
    /// report. Without it memory is bounded by the diagnosis alone.
    pub fn keep_records(mut self) -> Self {
        self.keep_records = true;
        self
    }

    /// Makes the layer for a stack of your own, and the guard. Put it inside any OpenTelemetry
    /// layer: `registry().with(phase_layer).with(opentelemetry_layer)`.
    pub fn build(self) -> (PhaseLayer, Guard) {
        let devices = Devices::new(self.sources, self.peak_mode);
        let recorder = Recorder::new(devices.names(), &self.policy, self.facts, self.keep_records);
        let shared = Arc::new(Shared {
            devices,
            identity: self.identity.unwrap_or_else(RunIdentity::from_env),
            recorder: Mutex::new(recorder),
            problems: Mutex::new(Vec::new()),
            #[cfg(feature = "otlp")]
            otel: super::otel::Otel::default(),
        });
        panics::remember_messages();
        (PhaseLayer::new(shared.clone()), Guard::new(shared))
    }

    /// Makes the layer and sets it up as the program's subscriber.
    ///
    /// # Errors
    ///
    /// When the program has a global subscriber already: use [`build`](Self::build) and add the
    /// layer to that one.
    pub fn install(self) -> Result<Guard, InstallError> {
        let (layer, guard) = self.build();
        tracing::subscriber::set_global_default(tracing_subscriber::registry().with(layer))
            .map_err(|_| InstallError(()))?;
        Ok(guard)
    }
}

/// The program has a global subscriber already.
#[derive(Debug, thiserror::Error)]
#[error(
    "expected a program without a global tracing subscriber, found one: add the layer from \
     `build()` to it instead of `install()`"
)]
pub struct InstallError(());
