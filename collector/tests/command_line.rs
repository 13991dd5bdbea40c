//! The command line: exit status, what goes where, and what it says.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use assert_cmd::Command;
use phasescope::counters::scripted::Scripted;
use phasescope::phase::RunIdentity;
use phasescope::{phase, step};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry;

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures").join(name)
}

/// Runs the command and gives status, standard output and standard error.
fn run(arguments: &[&str], files: &[&str]) -> (Option<i32>, String, String) {
    let output = Command::cargo_bin("phasescope")
        .unwrap_or_else(|error| panic!("{error}"))
        .args(arguments)
        .args(files.iter().map(|name| fixture(name)))
        .output()
        .unwrap_or_else(|error| panic!("{error}"));
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[test]
fn diagnose_names_the_three_cases() {
    for (name, words) in [
        ("h200/alpha.json", "dominant: activations (alpha), 52.5 MiB"),
        ("h200/beta.json", "dominant: optimizer_state (beta), 67.3 MiB"),
        ("h200/gamma.json", "dominant: retained_graph (gamma), 52.4 MiB a step"),
    ] {
        let (status, out, err) = run(&["diagnose"], &[name]);
        assert_eq!((status, err.as_str()), (Some(0), ""), "{name}");
        assert!(out.contains(words), "{name}: {out}");
        assert!(out.contains("do:  ") && out.contains("not: "), "{name}: {out}");
        assert!(!out.contains('\u{1b}'), "no colour in a pipe");
        assert!(
            out.lines().all(|line| line.chars().count() <= 100 || line.contains("json")),
            "{out}"
        );
    }
    let (_, out, _) = run(&["diagnose"], &["h200/control.json"]);
    assert!(out.contains("healthy: nothing of severity warning"), "{out}");
}

#[test]
fn json_is_a_list_with_the_fields_of_the_design() {
    let (status, out, _) =
        run(&["diagnose", "--format", "json"], &["h200/alpha.json", "h200/beta.json"]);
    assert_eq!(status, Some(0));
    let list: serde_json::Value =
        serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(list.as_array().map(Vec::len), Some(2));
    for field in
        ["source", "run_id", "rank", "device", "findings", "budget", "gaps", "insufficient"]
    {
        assert!(list[0].get(field).is_some(), "{field}");
    }
    assert_eq!(list[1]["findings"][0]["code"], "optimizer_state");
    assert_eq!(list[1]["findings"][0]["label"], "beta");
}

#[test]
fn fail_on_makes_a_gate_of_it() {
    for (gate, file, status) in [
        ("critical", "h200/gamma.json", 1),
        ("warning", "h200/gamma.json", 1),
        ("critical", "h200/alpha.json", 0),
        ("retained_graph", "h200/gamma.json", 1),
        ("retained_graph", "h200/control.json", 0),
    ] {
        let (found, ..) = run(&["diagnose", "--fail-on", gate], &[file]);
        assert_eq!(found, Some(status), "{gate} {file}");
    }
    let (status, _, err) = run(&["diagnose", "--fail-on", "leaks"], &["h200/gamma.json"]);
    assert_eq!(status, Some(2));
    assert!(err.contains("retained_graph") && err.contains("found \"leaks\""), "{err}");
}

#[test]
fn a_bad_file_is_told_and_the_good_ones_are_judged_all_the_same() {
    let files =
        ["h200/alpha.json", "invalid/truncated.json", "no-such-file.json", "h200/gamma.json"];
    let (status, out, err) = run(&["diagnose"], &files);
    assert_eq!(status, Some(2));
    assert!(out.contains("activations (alpha)") && out.contains("retained_graph (gamma)"), "{out}");
    assert!(err.contains("truncated.json") && err.contains("no-such-file.json"), "{err}");
    let (status, out, _) = run(&["compare"], &files);
    assert_eq!(status, Some(2));
    assert!(out.contains("alpha.json") && out.contains("gamma.json"), "{out}");
}

#[test]
fn compare_prints_a_row_a_report_and_names_no_cause() {
    let (status, out, _) =
        run(&["compare"], &["h200/alpha.json", "h200/beta.json", "h200/gamma.json"]);
    assert_eq!(status, Some(0));
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!(lines.len(), 4, "{out}");
    assert!(lines[0].contains("first persistent MiB") && lines[0].contains("peak MiB"));
    let cells: Vec<&str> = lines[2].split_whitespace().collect();
    assert_eq!(
        cells,
        ["beta.json", "beta", "small", "2", "131.4", "0.0", "84.5", "222.1"],
        "{out}"
    );
    for name in ["activations", "optimizer_state", "retained_graph"] {
        assert!(!out.contains(name), "{out}");
    }
    let (_, out, _) = run(&["compare", "--show-phases"], &["h200/alpha.json"]);
    assert!(out.contains("clear_gradients"), "{out}");
}

#[test]
fn what_was_not_measured_is_not_shown_as_zero() {
    let folder = tempfile::tempdir().unwrap_or_else(|error| panic!("{error}"));
    let path = folder.path().join("bare.json");
    let text = r#"{"rank_reports": [{"samples": [{"step": 0, "phase": "after_forward"}]}]}"#;
    fs::write(&path, text).unwrap_or_else(|error| panic!("{error}"));
    let path = path.display().to_string();
    let (status, out, _) = run(&["compare", &path], &[]);
    assert_eq!(status, Some(0));
    assert!(out.contains("not measured"), "{out}");
    let (status, out, _) = run(&["diagnose", &path], &[]);
    assert_eq!(status, Some(0));
    assert!(out.contains("no cause was named") && out.contains("could not be judged"), "{out}");
}

#[test]
fn the_readme_shows_what_the_command_prints() {
    let readme = fs::read_to_string(fixture("../../README.md")).unwrap_or_default();
    let (_, compared, _) = run(
        &["compare"],
        &["h200/alpha.json", "h200/beta.json", "h200/gamma.json", "h200/control.json"],
    );
    assert!(readme.contains(compared.trim_end()), "{compared}");
    let (_, diagnosed, _) = run(&["diagnose"], &["h200/gamma.json"]);
    let shown: Vec<&str> = diagnosed.lines().skip(1).take(25).collect();
    assert!(readme.contains(&shown.join("\n")), "{diagnosed}");
}

#[test]
fn a_file_of_spans_is_diagnosed_as_a_report_is() {
    let (status, out, err) = run(&["diagnose"], &["spans/gamma.jsonl"]);
    assert_eq!((status, err.as_str()), (Some(0), ""));
    assert!(out.contains("spans/gamma.jsonl · run nightly-42 · rank 0 · cpu"), "{out}");
    assert!(out.contains("dominant: retained_graph (gamma), 48.8 MiB a step"), "{out}");
    let (status, out, _) = run(&["diagnose", "--format", "json"], &["spans/gamma.jsonl"]);
    assert_eq!(status, Some(0));
    let list: serde_json::Value =
        serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(list[0]["run_id"], "nightly-42");
    assert!(list[0]["instance"].is_string() && list[0].get("process").is_none());
    let (status, ..) = run(&["diagnose", "--fail-on", "critical"], &["spans/gamma.jsonl"]);
    assert_eq!(status, Some(1));
}

#[test]
fn a_ring_file_says_what_its_process_was_doing() {
    let folder = tempfile::tempdir().unwrap_or_else(|error| panic!("{error}"));
    let device = Arc::new(Scripted::new("cuda:0"));
    let identity = RunIdentity::new("nightly-42");
    let (layer, guard) = phasescope::builder()
        .identity(identity)
        .source(device.clone())
        .ring_in(folder.path())
        .build();
    let path = guard.ring_path().unwrap_or_else(|| panic!("no ring")).to_owned();
    let (text, json) = tracing::subscriber::with_default(registry().with(layer), || {
        phase!(model).in_scope(|| device.allocate(100 << 20));
        for number in 0..10_u64 {
            let _step = step!(number).entered();
            phase!(forward).in_scope(|| device.allocate(50 << 20));
            phase!(backward).in_scope(|| {});
        }
        let _step = step!(10_u64).entered();
        let _open = phase!(forward).entered();
        device.allocate(1 << 20);
        // As it would be found if the process were killed here.
        let diagnose = |format: &str| {
            let mut command =
                Command::cargo_bin("phasescope").unwrap_or_else(|error| panic!("{error}"));
            command.args(["diagnose", "--format", format]).arg(&path);
            let output = command.output().unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(output.status.code(), Some(0));
            String::from_utf8_lossy(&output.stdout).into_owned()
        };
        (diagnose("text"), diagnose("json"))
    });
    for words in [
        " · run nightly-42 · rank 0 · cuda:0",
        "did not end by itself: killed, or still there",
        "it was in forward, step 10, which began at 600.0 MiB allocated",
        "last finished: backward, step 9, at 600.0 MiB allocated",
    ] {
        assert!(text.contains(words), "{words} in {text}");
    }
    // The README shows this very output, under another process id.
    let name = path.to_string_lossy().into_owned();
    let own = format!("process {} ", std::process::id());
    let shown: Vec<_> = text.lines().take(5).collect();
    let shown = shown.join("\n").replace(&name, "nightly-42-rank0-4711.ring");
    let shown = shown.replace(&own, "process 4711 ");
    let readme = fs::read_to_string(fixture("../../README.md")).unwrap_or_default();
    assert!(readme.contains(&shown), "{shown}");

    let list: serde_json::Value =
        serde_json::from_str(&json).unwrap_or_else(|error| panic!("{error}"));
    let process = &list[0]["process"];
    assert_eq!(process["open"][0]["phase"], "forward");
    assert_eq!(process["open"][0]["counters"]["allocated"], 600 << 20);
    assert_eq!((&process["ended"], &process["damaged"]), (&false.into(), &0.into()));
}

#[test]
fn files_that_are_neither_are_errors_that_name_them_and_the_others_are_judged() {
    let folder = tempfile::tempdir().unwrap_or_else(|error| panic!("{error}"));
    for (name, text, words) in [
        ("empty.jsonl", "", "empty.jsonl"),
        ("other.jsonl", "{\"resourceSpans\": []}\n", "found none among 0 spans"),
        ("cut.ring", "phasescope", "expected a ring file of 1048576 bytes, found 10 bytes"),
        ("bad.jsonl", "{\"resourceSpans\": [}\n", "line 1: expected a request of OTLP/JSON"),
    ] {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap_or_else(|error| panic!("{error}"));
        let path = path.to_string_lossy().into_owned();
        let (status, out, err) = run(&["diagnose", &path], &["spans/gamma.jsonl"]);
        assert_eq!(status, Some(2), "{name}");
        assert!(err.contains(words) && err.contains(name), "{err}");
        assert!(out.contains("retained_graph"), "the other file is judged");
    }
}
