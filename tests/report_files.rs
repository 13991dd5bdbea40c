//! Reading and writing reports.

use std::fs;
use std::path::{Path, PathBuf};

use phasescope::diagnosis::{Diagnoser, Policy};
use phasescope::phase::RunIdentity;
use phasescope::report::{self, Report, ReportError, Series};
use phasescope::{Counters, Phase, PhaseRecord};
use proptest::prelude::*;

fn fixtures(folder: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(folder);
    let mut files: Vec<PathBuf> = fs::read_dir(&folder)
        .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
        .map(|entry| entry.unwrap_or_else(|error| panic!("{error}")).path())
        .collect();
    files.sort();
    files
}

#[test]
fn all_sixteen_reports_of_the_original_are_read() {
    let files = fixtures("reference");
    assert_eq!(files.len(), 16);
    for file in files {
        let report = report::read(&file).unwrap_or_else(|error| panic!("{error}"));
        let rank = &report.rank_reports[0];
        assert!(report.schema.is_none() && rank.samples.len() >= 27, "{}", file.display());
        // The original's own indicators are what ours compute from its samples.
        let bytes = report::indicators(&report.records(rank));
        let mib = |bytes: Option<i64>| bytes.map(|bytes| bytes as f64 / f64::from(1 << 20));
        for (ours, theirs) in [
            (bytes.first_step_persistent_change, rank.indicators.first_step_persistent_change_mib),
            (bytes.between_step_growth, rank.indicators.between_step_growth_mib),
            (bytes.largest_forward_increase, rank.indicators.largest_forward_increase_mib),
            (bytes.maximum_peak_allocated, rank.indicators.maximum_peak_allocated_mib),
        ] {
            let difference = mib(ours).zip(theirs).map(|(ours, theirs)| (ours - theirs).abs());
            assert!(difference < Some(1e-6), "{}: {ours:?} {theirs:?}", file.display());
        }
    }
}

#[test]
fn every_value_that_cannot_be_is_told_with_its_place() {
    let expected = [
        ("absurd-counter", "samples[0].reserved_mib: expected MiB from 0"),
        ("empty-ranks", "rank_reports: expected one entry a rank, found none"),
        ("empty-samples", "rank_reports[0].samples: expected one sample a phase, found none"),
        ("missing-first-step", "expected samples of the first step, 0, found none"),
        ("negative-counter", "samples[1].allocated_mib: expected MiB from 0"),
        ("not-a-number", "at rank_reports[0].samples[1].allocated_mib, line"),
        ("rank-twice", "rank_reports[1]: expected one entry a rank and device, found rank 0"),
        ("step-below-minus-one", "samples[0].step: expected a step from 0 on"),
        ("steps-out-of-order", "samples[1].step: expected step 3 or a later one, found 0"),
        ("truncated", "expected more, found the end of the file"),
        ("unknown-phase", "samples[1].phase: expected one of after_model"),
        ("unsupported-schema", "schema: expected \"phasescope.report/v1\""),
        ("wrong-type", "samples[1].allocated_mib, line"),
    ];
    let files = fixtures("invalid");
    assert_eq!(files.len(), expected.len(), "each file has its message");
    for (file, (name, message)) in files.iter().zip(expected) {
        assert_eq!(file.file_stem().and_then(|stem| stem.to_str()), Some(name));
        let error = report::read(file).err().map(|error| error.to_string()).unwrap_or_default();
        assert!(error.contains(message), "{name}: {error}");
        assert!(error.starts_with(&file.display().to_string()), "{name}: {error}");
    }
}

#[test]
fn a_report_is_not_overwritten_unasked_and_not_lost_when_writing_fails() {
    let folder = tempfile::tempdir().unwrap_or_else(|error| panic!("{error}"));
    let path = folder.path().join("run.json");
    fs::write(&path, "mine").unwrap_or_else(|error| panic!("{error}"));
    let report = Report::default();
    let refused = report::write(&report, &path, false);
    assert!(matches!(refused, Err(ReportError::Exists { .. })), "{refused:?}");
    assert_eq!(fs::read_to_string(&path).ok().as_deref(), Some("mine"));
    assert!(report::write(&report, &path, true).is_ok());
    assert_ne!(fs::read_to_string(&path).ok().as_deref(), Some("mine"));
    let missing = folder.path().join("none").join("run.json");
    let refused = report::check_output(&missing, true);
    assert!(matches!(refused, Err(ReportError::NoFolder { .. })), "{refused:?}");
    let left: Vec<_> = fs::read_dir(folder.path()).into_iter().flatten().collect();
    assert_eq!(left.len(), 1, "no partial file is left: {left:?}");
}

#[test]
fn a_missing_file_and_a_folder_are_told_by_name() {
    for path in [Path::new("no-such-report.json"), Path::new(env!("CARGO_MANIFEST_DIR"))] {
        let error = report::read(path).err().map(|error| error.to_string()).unwrap_or_default();
        assert!(error.starts_with(&path.display().to_string()), "{error}");
    }
}

