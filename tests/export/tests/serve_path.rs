//! From a program through `phasescope serve` to the backend.

use std::collections::BTreeSet;

use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::logs::v1::{LogRecord, ResourceLogs, ScopeLogs};
use opentelemetry_proto::tonic::metrics::v1::{
    Gauge, Metric, NumberDataPoint, ResourceMetrics, ScopeMetrics, metric, number_data_point,
};
use phasescope_export_tests::{Answer, Client, Collector, Jaeger, Made, Serve, Sink, Span, train};
use prost::Message;

const CHANGED: &str = "phasescope.verdict_changed";

/// What a backend must have of a program's spans, whatever they went through.
fn shape(spans: &[Span]) -> BTreeSet<(String, Option<String>, String, u64, u64, usize)> {
    let shapes = spans.iter().map(|span| {
        let Span { id, parent, name, start, duration, events, .. } = span.clone();
        (id, parent, name, start, duration, events.len())
    });
    shapes.collect()
}

fn event<'a>(span: &'a Span, key: &str) -> Option<&'a str> {
    let event = span
        .events
        .iter()
        .find(|event| event.get("event").and_then(serde_json::Value::as_str) == Some(CHANGED));
    event?.get(key)?.as_str()
}

#[test]
fn a_program_that_does_not_judge_itself_gets_verdicts_and_the_whole_finding_in_jaeger() {
    let Some(jaeger) = Jaeger::start() else { return };
    let serve = Serve::before(&jaeger.grpc);
    let mut client = Client::new(&serve.grpc, true);
    let mut made = Made::new("made-run", 0, 1).leaking_from(10);
    for first in (0..40).step_by(8) {
        client.deliver(&made.request(first..first + 8));
    }
    let spans = jaeger.spans("made");
    assert_eq!(spans.len(), 40 * 5, "every span once");
    let ids: BTreeSet<_> = spans.iter().map(|span| &span.id).collect();
    assert_eq!(ids.len(), spans.len());
    let steps: Vec<_> = spans.iter().filter(|span| span.name == "step").collect();
    for phase in spans.iter().filter(|span| span.name != "step") {
        assert!(steps.iter().any(|step| Some(&step.id) == phase.parent.as_ref()));
        assert_eq!(phase.text("phasescope.verdict.code"), None, "phases have no verdict");
    }
    let last = steps.last().unwrap_or_else(|| panic!("no step"));
    assert_eq!(last.text("phasescope.verdict.code"), Some("retained_graph"));
    assert_eq!(last.text("phasescope.verdict.severity"), Some("critical"));
    let changes: Vec<_> =
        steps.iter().filter_map(|step| event(step, "phasescope.finding.code")).collect();
    assert_eq!(changes, ["activations", "retained_graph"], "each change once");
    let told =
        steps.iter().find(|step| event(step, "phasescope.finding.code") == Some("retained_graph"));
    let told = told.unwrap_or_else(|| panic!("no event"));
    assert_eq!(event(told, "phasescope.finding.label"), Some("gamma"));
    for list in ["evidence", "responses", "rejected"] {
        let text = event(told, &format!("phasescope.finding.{list}")).unwrap_or_default();
        assert!(text.starts_with("[\"") && text.len() > 40, "{list}: {text}");
    }
}

#[test]
fn a_programs_spans_arrive_as_without_it_and_its_own_verdicts_stay() {
    let Some(jaeger) = Jaeger::start() else { return };
    let serve = Serve::before(&jaeger.grpc);
    for (protocol, endpoint) in [("grpc", &serve.grpc), ("http/protobuf", &serve.http)] {
        let service = format!("train-{}", &protocol[..4]);
        let done = train()
            .args(&["--steps", "40", "--leak-from", "10", "--all-steps"])
            .sending(endpoint, protocol, &service)
            // A Jaeger takes no metrics.
            .env("OTEL_METRICS_EXPORTER", "none")
            .run();
        assert_eq!(done.status, Some(0), "{}", done.err);
        let told = format!("phasescope: 201 spans exported to {endpoint}, 0 failed, 0 dropped");
        assert_eq!(done.told(), [told]);
        let spans = jaeger.spans(&service);
        assert_eq!(spans.len(), 201);
        for step in spans.iter().filter(|span| span.name == "step") {
            let verdicts = step.tags.keys().filter(|key| key.contains("verdict")).count();
            assert!(verdicts <= 2, "a verdict is not told twice: {:?}", step.tags.keys());
        }
        let changes = spans.iter().filter_map(|span| event(span, "phasescope.finding.code"));
        assert_eq!(changes.collect::<Vec<_>>(), ["activations", "retained_graph"]);
    }
    assert_eq!(serve.metric("phasescope_collector_forwarded_items_total", &["traces"]), 402.0);
}

