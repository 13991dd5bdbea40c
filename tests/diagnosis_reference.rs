//! What the engine says of runs recorded on an H200.

use std::path::Path;

use phasescope::diagnosis::{Code, Diagnoser, Diagnosis, Edge, Part, Policy, Severity};
use phasescope::report::{self, Report};
use phasescope::units::MIB;

fn judged(folder: &str, name: &str) -> (Report, Diagnosis) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures")
        .join(folder)
        .join(format!("{name}.json"));
    let report = report::read(&path).unwrap_or_else(|error| panic!("{error}"));
    let rank = &report.rank_reports[0];
    let mut diagnoser = Diagnoser::new(Policy::default(), report.facts(rank));
    for record in report.records(rank) {
        diagnoser.observe(&record);
    }
    diagnoser.finish();
    let diagnosis = diagnoser.diagnosis();
    (report, diagnosis)
}

fn reference(name: &str) -> Diagnosis {
    judged("reference", &format!("h200-{name}")).1
}

#[track_caller]
fn assert_near(bytes: u64, mib: f64, within: f64) {
    let found = bytes as f64 / MIB as f64;
    assert!((found - mib).abs() <= within, "expected {mib} MiB within {within}, found {found}");
}

#[track_caller]
fn bytes(diagnosis: &Diagnosis, code: Code) -> u64 {
    diagnosis.finding(code).unwrap_or_else(|| panic!("no {code} in {diagnosis:#?}")).bytes
}

#[test]
fn alpha_is_activations_and_its_workspace_is_not_taken_for_state() {
    for name in
        ["alpha", "alpha-batch1", "alpha-batch4", "alpha-batch16", "alpha-bf16", "alpha-checkpoint"]
    {
        let diagnosis = reference(name);
        assert_eq!(diagnosis.findings[0].code, Code::Activations, "{name}");
        assert!(diagnosis.finding(Code::OptimizerState).is_none(), "{name}");
        assert_near(bytes(&diagnosis, Code::Workspace), 64.0, 4.0);
        assert_eq!(diagnosis.worst(), Some(Severity::Info), "{name}");
    }
}

#[test]
fn beta_is_optimizer_state_of_two_times_the_parameters() {
    for name in ["beta", "beta-loop", "beta-small-batch1"] {
        let diagnosis = reference(name);
        assert_eq!(diagnosis.findings[0].code, Code::OptimizerState, "{name}");
        assert_near(diagnosis.findings[0].bytes, 66.9, 3.0);
        assert!(diagnosis.findings[0].title.contains("2.0 times the parameters"), "{name}");
    }
    let medium = reference("beta-medium");
    assert_eq!(medium.findings[0].code, Code::OptimizerState);
    assert_near(medium.findings[0].bytes, 2.0 * 107.1, 3.0);
}

#[test]
fn momentum_is_optimizer_state_of_one_time_the_parameters() {
    let diagnosis = reference("sgd-momentum");
    assert_near(bytes(&diagnosis, Code::OptimizerState), 33.4, 1.0);
    let state = diagnosis.finding(Code::OptimizerState).map(|finding| finding.title.clone());
    assert!(state.is_some_and(|title| title.contains("1.0 times the parameters")));
}

#[test]
fn gamma_is_a_retained_graph_of_52_mib_a_step() {
    for name in ["gamma", "gamma-steps10"] {
        let diagnosis = reference(name);
        let first = &diagnosis.findings[0];
        assert_eq!(
            (first.code, first.severity),
            (Code::RetainedGraph, Severity::Critical),
            "{name}"
        );
        assert_near(first.bytes, 52.4, 1.0);
        assert!(first.per_step);
        assert!(diagnosis.finding(Code::Activations).is_none(), "{name}");
    }
}

#[test]
fn repaired_gamma_is_clean() {
    let diagnosis = reference("gamma-fixed");
    assert_eq!(diagnosis.worst(), Some(Severity::Info));
    assert!(diagnosis.finding(Code::RetainedGraph).is_none());
    assert!(diagnosis.finding(Code::RetainedTensors).is_none());
}

#[test]
fn detached_losses_are_retained_tensors_and_only_worth_an_info() {
    let diagnosis = reference("gamma-detach-gpu");
    let found = diagnosis.finding(Code::RetainedTensors).map(|found| (found.bytes, found.severity));
    assert_eq!(found, Some((512, Severity::Info)));
    assert_eq!(diagnosis.findings[0].code, Code::Activations);
    assert!(diagnosis.finding(Code::RetainedGraph).is_none());
}

#[test]
fn kept_gradients_are_found() {
    let diagnosis = reference("keep-gradients");
    assert_eq!(diagnosis.findings[0].code, Code::PersistentGradients);
    assert_eq!(diagnosis.findings[0].severity, Severity::Warning);
    assert!(diagnosis.finding(Code::OptimizerState).is_none());
}

