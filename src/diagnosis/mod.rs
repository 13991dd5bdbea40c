//! The diagnosis engine: phase records in, named causes out.
//!
//! Pure and streaming: no clock, no I/O, no libtorch, no `tracing`. The layer feeds it in the
//! process, the command line feeds it from reports; it is the same engine.

mod budget;
mod causes;
mod diagnoser;
mod facts;
mod finding;
mod growth;
mod policy;
mod profile;
mod step;
mod verdict;

use serde::{Deserialize, Serialize};

pub use budget::{Budget, Gaps, Part, PhasePeak, Share};
pub use diagnoser::Diagnoser;
pub use facts::RunFacts;
pub use finding::{
    Code, Confidence, Counter, Edge, Evidence, Finding, Insufficient, Measure, Rejected, Response,
    RunnerUp, Severity,
};
pub use policy::Policy;
pub use verdict::{Judge, Verdict};

/// What the engine says of one device of one rank.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Diagnosis {
    /// The findings, ordered; the first is dominant.
    pub findings: Vec<Finding>,
    /// What the memory at the peak was for; `None` when nothing was measured.
    pub budget: Option<Budget>,
    /// The gaps between allocator, process and device.
    pub gaps: Gaps,
    /// The rules that could not decide.
    pub insufficient: Vec<Insufficient>,
}

impl Diagnosis {
    /// The highest severity among the findings; `None` without any. Nothing is wrong with a run
    /// whose worst is [`Severity::Info`].
    #[must_use]
    pub fn worst(&self) -> Option<Severity> {
        self.findings.iter().map(|finding| finding.severity).max()
    }

    /// The finding of a cause, if there is one.
    #[must_use]
    pub fn finding(&self, code: Code) -> Option<&Finding> {
        self.findings.iter().find(|finding| finding.code == code)
    }
}