#[test]
fn between_two_open_telemetry_collectors_nothing_is_lost_doubled_or_changed() {
    let Some(jaeger) = Jaeger::start() else { return };
    let Some(after) = Collector::before(&jaeger) else { return };
    let serve = Serve::before(&after.grpc);
    let Some(before) = Collector::handing_on(&serve.grpc) else { return };
    // The same program on its own, to compare with.
    let folder = tempfile::tempdir().unwrap_or_else(|error| panic!("{error}"));
    let direct = folder.path().join("direct.jsonl");
    let steps = ["--steps", "60", "--leak-from", "20", "--all-steps"];
    let run = train().args(&steps).sending(&before.grpc, "grpc", "through").run();
    assert_eq!(run.status, Some(0), "{}", run.err);
    let alone = train().args(&steps).args(&["--spans", &direct.to_string_lossy()]).run();
    assert_eq!(alone.status, Some(0), "{}", alone.err);

    let spans = jaeger.wait_for("through", 301);
    assert_eq!(spans.len(), 301, "no span is lost or doubled");
    let ids: BTreeSet<_> = spans.iter().map(|span| &span.id).collect();
    assert_eq!(ids.len(), 301);
    let path = spans[0].resource["phasescope.collector.path"].as_str().unwrap_or_default();
    assert_eq!(path.matches('"').count(), 2, "one collector has judged it: {path}");
    // The verdicts are those of the file.
    let alone = std::fs::read_to_string(direct).unwrap_or_else(|error| panic!("{error}"));
    let changes = spans.iter().filter_map(|span| event(span, "phasescope.finding.code")).count();
    assert_eq!(alone.matches(CHANGED).count(), changes);
    serve.wait_until("the run is known", |serve| {
        serve.metric("phasescope_steps_total", &[]) >= 60.0
    });
    let runs = serve.get("/api/runs");
    assert_eq!(runs[0]["verdict"]["code"], "retained_graph", "{runs}");
    // Its metrics came through too.
    after.wait_for_metrics(|line| {
        line.starts_with("phasescope_steps_total") && line.contains(" 60")
    });
}

#[test]
fn what_comes_back_is_sent_on_once_only_and_the_sender_is_told() {
    let Some(jaeger) = Jaeger::start() else { return };
    // A collector whose exporter is this one, and this one's next hop is that collector: a loop.
    let port = phasescope_export_tests::free_port();
    let entry = format!("http://127.0.0.1:{port}");
    let listen = format!("127.0.0.1:{port}");
    let Some(around) = Collector::to_both(&jaeger, &entry) else { return };
    let serve = Serve::with(&around.grpc, &["--listen-grpc", &listen]);
    let mut client = Client::new(&serve.grpc, false);
    client.deliver(&Made::new("loop", 0, 1).request(0..8));
    serve.wait_until("the loop is seen", |serve| {
        serve.metric("phasescope_collector_spans_looped_total", &[]) >= 40.0
    });
    let spans = jaeger.wait_for("made", 40);
    assert_eq!(spans.len(), 40, "every span once");
    assert_eq!(serve.metric("phasescope_collector_spans_looped_total", &[]), 40.0);
    assert!(serve.log().iter().any(|line| line.to_string().contains("have been through")));
}

