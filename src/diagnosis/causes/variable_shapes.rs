use super::{Answer, Found, evidence, rejected, response, shown};
use crate::diagnosis::growth::{Growth, correlation};
use crate::diagnosis::profile::Profile;
use crate::diagnosis::step::difference;
use crate::diagnosis::{Code, Confidence, Counter, Edge, Measure, Policy, Severity};
use crate::phase::Phase;

/// Steps in which sizes must be known before a correlation means anything.
const MIN_STEPS: usize = 4;

/// Memory that follows the size of the input, with a level between steps that does not grow.
pub(super) fn judge(profile: &Profile<'_>, policy: &Policy) -> Answer {
    // The first step's rise holds one-off workspaces too.
    let first = profile.first_step_of(Phase::Forward);
    let seen: Vec<Seen> = profile
        .levels
        .iter()
        .filter(|level| Some(level.step) != first)
        .filter_map(|level| {
            let (start, end) = level.forward?;
            Some(Seen { step: level.step, elements: level.input_elements?, start, end })
        })
        .collect();
    let by_size = |seen: &&Seen| seen.elements;
    let (Some(smallest), Some(largest)) =
        (seen.iter().min_by_key(by_size), seen.iter().max_by_key(by_size))
    else {
        return Answer::missing("the input's size");
    };
    if seen.len() < MIN_STEPS {
        return Answer::missing("the input's size in four finished steps");
    }
    let sizes: Vec<f64> = seen.iter().map(|seen| seen.elements as f64).collect();
    let rises: Vec<f64> = seen.iter().map(|seen| seen.rise() as f64).collect();
    let correlation = correlation(&sizes, &rises);
    let vary = largest.elements as f64 >= policy.shapes_ratio * smallest.elements as f64;
    let growing = matches!(profile.growth, Growth::Growing { .. });
    if !vary || correlation < policy.shapes_correlation || growing {
        return Answer::Clear;
    }
    let between = largest.rise().saturating_sub(smallest.rise());
    let bytes = u64::try_from(between).unwrap_or(0);
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
                crate::units::Readable(smallest.rise()),
                smallest.elements,
                smallest.step,
                crate::units::Readable(largest.rise()),
                largest.elements,
                largest.step,
                policy.shapes_correlation
            ),
            between,
            [
                Some(smallest.measure(Edge::Start)),
                Some(smallest.measure(Edge::End)),
                Some(largest.measure(Edge::Start)),
                Some(largest.measure(Edge::End)),
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
    .answer(profile)
}

/// Forward of one step, with the size of its input.
struct Seen {
    step: u64,
    elements: u64,
    start: u64,
    end: u64,
}

impl Seen {
    fn rise(&self) -> i64 {
        difference(self.end, self.start)
    }

    fn measure(&self, edge: Edge) -> Measure {
        let bytes = if edge == Edge::Start { self.start } else { self.end };
        Measure {
            step: Some(self.step),
            phase: Phase::Forward,
            edge,
            counter: Counter::Allocated,
            bytes,
        }
    }
}
