//! What the two causes of a growing level have in common.

use super::{Answer, evidence, shown};
use crate::diagnosis::growth::Growth;
use crate::diagnosis::profile::Profile;
use crate::diagnosis::{Confidence, Evidence, Policy};

/// A level between steps that grows.
pub(super) struct Growing {
    pub(super) per_step: f64,
    /// The same in whole bytes.
    pub(super) bytes: u64,
    /// What it has come to.
    pub(super) total: u64,
    pub(super) confidence: Confidence,
    /// From where to where, in how many steps.
    pub(super) evidence: Evidence,
}

/// The growth, or the answer of a rule where there is none.
pub(super) fn growing(profile: &Profile<'_>, policy: &Policy) -> Result<Growing, Answer> {
    let (per_step, first, last, increments) = match profile.growth {
        Growth::Growing { per_step, first, last, increments } => {
            (per_step, first, last, increments)
        }
        Growth::Flat => return Err(Answer::Clear),
        Growth::TooFew { found } => {
            return Err(Answer::NotEnough(format!(
                "{} finished steps to judge growth by, found {found}",
                policy.growth_min_increments + 1
            )));
        }
    };
    let (from, to) = (&profile.levels[first], &profile.levels[last]);
    let total = to.bytes.saturating_sub(from.bytes);
    let bytes = per_step.max(0.0) as u64;
    let sentence = format!(
        "the level after the step grows from {} (step {}) to {} (step {}): {} in {} steps, {} a \
         step",
        shown(from.bytes),
        from.step,
        shown(to.bytes),
        to.step,
        shown(total),
        to.step.saturating_sub(from.step),
        shown(bytes),
    );
    let measures = [profile.level_measure(from), profile.level_measure(to)];
    // The longer a growth goes on, the surer it is.
    let confidence = if increments >= policy.growth_confirmed_increments {
        Confidence::Confirmed
    } else {
        Confidence::Indicated
    };
    let evidence = evidence(sentence, i64::try_from(total).unwrap_or(i64::MAX), measures);
    Ok(Growing { per_step, bytes, total, confidence, evidence })
}

/// Whether a growth is of graphs: like forward's rise, of which backward leaves most alive.
pub(super) fn is_graph(profile: &Profile<'_>, policy: &Policy, per_step: f64) -> bool {
    let rise = profile.forward_rise().unwrap_or(0) as f64;
    rise > 0.0 && per_step >= policy.graph_share_of_forward * rise
}
