use std::path::Path;

use phasescope::diagnosis::{
    Budget, Diagnoser, Diagnosis, Finding, Gaps, Insufficient, Policy, Severity,
};
use phasescope::report::{self, Report};
use phasescope::{export, ring};
use serde::Serialize;

use crate::args::FailOn;
use crate::process::Process;
use crate::source::{self, Source};

/// What the engine says of one rank and device of one file.
#[derive(Debug, Serialize)]
pub(crate) struct Judged {
    pub(crate) source: String,
    pub(crate) run_id: Option<String>,
    pub(crate) rank: u32,
    pub(crate) device: Option<String>,
    /// `service.instance.id`, where the file tells.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) instance: Option<String>,
    /// What a ring file tells of its process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) process: Option<Process>,
    pub(crate) findings: Vec<Finding>,
    pub(crate) budget: Option<Budget>,
    pub(crate) gaps: Gaps,
    pub(crate) insufficient: Vec<Insufficient>,
}

impl Judged {
    pub(crate) fn new(source: String, rank: u32, diagnosis: Diagnosis) -> Self {
        Self {
            source,
            run_id: None,
            rank,
            device: None,
            instance: None,
            process: None,
            findings: diagnosis.findings,
            budget: diagnosis.budget,
            gaps: diagnosis.gaps,
            insufficient: diagnosis.insufficient,
        }
    }

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

/// Judges every process and device of a report, a file of spans or a ring file.
pub(crate) fn file(path: &Path) -> Result<Vec<Judged>, String> {
    match source::of(path)? {
        Source::Report => report::read(path).map_err(|error| error.to_string()).map(|report| {
            report.rank_reports.iter().map(|rank| one(path, &report, rank)).collect()
        }),
        Source::Spans => {
            let processes = export::read(path).map_err(|error| error.to_string())?;
            Ok(processes.into_iter().flat_map(|process| spans(path, process)).collect())
        }
        Source::Ring => {
            let ring = ring::read(path).map_err(|error| error.to_string())?;
            Ok(from_ring(path, &ring))
        }
    }
}

fn one(path: &Path, report: &Report, rank: &report::RankReport) -> Judged {
    let mut diagnoser = Diagnoser::new(Policy::default(), report.facts(rank));
    for record in report.records(rank) {
        diagnoser.observe(&record);
    }
    diagnoser.finish();
    Judged {
        run_id: report.run_id.clone(),
        device: rank.device.clone(),
        ..Judged::new(path.display().to_string(), rank.rank, diagnoser.diagnosis())
    }
}

fn spans(path: &Path, process: export::ProcessSeries) -> impl Iterator<Item = Judged> {
    let export::ProcessSeries { run_id, rank, instance, series, .. } = process;
    series.into_iter().map(move |series| Judged {
        run_id: run_id.clone(),
        device: Some(series.device.to_string()),
        instance: instance.clone(),
        ..Judged::new(path.display().to_string(), rank, series.diagnosis)
    })
}

fn from_ring(path: &Path, ring: &ring::Ring) -> Vec<Judged> {
    let judged = ring.series.iter().map(|series| Judged {
        run_id: Some(ring.identity.run_id.clone()),
        device: Some(series.device.to_string()),
        process: Some(Process::of(ring, series)),
        ..Judged::new(path.display().to_string(), ring.identity.rank, series.diagnosis.clone())
    });
    judged.collect()
}
