//! Through a real OpenTelemetry Collector.

use std::collections::BTreeSet;

use phasescope::report;
use phasescope::{PhaseRecord, export};
use phasescope_export_tests::{Collector, Done, Jaeger, Program, example, train};

/// A run and what it reports of itself.
struct Run {
    service: String,
    spans: usize,
    report: report::Report,
}

fn run(program: Program, service: &str, endpoint: &str, protocol: &str, option: &str) -> Run {
    let folder = tempfile::tempdir().unwrap_or_else(|error| panic!("{error}"));
    let path = folder.path().join("report.json");
    let done = program
        .args(&[option, &path.to_string_lossy()])
        .sending(endpoint, protocol, service)
        .env("PHASESCOPE_RUN_ID", service)
        .run();
    assert_eq!(done.status, Some(0), "{}", done.err);
    let spans = exported(&done);
    let report = report::read(&path).unwrap_or_else(|error| panic!("{error}"));
    Run { service: service.to_owned(), spans, report }
}

/// The spans that a program says it has exported, when it says that it has lost none.
fn exported(done: &Done) -> usize {
    let [told] = done.told()[..] else { panic!("one line: {}", done.err) };
    assert!(told.ends_with(", 0 failed, 0 dropped"), "{told}");
    let count = told.split_whitespace().nth(1).and_then(|count| count.parse().ok());
    count.unwrap_or_else(|| panic!("{told}"))
}

/// A record without the device's running peak at its edges: a span has its own peak only.
fn as_sent(record: &PhaseRecord) -> PhaseRecord {
    let mut record = record.clone();
    record.start.peak_allocated = None;
    record.end.peak_allocated = None;
    record
}

#[test]
fn nothing_is_lost_or_doubled_on_the_way_to_jaeger_and_to_a_file_with_the_same_findings() {
    let Some(jaeger) = Jaeger::start() else { return };
    let Some(collector) = Collector::before(&jaeger) else { return };
    let mut runs = Vec::new();
    for case in ["alpha", "beta", "gamma"] {
        for (protocol, endpoint) in [("grpc", &collector.grpc), ("http/protobuf", &collector.http)]
        {
            let service = format!("{case}-{}", &protocol[..4]);
            let program = example(case).args(&["--device", "cpu"]);
            runs.push(run(program, &service, endpoint, protocol, "--output"));
        }
    }
    // More than a batch and more than the queue's half, at full speed.
    let many = train().args(&["--steps", "300", "--leak-from", "200", "--all-steps"]);
    let many = many.env("OTEL_BSP_MAX_QUEUE_SIZE", "4096");
    runs.push(run(many, "many", &collector.grpc, "grpc", "--report"));
    assert_eq!(runs.last().map(|run| run.spans), Some(1 + 300 * 5));

    let total = runs.iter().map(|run| run.spans).sum();
    let text = collector.wait_for_spans(total);
    assert_eq!(text.matches("\"spanId\"").count(), total, "in the file");
    let folder = tempfile::tempdir().unwrap_or_else(|error| panic!("{error}"));
    let file = folder.path().join("spans.jsonl");
    std::fs::write(&file, text).unwrap_or_else(|error| panic!("{error}"));
    let processes = export::read(&file).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(processes.len(), runs.len());
    for run in &runs {
        let spans = jaeger.wait_for(&run.service, run.spans);
        let ids: BTreeSet<_> = spans.iter().map(|span| (&span.trace, &span.id)).collect();
        assert_eq!((spans.len(), ids.len()), (run.spans, run.spans), "{} in Jaeger", run.service);

        let process = processes
            .iter()
            .find(|process| process.run_id.as_deref() == Some(&run.service))
            .unwrap_or_else(|| panic!("no {} in the file", run.service));
        let rank = &run.report.rank_reports[0];
        let series = &process.series[0];
        assert_eq!(Some(series.device.as_str()), rank.device.as_deref());
        let reported: Vec<_> = rank.phases.iter().map(as_sent).collect();
        assert!(series.records == reported, "{}: the records differ", run.service);
        assert_eq!(Some(&series.diagnosis), rank.diagnosis.as_ref(), "{}", run.service);
        assert!(!series.diagnosis.findings.is_empty());
    }
}

#[test]
fn prometheus_is_told_the_levels_of_every_phase_and_the_findings() {
    let Some(jaeger) = Jaeger::start() else { return };
    let Some(collector) = Collector::before(&jaeger) else { return };
    let done = train()
        .args(&["--steps", "20", "--leak-from", "0"])
        .sending(&collector.http, "http/protobuf", "levels")
        .env("PHASESCOPE_RUN_ID", "levels")
        .env("RANK", "3")
        .run();
    assert_eq!(done.status, Some(0), "{}", done.err);
    let text = collector.wait_for_metrics(|line| {
        line.starts_with("phasescope_steps_total{") && line.ends_with(" 20")
    });
    let value = |metric: &str, labels: &[&str]| {
        let lines: Vec<_> = text
            .lines()
            .filter(|line| line.starts_with(&format!("{metric}{{")))
            .filter(|line| labels.iter().all(|label| line.contains(label)))
            .collect();
        let [line] = lines[..] else { panic!("{metric} {labels:?}: {lines:?} in {text}") };
        let number = line.rsplit(' ').next().and_then(|number| number.parse::<f64>().ok());
        number.unwrap_or_else(|| panic!("{line}"))
    };
    let run = ["phasescope_run_id=\"levels\"", "phasescope_rank=\"3\""];
    let forward = [run[0], run[1], "phasescope_phase=\"forward\""];
    // The model, and the kept activations of twenty steps.
    let level = f64::from(32 + 20 * 48) * 1_048_576.0;
    assert_eq!(value("phasescope_memory_allocated_bytes", &forward), level);
    assert_eq!(value("phasescope_memory_peak_bytes", &forward), level);
    assert_eq!(value("phasescope_phase_duration_seconds_count", &forward), 20.0);
    assert_eq!(value("phasescope_steps_total", &run), 20.0);
    let graph = ["phasescope_finding_code=\"retained_graph\"", run[0], run[1]];
    assert!(value("phasescope_finding_held_bytes", &graph) > 0.0);
    assert!(value("process_memory_usage_bytes", &run) > 0.0);
    assert!(!text.contains("phasescope_step=\""), "the step is no label");
    assert!(!text.contains("phasescope_memory_reserved"), "what was not measured is not there");
}
