//! What the records add up to: the quantities that the rules compare.

use super::diagnoser::Diagnoser;
use super::growth::{self, Growth, Level, median};
use super::step::{StepSummary, difference};
use super::{Gaps, Measure, RunFacts};
use crate::phase::Phase;

/// The quantities of one device of one rank, derived once and read by every rule.
#[derive(Debug)]
pub(super) struct Profile<'a> {
    pub(super) state: &'a Diagnoser,
    /// The step with the highest peak, the open one included.
    pub(super) highest: Option<&'a StepSummary>,
    /// The last finished step.
    pub(super) last: Option<&'a StepSummary>,
    pub(super) levels: Vec<Level>,
    pub(super) growth: Growth,
    /// Usual change of each phase over a step, the phase's first occurrence left out.
    usual: [Option<i64>; Phase::ALL.len()],
}

impl<'a> Profile<'a> {
    pub(super) fn new(state: &'a Diagnoser) -> Self {
        let levels = state.levels();
        Self {
            highest: [state.highest.as_ref(), state.open()]
                .into_iter()
                .flatten()
                .max_by_key(|step| step.peak),
            last: state.recent.last(),
            growth: growth::judge(&levels, state.history(), state.policy()),
            levels,
            usual: usual_changes(state),
            state,
        }
    }

    pub(super) fn facts(&self) -> &RunFacts {
        &self.state.facts
    }

    /// Highest allocated bytes of the run.
    pub(super) fn peak(&self) -> Option<u64> {
        let training = self.highest.map(|step| step.peak);
        training.max(self.state.highest_before.map(|(peak, _)| peak))
    }

    /// Bytes as a share of the peak.
    pub(super) fn share(&self, bytes: u64) -> Option<f64> {
        self.peak().filter(|peak| *peak > 0).map(|peak| bytes as f64 / peak as f64)
    }

    /// Size of the parameters: what building the model allocated, else what the run's facts say.
    pub(super) fn parameters(&self) -> Option<u64> {
        let measured = self.state.model_change.and_then(|change| u64::try_from(change).ok());
        measured.filter(|bytes| *bytes > 0).or(self.facts().parameter_bytes)
    }

    pub(super) fn usual(&self, phase: Phase) -> Option<i64> {
        self.usual[phase.index()]
    }

    /// The step of a phase's first occurrence.
    pub(super) fn first_step_of(&self, phase: Phase) -> Option<u64> {
        self.state.first_change[phase.index()].map(|(step, _)| step)
    }

    pub(super) fn first_change(&self, phase: Phase) -> Option<i64> {
        self.state.first_change[phase.index()].map(|(_, change)| change)
    }

    /// What a phase's first occurrence left behind beyond its usual change. Over all phases these
    /// add up to the one-off change of the level between steps, so that a one-off rise is charged
    /// to the phase that made it.
    pub(super) fn one_off(&self, phase: Phase) -> Option<i64> {
        Some(self.first_change(phase)?.saturating_sub(self.usual(phase)?))
    }

    /// Usual rise of one forward, which is one micro-batch's where gradients are accumulated.
    pub(super) fn forward_rise(&self) -> Option<u64> {
        let rise = usual(self.state, Phase::Forward, |step| step.phase(Phase::Forward)?.rise)?;
        Some(u64::try_from(rise).unwrap_or(0))
    }

    /// Gradients of one step: what clearing them frees.
    pub(super) fn gradients(&self) -> Option<u64> {
        let change = self.usual(Phase::ClearGradients)?;
        Some(u64::try_from(change.saturating_neg()).unwrap_or(0))
    }

    /// What all backwards of a step free: their change, with the gradients they make taken out.
    pub(super) fn freed_in_backward(&self) -> Option<i64> {
        let made = i64::try_from(self.gradients()?).ok()?;
        Some(made.saturating_sub(self.usual(Phase::Backward)?))
    }

