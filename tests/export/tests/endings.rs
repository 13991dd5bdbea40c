//! Runs that end badly.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use phasescope::phase::Outcome;
use phasescope::{Phase, ring};
use phasescope_export_tests::{Jaeger, Span, example, train};

fn of_step(spans: &[Span], step: i64) -> Vec<&str> {
    let spans = spans.iter().filter(|span| span.number("phasescope.step") == Some(step));
    spans.map(|span| span.name.as_str()).collect()
}

#[test]
fn a_phase_that_fails_is_in_jaeger_with_its_error_its_peak_and_what_was_asked_for() {
    let Some(jaeger) = Jaeger::start() else { return };
    for (protocol, endpoint) in [("grpc", &jaeger.grpc), ("http/protobuf", &jaeger.http)] {
        for (end, kind, message) in [
            ("panic", "panic", "the labels do not fit"),
            ("out-of-memory", "out_of_memory", "out of memory: 20.0 MiB were asked for"),
        ] {
            let service = format!("{end}-{}", &protocol[..4]);
            let program = train().args(&["--steps", "5", "--end", end]);
            let done = program.sending(endpoint, protocol, &service).run();
            assert_eq!(done.status, Some(101), "{}", done.err);
            let spans = jaeger.spans(&service);
            // The model, four whole steps, and the last with its forward.
            assert_eq!(spans.len(), 1 + 4 * 5 + 2, "{}", done.err);
            assert_eq!(of_step(&spans, 4), ["step", "forward"]);
            let forward = spans.iter().rfind(|span| span.name == "forward");
            let forward = forward.unwrap_or_else(|| panic!("no forward"));
            assert_eq!(forward.text("error.type"), Some(kind));
            assert_eq!(forward.text("otel.status_code"), Some("ERROR"));
            assert_eq!(forward.text("otel.status_description"), Some(message));
            assert_eq!(forward.number("phasescope.allocated.peak"), Some((32 + 48) << 20));
            let asked = (kind == "out_of_memory").then_some(20 << 20);
            assert_eq!(forward.number("phasescope.out_of_memory.requested"), asked);
        }
    }
}

#[test]
fn exit_and_abort_lose_the_open_spans_and_nothing_that_was_exported() {
    let Some(jaeger) = Jaeger::start() else { return };
    // The model and four whole steps have ended when the fifth one's forward comes to its end.
    let ended = 1 + 4 * 5;
    for end in ["exit", "abort"] {
        let program = train()
            .args(&["--steps", "5", "--end", end, "--after-exported", &ended.to_string()])
            .sending(&jaeger.grpc, "grpc", end);
        let done = program.run();
        assert_eq!(done.status, (end == "exit").then_some(7), "{}", done.err);
        let spans = jaeger.spans(end);
        assert_eq!(spans.len(), ended);
        assert_eq!(of_step(&spans, 4), Vec::<&str>::new(), "open spans are never exported");
    }
}

#[test]
fn a_shutdown_before_exit_exports_all_that_has_ended() {
    let Some(jaeger) = Jaeger::start() else { return };
    let done = train()
        .args(&["--steps", "5", "--end", "shutdown-exit"])
        .sending(&jaeger.http, "http/protobuf", "shutdown")
        .env("OTEL_METRICS_EXPORTER", "none")
        .run();
    assert_eq!(done.status, Some(7), "{}", done.err);
    assert_eq!(jaeger.spans("shutdown").len(), 1 + 4 * 5);
    let told = format!("phasescope: 21 spans exported to {}, 0 failed, 0 dropped", jaeger.http);
    assert_eq!(done.told(), [told]);
}

#[test]
fn a_process_that_is_killed_leaves_a_ring_file_with_its_last_finished_phase() {
    const KILLS: u64 = 20;
    for kill in 0..KILLS {
        let folder = tempfile::tempdir().unwrap_or_else(|error| panic!("{error}"));
        let mut program = train().args(&["--steps", "1000000", "--announce", "--ring"]);
        let mut child = program
            .command
            .arg(folder.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{error}"));
        let out = child.stdout.take().unwrap_or_else(|| panic!("no pipe"));
        let mut lines = BufReader::new(out).lines().map_while(Result::ok);
        // Some way into the run, at a moment that depends on two processes' timing; the later ones
        // when the ring has gone round.
        let lead = (kill * 997) % 4001;
        let mut last = lines.by_ref().take(1 + lead as usize).last();
        child.kill().unwrap_or_else(|error| panic!("{error}"));
        // What it had told until then waits in the pipe; the last line may be cut.
        last = lines.filter(|line| line.contains(' ')).last().or(last);
        child.wait().unwrap_or_else(|error| panic!("{error}"));
        let last = last.unwrap_or_else(|| panic!("nothing told"));

        let file = std::fs::read_dir(folder.path())
            .unwrap_or_else(|error| panic!("{error}"))
            .find_map(|entry| entry.ok().map(|entry| entry.path()))
            .unwrap_or_else(|| panic!("no ring file"));
        let ring = ring::read(&file).unwrap_or_else(|error| panic!("kill {kill}: {error}"));
        assert_eq!((ring.pid, ring.ended), (child.id(), false));
        let series = &ring.series[0];
        let place = |step: Option<u64>, phase: Phase| {
            let order = ["forward", "backward", "optimizer_step", "clear_gradients"];
            let within = order.iter().position(|name| *name == phase.name());
            step.map_or(0, |step| 1 + step * 4 + within.unwrap_or(0) as u64)
        };
        let (step, phase) = last.split_once(' ').unwrap_or_else(|| panic!("{last}"));
        // A line that was cut tells less than what it was to tell: it cannot be too far.
        let told = phase.parse().ok().map(|phase| place(step.parse().ok(), phase));
        let kept = series.records.last().unwrap_or_else(|| panic!("no record"));
        let kept_place = place(kept.step, kept.phase);
        // It may have finished one more phase and not told yet.
        let told = told.unwrap_or(kept_place);
        assert!(
            kept_place == told || kept_place == told + 1,
            "kill {kill}: told {last}, kept {:?} {}",
            kept.step,
            kept.phase
        );
        assert_eq!(kept.outcome, Outcome::Completed);
        assert!(ring.open.len() <= 1 && ring.damaged <= 1, "{:?}", ring.open);
        if let Some(open) = ring.open.first() {
            assert!(open.start.allocated >= Some(32 << 20) || open.phase == Phase::Model);
        }
    }
}

#[test]
fn an_allocation_that_libtorch_refuses_is_in_jaeger_with_what_was_asked_for() {
    let Some(jaeger) = Jaeger::start() else { return };
    // So many samples that no machine has the memory for their tokens.
    let done = example("alpha")
        .args(&["--device", "cpu", "--batch-size-per-device", "1000000000000"])
        .sending(&jaeger.grpc, "grpc", "refused")
        .run();
    assert_eq!(done.status, Some(3), "{}", done.err);
    let spans = jaeger.spans("refused");
    let failed: Vec<_> =
        spans.iter().filter(|span| span.text("error.type") == Some("out_of_memory")).collect();
    let [failed] = failed[..] else { panic!("one phase failed: {spans:?}") };
    assert!(failed.number("phasescope.out_of_memory.requested") > Some(1 << 40), "{failed:?}");
    assert!(failed.number("phasescope.allocated.start").is_some());
}
