use std::path::Path;

use phasescope::diagnosis::{Budget, Diagnoser, Finding, Gaps, Insufficient, Policy, Severity};
use phasescope::report::{self, Report, ReportError};
use serde::Serialize;

use crate::args::FailOn;

/// What the engine says of one rank and device of one report.
#[derive(Debug, Serialize)]
pub(crate) struct Judged {
    pub(crate) source: String,
    pub(crate) run_id: Option<String>,
    pub(crate) rank: u32,
    pub(crate) device: Option<String>,
    pub(crate) findings: Vec<Finding>,
    pub(crate) budget: Option<Budget>,
    pub(crate) gaps: Gaps,
    pub(crate) insufficient: Vec<Insufficient>,
}

impl Judged {
    pub(crate) fn meets(&self, gate: FailOn) -> bool {
        self.findings.iter().any(|finding| match gate {
            FailOn::Code(code) => finding.code == code,
            FailOn::Severity(severity) => finding.severity >= severity,
        })
    }

    pub(crate) fn healthy(&self) -> bool {
        self.findings.iter().all(|finding| finding.severity < Severity::Warning)
    }
}

/// Judges every rank of a report file.
pub(crate) fn file(path: &Path) -> Result<Vec<Judged>, ReportError> {
    let report = report::read(path)?;
    Ok(report.rank_reports.iter().map(|rank| one(path, &report, rank)).collect())
}

fn one(path: &Path, report: &Report, rank: &report::RankReport) -> Judged {
    let mut diagnoser = Diagnoser::new(Policy::default(), report.facts(rank));
    for record in report.records(rank) {
        diagnoser.observe(&record);
    }
    diagnoser.finish();
    let diagnosis = diagnoser.diagnosis();
    Judged {
        source: path.display().to_string(),
        run_id: report.run_id.clone(),
        rank: rank.rank,
        device: rank.device.clone(),
        findings: diagnosis.findings,
        budget: diagnosis.budget,
        gaps: diagnosis.gaps,
        insufficient: diagnosis.insufficient,
    }
}
