use super::recorder::{Recorder, finished};
use crate::diagnosis::{Code, Finding, Severity};
use crate::phase::RecentSteps;

/// Steps that are judged every time; later ones every [`JUDGE_EVERY`]-th time, since a verdict costs
/// some microseconds.
const JUDGE_FIRST: u64 = 64;
/// See [`JUDGE_FIRST`].
const JUDGE_EVERY: u64 = 8;

/// The dominant finding in short.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Verdict {
    pub(super) code: Code,
    pub(super) severity: Severity,
}

/// What the engine says at the end of a step.
#[derive(Clone, Debug, Default)]
pub(super) struct Judged {
    /// `None` as long as nothing is found.
    pub(super) verdict: Option<Verdict>,
    /// The finding, where the verdict is another than before.
    pub(super) change: Option<Finding>,
}

/// Asks the engine step by step and notices when its verdict changes.
#[derive(Debug, Default)]
pub(super) struct Judge {
    verdict: Option<Verdict>,
    /// Steps that have ended.
    steps: u64,
    /// The last steps of phases that say their step themselves.
    recent: RecentSteps,
}

impl Judge {
    /// Whether a phase that says its step itself begins a new one.
    pub(super) fn begins(&mut self, step: Option<u64>) -> bool {
        let Some(step) = step.filter(|step| self.recent.get(*step).is_none()) else { return false };
        self.recent.push(step, ());
        true
    }

    /// A step has ended: what does the engine say?
    pub(super) fn end_step(&mut self, recorder: &Recorder) -> Judged {
        self.steps += 1;
        if self.steps > JUDGE_FIRST && !self.steps.is_multiple_of(JUDGE_EVERY) {
            return Judged { verdict: self.verdict, change: None };
        }
        // The gravest; of equal ones the first device's.
        let dominant = recorder
            .diagnosers()
            .filter_map(|diagnoser| finished(diagnoser).findings.into_iter().next())
            .reduce(|first, next| if next.severity > first.severity { next } else { first });
        let before = self.verdict;
        self.verdict = dominant
            .as_ref()
            .map(|finding| Verdict { code: finding.code, severity: finding.severity });
        let change = dominant.filter(|_| self.verdict != before);
        Judged { verdict: self.verdict, change }
    }
}
