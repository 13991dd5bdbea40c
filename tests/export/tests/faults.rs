//! Endpoints that are down, go down, do not answer, or refuse.

use std::io::{BufRead, BufReader, Read};
use std::process::Stdio;
use std::time::{Duration, Instant};

use phasescope_export_tests::{Behaviour, DOWN, Done, Faulty, Jaeger, Program, train};

/// Spans of a run: the model, and five a step.
const fn spans(steps: u64) -> u64 {
    1 + steps * 5
}

/// Exported, failed and dropped, as the last line tells them.
#[track_caller]
fn counts(done: &Done) -> [u64; 3] {
    let told = done.told();
    let last = told.last().unwrap_or_else(|| panic!("nothing told: {}", done.err));
    let numbers: Vec<u64> =
        last.split([' ', ',', ';']).filter_map(|word| word.parse().ok()).collect();
    assert!(last.contains("spans exported to"), "{last}");
    [numbers[0], numbers[1], numbers[2]]
}

/// One line for spans, one for metrics, one at the end, and nothing else.
#[track_caller]
fn each_told_once(done: &Done) {
    let told = done.told();
    assert_eq!(done.err.lines().count(), told.len(), "nobody else writes: {}", done.err);
    let count = |text: &str| told.iter().filter(|line| line.contains(text)).count();
    let spans = count("spans could not be exported");
    let metrics = count("metrics could not be exported");
    assert_eq!((spans, metrics, told.len()), (1, 1, 3), "{told:?}");
}

fn short(protocol: &str, endpoint: &str) -> Program {
    train().args(&["--steps", "40"]).sending(endpoint, protocol, "faults")
}

#[test]
fn an_endpoint_that_is_down_costs_the_spans_and_a_line_each() {
    for protocol in ["grpc", "http/protobuf"] {
        let done = short(protocol, DOWN).run();
        assert_eq!(done.status, Some(0), "{}", done.err);
        assert_eq!(counts(&done), [0, spans(40), 0], "{protocol}: {}", done.err);
        each_told_once(&done);
    }
}

#[test]
fn an_endpoint_that_refuses_costs_the_spans_and_a_line_each() {
    let faulty = Faulty::start(Behaviour::Refuse);
    let done = short("http/protobuf", &faulty.http).run();
    assert_eq!(done.status, Some(0), "{}", done.err);
    assert_eq!(counts(&done), [0, spans(40), 0], "{}", done.err);
    each_told_once(&done);
    assert!(done.err.contains("403"), "the reason is told: {}", done.err);
    assert_eq!(faulty.requests(), 2, "what is refused for good is not tried again");
}

#[test]
fn spans_that_the_endpoint_rejects_in_a_success_are_counted_as_failed() {
    let faulty = Faulty::start(Behaviour::Reject(7));
    let done = short("http/protobuf", &faulty.http).run();
    assert_eq!(done.status, Some(0), "{}", done.err);
    let [exported, failed, dropped] = counts(&done);
    let batches = faulty.requests() as u64 - 1;
    assert_eq!([exported, failed, dropped], [spans(40) - 7 * batches, 7 * batches, 0]);
    assert!(done.err.contains("the endpoint rejected 7 of"), "{}", done.err);
}

#[test]
fn an_endpoint_that_does_not_answer_is_waited_for_five_seconds_at_the_end() {
    let faulty = Faulty::start(Behaviour::Slow);
    let begin = Instant::now();
    let done = short("http/protobuf", &faulty.http).run();
    let took = begin.elapsed();
    assert_eq!(done.status, Some(0), "{}", done.err);
    assert_eq!(counts(&done), [0, 0, spans(40)], "what is not known to have arrived is lost");
    assert!(took < Duration::from_secs(8), "{took:?}");
    let begin = Instant::now();
    let done = short("http/protobuf", &faulty.http).env("OTEL_EXPORTER_OTLP_TIMEOUT", "300").run();
    assert_eq!(counts(&done), [0, spans(40), 0], "given up in time: {}", done.err);
    assert!(begin.elapsed() < Duration::from_secs(5));
}

#[test]
fn spans_beyond_the_queue_are_dropped_and_counted() {
    let faulty = Faulty::start(Behaviour::Slow);
    let done = train()
        .args(&["--steps", "1000", "--all-steps"])
        .sending(&faulty.http, "http/protobuf", "faults")
        .env("OTEL_BSP_MAX_QUEUE_SIZE", "100")
        .env("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "50")
        .env("OTEL_EXPORTER_OTLP_TIMEOUT", "300")
        .run();
    let [exported, failed, dropped] = counts(&done);
    assert_eq!((exported, failed + dropped), (0, spans(1000)), "{}", done.err);
    assert!(failed <= 200 && dropped >= spans(1000) - 200, "{failed} failed, {dropped} dropped");
}

#[test]
fn an_endpoint_that_is_killed_midway_has_what_was_exported_until_then() {
    for protocol in ["grpc", "http/protobuf"] {
        let Some(mut jaeger) = Jaeger::start() else { return };
        let endpoint = if protocol == "grpc" { &jaeger.grpc } else { &jaeger.http };
        let mut program = train()
            .args(&["--steps", "400", "--work", "2000", "--all-steps", "--announce"])
            .sending(endpoint, protocol, "midway");
        let mut child = program
            .command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{error}"));
        let out = child.stdout.take().unwrap_or_else(|| panic!("no pipe"));
        let mut lines = BufReader::new(out).lines().map_while(Result::ok);
        let before = jaeger.wait_for("midway", 200).len() as u64;
        jaeger.kill();
        assert!(lines.any(|line| line == "399 clear_gradients"), "the training goes on");
        let mut err = String::new();
        let stderr = child.stderr.take().unwrap_or_else(|| panic!("no pipe"));
        BufReader::new(stderr).read_to_string(&mut err).unwrap_or_else(|error| panic!("{error}"));
        let status = child.wait().unwrap_or_else(|error| panic!("{error}"));
        let done = Done { status: status.code(), out: String::new(), err };
        assert_eq!(done.status, Some(0), "{}", done.err);
        let [exported, failed, dropped] = counts(&done);
        assert_eq!(exported + failed + dropped, spans(400), "{}", done.err);
        assert!(exported >= before && failed > 0, "{before} before, {}", done.err);
        each_told_once(&done);
    }
}

#[test]
fn a_standard_error_that_nobody_reads_is_no_reason_to_fail() {
    let mut program = short("http/protobuf", DOWN);
    let child = program.command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
    let mut child = child.unwrap_or_else(|error| panic!("{error}"));
    drop(child.stderr.take());
    let status = child.wait().unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(status.code(), Some(0));
}
