use super::{Code, Diagnoser, Finding, Severity};

/// Steps that are judged every time; later ones every [`JUDGE_EVERY`]-th time, since a verdict costs
/// some microseconds.
const JUDGE_FIRST: u64 = 64;
/// See [`JUDGE_FIRST`].
const JUDGE_EVERY: u64 = 8;

/// The dominant finding in short.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The cause.
    pub code: Code,
    /// How much it matters.
    pub severity: Severity,
}

impl From<&Finding> for Verdict {
    fn from(finding: &Finding) -> Self {
        Self { code: finding.code, severity: finding.severity }
    }
}

/// Asks the engines of a process step by step: every one of the first 64 steps, later every eighth.
///
/// # Examples
///
/// ```
/// use phasescope::diagnosis::{Diagnoser, Judge, Policy, RunFacts};
///
/// let diagnoser = Diagnoser::new(Policy::default(), RunFacts::default());
/// let mut judge = Judge::default();
/// assert!(!judge.end_step([&diagnoser]), "nothing has been seen, so nothing has changed");
/// assert_eq!(judge.verdict(), None);
/// ```
#[derive(Clone, Debug, Default)]
pub struct Judge {
    dominant: Option<Finding>,
    steps: u64,
}

impl Judge {
    /// A step has ended. Whether the verdict is another than before.
    pub fn end_step<'a>(&mut self, devices: impl IntoIterator<Item = &'a Diagnoser>) -> bool {
        self.steps += 1;
        if self.steps > JUDGE_FIRST && !self.steps.is_multiple_of(JUDGE_EVERY) {
            return false;
        }
        let before = self.verdict();
        // The gravest; of equal ones the first device's.
        self.dominant = devices
            .into_iter()
            .filter_map(|diagnoser| diagnoser.finished().findings.into_iter().next())
            .reduce(|first, next| if next.severity > first.severity { next } else { first });
        self.verdict() != before
    }

    /// `None` as long as nothing is found.
    #[must_use]
    pub fn verdict(&self) -> Option<Verdict> {
        self.dominant.as_ref().map(Verdict::from)
    }

    /// The finding that the verdict stands for.
    #[must_use]
    pub fn finding(&self) -> Option<&Finding> {
        self.dominant.as_ref()
    }
}
