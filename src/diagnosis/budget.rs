use serde::{Deserialize, Serialize};

use crate::phase::Phase;

/// What the memory at the run's peak was for. The parts and `unexplained` add up to `peak`, by
/// construction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Budget {
    /// Highest allocated bytes of the run.
    pub peak: u64,
    /// The step of the peak; `None` before training.
    pub step: Option<u64>,
    /// The phase of the peak.
    pub phase: Phase,
    /// The parts, in a fixed order; a part of zero bytes is left out.
    pub parts: Vec<Share>,
    /// The rest. Negative when the parts, some of which are estimates, come to more than the peak.
    pub unexplained: i64,
    /// The two phases with the highest peaks, the highest first: the second is what remains when
    /// the first is mended.
    pub highest_phases: Vec<PhasePeak>,
}

/// One part of a budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Share {
    /// What for.
    pub part: Part,
    /// How much.
    pub bytes: u64,
}

/// What memory is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Part {
    /// The model's parameters and buffers.
    Parameters,
    /// The input batch.
    Inputs,
    /// The optimizer's state.
    OptimizerState,
    /// Gradients.
    Gradients,
    /// What forward saved for backward, and what backward makes again.
    Activations,
    /// Library workspaces, and other memory that first forward and backward leave behind.
    Workspaces,
    /// What accumulated from step to step.
    RetainedGrowth,
    /// What the optimizer's step needs only for its duration.
    OptimizerTemporaries,
}

impl Part {
    /// The name for people.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Parameters => "parameters",
            Self::Inputs => "inputs",
            Self::OptimizerState => "optimizer state",
            Self::Gradients => "gradients",
            Self::Activations => "activations",
            Self::Workspaces => "workspaces",
            Self::RetainedGrowth => "retained growth",
            Self::OptimizerTemporaries => "optimizer temporaries",
        }
    }
}

/// The highest peak of one phase over the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PhasePeak {
    /// The phase.
    pub phase: Phase,
    /// The step where it stood.
    pub step: Option<u64>,
    /// Allocated bytes.
    pub bytes: u64,
}

/// The three gaps between what tensors use and what the device shows, each where it was measured,
/// at the last step's end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Gaps {
    /// Reserved minus allocated: the allocator's cache and its fragments.
    pub cache: Option<i64>,
    /// This process on the device minus reserved: context, libraries, communication buffers.
    pub outside_allocator: Option<i64>,
    /// The device minus this process: other processes.
    pub other_processes: Option<i64>,
}
