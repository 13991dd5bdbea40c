//! Training phases: their names, the record of one finished phase, and who is training.
//!
//! A phase is an ordinary `tracing` span with the reserved field `phasescope.phase`; the macros
//! [`phase!`](crate::phase!), [`step!`](crate::step!) and [`run!`](crate::run!) are sugar for it.

mod identity;
mod macros;
mod outcome;
#[cfg(feature = "otlp")]
mod recent;
mod record;

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

pub use identity::RunIdentity;
pub use outcome::{OutOfMemory, Outcome};
#[cfg(feature = "otlp")]
pub(crate) use recent::RecentSteps;
pub use record::PhaseRecord;
pub(crate) use record::{MAX_BYTES, signed_difference};

/// A phase of a training step, or of what stands before and around the steps.
///
/// # Examples
///
/// ```
/// use phasescope::Phase;
///
/// assert_eq!(Phase::OptimizerStep.name(), "optimizer_step");
/// assert_eq!("forward".parse(), Ok(Phase::Forward));
/// assert_eq!(Phase::OptimizerCreate.sample_name(), "after_optimizer_creation");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Phase {
    /// Building the model and moving it to the device.
    Model,
    /// Constructing the optimizer. Libtorch's AdamW makes its moments later, in its first step.
    OptimizerCreate,
    /// Making or moving the batch.
    Input,
    /// The forward pass and the loss.
    Forward,
    /// The backward pass.
    Backward,
    /// The optimizer's step.
    OptimizerStep,
    /// Dropping or zeroing the gradients.
    ClearGradients,
    /// An evaluation.
    Eval,
    /// Saving or loading a checkpoint.
    Checkpoint,
    /// A collective operation between ranks that is not part of another phase.
    Collective,
    /// Anything else worth a phase of its own; the span's name says what.
    Other,
}

impl Phase {
    /// Every phase, in the order in which a run passes them.
    pub const ALL: [Self; 11] = [
        Self::Model,
        Self::OptimizerCreate,
        Self::Input,
        Self::Forward,
        Self::Backward,
        Self::OptimizerStep,
        Self::ClearGradients,
        Self::Eval,
        Self::Checkpoint,
        Self::Collective,
        Self::Other,
    ];

    /// The stable name, as in the span field `phasescope.phase`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Model => "model",
            Self::OptimizerCreate => "optimizer_create",
            Self::Input => "input",
            Self::Forward => "forward",
            Self::Backward => "backward",
            Self::OptimizerStep => "optimizer_step",
            Self::ClearGradients => "clear_gradients",
            Self::Eval => "eval",
            Self::Checkpoint => "checkpoint",
            Self::Collective => "collective",
            Self::Other => "other",
        }
    }

    /// The name of the sample taken at the phase's end in a report.
    #[must_use]
    pub fn sample_name(self) -> &'static str {
        match self {
            Self::Model => "after_model",
            Self::OptimizerCreate => "after_optimizer_creation",
            Self::Input => "after_input",
            Self::Forward => "after_forward",
            Self::Backward => "after_backward",
            Self::OptimizerStep => "after_optimizer_step",
            Self::ClearGradients => "after_clear_gradients",
            Self::Eval => "after_eval",
            Self::Checkpoint => "after_checkpoint",
            Self::Collective => "after_collective",
            Self::Other => "after_other",
        }
    }

    /// The phase whose report sample has this name.
    #[must_use]
    pub fn from_sample_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|phase| phase.sample_name() == name)
    }

    /// The phase's place in [`Phase::ALL`].
    pub(crate) fn index(self) -> usize {
        self as usize
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A name that is not a phase's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected the name of a phase ({expected}), found \"{found}\"", expected = known_names())]
pub struct UnknownPhase {
    found: String,
}

fn known_names() -> String {
    Phase::ALL.map(Phase::name).join(", ")
}

impl FromStr for Phase {
    type Err = UnknownPhase;

    fn from_str(name: &str) -> Result<Self, UnknownPhase> {
        Self::ALL
            .into_iter()
            .find(|phase| phase.name() == name)
            .ok_or_else(|| UnknownPhase { found: name.to_owned() })
    }
}