fn record() -> impl Strategy<Value = PhaseRecord> {
    let counter = proptest::option::of(0_u64..1 << 50);
    (
        0_u64..4,
        0_usize..Phase::ALL.len(),
        (counter.clone(), counter.clone(), counter.clone(), counter),
        proptest::option::of(0.0_f64..1e6),
        any::<bool>(),
    )
        .prop_map(|(step, phase, (start, end, peak, reserved), seconds, disturbed)| {
            let mut record = PhaseRecord::new(Some(step), Phase::ALL[phase]);
            record.start = Counters { allocated: start, ..Counters::default() };
            record.end = Counters { allocated: end, reserved, ..Counters::default() };
            record.peak_allocated = peak;
            record.peak_disturbed = disturbed;
            record.host_seconds = seconds;
            record
        })
}

fn diagnose(report: &Report) {
    for rank in &report.rank_reports {
        let mut diagnoser = Diagnoser::new(Policy::default(), report.facts(rank));
        for record in report.records(rank) {
            diagnoser.observe(&record);
        }
        diagnoser.finish();
        let diagnosis = diagnoser.diagnosis();
        if let Some(budget) = diagnosis.budget {
            let parts: u64 = budget.parts.iter().map(|share| share.bytes).sum();
            assert_eq!(parts + budget.unexplained, budget.peak);
        }
    }
}

proptest! {
    #[test]
    fn records_survive_the_way_through_a_file(mut records in prop::collection::vec(record(), 1..40)) {
        records.sort_by_key(|record| record.step);
        records[0].step = Some(0);
        let (_layer, guard) = phasescope::builder().build();
        let Series { device, diagnosis, .. } = guard.series().swap_remove(0);
        let series = Series { device, records: records.clone(), diagnosis };
        let report = Report::of(&RunIdentity::new("run"), &[series]);
        let text = serde_json::to_string(&report).map_err(|error| TestCaseError::fail(error.to_string()))?;
        let again = Report::parse(&text, "run.json").map_err(|error| TestCaseError::fail(error.to_string()))?;
        prop_assert_eq!(again.records(&again.rank_reports[0]), records);
        prop_assert_eq!(&again, &report);
    }

    #[test]
    fn no_report_however_adversarial_makes_reader_or_engine_panic(
        samples in prop::collection::vec(
            (-1_i64..12, 0_usize..11, proptest::option::of(0.0_f64..1e9), proptest::option::of(0.0_f64..1e9),
             proptest::option::of(any::<u64>())),
            1..120,
        ),
        parameters in proptest::option::of(any::<u64>()),
        total in proptest::option::of(0.0_f64..1e9),
    ) {
        let mut samples = samples;
        samples.sort_by_key(|sample| sample.0);
        let samples: Vec<_> = samples.iter().map(|(step, phase, allocated, peak, input)| serde_json::json!({
            "step": step, "phase": Phase::ALL[*phase].sample_name(), "allocated_mib": allocated,
            "reserved_mib": allocated, "peak_allocated_mib": peak, "input_elements": input,
        })).collect();
        let report = serde_json::json!({
            "parameter_count": parameters,
            "rank_reports": [{"device_total_mib": total, "local_batch_size": parameters, "samples": samples}],
        });
        if let Ok(report) = Report::parse(&report.to_string(), "adversarial.json") {
            diagnose(&report);
        }
    }

    #[test]
    fn exact_phases_of_any_size_do_not_make_the_engine_panic(
        phases in prop::collection::vec((any::<u64>(), 0_usize..11, any::<u64>(), any::<u64>(), any::<u64>()), 1..80),
    ) {
        let phases: Vec<_> = phases.iter().map(|(step, phase, start, end, peak)| serde_json::json!({
            "step": step % 16, "phase": Phase::ALL[*phase].name(), "start": {"allocated": start},
            "end": {"allocated": end, "device_used": peak}, "peak_allocated": peak,
        })).collect();
        let report = serde_json::json!({"rank_reports": [{
            "device_total_mib": 1.0, "phases": phases,
            "samples": [{"step": 0, "phase": "after_forward"}],
        }]});
        if let Ok(report) = Report::parse(&report.to_string(), "adversarial.json") {
            diagnose(&report);
        }
    }

    #[test]
    fn a_report_cut_or_changed_anywhere_is_read_or_refused(cut in 0_usize..9000, byte in any::<u8>()) {
        let path = &fixtures("reference")[0];
        let mut bytes = fs::read(path).map_err(|error| TestCaseError::fail(error.to_string()))?;
        let place = cut % bytes.len();
        bytes[place] = byte;
        for text in [String::from_utf8_lossy(&bytes).into_owned(), String::from_utf8_lossy(&bytes[..place]).into_owned()] {
            if let Ok(report) = Report::parse(&text, "changed.json") {
                diagnose(&report);
            }
        }
    }
}

#[test]
fn an_exact_phase_with_a_number_that_cannot_be_is_an_error_with_its_place() {
    let text = r#"{"rank_reports": [{"samples": [
        {"step": 0, "phase": "after_forward", "allocated_mib": 1}], "phases": [
        {"step": 0, "phase": "forward", "end": {"allocated": 18446744073709551615}}]}]}"#;
    let error = Report::parse(text, "absurd.json").unwrap_err().to_string();
    let expected = "absurd.json: at rank_reports[0].phases[0].end.allocated: expected at most \
                    1125899906842624, found 18446744073709551615";
    assert_eq!(error, expected);
}
