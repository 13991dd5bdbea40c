//! The examples as a user runs them, with real libtorch on the CPU.
#![cfg(feature = "torch")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use phasescope::diagnosis::{Code, Diagnosis, Edge, Severity};
use phasescope::report::{self, Report};
use phasescope::units::MIB;

/// `cargo test` builds the examples beside this test; `cargo test --test examples` alone does not.
fn example(name: &str) -> Command {
    let mut folder = std::env::current_exe().unwrap_or_else(|error| panic!("{error}"));
    folder.pop();
    folder.pop();
    Command::new(folder.join("examples").join(name))
}

fn output(command: &mut Command) -> Output {
    command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"))
}

struct Run {
    _folder: tempfile::TempDir,
    path: PathBuf,
    report: Report,
    printed: String,
}

impl Run {
    fn diagnosis(&self) -> &Diagnosis {
        let diagnosis = self.report.rank_reports[0].diagnosis.as_ref();
        diagnosis.unwrap_or_else(|| panic!("no diagnosis in {}", self.path.display()))
    }
}

fn run(name: &str, options: &[&str]) -> Run {
    let folder = tempfile::tempdir().unwrap_or_else(|error| panic!("{error}"));
    let path = folder.path().join("report.json");
    let done = output(example(name).args(["--device", "cpu", "--output"]).arg(&path).args(options));
    let err = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{name} {options:?}: {err}");
    assert_eq!(err, "", "nothing is drawn in a pipe");
    let report = report::read(&path).unwrap_or_else(|error| panic!("{error}"));
    let printed = String::from_utf8_lossy(&done.stdout).into_owned();
    Run { _folder: folder, path, report, printed }
}

#[test]
fn each_case_is_named_and_the_control_and_the_repaired_twins_are_healthy() {
    for (name, options, code, worst) in [
        ("alpha", &[][..], Code::Activations, Severity::Info),
        ("alpha", &["--fixed"], Code::Activations, Severity::Info),
        ("beta", &[], Code::OptimizerState, Severity::Info),
        ("beta", &["--fixed"], Code::Activations, Severity::Info),
        ("gamma", &[], Code::RetainedGraph, Severity::Critical),
        ("gamma", &["--fixed"], Code::Activations, Severity::Info),
        ("control", &[], Code::Activations, Severity::Info),
    ] {
        let run = run(name, options);
        let diagnosis = run.diagnosis();
        assert_eq!(diagnosis.findings[0].code, code, "{name} {options:?}");
        assert_eq!(diagnosis.worst(), Some(worst), "{name} {options:?}");
        assert_eq!(run.printed.contains("healthy"), worst == Severity::Info, "{}", run.printed);
        assert!(run.printed.contains(&format!("{worst} {code}: ")), "{}", run.printed);
    }
}

#[test]
fn every_number_of_the_evidence_stands_in_the_written_report() {
    for name in ["alpha", "beta", "gamma"] {
        let run = run(name, &[]);
        let phases = &run.report.rank_reports[0].phases;
        for measure in run
            .diagnosis()
            .findings
            .iter()
            .flat_map(|found| &found.evidence)
            .flat_map(|seen| &seen.measures)
        {
            let stands = phases.iter().any(|phase| {
                let there = match measure.edge {
                    Edge::Start => phase.start.allocated,
                    Edge::Peak => phase.peak_allocated,
                    _ => phase.end.allocated,
                };
                (phase.step, phase.phase, there)
                    == (measure.step, measure.phase, Some(measure.bytes))
            });
            assert!(stands, "{name}: {measure:?}");
        }
    }
}

#[test]
fn the_presets_have_the_parameters_of_the_original() {
    for (preset, count) in [("small", 8_762_112), ("medium", 27_550_720)] {
        let run = run("control", &["--preset", preset, "--steps", "1"]);
        assert_eq!(run.report.parameter_count, Some(count), "{preset}");
    }
}

#[test]
fn beta_keeps_two_moments_a_parameter_and_gamma_grows_by_a_graph_a_step() {
    let beta = run("beta", &[]);
    let state = beta.diagnosis().findings[0].bytes;
    assert!(state.abs_diff(2 * 8_762_112 * 4) < MIB, "{state}");
    let gamma = run("gamma", &["--steps", "8"]);
    let finding = &gamma.diagnosis().findings[0];
    let indicators = gamma.report.rank_reports[0].indicators_bytes;
    let growth = indicators.and_then(|indicators| indicators.between_step_growth);
    assert_eq!(growth, i64::try_from(finding.bytes * 7).ok());
}

#[test]
fn bf16_halves_the_parameters() {
    let run = run("alpha", &["--precision", "bf16"]);
    let model = run.report.rank_reports[0].samples[0].allocated_mib;
    assert!(model.is_some_and(|mib| (mib - 33.42 / 2.0).abs() < 0.2), "{model:?}");
}

#[test]
fn an_output_that_is_there_is_refused_and_left_as_it_is() {
    let run = run("control", &["--steps", "1"]);
    let before = fs::read(&run.path).unwrap_or_else(|error| panic!("{error}"));
    let mut again = example("control");
    let refused =
        output(again.args(["--device", "cpu", "--steps", "2", "--output"]).arg(&run.path));
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("not overwritten unasked"));
    assert_eq!(fs::read(&run.path).ok(), Some(before.clone()));
    let replaced = output(again.arg("--overwrite-output"));
    assert_eq!(replaced.status.code(), Some(0));
    assert_ne!(fs::read(&run.path).ok(), Some(before));
}

#[test]
fn what_cannot_be_is_refused_before_any_memory_is_taken() {
    for (options, words) in [
        (&["--output", "no/such/folder/report.json"][..], "expected the folder no/such/folder"),
        (&["--device", "tpu"], "expected the device auto, cpu or cuda:N, found \"tpu\""),
        (&["--steps", "0"], "0 is not in 1.."),
        (&["--batch-size-per-device", "0"], "0 is not in 1.."),
        (&["--precision", "fp8"], "fp8"),
        (&["--fixed", "--batch-size-per-device", "1"], "expected a batch of at least 2"),
    ] {
        let refused = output(example("alpha").args(options));
        assert_eq!(refused.status.code(), Some(2), "{options:?}");
        let err = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(err.contains(words), "{options:?}: {err}");
    }
}

#[test]
fn out_of_memory_ends_with_3_and_says_what_was_asked_for_and_what_to_try() {
    // More than any machine's address space allows at once.
    let options = ["--device", "cpu", "--batch-size-per-device", "1000000000000"];
    let failed = output(example("alpha").args(options));
    let err = String::from_utf8_lossy(&failed.stderr).into_owned();
    assert_eq!(failed.status.code(), Some(3), "{err}");
    assert!(err.contains("MiB were asked for"), "{err}");
    assert!(err.contains("try a smaller --batch-size-per-device"), "{err}");
    assert_eq!(err.lines().count(), 1, "one line, no trace: {err}");
}

#[test]
fn the_smallest_integration_prints_a_finding_and_is_the_one_the_readme_shows() {
    let done = output(&mut example("your_loop"));
    let printed = String::from_utf8_lossy(&done.stdout).into_owned();
    assert!(printed.contains("optimizer_state"), "{printed}");
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let source = fs::read_to_string(root.join("examples/your_loop.rs")).unwrap_or_default();
    assert!(source.lines().count() < 40, "{} lines", source.lines().count());
    let readme = fs::read_to_string(root.join("README.md")).unwrap_or_default();
    let shown = source.split_once("\n\n").map(|(_, code)| code.trim()).unwrap_or_default();
    assert!(readme.contains(shown), "the README shows another loop");
}
