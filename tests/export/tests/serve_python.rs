//! A producer in Python is diagnosed exactly as a Rust run with the same numbers.

use std::collections::BTreeMap;

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{KeyValue, any_value::Value};
use phasescope_export_tests::{Answer, Program, Serve, Sink, python, train};
use serde_json::Value as Json;

/// A run's diagnosis without what is its own: the ids.
fn judged(serve: &Serve, run: &str) -> Json {
    let mut judged = serve.get(&format!("/api/runs/{run}"));
    for rank in judged.as_array_mut().unwrap_or_else(|| panic!("{run}: no list")) {
        let rank = rank.as_object_mut().unwrap_or_else(|| panic!("{run}: no rank"));
        rank.remove("run_id");
        rank.remove("instance");
    }
    judged
}

fn values(attributes: &[KeyValue]) -> BTreeMap<&str, &Value> {
    let values = attributes
        .iter()
        .filter_map(|pair| Some((pair.key.as_str(), pair.value.as_ref()?.value.as_ref()?)));
    values.collect()
}

/// Verdicts and whole findings on the steps of a run, step by step.
fn told(requests: &[ExportTraceServiceRequest], run: &str) -> Vec<String> {
    let groups = requests.iter().flat_map(|request| &request.resource_spans);
    let spans = groups.flat_map(|group| &group.scope_spans).flat_map(|scope| &scope.spans);
    let mut steps: Vec<_> = spans
        .filter(|span| span.name == "step")
        .filter_map(|span| {
            let attributes = values(&span.attributes);
            let of_run =
                matches!(attributes.get("phasescope.run_id"), Some(Value::StringValue(id)) if id == run);
            let Some(Value::IntValue(step)) = attributes.get("phasescope.step") else { return None };
            let verdict: Vec<_> =
                attributes.iter().filter(|(key, _)| key.contains("verdict")).collect();
            let events: Vec<_> = span
                .events
                .iter()
                .filter(|event| event.name == "phasescope.verdict_changed")
                .map(|event| values(&event.attributes))
                .collect();
            of_run.then(|| (*step, format!("{step} {verdict:?} {events:?}")))
        })
        .collect();
    steps.sort();
    steps.into_iter().map(|(_, told)| told).collect()
}

#[test]
fn a_python_run_is_diagnosed_exactly_as_a_rust_run_with_the_same_numbers() {
    let Some(_) = python("scripted.py") else { return };
    let sink = Sink::start(Answer::Accept);
    let serve = Serve::before(&sink.address);
    for options in [&["--steps", "12"][..], &["--steps", "40", "--leak-from", "10"]] {
        for (protocol, endpoint) in [("grpc", &serve.grpc), ("http/protobuf", &serve.http)] {
            let sending = |program: Program, run: &str| {
                let done = program
                    .args(options)
                    .sending(endpoint, protocol, "twins")
                    .env("PHASESCOPE_RUN_ID", run)
                    .run();
                assert_eq!(done.status, Some(0), "{}", done.err);
            };
            let name = |language: &str| format!("{language}-{}-{}", options.len(), &protocol[..4]);
            let script = python("scripted.py").unwrap_or_else(|| panic!("it was there"));
            sending(script, &name("python"));
            sending(train(), &name("rust"));
            let judged = ["python", "rust"].map(|language| judged(&serve, &name(language)));
            assert_eq!(judged[0], judged[1]);
            assert_eq!(judged[0][0]["device"], "cuda:0");
            // The verdicts that the collector put on the Python spans are those that the Rust program
            // has put on its own.
            let requests = sink.traces();
            let told = ["python", "rust"].map(|language| told(&requests, &name(language)));
            assert!(told[0].len() >= 12, "{:?}", told[0]);
            assert_eq!(told[0], told[1]);
        }
    }
}

#[test]
fn without_a_gpu_the_torch_loop_says_so() {
    let Some(program) = python("train.py") else { return };
    let done = program.args(&["--case", "gamma"]).run();
    let missing = done.err.contains("torch") || done.err.contains("CUDA");
    // On a machine with a GPU it trains, to nowhere.
    assert!(done.status == Some(0) || (done.status == Some(2) && missing), "{}", done.err);
}
