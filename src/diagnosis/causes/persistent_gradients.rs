use super::{Answer, Found, evidence, rejected, response, shown};
use crate::diagnosis::profile::Profile;
use crate::diagnosis::step::StepSummary;
use crate::diagnosis::{Code, Confidence, Edge, Policy, Severity};
use crate::phase::Phase;

/// Gradients that live through the next forward: they are never freed, or freed too late.
pub(super) fn judge(profile: &Profile<'_>, policy: &Policy) -> Answer {
    let Some(last) = profile.last else {
        return Answer::missing("a finished step");
    };
    if profile.gradients().is_none() {
        return Answer::missing("two finished steps with a clear_gradients phase");
    }
    let Some(parameters) = profile.parameters() else {
        return Answer::missing("the size of the parameters");
    };
    let late = cleared_after_forward(profile, last, policy, parameters);
    let Some(bytes) = profile.kept_gradients().or(late) else { return Answer::Clear };
    let share = profile.share(bytes).unwrap_or(0.0);
    let wasteful = share >= policy.gradients_warning_share;
    let clearing = profile.usual(Phase::ClearGradients).unwrap_or(0);
    let what = if late.is_some() {
        "gradients are cleared only after forward".to_owned()
    } else {
        format!(
            "clearing changes allocated by {}, where one copy of gradients is {}",
            crate::units::Readable(clearing),
            shown(parameters)
        )
    };
    let mut seen = vec![evidence(
        format!("step {}: {what}", last.step),
        clearing,
        [
            last.measure(Phase::ClearGradients, Edge::Start),
            last.measure(Phase::ClearGradients, Edge::End),
        ],
    )];
    if late.is_none() {
        let left = profile.one_off(Phase::Backward).unwrap_or(0);
        seen.push(evidence(
            format!(
                "the first backward left {} behind, at least the {} of one copy of gradients \
                 (within {:.0} %)",
                crate::units::Readable(left),
                shown(parameters),
                100.0 * policy.gradient_tolerance
            ),
            left,
            [profile
                .state
                .first
                .as_ref()
                .and_then(|step| step.measure(Phase::Backward, Edge::End))],
        ));
    }
    seen.push(evidence(
        format!(
            "that is {:.0} % of the peak of {} (a warning from {:.0} % on)",
            100.0 * share,
            shown(profile.peak().unwrap_or(0)),
            100.0 * policy.gradients_warning_share
        ),
        i64::try_from(bytes).unwrap_or(i64::MAX),
        [profile.highest.and_then(|step| step.measure(step.peak_phase, Edge::Peak))],
    ));
    Found {
        code: Code::PersistentGradients,
        severity: if wasteful { Severity::Warning } else { Severity::Info },
        confidence: Confidence::Indicated,
        title: format!("{} of gradients live through the next forward", shown(bytes)),
        bytes,
        growth_total: None,
        evidence: seen,
        responses: vec![response(
            "drop the gradients right after the optimizer's step (set them to none)",
            Some(bytes),
            "forward then runs without a copy of them beside its activations",
        )],
        rejected: vec![
            rejected("zeroing the gradients", "a zeroed gradient takes as much as any other"),
            rejected("a smaller batch", "gradients have the parameters' size"),
        ],
    }
    .answer(profile)
}

/// Gradients freed between forward and backward, which forward had to live with.
fn cleared_after_forward(
    profile: &Profile<'_>,
    step: &StepSummary,
    policy: &Policy,
    parameters: u64,
) -> Option<u64> {
    let order = |phase| step.phase(phase).map(|phase| phase.order);
    let (forward, clear) = (order(Phase::Forward)?, order(Phase::ClearGradients)?);
    let backward = order(Phase::Backward)?;
    let freed = profile.gradients()?;
    let enough = freed as f64 >= (1.0 - policy.gradient_tolerance) * parameters as f64;
    (forward < clear && clear < backward && enough).then_some(freed)
}
