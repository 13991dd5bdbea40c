//! Spans to a file, and back.
#![cfg(feature = "otlp")]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use phasescope::counters::scripted::Scripted;
use phasescope::export::{self, Export, ExportError, Protocol, Sampling, SpanCounts};
use phasescope::phase::{Outcome, RunIdentity};
use phasescope::report::Series;
use phasescope::{PhaseRecord, phase, step};
use tempfile::TempDir;
use tracing::info_span;
use tracing_subscriber::layer::SubscriberExt;

fn folder() -> TempDir {
    tempfile::tempdir().unwrap_or_else(|error| panic!("{error}"))
}

fn to_file(path: &Path) -> Export {
    Export::to_file(path).unwrap_or_else(|error| panic!("{error}"))
}

/// What a run counted of its spans and recorded of its phases.
struct Ran {
    counts: SpanCounts,
    series: Vec<Series>,
}

/// Runs `work` with an export, as rank 1 of the run "file".
fn run(export: Export, work: impl FnOnce(&Scripted)) -> Ran {
    let device = Arc::new(Scripted::new("cuda:0"));
    let (layer, guard) = phasescope::builder()
        .identity(RunIdentity::new("file").with_rank(1, 2))
        .source(device.clone())
        .keep_records()
        .export(export)
        .build();
    let stack = tracing_subscriber::registry().with(layer).with(guard.opentelemetry_layer());
    tracing::subscriber::with_default(stack, || work(&device));
    let counts = guard.shutdown().unwrap_or_else(|| panic!("nothing is exported"));
    assert_eq!(guard.problems(), Vec::<String>::new());
    assert_eq!((counts.pending, guard.failed_metric_exports()), (0, 0));
    Ran { counts, series: guard.series() }
}

/// Steps that keep what their forward allocates from `leak_from` on.
fn train(device: &Scripted, steps: u64, leak_from: u64) {
    for number in 0..steps {
        let _step = step!(number).entered();
        phase!(forward).in_scope(|| device.allocate(50 << 20));
        let kept = number >= leak_from;
        phase!(backward).in_scope(|| device.free(if kept { 0 } else { 50 << 20 }));
    }
}

/// A record as a span has it: without the device's running peak at its edges.
fn as_sent(record: &PhaseRecord) -> PhaseRecord {
    let mut record = record.clone();
    record.start.peak_allocated = None;
    record.end.peak_allocated = None;
    record
}

#[test]
fn a_file_holds_what_the_process_recorded_and_the_engine_says_the_same_of_it() {
    let folder = folder();
    let path = folder.path().join("run.jsonl");
    let ran = run(to_file(&path), |device| {
        phase!(model).in_scope(|| device.allocate(100 << 20));
        train(device, 10, 0);
        let failed = std::panic::catch_unwind(|| {
            phase!(other, "export weights").in_scope(|| panic!("the disk is full"));
        });
        assert!(failed.is_err());
    });
    assert_eq!((ran.counts.exported, ran.counts.dropped), (1 + 10 * 3 + 1, 0));

    let processes = export::read(&path).unwrap_or_else(|error| panic!("{error}"));
    let [process] = &processes[..] else { panic!("one process: {processes:?}") };
    assert_eq!((process.run_id.as_deref(), process.rank), (Some("file"), 1));
    let (read, own) = (&process.series[0], &ran.series[0]);
    assert_eq!(read.records, own.records.iter().map(as_sent).collect::<Vec<_>>());
    assert_eq!(read.diagnosis, own.diagnosis);
    assert_eq!(read.diagnosis.findings[0].code.name(), "retained_graph");
    let last = read.records.last().unwrap_or_else(|| panic!("no record"));
    assert_eq!(last.outcome, Outcome::Panicked(Some("the disk is full".to_owned())));
    assert_eq!(last.name.as_deref(), Some("export weights"));
}

