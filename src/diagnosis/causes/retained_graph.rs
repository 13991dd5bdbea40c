use super::growing::{growing, is_graph};
use super::{Answer, Found, evidence, rejected, response, shown};
use crate::diagnosis::profile::Profile;
use crate::diagnosis::{Code, Edge, Policy, Severity};
use crate::phase::Phase;

/// Retained autograd graphs: the level after each step grows by an amount like forward's rise.
pub(super) fn judge(profile: &Profile<'_>, policy: &Policy) -> Answer {
    let growth = match growing(profile, policy) {
        Ok(growth) => growth,
        Err(answer) => return answer,
    };
    let Some(rise) = profile.forward_rise() else {
        return Answer::missing("a forward phase, to hold the growth against");
    };
    if !is_graph(profile, policy, growth.per_step) {
        return Answer::Clear;
    }
    let bytes = growth.bytes;
    let mut seen = vec![
        growth.evidence,
        evidence(
            format!(
                "forward rises by {} a step: the growth is {:.0} % of it (a graph from {:.0} % on)",
                shown(rise),
                100.0 * growth.per_step / (rise.max(1)) as f64,
                100.0 * policy.graph_share_of_forward
            ),
            i64::try_from(rise).unwrap_or(i64::MAX),
            [
                profile.last.and_then(|step| step.measure(Phase::Forward, Edge::Start)),
                profile.last.and_then(|step| step.measure(Phase::Forward, Edge::End)),
            ],
        ),
    ];
    if let Some(freed) = profile.freed_in_backward() {
        seen.push(evidence(
            format!(
                "backward frees {} of it, with {} of new gradients taken out",
                crate::units::Readable(freed.max(0)),
                shown(profile.gradients().unwrap_or(0))
            ),
            freed,
            [profile.last.and_then(|step| step.measure(Phase::Backward, Edge::End))],
        ));
    }
    let critical = profile.share(bytes).is_some_and(|share| share >= policy.graph_critical_share);
    Found {
        code: Code::RetainedGraph,
        severity: if critical { Severity::Critical } else { Severity::Warning },
        confidence: growth.confidence,
        title: format!("autograd graphs are kept: {} more after every step", shown(bytes)),
        bytes,
        growth_total: Some(growth.total),
        evidence: seen,
        responses: vec![
            response(
                "keep numbers, not tensors: `loss.double_value(&[])`, or a running sum of it",
                Some(growth.total),
                "a kept loss tensor holds the whole graph behind it",
            ),
            response(
                "drop `retain_graph` (`keep_graph`) where no second backward follows",
                Some(growth.total),
                "backward then frees the graph as it goes through it",
            ),
        ],
        rejected: vec![
            rejected(
                "activation checkpointing or a smaller batch",
                "it grows more slowly then, but it still grows: this is a matter of lifetime",
            ),
            rejected(
                "sharding over ranks",
                "it spreads the leak over processes, and each still fills up",
            ),
            rejected("emptying the cache", "it frees no live tensor, and these are live"),
            rejected(
                "detaching alone",
                "it cuts the graph, but the kept tensor's own storage stays",
            ),
        ],
    }
    .answer(profile)
}
