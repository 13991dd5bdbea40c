use std::path::PathBuf;
use std::sync::{Arc, Mutex};

#[cfg(feature = "otlp")]
use opentelemetry::metrics::Meter;
use tracing_subscriber::layer::SubscriberExt;

use super::device::Devices;
#[cfg(feature = "otlp")]
use super::exports::Exports;
use super::guard::Shared;
use super::recorder::Recorder;
use super::{Guard, PeakMode, PhaseLayer, panics};
use crate::counters::CounterSource;
use crate::diagnosis::{Policy, RunFacts};
#[cfg(feature = "otlp")]
use crate::export::{Export, Pipeline};
use crate::phase::RunIdentity;
use crate::ring::RingWriter;

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
    ring: Option<PathBuf>,
    #[cfg(feature = "otlp")]
    export: Option<Export>,
    #[cfg(feature = "otlp")]
    meter: Option<Meter>,
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

    /// Keeps the last phases in a [`ring`](crate::ring) file in this folder, for a process that may be
    /// killed. A file that cannot be made is a problem that the guard tells, and no error.
    pub fn ring_in(mut self, folder: impl Into<PathBuf>) -> Self {
        self.ring = Some(folder.into());
        self
    }

    /// Makes the layer for a stack of your own, and the guard. Put it inside any OpenTelemetry
    /// layer: `registry().with(phase_layer).with(opentelemetry_layer)`. The phases' counters then go
    /// to the spans of that layer, phases are children of the program's spans around them, and the
    /// program's spans inside a phase are its children.
    ///
    /// Nothing is exported unless [`export`](Self::export) is set: spans then need
    /// [`Guard::opentelemetry_layer`] in the stack.
    pub fn build(self) -> (PhaseLayer, Guard) {
        let devices = Devices::new(self.sources, self.peak_mode);
        let recorder = Recorder::new(devices.names(), &self.policy, self.facts, self.keep_records);
        let identity = self.identity.unwrap_or_else(RunIdentity::from_env);
        let mut problems = Vec::new();
        let ring = self.ring.and_then(|folder| {
            let made = RingWriter::create(&folder, &identity, devices.names());
            let problem = |error| format!("no ring file in {}: {error}", folder.display());
            made.map_err(|error| problems.push(problem(error))).ok()
        });
        if let Some(ring) = &ring {
            ring.set_facts(self.facts);
        }
        #[cfg(feature = "otlp")]
        let pipeline = self.export.and_then(|export| {
            let started = Pipeline::start(export, &identity);
            started.map_err(|error| problems.push(format!("nothing is exported: {error}"))).ok()
        });
        let shared = Arc::new(Shared {
            #[cfg(feature = "otlp")]
            exports: Exports::new(&identity, pipeline.as_ref()),
            devices,
            identity,
            recorder: Mutex::new(recorder),
            problems: Mutex::new(Vec::new()),
            ring,
        });
        problems.iter().for_each(|problem| shared.tell(problem));
        #[cfg(feature = "otlp")]
        shared.measure(self.meter, pipeline.as_ref());
        panics::remember_messages();
        let layer = PhaseLayer::new(shared.clone());
        #[cfg(feature = "otlp")]
        let guard = Guard::new(shared, pipeline);
        #[cfg(not(feature = "otlp"))]
        let guard = Guard::new(shared);
        (layer, guard)
    }

    /// Makes the layer and sets it up as the program's subscriber. With the feature `otlp` spans and
    /// metrics go where [`export`](Self::export) says, else where the standard `OTEL_*` variables
    /// say ([`Export::from_env`]); without either nothing is sent. A variable with a value that
    /// cannot be is a problem that the guard tells, and no error: telemetry stops no training.
    ///
    /// # Errors
    ///
    /// When the program has a global subscriber already: use [`build`](Self::build) and add the
    /// layer to that one.
    ///
    /// [`Export::from_env`]: crate::export::Export::from_env
    #[cfg(feature = "otlp")]
    pub fn install(mut self) -> Result<Guard, InstallError> {
        let mut problem = None;
        if self.export.is_none() {
            match Export::from_env() {
                Ok(export) => self.export = export,
                Err(error) => problem = Some(format!("nothing is exported: {error}")),
            }
        }
        let (layer, guard) = self.build();
        if let Some(problem) = problem {
            guard.tell(&problem);
        }
        let inside = tracing_subscriber::registry().with(layer);
        let installed = match guard.opentelemetry_layer() {
            Some(outside) => tracing::subscriber::set_global_default(inside.with(outside)),
            None => tracing::subscriber::set_global_default(inside),
        };
        match installed {
            Ok(()) => Ok(guard),
            Err(_) => {
                guard.abandon();
                Err(InstallError(()))
            }
        }
    }

    /// Makes the layer and sets it up as the program's subscriber.
    ///
    /// # Errors
    ///
    /// When the program has a global subscriber already: use [`build`](Self::build) and add the
    /// layer to that one.
    #[cfg(not(feature = "otlp"))]
    pub fn install(self) -> Result<Guard, InstallError> {
        let (layer, guard) = self.build();
        tracing::subscriber::set_global_default(tracing_subscriber::registry().with(layer))
            .map_err(|_| InstallError(()))?;
        Ok(guard)
    }
}

#[cfg(feature = "otlp")]
impl Builder {
    /// Sets where spans and metrics go. Without it [`install`](Self::install) asks the environment.
    pub fn export(mut self, export: Export) -> Self {
        self.export = Some(export);
        self
    }

    /// Makes the metrics with this meter, for a program with a meter provider of its own, such as
    /// `opentelemetry::global::meter("phasescope")`.
    pub fn meter(mut self, meter: Meter) -> Self {
        self.meter = Some(meter);
        self
    }
}

/// The program has a global subscriber already.
#[derive(Debug, thiserror::Error)]
#[error(
    "expected a program without a global tracing subscriber, found one: add the layer from \
     `build()` to it instead of `install()`"
)]
pub struct InstallError(());