fn metrics() -> ExportMetricsServiceRequest {
    let point = NumberDataPoint {
        time_unix_nano: 7,
        value: Some(number_data_point::Value::AsDouble(0.5)),
        ..NumberDataPoint::default()
    };
    let gauge = Gauge { data_points: vec![point] };
    let metric = Metric {
        name: "loss".to_owned(),
        data: Some(metric::Data::Gauge(gauge)),
        ..Metric::default()
    };
    let scope = ScopeMetrics { metrics: vec![metric], ..ScopeMetrics::default() };
    let group = ResourceMetrics { scope_metrics: vec![scope], ..ResourceMetrics::default() };
    ExportMetricsServiceRequest { resource_metrics: vec![group] }
}

fn logs() -> ExportLogsServiceRequest {
    let record = LogRecord { severity_text: "INFO".to_owned(), ..LogRecord::default() };
    let scope = ScopeLogs { log_records: vec![record], ..ScopeLogs::default() };
    let group = ResourceLogs { scope_logs: vec![scope], ..ResourceLogs::default() };
    ExportLogsServiceRequest { resource_logs: vec![group] }
}

/// A field of a later OTLP, at the end of a message.
fn with_unknown_field(mut message: Vec<u8>) -> Vec<u8> {
    // Field 1000, length-delimited, three bytes.
    message.extend([0xc2, 0x3e, 3, b'n', b'e', b'w']);
    message
}

#[test]
fn metrics_and_logs_pass_byte_for_byte_and_unknown_fields_of_traces_stay() {
    let http = reqwest::blocking::Client::new();
    for protocol in ["grpc", "http/protobuf"] {
        let sink = Sink::start(Answer::Accept);
        let serve = Serve::with(&sink.address, &["--next-protocol", protocol]);
        let post = |path: &str, body: Vec<u8>| {
            let url = format!("{}{path}", serve.http);
            let request = http.post(url).header("content-type", "application/x-protobuf");
            let status = request.body(body).send().unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(status.status(), 200);
        };
        let (metrics, logs) = (metrics().encode_to_vec(), logs().encode_to_vec());
        let (metrics, logs) = (with_unknown_field(metrics), with_unknown_field(logs));
        post("/v1/metrics", metrics.clone());
        post("/v1/logs", logs.clone());
        let mut made = Made::new("later", 0, 1);
        let spans = (0..4).flat_map(|step| made.step(step)).collect();
        // Unknown fields in the request, the group and, by its bytes, in a span that is added to.
        let group = with_unknown_field(made.group(spans).encode_to_vec());
        let mut traces = vec![0x0a];
        prost::encode_length_delimiter(group.len(), &mut traces)
            .unwrap_or_else(|error| panic!("{error}"));
        traces.extend(group);
        post("/v1/traces", with_unknown_field(traces));

        let taken = sink.requests();
        let of = |signal: &str| {
            let request = taken.iter().find(|(path, _)| {
                path.to_lowercase().contains(&signal.trim_end_matches('s').to_lowercase())
            });
            request.unwrap_or_else(|| panic!("no {signal}")).1.to_vec()
        };
        assert_eq!(of("metrics"), metrics);
        assert_eq!(of("logs"), logs);
        let traces = of("traces");
        let unknown = [0xc2, 0x3e, 3, b'n', b'e', b'w'];
        assert_eq!(traces.windows(6).filter(|window| *window == unknown).count(), 2);
        let sent = sink.traces();
        let spans = &sent[0].resource_spans[0].scope_spans[0].spans;
        assert_eq!(spans.len(), 20);
        let step = &spans[14];
        assert!(step.attributes.iter().any(|pair| pair.key == "phasescope.verdict.code"));
    }
}

