use super::{Answer, Found, evidence, rejected, response, shown};
use crate::diagnosis::profile::Profile;
use crate::diagnosis::{Code, Confidence, Edge, Policy, Severity};
use crate::phase::Phase;
use crate::units::Readable;

/// Workspaces of the linear-algebra and convolution libraries: a one-off rise in the first forward
/// or backward that stays.
pub(super) fn judge(profile: &Profile<'_>, policy: &Policy) -> Answer {
    let Some(bytes) = profile.workspace() else {
        return Answer::missing("two finished steps with a forward phase");
    };
    if bytes < policy.workspace_min {
        return Answer::Clear;
    }
    let first = profile.state.first.as_ref();
    let seen = [Phase::Forward, Phase::Backward]
        .into_iter()
        .filter_map(|phase| {
            let (first_change, usual) = (profile.first_change(phase)?, profile.usual(phase)?);
            Some(evidence(
                format!(
                    "{phase} changes allocated by {} in its first step and by {} later: {} stay",
                    Readable(first_change),
                    Readable(usual),
                    Readable(first_change.saturating_sub(usual))
                ),
                first_change.saturating_sub(usual),
                [
                    first.and_then(|step| step.measure(phase, Edge::Start)),
                    first.and_then(|step| step.measure(phase, Edge::End)),
                ],
            ))
        })
        .collect();
    Found {
        code: Code::Workspace,
        severity: Severity::Info,
        confidence: Confidence::Indicated,
        title: format!("library workspaces hold {}", shown(bytes)),
        bytes,
        growth_total: None,
        evidence: seen,
        responses: vec![response(
            "leave it; where every byte counts, CUBLAS_WORKSPACE_CONFIG makes it smaller",
            None,
            "it is made once a library handle and stream, and reused from then on",
        )],
        rejected: vec![rejected(
            "looking for a leak, or for optimizer state",
            "it appears in the first forward and backward, not in the optimizer's step, and then \
             stays as it is",
        )],
    }
    .answer(profile)
}
