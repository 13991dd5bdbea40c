use super::{Found, Verdict, evidence, rejected, response, shown};
use crate::diagnosis::growth::Growth;
use crate::diagnosis::profile::Profile;
use crate::diagnosis::{Code, Confidence, Edge, Policy, Severity};
use crate::phase::Phase;

/// Retained autograd graphs: the level after each step grows by an amount like forward's rise.
pub(super) fn judge(profile: &Profile<'_>, policy: &Policy) -> Verdict {
    let (per_step, first, last, increments) = match profile.growth {
        Growth::Growing { per_step, first, last, increments } => {
            (per_step, first, last, increments)
        }
        Growth::Flat => return Verdict::Clear,
        Growth::TooFew { found } => return too_few(found, policy),
    };
    let Some(rise) = profile.forward_rise() else {
        return Verdict::missing("a forward phase, to hold the growth against");
    };
    if !is_graph(profile, policy, per_step) {
        return Verdict::Clear;
    }
    let (from, to) = (&profile.levels[first], &profile.levels[last]);
    let grown = to.bytes.saturating_sub(from.bytes);
    let bytes = per_step.max(0.0) as u64;
    let mut seen = vec![
        evidence(
            format!(
                "the level after the step grows from {} (step {}) to {} (step {}): {} in {} \
                 steps, {} a step",
                shown(from.bytes),
                from.step,
                shown(to.bytes),
                to.step,
                shown(grown),
                to.step.saturating_sub(from.step),
                shown(bytes),
            ),
            i64::try_from(grown).unwrap_or(i64::MAX),
            [profile.level_measure(from), profile.level_measure(to)],
        ),
        evidence(
            format!(
                "forward rises by {} a step: the growth is {:.0} % of it (a graph from {:.0} % on)",
                shown(rise),
                100.0 * per_step / (rise.max(1)) as f64,
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
        confidence: confidence(increments, policy),
        title: format!("autograd graphs are kept: {} more after every step", shown(bytes)),
        bytes,
        growth_total: Some(grown),
        evidence: seen,
        responses: vec![
            response(
                "keep numbers, not tensors: `loss.double_value(&[])`, or a running sum of it",
                Some(grown),
                "a kept loss tensor holds the whole graph behind it",
            ),
            response(
                "drop `retain_graph` (`keep_graph`) where no second backward follows",
                Some(grown),
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
    .verdict(profile)
}

/// Whether a growth is of graphs: like forward's rise, or backward leaves most of that rise alive.
pub(super) fn is_graph(profile: &Profile<'_>, policy: &Policy, per_step: f64) -> bool {
    let rise = profile.forward_rise().unwrap_or(0) as f64;
    rise > 0.0 && per_step >= policy.graph_share_of_forward * rise
}

/// The longer a growth goes on, the surer it is.
pub(super) fn confidence(increments: usize, policy: &Policy) -> Confidence {
    if increments >= policy.growth_confirmed_increments {
        Confidence::Confirmed
    } else {
        Confidence::Indicated
    }
}

pub(super) fn too_few(found: usize, policy: &Policy) -> Verdict {
    Verdict::NotEnough(format!(
        "growth is judged from {} finished steps on, found {found}",
        policy.growth_min_increments + 1
    ))
}
