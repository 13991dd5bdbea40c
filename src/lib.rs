//! Which training phase takes the memory, why, and what to do about it.

pub mod counters;
pub mod diagnosis;
pub mod layer;
pub mod phase;
pub mod report;
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