#[test]
fn what_json_cannot_say_goes_as_words_and_unsigned_fields_as_numbers() {
    let folder = folder();
    let path = folder.path().join("run.jsonl");
    run(to_file(&path), |_| {
        let _span = info_span!(
            "step",
            phasescope.step = 7_u64,
            loss = f64::NAN,
            scale = f64::INFINITY,
            rate = 0.5
        )
        .entered();
        phase!(forward).in_scope(|| tracing::info!(loss = f64::NAN, "a loss that is no number"));
    });
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{error}"));
    for expected in [
        r#"{"key":"loss","value":{"stringValue":"NaN"}}"#,
        r#"{"key":"scale","value":{"stringValue":"inf"}}"#,
        r#"{"key":"rate","value":{"doubleValue":0.5}}"#,
        r#"{"key":"phasescope.step","value":{"intValue":"7"}}"#,
    ] {
        assert!(text.contains(expected), "{expected} in {text}");
    }
    assert!(!text.contains(r#""doubleValue":null"#));
    assert_eq!(export::read(&path).map(|found| found.len()).ok(), Some(1));
}

#[test]
fn a_file_that_is_there_is_not_touched() {
    let folder = folder();
    let path = folder.path().join("run.jsonl");
    fs::write(&path, "mine").unwrap_or_else(|error| panic!("{error}"));
    let error = Export::to_file(&path).map(|_| ()).unwrap_err();
    assert!(error.to_string().contains("expected to make a new file"), "{error}");
    assert_eq!(fs::read_to_string(&path).ok().as_deref(), Some("mine"));
    assert!(Export::to_file(folder.path().join("none/run.jsonl")).is_err());
}

fn lines(name: &str, text: &str) -> (TempDir, PathBuf) {
    let folder = folder();
    let path = folder.path().join(name);
    fs::write(&path, text).unwrap_or_else(|error| panic!("{error}"));
    (folder, path)
}

/// A file as the OpenTelemetry Collector writes it, spans and metrics.
const COLLECTED: &str = include_str!("fixtures/spans/gamma.jsonl");

#[test]
fn a_file_of_the_collector_is_read_and_spans_that_came_twice_count_once() {
    let (_folder, once) = lines("once.jsonl", COLLECTED);
    let (_folder2, twice) = lines("twice.jsonl", &format!("{COLLECTED}\n{COLLECTED}"));
    let once = export::read(&once).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(once[0].series[0].records.len(), 27);
    assert_eq!(once[0].series[0].diagnosis.findings[0].code.name(), "retained_graph");
    assert_eq!(export::read(&twice).unwrap_or_else(|error| panic!("{error}")), once);
}

#[test]
fn a_last_line_that_was_cut_is_left_out_and_any_other_is_an_error_with_its_place() {
    let whole = COLLECTED.trim_end();
    let (_folder, path) = lines("cut.jsonl", &format!("{whole}\n{}", &whole[..500]));
    let read = export::read(&path).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(read[0].series[0].records.len(), 27);

    for (text, place) in [
        (format!("{}\n{whole}\n", &whole[..500]), "line 1: expected a request of OTLP/JSON"),
        (format!("{whole}\n{{\"resource_spans\": []}}\n"), "found an object without resourceSpans"),
        ("{\"resourceSpans\": [{\"scopeSpans\": 3}]}\n".to_owned(), "line 1"),
        ("{\"resourceSpans\": []}\n".to_owned(), "found none among 0 spans"),
        (String::new(), "expected spans with phasescope.phase"),
    ] {
        let (_folder, path) = lines("bad.jsonl", &text);
        let error = export::read(&path).unwrap_err().to_string();
        assert!(error.contains("bad.jsonl: ") && error.contains(place), "{error}");
    }
}

#[test]
fn settings_that_cannot_be_are_errors_that_say_what_was_expected() {
    let of = |url: &str, protocol| Export::to_endpoint(url, protocol).map(|_| ()).unwrap_err();
    for url in ["", "collector", "ftp://collector:4318", "http://", "localhost:4318"] {
        let error = of(url, Protocol::HttpProtobuf).to_string();
        assert!(error.contains("expected an endpoint such as http://localhost:4318"), "{error}");
    }
    assert!(of("ftp://collector", Protocol::Grpc).to_string().contains("http://localhost:4317"));
    // gRPC's endpoint may come without a scheme.
    assert!(Export::to_endpoint("collector:4317", Protocol::Grpc).is_ok());

    let export = || Export::to_endpoint("http://localhost:4318", Protocol::HttpProtobuf);
    for (name, value, part) in
        [("bad name", "x", "name"), ("", "x", "name"), ("token", "two\nlines", "value")]
    {
        let error = export().and_then(|export| export.header(name, value)).map(|_| ());
        let expected = ExportError::Header { name: name.to_owned(), part };
        assert_eq!(error, Err(expected), "and the value, which may be a secret, is not told");
    }
}

#[test]
fn the_first_steps_every_so_many_th_and_those_around_a_change_of_verdict_are_exported() {
    let folder = folder();
    let path = folder.path().join("run.jsonl");
    let sampling = Sampling { first: 5, every: 50, around_change: 3 };
    let ran = run(to_file(&path).sampling(sampling), |device| {
        device.allocate(100 << 20);
        // Activations are the verdict from the first steps on, until the leak is found.
        train(device, 200, 120);
    });
    let processes = export::read(&path).unwrap_or_else(|error| panic!("{error}"));
    let mut steps: Vec<u64> =
        processes[0].series[0].records.iter().filter_map(|record| record.step).collect();
    steps.dedup();
    let expected: Vec<u64> = (0..5).chain([50, 100, 150]).collect();
    let others: Vec<u64> = steps.iter().copied().filter(|step| !expected.contains(step)).collect();
    // One run of steps around each change: three before, the one in which it changed, three after.
    let (first, last) = (others[0], others[others.len() - 1]);
    assert!(first > 115 && last < 145, "{steps:?}");
    let found = others.iter().find(|step| {
        let text = fs::read_to_string(&path).unwrap_or_default();
        text.contains("phasescope.verdict_changed") && **step >= 120
    });
    assert!(found.is_some(), "{steps:?}");
    assert!(others.len() >= 7 && (first..=last).all(|step| others.contains(&step)), "{steps:?}");
    let exported = ran.counts.exported;
    assert_eq!(exported + ran.counts.unsampled, 200 * 3, "every span is in one account");
    assert_eq!(exported, 3 * steps.len() as u64);
    assert_eq!(ran.series[0].records.len(), 400, "the engine saw every step");
}

#[test]
fn spans_outside_steps_are_counted_by_name_and_spans_inside_go_with_their_step() {
    let folder = folder();
    let path = folder.path().join("run.jsonl");
    let sampling = Sampling { first: 2, every: 10, around_change: 0 };
    let ran = run(to_file(&path).sampling(sampling), |device| {
        let _run = phasescope::run!("file").entered();
        device.allocate(1 << 20);
        for number in 0..30_u64 {
            {
                let _step = step!(number).entered();
                phase!(forward).in_scope(|| info_span!("attention").in_scope(|| {}));
            }
            phase!(eval).in_scope(|| {});
        }
    });
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{error}"));
    let count = |name: &str| text.matches(&format!("\"name\":\"{name}\"")).count();
    // Steps 0, 1, 10 and 20; the evaluations 0, 1, 10 and 20.
    assert_eq!(count("run"), 1);
    assert_eq!((count("step"), count("forward"), count("attention")), (4, 4, 4));
    assert_eq!(count("eval"), 4);
    let sent = ran.counts.exported;
    assert_eq!((sent, ran.counts.unsampled), (1 + 4 * 3 + 4, 26 * 3 + 26), "each in one account");
}

#[test]
fn metrics_go_to_the_meter_of_a_program_that_has_one() {
    use opentelemetry::metrics::MeterProvider;
    use opentelemetry_sdk::metrics::{InMemoryMetricExporter, SdkMeterProvider};
    let exporter = InMemoryMetricExporter::default();
    let provider = SdkMeterProvider::builder().with_periodic_exporter(exporter.clone()).build();
    let device = Arc::new(Scripted::new("cuda:0"));
    let (layer, guard) =
        phasescope::builder().source(device.clone()).meter(provider.meter("own")).build();
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
        phase!(forward).in_scope(|| device.allocate(7));
    });
    provider.force_flush().unwrap_or_else(|error| panic!("{error}"));
    let found = exporter.get_finished_metrics().unwrap_or_else(|error| panic!("{error}"));
    let scopes = found.iter().flat_map(|group| group.scope_metrics());
    let names: Vec<_> =
        scopes.flat_map(|scope| scope.metrics()).map(|metric| metric.name()).collect();
    assert!(names.contains(&"phasescope.memory.allocated"), "{names:?}");
    assert!(!names.contains(&"phasescope.spans"), "its spans are not ours to count");
    assert_eq!(guard.span_counts(), None);
}