#[test]
fn json_and_gzip_are_judged_as_protobuf_is() {
    use std::io::Write;
    let sink = Sink::start(Answer::Accept);
    let serve = Serve::before(&sink.address);
    let http = reqwest::blocking::Client::new();
    for (number, (json, gzip)) in
        [(false, false), (false, true), (true, false), (true, true)].into_iter().enumerate()
    {
        let mut made = Made::new(&format!("run-{number}"), 0, 1).leaking_from(4);
        let request = made.request(0..20);
        let mut body = match json {
            true => serde_json::to_vec(&request).unwrap_or_else(|error| panic!("{error}")),
            false => request.encode_to_vec(),
        };
        let kind = if json { "application/json" } else { "application/x-protobuf" };
        let mut post = http.post(format!("{}/v1/traces", serve.http)).header("content-type", kind);
        if gzip {
            let mut encoder =
                flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
            encoder.write_all(&body).unwrap_or_else(|error| panic!("{error}"));
            body = encoder.finish().unwrap_or_else(|error| panic!("{error}"));
            post = post.header("content-encoding", "gzip");
        }
        let answer = post.body(body).send().unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(answer.status(), 200);
        assert_eq!(answer.headers()["content-type"], kind);
    }
    let runs = serve.get("/api/runs");
    let verdicts: Vec<_> = (0..4).map(|run| runs[run]["verdict"]["title"].clone()).collect();
    let title = "autograd graphs are kept: 50.0 MiB more after every step";
    assert_eq!(verdicts, [title; 4]);
    assert_eq!(sink.spans().len(), 4 * 100);
}

#[test]
fn a_rank_that_is_started_again_is_judged_anew_and_spans_that_pass_each_other_in_their_order() {
    let sink = Sink::start(Answer::Accept);
    let serve = Serve::before(&sink.address);
    let mut client = Client::new(&serve.grpc, false);
    // Batches of one rank in the wrong order.
    let mut made = Made::new("order", 0, 1).leaking_from(0);
    let [first, second, third] = [0..8, 8..16, 16..24].map(|steps| made.request(steps));
    for request in [&second, &first, &third, &first] {
        client.deliver(request);
    }
    let judged = serve.get("/api/runs/order");
    let sentence = judged[0]["findings"][0]["evidence"][0]["sentence"].as_str().unwrap_or_default();
    assert!(sentence.contains("(step 0)") && sentence.contains("(step 23)"), "{sentence}");
    assert_eq!(serve.metric("phasescope_collector_phases_repeated_total", &[]), 32.0);
    assert_eq!(serve.metric("phasescope_collector_phases_late_total", &[]), 0.0);

    // The same run and rank from a new process, without the fault.
    let mut again = Made::new("order", 0, 1);
    let mut request = again.request(0..8);
    let resource = request.resource_spans[0].resource.as_mut();
    let resource = resource.unwrap_or_else(|| panic!("no resource"));
    let instance = resource.attributes.iter_mut().find(|pair| pair.key == "service.instance.id");
    let value = instance.and_then(|pair| pair.value.as_mut());
    let value = value.unwrap_or_else(|| panic!("no instance"));
    value.value = Some(opentelemetry_proto::tonic::common::v1::any_value::Value::StringValue(
        "again".to_owned(),
    ));
    client.deliver(&request);
    let judged = serve.get("/api/runs/order");
    assert_eq!(judged[0]["instance"], "again");
    assert_eq!(judged[0]["findings"][0]["code"], "activations");
    // What the old process still sends is passed on and not judged.
    client.deliver(&third);
    assert_eq!(serve.get("/api/runs/order")[0]["findings"][0]["code"], "activations");
}

#[test]
fn the_shape_of_traces_is_the_same_with_and_without_it() {
    let Some(jaeger) = Jaeger::start() else { return };
    let Some(other) = Jaeger::start() else { return };
    let serve = Serve::before(&jaeger.grpc);
    let mut through = Client::new(&serve.grpc, false);
    let mut direct = Client::new(&other.grpc, false);
    let mut made = Made::new("shape", 3, 4);
    for first in (0..30).step_by(10) {
        let request = made.request(first..first + 10);
        through.deliver(&request);
        direct.deliver(&request);
    }
    let (mut with, without) = (jaeger.spans("made"), other.spans("made"));
    assert_eq!(with.len(), 150);
    with.iter_mut().for_each(|span| span.events.clear());
    assert_eq!(shape(&with), shape(&without));
}
