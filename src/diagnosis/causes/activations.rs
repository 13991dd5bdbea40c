use super::{Answer, Found, cost_severity, evidence, rejected, response, shown};
use crate::diagnosis::profile::Profile;
use crate::diagnosis::{Code, Confidence, Edge, Policy};
use crate::phase::Phase;

/// Steps with the signature from which the finding is more than a suspicion.
const INDICATED_STEPS: u64 = 3;

/// Forward activations: allocated rises in forward and falls in backward, every step.
pub(super) fn judge(profile: &Profile<'_>, policy: &Policy) -> Answer {
    let (Some(rise), Some(last)) = (profile.forward_rise(), profile.last) else {
        return Answer::missing("two finished steps with a forward phase");
    };
    let Some(forward) = last.phase(Phase::Forward) else {
        return Answer::missing("a forward phase in the last step");
    };
    let extra = profile.extra_in_backward();
    let bytes = rise.saturating_add(extra);
    let share = profile.share(bytes).unwrap_or(0.0);
    if share < policy.activations_share {
        return Answer::Clear;
    }
    let freed = profile.freed_in_backward();
    let risen = profile.usual(Phase::Forward).unwrap_or(0) as f64;
    if freed.is_some_and(|freed| (freed as f64) < policy.backward_frees_share * risen) {
        // What forward makes stays: not activations of a step, but a graph that is kept.
        return Answer::Clear;
    }
    let mut seen = vec![evidence(
        format!(
            "step {}: allocated rises in forward from {} to {}: {}",
            last.step,
            shown(forward.start),
            shown(forward.end),
            shown(forward.end.saturating_sub(forward.start)),
        ),
        forward.change.unwrap_or(0),
        [last.measure(Phase::Forward, Edge::Start), last.measure(Phase::Forward, Edge::End)],
    )];
    if let (Some(freed), Some(backward)) = (freed, last.phase(Phase::Backward)) {
        seen.push(evidence(
            format!(
                "backward ends at {} and frees {} of it, with {} of new gradients taken out (at \
                 least {:.0} % must be freed)",
                shown(backward.end),
                shown(u64::try_from(freed).unwrap_or(0)),
                shown(profile.gradients().unwrap_or(0)),
                policy.backward_frees_share * 100.0,
            ),
            freed,
            [last.measure(Phase::Backward, Edge::End)],
        ));
    }
    if extra > 0 {
        seen.push(evidence(
            format!(
                "backward peaks {} above its start and its gradients: recomputed activations and \
                 temporaries",
                shown(extra)
            ),
            i64::try_from(extra).unwrap_or(i64::MAX),
            [last.measure(Phase::Backward, Edge::Peak)],
        ));
    }
    seen.push(evidence(
        format!(
            "that is {:.0} % of the peak of {} (named from {:.0} % on)",
            share * 100.0,
            shown(profile.peak().unwrap_or(0)),
            policy.activations_share * 100.0
        ),
        i64::try_from(bytes).unwrap_or(i64::MAX),
        [profile.highest.and_then(|step| step.measure(step.peak_phase, Edge::Peak))],
    ));
    let indicated = freed.is_some() && profile.state.steps >= INDICATED_STEPS;
    Found {
        code: Code::Activations,
        severity: cost_severity(profile, policy),
        confidence: if indicated { Confidence::Indicated } else { Confidence::Suspected },
        title: format!("forward activations hold {} in every step", shown(bytes)),
        bytes,
        growth_total: None,
        evidence: seen,
        responses: vec![
            response(
                "halve the batch, or with it the micro-batch whose gradients are accumulated",
                Some(bytes / 2),
                &format!(
                    "what forward saves for backward grows with the samples in the batch; with \
                     accumulation the gradients ({}) live through the next forward, so it pays \
                     only where they are smaller than what is saved",
                    shown(profile.gradients().unwrap_or(0))
                ),
            ),
            response(
                "activation checkpointing around the blocks",
                None,
                "only the blocks' inputs are kept; the rest is computed again in backward, one \
                 block at a time",
            ),
            response(
                "memory-efficient attention and lower-precision activations (bf16)",
                None,
                "both make smaller what forward saves for backward",
            ),
        ],
        rejected: vec![
            rejected(
                "sharding optimizer state or parameters over ranks",
                "activations belong to the local batch and stay on every rank",
            ),
            rejected("emptying the cache", "it frees no live tensor, and these are live"),
        ],
    }
    .answer(profile)
}
