//! Which training phase takes the memory, why, and what to do about it.
//!
//! A [`tracing`] layer measures each phase of a training step at its edges, and a diagnosis engine
//! names the cause of memory use, with evidence and a response:
//!
//! ```
//! use std::sync::Arc;
//!
//! use phasescope::counters::scripted::Scripted;
//! use phasescope::{phase, step};
//! use tracing_subscriber::layer::SubscriberExt;
//!
//! // A pretended device; with the feature `torch` it is `phasescope::torch::for_device(...)`.
//! let device = Arc::new(Scripted::new("cuda:0"));
//! device.allocate(100 << 20);
//! let (layer, guard) = phasescope::builder().source(device.clone()).build();
//!
//! tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
//!     for number in 0..8_u64 {
//!         let _step = step!(number).entered();
//!         phase!(forward).in_scope(|| device.allocate(50 << 20));
//!         // Nothing is freed: the graph of every step is kept.
//!         phase!(backward).in_scope(|| {});
//!         phase!(clear_gradients).in_scope(|| {});
//!     }
//! });
//!
//! let diagnosis = &guard.series()[0].diagnosis;
//! assert_eq!(diagnosis.findings[0].title, "autograd graphs are kept: 50.0 MiB more after every step");
//! ```
//!
//! # Modules
//!
//! - [`mod@phase`]: phases, their spans and records, and who is training
//! - [`counters`]: memory counters and where they come from
//! - [`layer`]: the `tracing` layer
//! - [`diagnosis`]: the engine
//! - [`report`]: the JSON report
//! - [`ring`]: the last phases in a file, for a process that is killed
//! - `export` and `contract` (feature `otlp`): spans and metrics by OTLP, and their names
//!
//! # Features
//!
//! - `otlp` (default): spans and metrics by OTLP, and counters on the spans of a tracing-opentelemetry
//!   stack of your own
//! - `torch`: counters of libtorch's allocators; needs libtorch 2.11 when it is built
//!
//! # Field contract
//!
//! Every span name, attribute, event and metric, with its type, unit and when it is present, stands in
//! `contract`.
//!
//! Rust 1.95 or later. `unsafe` stands only in `counters::torch`, at the border to libtorch, and
//! where the ring file is mapped.

#[cfg(feature = "otlp")]
pub mod contract;
pub mod counters;
pub mod diagnosis;
#[cfg(feature = "otlp")]
pub mod export;
pub mod layer;
pub mod phase;
pub mod report;
pub mod ring;
mod tell;
pub mod units;

#[cfg(feature = "torch")]
pub use counters::torch;
pub use counters::{CounterSource, Counters};
pub use phase::{Phase, PhaseRecord};

/// Begins the set-up of the layer.
///
/// # Examples
///
/// ```no_run
/// let guard = phasescope::builder().install()?;
/// # Ok::<(), phasescope::layer::InstallError>(())
/// ```
pub fn builder() -> layer::Builder {
    layer::Builder::default()
}

/// What the macros need in the user's crate. Not part of the public interface.
#[doc(hidden)]
pub mod __private {
    pub use tracing;

    /// A number of any integer type as a signed one, the nearest where it does not fit; also a field
    /// that is recorded later.
    #[allow(missing_docs)]
    pub trait Integer {
        type Signed;
        fn signed(self) -> Self::Signed;
    }

    impl Integer for tracing::field::Empty {
        type Signed = Self;
        fn signed(self) -> Self {
            self
        }
    }

    macro_rules! integers {
        ($($integer:ty),*) => {$(
            impl Integer for $integer {
                type Signed = i64;
                fn signed(self) -> i64 {
                    i64::try_from(self).unwrap_or(i64::MAX)
                }
            }
        )*};
    }
    integers!(i8, i16, i32, i64, isize, u8, u16, u32, u64, usize);

    /// One constant a phase, so that a misspelt phase does not compile.
    #[allow(missing_docs, non_upper_case_globals)]
    pub mod phase_names {
        pub const model: &str = "model";
        pub const optimizer_create: &str = "optimizer_create";
        pub const input: &str = "input";
        pub const forward: &str = "forward";
        pub const backward: &str = "backward";
        pub const optimizer_step: &str = "optimizer_step";
        pub const clear_gradients: &str = "clear_gradients";
        pub const eval: &str = "eval";
        pub const checkpoint: &str = "checkpoint";
        pub const collective: &str = "collective";
    }
}