    /// What backward holds at its peak beyond forward's rise and the gradients: recomputed
    /// activations and its own temporaries.
    pub(super) fn extra_in_backward(&self) -> u64 {
        let Some(step) = self.last else { return 0 };
        let Some(backward) = step.phase(Phase::Backward).filter(|phase| phase.peak_measured) else {
            return 0;
        };
        backward.peak.saturating_sub(backward.start).saturating_sub(self.gradients().unwrap_or(0))
    }

    /// State made in the first optimizer step, and at the optimizer's creation.
    pub(super) fn optimizer_state(&self) -> Option<u64> {
        let made = self.one_off(Phase::OptimizerStep)?;
        let created = self.state.create_change.unwrap_or(0).max(0);
        u64::try_from(made.saturating_add(created)).ok()
    }

    /// Whether the gradients survive their clearing: what first backward left behind is of the
    /// parameters' size, and clearing frees nothing.
    pub(super) fn kept_gradients(&self) -> Option<u64> {
        let parameters = self.parameters()?;
        let tolerance = self.state.policy().gradient_tolerance;
        let freed = self.gradients()?;
        let left = u64::try_from(self.one_off(Phase::Backward)?).unwrap_or(0);
        let nothing_freed = freed as f64 <= tolerance * parameters as f64;
        let enough_left = left as f64 >= (1.0 - tolerance) * parameters as f64;
        // Clearing frees nothing either where backward makes no gradients at all.
        (nothing_freed && enough_left).then_some(parameters.min(left))
    }

    /// What first forward and first backward left behind, kept gradients taken out.
    pub(super) fn workspace(&self) -> Option<u64> {
        let forward = self.one_off(Phase::Forward)?.max(0);
        let backward = self.one_off(Phase::Backward).unwrap_or(0).max(0);
        let left = u64::try_from(forward.saturating_add(backward)).ok()?;
        Some(left.saturating_sub(self.kept_gradients().unwrap_or(0)))
    }

    /// The gaps at the last edge.
    pub(super) fn gaps(&self) -> Gaps {
        let latest = &self.state.latest;
        let gap = |to: Option<u64>, from: Option<u64>| Some(difference(to?, from?));
        Gaps {
            cache: gap(latest.reserved, latest.allocated),
            outside_allocator: gap(latest.process_device_used, latest.reserved),
            other_processes: gap(latest.device_used, latest.process_device_used),
        }
    }

    /// Size of the device.
    pub(super) fn device_total(&self) -> Option<u64> {
        self.state.latest.device_total.or(self.facts().device_total)
    }

    /// Most that was in use on the device: by everyone where that was measured, else what the
    /// allocator held, else the peak.
    pub(super) fn device_used(&self) -> Option<u64> {
        self.state.highest_device_used.or(self.state.latest.reserved).max(self.peak())
    }

    /// The measured numbers of a finished step that is still known.
    pub(super) fn level_measure(&self, level: &Level) -> Option<Measure> {
        let known = self.state.recent.iter().chain(&self.state.first);
        let step = known.into_iter().find(|step| step.step == level.step);
        // Thinned levels keep only step and bytes; they end in the phase every step ends in.
        step.or(self.last).map(|step| Measure {
            step: Some(level.step),
            bytes: level.bytes,
            ..step.floor_measure()
        })
    }
}

fn usual_changes(state: &Diagnoser) -> [Option<i64>; Phase::ALL.len()] {
    Phase::ALL.map(|phase| usual(state, phase, |step| step.change(phase)))
}

/// The middle of a figure over the last steps, the phase's first occurrence left out.
fn usual(
    state: &Diagnoser,
    phase: Phase,
    figure: impl Fn(&StepSummary) -> Option<i64>,
) -> Option<i64> {
    let first = state.first_change[phase.index()].map(|(step, _)| step);
    let values: Vec<f64> = state
        .recent
        .iter()
        .filter(|step| Some(step.step) != first)
        .filter_map(figure)
        .map(|value| value as f64)
        .collect();
    (!values.is_empty()).then(|| median(&values) as i64)
}
