//! What `phasescope serve` says of a wrong configuration, and which source is over which.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::Duration;

use assert_cmd::Command;

/// The line of a file with the message that is expected of it.
const EXPECT: &str = "# expect: ";

fn testdata() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/serve")
}

fn serve(arguments: &[&str], environment: &[(&str, &str)]) -> Output {
    let mut command = Command::cargo_bin("phasescope").unwrap_or_else(|error| panic!("{error}"));
    command.arg("serve").args(arguments).envs(environment.iter().copied());
    // One that is taken by mistake would serve for ever.
    let output = command.timeout(Duration::from_secs(20)).output();
    output.unwrap_or_else(|error| panic!("{error}"))
}

/// What it said when it refused to start.
fn refused(arguments: &[&str], environment: &[(&str, &str)]) -> String {
    let output = serve(arguments, environment);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
    said
}

#[test]
fn every_invalid_file_is_refused_with_the_option_what_was_expected_and_what_was_found() {
    let files = fs::read_dir(testdata()).unwrap_or_else(|error| panic!("{error}"));
    let mut count = 0;
    for file in files {
        let path = file.unwrap_or_else(|error| panic!("{error}")).path();
        let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{error}"));
        let expected = text.lines().find_map(|line| line.strip_prefix(EXPECT));
        let expected = expected.unwrap_or_else(|| panic!("{}: no {EXPECT}", path.display()));
        let said = refused(&["--config", &path.to_string_lossy()], &[]);
        assert!(said.starts_with("phasescope: "), "{}: {said}", path.display());
        assert!(said.contains(&*path.to_string_lossy()), "the file is named: {said}");
        assert!(said.contains(expected), "{}: expected {expected}, said {said}", path.display());
        assert_eq!(said.lines().count(), 1, "{said}");
        assert!(!said.contains("secret-word"), "a secret is not told: {said}");
        count += 1;
    }
    assert!(count >= 30, "{count} files");
}

#[test]
fn the_documented_sample_has_every_option() {
    let sample = include_str!("../serve.yaml");
    let endpoint = ["--next-endpoint", "http://127.0.0.1:1", "--set"];
    let mut count = 0;
    for section in ["", "listen.", "tls.", "next.", "limits.", "log."] {
        // What is unknown is answered with what is known.
        let unknown = format!("{section}unknown=1");
        let said = refused(&[&endpoint[..], &[unknown.as_str()]].concat(), &[]);
        let (_, known) = said.split_once("expected one of ").unwrap_or_else(|| panic!("{said}"));
        let known = known.split(", found").next().unwrap_or_default();
        for option in known.split(", ") {
            let written = sample
                .lines()
                .any(|line| line.trim_start_matches(['#', ' ']).starts_with(&format!("{option}:")));
            assert!(written, "{section}{option} is not in the sample");
            count += 1;
        }
    }
    assert!(count >= 27, "{count} options");
}

#[test]
fn flags_are_over_the_environment_and_the_environment_over_the_file() {
    let folder = tempfile::tempdir().unwrap_or_else(|error| panic!("{error}"));
    let path = folder.path().join("serve.yaml");
    fs::write(&path, "next:\n  endpoint: http://127.0.0.1:1\nlimits:\n  runs: 0\n")
        .unwrap_or_else(|error| panic!("{error}"));
    let file = path.to_string_lossy();
    let from_file = ["--config", &*file];
    assert!(refused(&from_file, &[]).contains("limits.runs: expected 1 to 1000000, found 0"));
    let environment = [("PHASESCOPE_SERVE_LIMITS__RUNS", "7000000")];
    assert!(refused(&from_file, &environment).contains("found 7000000"));
    let flag = ["--config", &*file, "--set", "limits.runs=8000000"];
    assert!(refused(&flag, &environment).contains("found 8000000"));
    // Every flag of its own, over the environment.
    for (flag, key, wrong) in [
        ("--next-endpoint", "next.endpoint", "ftp://flag"),
        ("--next-protocol", "next.protocol", "flag"),
        ("--listen-grpc", "listen.grpc", "flag"),
        ("--listen-http", "listen.http", "flag"),
        ("--listen-api", "listen.api", "flag"),
    ] {
        let variable = format!("PHASESCOPE_SERVE_{}", key.replace('.', "__").to_uppercase());
        let environment = [(variable.as_str(), "environment")];
        let said = refused(&["--config", &*file, flag, wrong], &environment);
        assert!(said.contains(key) && !said.contains("environment`"), "{flag}: {said}");
    }
    // An unknown variable is told, not passed over.
    let said = refused(&from_file, &[("PHASESCOPE_SERVE_LIMITS__RUN", "5")]);
    assert!(
        said.contains("the environment") && said.contains("limits.run: expected one of"),
        "{said}"
    );
}

#[test]
fn a_file_that_is_not_there_and_a_flag_without_a_value_are_told() {
    let said = refused(&["--config", "/none/serve.yaml"], &[]);
    assert!(said.contains("/none/serve.yaml: No such file or directory"), "{said}");
    let said = refused(&["--next-endpoint", "http://127.0.0.1:1", "--set", "limits.runs"], &[]);
    assert!(said.contains("--set: expected KEY=VALUE, found \"limits.runs\""), "{said}");
}

#[test]
fn a_token_that_is_none_is_refused_without_being_shown() {
    let folder = tempfile::tempdir().unwrap_or_else(|error| panic!("{error}"));
    let path = folder.path().join("token");
    for wrong in ["", "\n", "two words secret-word", "secret-word\nsecret-word"] {
        fs::write(&path, wrong).unwrap_or_else(|error| panic!("{error}"));
        let option = format!("token_file={}", path.display());
        let said = refused(&["--next-endpoint", "http://127.0.0.1:1", "--set", &option], &[]);
        assert!(said.contains("expected a line of printable characters"), "{said}");
        assert!(!said.contains("secret-word"), "{said}");
    }
}