#[test]
fn steps_that_begin_again_in_every_epoch_are_counted_and_sampled_as_new_ones() {
    let folder = folder();
    let path = folder.path().join("run.jsonl");
    let sampling = Sampling { first: 15, every: 0, around_change: 0 };
    run(to_file(&path).sampling(sampling), |device| {
        for _epoch in 0..2 {
            train(device, 10, 10);
        }
    });
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(text.matches("\"name\":\"step\"").count(), 15);
    let (_, steps) = text.split_once("\"phasescope.steps\"").unwrap_or_else(|| panic!("{text}"));
    let (_, value) = steps.split_once("\"asInt\":\"").unwrap_or_else(|| panic!("{steps}"));
    assert!(value.starts_with("20\""), "{value}");
}

#[test]
fn counters_that_cannot_be_are_errors_that_name_line_and_counter() {
    // The level after the first forward.
    let good = "\"phasescope.allocated.end\",\"value\":{\"intValue\":\"";
    let at = COLLECTED.find(good).unwrap_or_else(|| panic!("no such counter")) + good.len();
    let end = at + COLLECTED[at..].find('"').unwrap_or_else(|| panic!("no end"));
    for (value, words) in [
        ("-5", "expected phasescope.allocated.end from 0 on, found -5"),
        ("1125899906842625", "expected at most 1125899906842624 in end.allocated of "),
        ("9223372036854775807", "found 9223372036854775807"),
    ] {
        let text = format!("{}{value}{}", &COLLECTED[..at], &COLLECTED[end..]);
        let (_folder, path) = lines("absurd.jsonl", &text);
        let error = export::read(&path).unwrap_err().to_string();
        assert!(error.contains("absurd.jsonl: line ") && error.contains(words), "{error}");
    }
}

