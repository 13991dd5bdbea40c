use super::growing::{growing, is_graph};
use super::{Answer, Found, evidence, rejected, response, shown};
use crate::diagnosis::profile::Profile;
use crate::diagnosis::{Code, Policy, Severity};

/// The smallest block of libtorch's device allocator, which a scalar takes.
const SMALLEST_BLOCK: u64 = 512;

/// Outputs, metrics or detached tensors that are kept: the level grows, but by far less than a
/// graph.
pub(super) fn judge(profile: &Profile<'_>, policy: &Policy) -> Answer {
    let growth = match growing(profile, policy) {
        Ok(growth) => growth,
        Err(answer) => return answer,
    };
    if is_graph(profile, policy, growth.per_step) {
        return Answer::Clear;
    }
    let bytes = growth.bytes;
    let mut seen = vec![growth.evidence];
    if let Some(rise) = profile.forward_rise().filter(|rise| *rise > 0) {
        seen.push(evidence(
            format!(
                "that is {:.3} % of forward's rise of {}: too little for a graph (from {:.0} % on)",
                100.0 * growth.per_step / rise as f64,
                shown(rise),
                100.0 * policy.graph_share_of_forward
            ),
            i64::try_from(rise).unwrap_or(i64::MAX),
            [],
        ));
    }
    if bytes > 0 && bytes <= 4 * SMALLEST_BLOCK && bytes.is_multiple_of(SMALLEST_BLOCK) {
        seen.push(evidence(
            format!(
                "{} blocks of {SMALLEST_BLOCK} B a step, the allocator's smallest: scalars",
                bytes / SMALLEST_BLOCK
            ),
            i64::try_from(bytes).unwrap_or(i64::MAX),
            [],
        ));
    }
    let wasteful = bytes >= policy.retained_warning_per_step;
    Found {
        code: Code::RetainedTensors,
        severity: if wasteful { Severity::Warning } else { Severity::Info },
        confidence: growth.confidence,
        title: format!("tensors are kept from step to step: {} a step", shown(bytes)),
        bytes,
        growth_total: Some(growth.total),
        evidence: seen,
        responses: vec![response(
            "keep metrics as numbers (`double_value`), move kept outputs to the host",
            Some(growth.total),
            "a detached tensor has no graph, but its own storage stays on the device",
        )],
        rejected: vec![
            rejected("detaching", "they are detached already: a kept graph would be far larger"),
            rejected("emptying the cache", "it frees no live tensor, and these are live"),
        ],
    }
    .answer(profile)
}
