use super::{Found, Verdict, evidence, rejected, response, shown};
use crate::diagnosis::growth::{Growth, correlation};
use crate::diagnosis::profile::Profile;
use crate::diagnosis::{Code, Confidence, Edge, Policy, Severity};
use crate::phase::Phase;

/// Steps in which sizes must be known before a correlation means anything.
const MIN_STEPS: usize = 4;

/// Memory that follows the size of the input, with a level between steps that does not grow.
pub(super) fn judge(profile: &Profile<'_>, policy: &Policy) -> Verdict {
    // The first step's rise holds one-off workspaces too.
    let first = profile.first_step_of(Phase::Forward);
    let seen: Vec<_> = profile
        .state
        .recent
        .iter()
        .filter(|step| Some(step.step) != first)
        .filter_map(|step| Some((step, step.input_elements?, step.change(Phase::Forward)?)))
        .collect();
    if seen.len() < MIN_STEPS {
        return Verdict::missing("the input's size in four finished steps");
    }
    let by_size = |(_, elements, _): &&(_, u64, _)| *elements;
    let (Some(smallest), Some(largest)) =
        (seen.iter().min_by_key(by_size), seen.iter().max_by_key(by_size))
    else {
        return Verdict::Clear;
    };
    let sizes: Vec<f64> = seen.iter().map(|(_, elements, _)| *elements as f64).collect();
    let rises: Vec<f64> = seen.iter().map(|(_, _, rise)| *rise as f64).collect();
    let correlation = correlation(&sizes, &rises);
    let vary = largest.1 as f64 >= policy.shapes_ratio * smallest.1 as f64;
    let growing = matches!(profile.growth, Growth::Growing { .. });
    if !vary || correlation < policy.shapes_correlation || growing {
        return Verdict::Clear;
    }
    let difference = largest.2.saturating_sub(smallest.2);
    let bytes = u64::try_from(difference).unwrap_or(0);
    Found {
        code: Code::VariableShapes,
        severity: Severity::Info,
        confidence: Confidence::Indicated,
        title: format!("memory follows the input: {} between batches", shown(bytes)),
        bytes,
        growth_total: None,
        evidence: vec![evidence(
            format!(
                "forward rises by {} with {} elements (step {}) and by {} with {} (step {}); \
                 correlation {correlation:.3} (from {:.2} on)",
                crate::units::Readable(smallest.2),
                smallest.1,
                smallest.0.step,
                crate::units::Readable(largest.2),
                largest.1,
                largest.0.step,
                policy.shapes_correlation
            ),
            difference,
            [
                smallest.0.measure(Phase::Forward, Edge::End),
                largest.0.measure(Phase::Forward, Edge::End),
            ],
        )],
        responses: vec![response(
            "bucket batches by length, or bound the elements of a batch rather than its samples",
            Some(bytes),
            "the largest batch sets the peak",
        )],
        rejected: vec![rejected(
            "looking for a leak",
            "the level between steps does not grow; the peak follows the size of the batch",
        )],
    }
    .verdict(profile)
}
