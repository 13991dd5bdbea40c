use super::{Answer, Found, evidence, rejected, response, shown};
use crate::diagnosis::profile::Profile;
use crate::diagnosis::{Code, Confidence, Counter, Edge, Measure, Policy, Severity};

/// The allocator's cache at its normal size: far above what is live between steps, near what a step
/// needs at its peak.
pub(super) fn judge(profile: &Profile<'_>, policy: &Policy) -> Answer {
    let Some(last) = profile.last else {
        return Answer::missing("a finished step");
    };
    let Some(reserved) = last.end.reserved else {
        return Answer::missing("reserved bytes, which this allocator does not tell");
    };
    let peak = profile.peak().unwrap_or(0);
    let over_level = reserved as f64 / last.floor.max(1) as f64;
    let over_peak = reserved as f64 / peak.max(1) as f64;
    if over_level < policy.cache_ratio || over_peak > policy.cache_peak_ratio {
        return Answer::Clear;
    }
    let bytes = reserved.saturating_sub(last.floor);
    Found {
        code: Code::CacheOnly,
        severity: Severity::Info,
        confidence: Confidence::Indicated,
        title: format!("the allocator caches {} between steps: not a leak", shown(bytes)),
        bytes,
        growth_total: None,
        evidence: vec![evidence(
            format!(
                "after step {} reserved is {}: {over_level:.2} times the {} that are live, but \
                 {over_peak:.2} times the peak of {} (a normal cache up to {:.2} times)",
                last.step,
                shown(reserved),
                shown(last.floor),
                shown(peak),
                policy.cache_peak_ratio
            ),
            i64::try_from(bytes).unwrap_or(i64::MAX),
            [
                Some(Measure {
                    step: Some(last.step),
                    phase: last.last_phase,
                    edge: Edge::End,
                    counter: Counter::Reserved,
                    bytes: reserved,
                }),
                Some(last.floor_measure()),
                profile.highest.and_then(|step| step.measure(step.peak_phase, Edge::Peak)),
            ],
        )],
        responses: vec![response(
            "leave it",
            None,
            "the next step's peak needs it again; what is reserved falls only with the peak",
        )],
        rejected: vec![rejected(
            "emptying the cache after every step",
            "it frees no live tensor, and the next step has to ask the driver for the same again",
        )],
    }
    .answer(profile)
}