/// Their bytes are 4 % of the peak: worth knowing, not worth standing before the activations.
#[test]
fn small_gradients_that_live_on_are_an_info_and_a_warm_up_plateau_is_no_growth() {
    let (_, diagnosis) = judged("cases", "k01-warmup-plateau");
    assert_eq!(diagnosis.findings[0].code, Code::Activations);
    let severity = diagnosis.finding(Code::PersistentGradients).map(|found| found.severity);
    assert_eq!(severity, Some(Severity::Info));
    assert!(diagnosis.finding(Code::RetainedGraph).is_none());
    assert!(diagnosis.finding(Code::RetainedTensors).is_none());
}

#[test]
fn the_budget_adds_up_to_the_measured_peak() {
    for name in ["alpha", "alpha-checkpoint", "beta", "beta-medium", "gamma", "keep-gradients"] {
        let (report, diagnosis) = judged("reference", &format!("h200-{name}"));
        let budget = diagnosis.budget.unwrap_or_else(|| panic!("no budget for {name}"));
        let parts: u64 = budget.parts.iter().map(|share| share.bytes).sum();
        assert_eq!(parts + budget.unexplained, budget.peak, "{name}");
        let told = report.rank_reports[0].indicators.maximum_peak_allocated_mib;
        assert_near(budget.peak, told.unwrap_or(0.0), 0.001);
        assert!(budget.unexplained < 3 * MIB, "{name}: {budget:?}");
    }
    let gamma = reference("gamma").budget.unwrap_or_else(|| panic!("no budget"));
    assert!(gamma.parts.iter().any(|share| share.part == Part::RetainedGrowth));
}

#[test]
fn every_number_of_evidence_stands_in_the_report() {
    for (folder, name) in [
        ("reference", "h200-alpha"),
        ("reference", "h200-beta"),
        ("reference", "h200-gamma"),
        ("reference", "h200-keep-gradients"),
        ("h200", "alpha"),
        ("h200", "beta"),
        ("h200", "gamma"),
    ] {
        let (report, diagnosis) = judged(folder, name);
        let records = report.records(&report.rank_reports[0]);
        let total = report.facts(&report.rank_reports[0]).device_total;
        let measures = diagnosis
            .findings
            .iter()
            .flat_map(|finding| &finding.evidence)
            .flat_map(|evidence| &evidence.measures);
        let mut seen = 0;
        for measure in measures {
            seen += 1;
            let stands = records.iter().any(|record| {
                let there = match measure.edge {
                    Edge::Start => record.start.allocated,
                    Edge::Peak => record.peak_allocated.max(record.end.allocated),
                    _ => record.end.allocated,
                };
                record.step == measure.step
                    && (there == Some(measure.bytes)
                        || record.end.reserved == Some(measure.bytes)
                        || total == Some(measure.bytes)
                        || record.end.device_total == Some(measure.bytes))
            });
            assert!(stands, "{name}: {measure:?} is not in the report");
        }
        assert!(seen >= 3, "{name}: {seen} numbers");
    }
}

/// The files of `fixtures/h200` were recorded with this project's examples.
#[test]
fn our_cases_on_an_h200_allocate_what_the_reference_does() {
    for (ours, theirs) in [
        ("alpha", "h200-alpha"),
        ("alpha-batch16", "h200-alpha-batch16"),
        ("beta", "h200-beta"),
        ("beta-medium", "h200-beta-medium"),
        ("gamma", "h200-gamma"),
        ("gamma-fixed", "h200-gamma-fixed"),
    ] {
        let samples =
            |folder: &str, name: &str| judged(folder, name).0.rank_reports.swap_remove(0).samples;
        let reference = samples("reference", theirs);
        let mut compared = 0;
        for sample in samples("h200", ours) {
            let within = match sample.phase.as_str() {
                "after_input" | "after_clear_gradients" => 0.005,
                "after_forward" => 0.05,
                _ => continue,
            };
            let same = reference
                .iter()
                .find(|other| (other.step, &other.phase) == (sample.step, &sample.phase));
            let Some(expected) = same.and_then(|other| other.allocated_mib) else { continue };
            let found = sample.allocated_mib.unwrap_or(0.0);
            assert!((found / expected - 1.0).abs() <= within, "{ours} {sample:?}: {expected}");
            compared += 1;
        }
        assert!(compared >= 13, "{ours}: {compared} samples compared");
    }
}

#[test]
fn our_cases_on_an_h200_are_named() {
    for (name, code, worst) in [
        ("alpha", Code::Activations, Severity::Info),
        ("beta", Code::OptimizerState, Severity::Info),
        ("gamma", Code::RetainedGraph, Severity::Critical),
        ("control", Code::Activations, Severity::Info),
        ("gamma-fixed", Code::Activations, Severity::Info),
    ] {
        let (report, diagnosis) = judged("h200", name);
        assert_eq!(diagnosis.findings[0].code, code, "{name}");
        assert_eq!(diagnosis.worst(), Some(worst), "{name}");
        // The engine said the same in the process.
        assert_eq!(report.rank_reports[0].diagnosis.as_ref(), Some(&diagnosis), "{name}");
    }
}
