use super::{Answer, Found, cost_severity, evidence, rejected, response, shown};
use crate::diagnosis::profile::Profile;
use crate::diagnosis::{Code, Confidence, Counter, Edge, Measure, Policy};
use crate::phase::Phase;

/// Optimizer state: a one-off rise inside the first optimizer step that survives the clearing of
/// the gradients.
pub(super) fn judge(profile: &Profile<'_>, policy: &Policy) -> Answer {
    let (Some(made), Some(state), Some(first_step)) = (
        profile.one_off(Phase::OptimizerStep),
        profile.optimizer_state(),
        profile.first_step_of(Phase::OptimizerStep),
    ) else {
        return match profile.one_off(Phase::OptimizerStep) {
            Some(_) => Answer::Clear,
            None => Answer::missing("two finished steps with an optimizer step"),
        };
    };
    let parameters = profile.parameters();
    let ratio = parameters.filter(|bytes| *bytes > 0).map(|bytes| state as f64 / bytes as f64);
    let least = parameters
        .map_or(policy.workspace_min as f64, |bytes| policy.state_min_ratio * bytes as f64);
    if state == 0 || (state as f64) < least {
        return Answer::Clear;
    }
    let first = profile.state.first.as_ref().filter(|step| step.step == first_step);
    let usual = profile.usual(Phase::OptimizerStep).unwrap_or(0);
    let mut seen = vec![evidence(
        format!(
            "step {first_step}: allocated changes by {} in the first optimizer step, by {} in \
             later ones: {} made once",
            crate::units::Readable(profile.first_change(Phase::OptimizerStep).unwrap_or(0)),
            crate::units::Readable(usual),
            crate::units::Readable(made),
        ),
        made,
        [
            first.and_then(|step| step.measure(Phase::OptimizerStep, Edge::Start)),
            first.and_then(|step| step.measure(Phase::OptimizerStep, Edge::End)),
        ],
    )];
    if let (Some((before, phase)), Some(first)) = (profile.state.before, first) {
        seen.push(evidence(
            format!(
                "it survives the step: the level is {} before training and {} after step {}",
                shown(before),
                shown(first.floor),
                first.step
            ),
            crate::diagnosis::step::difference(first.floor, before),
            [
                Some(Measure {
                    step: None,
                    phase,
                    edge: Edge::End,
                    counter: Counter::Allocated,
                    bytes: before,
                }),
                Some(first.floor_measure()),
            ],
        ));
    }
    if let (Some(ratio), Some(parameters)) = (ratio, parameters) {
        seen.push(evidence(
            format!(
                "{} / {} of parameters = {ratio:.2} (momentum is 1, AdamW's two moments are 2; up \
                 to {:.1} counts as state)",
                shown(state),
                shown(parameters),
                policy.state_max_ratio
            ),
            i64::try_from(state).unwrap_or(i64::MAX),
            [],
        ));
    }
    let fits = ratio.is_some_and(|ratio| ratio <= policy.state_max_ratio);
    Found {
        code: Code::OptimizerState,
        severity: cost_severity(profile, policy),
        confidence: if fits { Confidence::Indicated } else { Confidence::Suspected },
        title: match ratio {
            Some(ratio) => {
                format!("optimizer state holds {}, {ratio:.1} times the parameters", shown(state))
            }
            None => format!("optimizer state holds {}", shown(state)),
        },
        bytes: state,
        growth_total: None,
        evidence: seen,
        responses: vec![
            response(
                "shard the optimizer state over N ranks (ZeRO stage 1)",
                Some(state / 2),
                "each rank keeps 1/N of the state; the figure is for two ranks",
            ),
            response(
                "a low-memory optimizer, or state in lower precision",
                Some(state / 2),
                "state is per parameter; 16 instead of 32 bits halve it, 8 bits quarter it",
            ),
            response(
                "train fewer parameters (frozen layers, low-rank adapters)",
                None,
                "parameters that are not trained have no state",
            ),
        ],
        rejected: vec![
            rejected(
                "activation checkpointing",
                "it makes activations smaller; the optimizer's moments stay",
            ),
            rejected(
                "a smaller batch",
                "state has the parameters' size, whatever the size of the batch",
            ),
            rejected("looking for a leak", "it rises once, in the first step, and then stays"),
        ],
    }
    .answer(profile)
}
