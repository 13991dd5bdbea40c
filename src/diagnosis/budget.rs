use serde::{Deserialize, Serialize};

use super::growth::Growth;
use super::profile::Profile;
use super::step::StepSummary;
use crate::phase::Phase;

/// What the memory at the run's peak was for. The parts and `unexplained` add up to `peak`, by
/// construction: each part is taken from what the parts before it left.
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
    /// The rest.
    pub unexplained: u64,
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

impl Profile<'_> {
    /// The budget at the run's peak.
    pub(super) fn budget(&self) -> Option<Budget> {
        let peak = self.peak()?;
        let step = self.highest.filter(|step| step.peak == peak);
        let phase = step
            .map(|step| step.peak_phase)
            .or(self.state.highest_before.map(|(_, phase)| phase))?;
        let mut parts = Parts { left: peak, shares: Vec::new() };
        parts.take(Part::Parameters, self.parameters());
        parts.take(Part::Inputs, positive(self.state.input_change));
        if let Some(step) = step {
            self.persistent(&mut parts, step);
            self.transient(&mut parts, step);
        }
        Some(Budget {
            peak,
            step: step.map(|step| step.step),
            phase,
            parts: parts.shares,
            unexplained: parts.left,
            highest_phases: self.highest_phases(),
        })
    }

    /// What was there when the step of the peak began, or was made in it to stay.
    fn persistent(&self, parts: &mut Parts, step: &StepSummary) {
        // A one-off rise is there from the phase on in which it was made.
        let there = |phase: Phase| {
            self.first_step_of(phase).is_some_and(|first| {
                step.step > first || (step.step == first && step.peak_phase >= phase)
            })
        };
        if there(Phase::OptimizerStep) {
            parts.take(Part::OptimizerState, self.optimizer_state());
        }
        let kept = self.kept_gradients().filter(|_| there(Phase::Backward));
        parts.take(Part::Gradients, kept);
        if there(Phase::Backward) {
            parts.take(Part::Workspaces, self.workspace());
        } else if there(Phase::Forward) {
            parts.take(Part::Workspaces, positive(self.one_off(Phase::Forward)));
        }
        if let Growth::Growing { .. } = self.growth {
            let explained: u64 = parts.shares.iter().map(|share| share.bytes).sum();
            parts.take(Part::RetainedGrowth, Some(step.start.saturating_sub(explained)));
        }
    }

    /// What lived only inside the step of the peak.
    fn transient(&self, parts: &mut Parts, step: &StepSummary) {
        let rise = step.change(Phase::Forward).map(|change| {
            let one_off = match self.first_step_of(Phase::Forward) {
                Some(first) if first == step.step => self.one_off(Phase::Forward).unwrap_or(0),
                _ => 0,
            };
            u64::try_from(change.saturating_sub(one_off)).unwrap_or(0)
        });
        let gradients = if self.kept_gradients().is_some() { None } else { self.gradients() };
        match step.peak_phase {
            Phase::Forward => parts.take(Part::Activations, Some(parts.left)),
            Phase::Backward => {
                parts.take(Part::Activations, rise);
                parts.take(Part::Gradients, gradients);
                // Neither parameter, state nor gradient: what backward makes again, or makes and
                // drops, on its way through the graph.
                parts.take(Part::Activations, rise.and(Some(parts.left)));
            }
            Phase::OptimizerStep => {
                parts.take(Part::Gradients, gradients);
                let temporaries = step
                    .phase(Phase::OptimizerStep)
                    .map(|phase| phase.peak.saturating_sub(phase.start.max(phase.end)));
                parts.take(Part::OptimizerTemporaries, temporaries);
            }
            _ => {}
        }
    }

    fn highest_phases(&self) -> Vec<PhasePeak> {
        let mut peaks: Vec<PhasePeak> = self.state.phase_peaks.iter().copied().flatten().collect();
        peaks.sort_by_key(|peak| std::cmp::Reverse(peak.bytes));
        peaks.truncate(2);
        peaks
    }
}

/// Parts taken one after another from what is left of the peak: their sum is right by construction.
struct Parts {
    left: u64,
    shares: Vec<Share>,
}

impl Parts {
    fn take(&mut self, part: Part, bytes: Option<u64>) {
        let bytes = bytes.unwrap_or(0).min(self.left);
        self.left -= bytes;
        if bytes == 0 {
            return;
        }
        match self.shares.iter_mut().find(|share| share.part == part) {
            Some(share) => share.bytes += bytes,
            None => self.shares.push(Share { part, bytes }),
        }
    }
}

fn positive(change: Option<i64>) -> Option<u64> {
    change.and_then(|change| u64::try_from(change).ok())
}