#[test]
fn steps_that_all_have_one_number_are_sampled_one_by_one() {
    let folder = folder();
    let path = folder.path().join("run.jsonl");
    let sampling = Sampling { first: 5, every: 20, around_change: 0 };
    run(to_file(&path).sampling(sampling), |_| {
        for _ in 0..50 {
            let _step = step!(0).entered();
            phase!(forward).in_scope(|| {});
        }
    });
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(text.matches("\"name\":\"step\"").count(), 5 + 2);
    let (_, steps) = text.split_once("\"phasescope.steps\"").unwrap_or_else(|| panic!("{text}"));
    assert!(steps.contains("\"asInt\":\"50\""), "{steps}");
}

#[test]
fn where_phases_say_their_step_themselves_a_change_of_verdict_is_seen_in_time() {
    let folder = folder();
    let path = folder.path().join("run.jsonl");
    let sampling = Sampling { first: 2, every: 0, around_change: 3 };
    run(to_file(&path).sampling(sampling), |device| {
        device.allocate(100 << 20);
        for number in 0..60_u64 {
            let kept = number >= 30;
            phase!(forward, phasescope.step = number).in_scope(|| device.allocate(50 << 20));
            phase!(backward, phasescope.step = number)
                .in_scope(|| device.free(if kept { 0 } else { 50 << 20 }));
        }
    });
    let processes = export::read(&path).unwrap_or_else(|error| panic!("{error}"));
    let records = &processes[0].series[0].records;
    let steps: Vec<u64> = records.iter().filter_map(|record| record.step).collect();
    assert!(
        steps.iter().any(|step| (33..45).contains(step)),
        "around the leak's finding: {steps:?}"
    );
    assert!(steps.iter().all(|step| *step < 10 || (30..50).contains(step)), "{steps:?}");
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{error}"));
    let (_, counted) = text.split_once("\"phasescope.steps\"").unwrap_or_else(|| panic!("{text}"));
    assert!(counted.contains("\"asInt\":\"60\""), "{counted}");
}

#[test]
fn a_crate_is_exported_whatever_its_name_begins_with_and_the_transport_is_not() {
    let folder = folder();
    let path = folder.path().join("run.jsonl");
    run(to_file(&path), |_| {
        info_span!(target: "hyperopt::trial", "trial", phasescope.phase = "forward")
            .in_scope(|| {});
        info_span!(target: "towers", "tower", phasescope.phase = "eval").in_scope(|| {});
        info_span!(target: "hyper::client", "request").in_scope(|| {});
        info_span!(target: "opentelemetry_sdk", "batch").in_scope(|| {});
    });
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{error}"));
    assert!(text.contains("\"name\":\"trial\"") && text.contains("\"name\":\"tower\""), "{text}");
    assert!(!text.contains("\"name\":\"request\"") && !text.contains("\"name\":\"batch\""));
}

#[test]
fn secrets_of_an_address_and_headers_are_in_no_message() {
    for url in ["ftp://me:secret@host", "http://me:secret@", "me:secret@host?key=secret"] {
        let error = Export::to_endpoint(url, Protocol::HttpProtobuf).map(|_| ()).unwrap_err();
        assert!(!format!("{error} {error:?}").contains("secret"), "{error:?}");
    }
    let export = Export::to_endpoint("http://secret@host:4318/?key=secret", Protocol::HttpProtobuf)
        .and_then(|export| export.header("authorization", "secret"))
        .unwrap_or_else(|error| panic!("{error}"));
    let told = format!("{:?}", phasescope::builder().export(export));
    assert!(told.contains("http://host:4318/") && !told.contains("secret"), "{told}");
}

#[test]
fn a_line_that_was_cut_inside_a_character_is_left_out_as_any_cut_line() {
    let whole = COLLECTED.trim_end();
    let folder = folder();
    let path = folder.path().join("cut.jsonl");
    let mut bytes = format!("{whole}\n{{\"resourceSpans\":[{{\"x\":\"Pr\u{fc}").into_bytes();
    bytes.pop();
    fs::write(&path, bytes).unwrap_or_else(|error| panic!("{error}"));
    let read = export::read(&path).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(read[0].series[0].records.len(), 27);
}
