use super::{Answer, Found, evidence, rejected, response, shown};
use crate::diagnosis::growth::Growth;
use crate::diagnosis::profile::Profile;
use crate::diagnosis::{Code, Confidence, Counter, Edge, Measure, Policy, Severity};

/// How near the device is to full, and when it will be.
pub(super) fn judge(profile: &Profile<'_>, policy: &Policy) -> Answer {
    let (Some(total), Some(used)) = (profile.device_total(), profile.device_used()) else {
        return Answer::missing("the device's size");
    };
    let steps = steps_left(profile);
    let Some(severity) = pressure(profile, policy) else { return Answer::Clear };
    let full = used as f64 / total.max(1) as f64;
    let last = profile.last;
    let measure = |counter, bytes| {
        last.map(|step| Measure {
            step: Some(step.step),
            phase: step.last_phase,
            edge: Edge::End,
            counter,
            bytes,
        })
    };
    let mut seen = vec![evidence(
        format!(
            "{} of {} are in use at the highest: {:.1} % (a warning from {:.0} % on, critical from \
             {:.0} %)",
            shown(used),
            shown(total),
            100.0 * full,
            100.0 * policy.capacity_warning,
            100.0 * policy.capacity_critical
        ),
        i64::try_from(used).unwrap_or(i64::MAX),
        [measure(Counter::DeviceTotal, total)],
    )];
    if let Some(steps) = steps {
        seen.push(evidence(
            format!(
                "at the measured growth {} more steps fit (a warning below {})",
                steps, policy.capacity_warning_steps
            ),
            i64::try_from(total.saturating_sub(used)).unwrap_or(i64::MAX),
            [],
        ));
    }
    // A growth fills the device whatever the batch.
    let largest_batch = if steps.is_none() { largest_batch(profile, total) } else { None };
    let mut responses = vec![response(
        "act on the finding before this one",
        None,
        "this says how near the limit is; what takes the memory is named there",
    )];
    if let Some(batch) = largest_batch {
        responses.push(response(
            &format!("a batch of at most {batch} samples"),
            None,
            "the rest of the device, at the activations measured for one sample",
        ));
    }
    Found {
        code: Code::Capacity,
        severity,
        confidence: Confidence::Indicated,
        title: match steps {
            Some(steps) => format!("the device will be full after {steps} more steps"),
            None => format!("the device is {:.0} % full", 100.0 * full),
        },
        bytes: used,
        growth_total: None,
        evidence: seen,
        responses,
        rejected: vec![rejected(
            "emptying the cache",
            "what is live at the peak has to fit, and the cache gives way by itself before an \
             allocation fails",
        )],
    }
    .answer(profile)
}

/// How serious the lack of room is; `None` where there is room, or its size is not known.
pub(super) fn pressure(profile: &Profile<'_>, policy: &Policy) -> Option<Severity> {
    let full = profile.device_used()? as f64 / profile.device_total()?.max(1) as f64;
    let steps = steps_left(profile);
    let within = |limit: u64| steps.is_some_and(|steps| steps < limit);
    if full >= policy.capacity_critical || within(policy.capacity_warning_steps / 10) {
        Some(Severity::Critical)
    } else if full >= policy.capacity_warning || within(policy.capacity_warning_steps) {
        Some(Severity::Warning)
    } else {
        None
    }
}

/// Steps until the device is full at the measured growth.
pub(in crate::diagnosis) fn steps_left(profile: &Profile<'_>) -> Option<u64> {
    let Growth::Growing { per_step, .. } = profile.growth else { return None };
    let room = profile.device_total()?.saturating_sub(profile.device_used()?);
    (per_step > 0.0).then(|| (room as f64 / per_step) as u64)
}

/// The largest batch that fits beside what does not depend on the batch.
fn largest_batch(profile: &Profile<'_>, total: u64) -> Option<u64> {
    let batch = profile.facts().local_batch_size.filter(|batch| *batch > 0)?;
    let activations = profile.forward_rise()?.saturating_add(profile.extra_in_backward());
    let a_sample = (activations / batch).max(1);
    let rest = profile.peak()?.saturating_sub(activations);
    Some(total.saturating_sub(rest) / a_sample)
}
