use super::recorder::Recorder;
use crate::diagnosis::{self, Finding, Verdict};
use crate::phase::RecentSteps;

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
    judge: diagnosis::Judge,
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
        let changed = self.judge.end_step(recorder.diagnosers());
        let change = self.judge.finding().filter(|_| changed).cloned();
        Judged { verdict: self.judge.verdict(), change }
    }
}
