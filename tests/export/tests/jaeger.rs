//! What a user sees in Jaeger.

use std::collections::BTreeMap;
use std::sync::Arc;

use opentelemetry::trace::TracerProvider;
use opentelemetry_otlp::WithExportConfig;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::SdkTracerProvider;
use phasescope::counters::scripted::Scripted;
use phasescope::counters::{CounterSource, Counters, DeviceName, Scope};
use phasescope::export::{Export, Protocol};
use phasescope::phase::RunIdentity;
use phasescope::report;
use phasescope::{phase, step};
use phasescope_export_tests::{Jaeger, Span, example, train};
use tracing::info_span;
use tracing_subscriber::layer::SubscriberExt;

const IN_STEP: [&str; 4] = ["forward", "backward", "optimizer_step", "clear_gradients"];

/// The spans around which a span is the parent, by start.
fn children<'a>(spans: &'a [Span], parent: &Span) -> Vec<&'a Span> {
    spans.iter().filter(|span| span.parent.as_deref() == Some(&parent.id)).collect()
}

fn names<'a>(spans: &[&'a Span]) -> Vec<&'a str> {
    spans.iter().map(|span| span.name.as_str()).collect()
}

#[track_caller]
fn named<'a>(spans: &'a [Span], name: &str) -> &'a Span {
    spans.iter().find(|span| span.name == name).unwrap_or_else(|| panic!("no {name}"))
}

#[test]
fn a_case_is_one_trace_with_its_phases_in_order_and_the_numbers_of_its_report() {
    let Some(jaeger) = Jaeger::start() else { return };
    for case in ["alpha", "beta", "gamma"] {
        for (protocol, endpoint) in [("grpc", &jaeger.grpc), ("http/protobuf", &jaeger.http)] {
            let service = format!("{case}-{}", &protocol[..4]);
            let folder = tempfile::tempdir().unwrap_or_else(|error| panic!("{error}"));
            let path = folder.path().join("report.json");
            let done = example(case)
                .args(&["--device", "cpu", "--output"])
                .args(&[&path.to_string_lossy()])
                .sending(endpoint, protocol, &service)
                .env("PHASESCOPE_RUN_ID", &service)
                .env("OTEL_METRICS_EXPORTER", "none")
                .run();
            assert_eq!(done.status, Some(0), "{}", done.err);
            // A run, three phases before training, six steps with four phases each.
            let expected = 1 + 3 + 6 * 5;
            let line =
                format!("phasescope: {expected} spans exported to {endpoint}, 0 failed, 0 dropped");
            assert_eq!(done.told(), [line]);

            let spans = jaeger.spans(&service);
            assert_eq!(spans.len(), expected);
            assert!(spans.iter().all(|span| span.trace == spans[0].trace), "one trace");
            let run = named(&spans, "run");
            assert_eq!(run.parent, None);
            let inside = children(&spans, run);
            let before = ["model", "optimizer_create", "input"];
            assert_eq!(names(&inside[..3]), before);
            assert_eq!(names(&inside[3..]), ["step"; 6]);
            for (number, step) in inside[3..].iter().enumerate() {
                assert_eq!(step.number("phasescope.step"), Some(number as i64));
                assert_eq!(names(&children(&spans, step)), IN_STEP);
            }

            let report = report::read(&path).unwrap_or_else(|error| panic!("{error}"));
            let phases: Vec<_> =
                spans.iter().filter(|span| span.tags.contains_key("phasescope.phase")).collect();
            let rank = &report.rank_reports[0];
            assert_eq!(phases.len(), rank.phases.len());
            for (span, record) in phases.iter().zip(&rank.phases) {
                assert_eq!(span.name, record.phase.name());
                assert_eq!(span.number("phasescope.step"), record.step.map(|step| step as i64));
                for (edge, counters) in [("start", &record.start), ("end", &record.end)] {
                    for (name, value) in counters.edge_values() {
                        let key = format!("phasescope.{name}.{edge}");
                        assert_eq!(span.number(&key), value.map(|value| value as i64), "{key}");
                    }
                }
                let peak = record.peak_allocated.map(|peak| peak as i64);
                assert_eq!(span.number("phasescope.allocated.peak"), peak);
                assert_eq!(span.number("phasescope.allocated.delta"), record.allocated_change());
            }
            let verdict = inside[8].text("phasescope.verdict.code");
            let dominant = rank.diagnosis.as_ref().map(|said| said.findings[0].code.name());
            assert_eq!(verdict, dominant, "the last step says what the report says");
            assert_eq!(run.resource["phasescope.run_id"], service.as_str());
        }
    }
}

#[test]
fn without_a_run_every_step_is_a_trace_of_its_own() {
    let Some(jaeger) = Jaeger::start() else { return };
    for (protocol, endpoint) in [("grpc", &jaeger.grpc), ("http/protobuf", &jaeger.http)] {
        let service = format!("your-loop-{}", &protocol[..4]);
        let done = example("your_loop").sending(endpoint, protocol, &service).run();
        assert_eq!(done.status, Some(0), "{}", done.err);
        let spans = jaeger.spans(&service);
        assert_eq!(spans.len(), 1 + 8 * 6);
        let steps: Vec<_> = spans.iter().filter(|span| span.name == "step").collect();
        let mut traces: Vec<_> = steps.iter().map(|step| &step.trace).collect();
        traces.sort();
        traces.dedup();
        assert_eq!(traces.len(), 8);
        for step in steps {
            assert_eq!(step.parent, None);
            let inside = children(&spans, step);
            assert_eq!(names(&inside[..1]), ["input"]);
            assert_eq!(names(&inside[1..]), IN_STEP);
            assert!(inside.iter().all(|span| span.trace == step.trace));
        }
    }
}

/// A device that measures everything.
#[derive(Debug)]
struct Everything(&'static str);

impl CounterSource for Everything {
    fn scope(&self) -> Scope {
        Scope::Device(DeviceName::new(self.0))
    }

    fn read(&self) -> Counters {
        let value = Some(3 << 40);
        Counters {
            allocated: value,
            reserved: value,
            peak_allocated: value,
            active: value,
            requested: value,
            inactive_split: value,
            alloc_retries: value,
            ooms: value,
            device_used: value,
            device_total: value,
            process_device_used: value,
            host_rss: value,
        }
    }
}

#[test]
fn every_counter_of_three_devices_arrives_as_a_number() {
    let Some(jaeger) = Jaeger::start() else { return };
    for (protocol, endpoint) in
        [(Protocol::Grpc, &jaeger.grpc), (Protocol::HttpProtobuf, &jaeger.http)]
    {
        let service = format!("everything-{protocol:?}");
        let export = Export::to_endpoint(endpoint, protocol)
            .unwrap_or_else(|error| panic!("{error}"))
            .service_name(service.clone());
        let mut builder = phasescope::builder().export(export);
        for name in ["cuda:0", "cuda:1", "cuda:2"] {
            builder = builder.source(Arc::new(Everything(name)));
        }
        let (layer, guard) = builder.build();
        let stack = tracing_subscriber::registry().with(layer).with(guard.opentelemetry_layer());
        tracing::subscriber::with_default(stack, || {
            phase!(forward, phasescope.step = 3_u64, phasescope.input_elements = 9_usize)
                .in_scope(|| {});
        });
        let counts = guard.shutdown().unwrap_or_else(|| panic!("nothing is exported"));
        assert_eq!((counts.exported, counts.failed, counts.dropped), (1, 0, 0));
        let spans = jaeger.spans(&service);
        let forward = named(&spans, "forward");
        for prefix in ["phasescope", "phasescope.device1", "phasescope.device2"] {
            for (name, _) in Counters::default().edge_values() {
                for (edge, value) in [("start", 3 << 40), ("end", 3 << 40), ("delta", 0)] {
                    let key = format!("{prefix}.{name}.{edge}");
                    assert_eq!(forward.number(&key), Some(value), "{key}");
                }
            }
            assert_eq!(forward.number(&format!("{prefix}.allocated.peak")), Some(3 << 40));
        }
        assert_eq!(forward.number("phasescope.step"), Some(3));
        assert_eq!(forward.number("phasescope.input_elements"), Some(9));
    }
}

#[test]
fn in_a_stack_of_your_own_phases_and_your_spans_are_parents_and_children() {
    let Some(jaeger) = Jaeger::start() else { return };
    let exporter = opentelemetry_otlp::SpanExporter::builder()
        .with_http()
        .with_endpoint(format!("{}/v1/traces", jaeger.http))
        .build()
        .unwrap_or_else(|error| panic!("{error}"));
    let provider = SdkTracerProvider::builder()
        .with_resource(Resource::builder().with_service_name("own-stack").build())
        .with_batch_exporter(exporter)
        .build();
    let device = Arc::new(Scripted::new("cuda:0"));
    let (layer, guard) =
        phasescope::builder().identity(RunIdentity::new("own")).source(device.clone()).build();
    let otel = tracing_opentelemetry::layer().with_tracer(provider.tracer("program"));
    let stack = tracing_subscriber::registry().with(layer).with(otel);
    tracing::subscriber::with_default(stack, || {
        let _job = info_span!("job").entered();
        let _step = step!(4_u32).entered();
        phase!(forward).in_scope(|| {
            let _attention = info_span!("attention").entered();
            device.allocate(100);
            phase!(other, "gather").in_scope(|| device.allocate(50));
        });
    });
    provider.shutdown().unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(guard.span_counts(), None, "the export is the program's");

    let spans = jaeger.spans("own-stack");
    let path: Vec<_> = ["job", "step", "forward", "attention", "gather"]
        .iter()
        .map(|name| named(&spans, name))
        .collect();
    assert_eq!(spans.len(), path.len());
    for pair in path.windows(2) {
        assert_eq!(pair[1].parent.as_ref(), Some(&pair[0].id), "{}", pair[1].name);
    }
    assert_eq!(path[2].number("phasescope.allocated.end"), Some(150));
    assert_eq!(path[4].number("phasescope.allocated.start"), Some(100));
    assert_eq!(path[1].text("phasescope.run_id"), Some("own"));
    assert_eq!(path[1].number("phasescope.step"), Some(4));
    assert!(guard.problems().is_empty(), "{:?}", guard.problems());
}

#[test]
fn phases_on_several_threads_belong_to_their_step() {
    let Some(jaeger) = Jaeger::start() else { return };
    for (protocol, endpoint) in
        [(Protocol::Grpc, &jaeger.grpc), (Protocol::HttpProtobuf, &jaeger.http)]
    {
        let service = format!("threads-{protocol:?}");
        let export = Export::to_endpoint(endpoint, protocol)
            .unwrap_or_else(|error| panic!("{error}"))
            .service_name(service.clone());
        train_on_threads(export);
        let spans = jaeger.spans(&service);
        let mut orders = BTreeMap::new();
        for step in spans.iter().filter(|span| span.name == "step") {
            let inside = children(&spans, step);
            let forwards: Vec<_> = inside.iter().filter(|span| span.name == "forward").collect();
            assert_eq!((forwards.len(), inside.len()), (4, 5));
            for span in inside {
                assert_eq!(span.number("phasescope.step"), step.number("phasescope.step"));
                orders.insert(span.number("phasescope.sequence"), span.name.clone());
            }
        }
        assert_eq!(orders.len(), 25, "every end has a place of its own");
    }
}

/// Five steps, each with a forward on four threads at once.
fn train_on_threads(export: Export) {
    let device = Arc::new(Scripted::new("cuda:0"));
    let (layer, guard) = phasescope::builder().source(device.clone()).export(export).build();
    let stack = tracing_subscriber::registry().with(layer).with(guard.opentelemetry_layer());
    let dispatch = tracing::Dispatch::new(stack);
    let worker = |step: &tracing::Span, name: usize| {
        tracing::dispatcher::with_default(&dispatch, || {
            let forward = info_span!(
                parent: step,
                "forward",
                phasescope.phase = "forward",
                worker = name as i64
            );
            forward.in_scope(|| device.allocate(10));
        });
    };
    tracing::dispatcher::with_default(&dispatch, || {
        for number in 0..5_u64 {
            let step = step!(number);
            std::thread::scope(|scope| {
                for name in 0..4 {
                    let (step, worker) = (&step, &worker);
                    scope.spawn(move || worker(step, name));
                }
            });
            step.in_scope(|| phase!(backward).in_scope(|| device.free(40)));
        }
    });
    let counts = guard.shutdown().unwrap_or_else(|| panic!("nothing is exported"));
    assert_eq!((counts.exported, counts.dropped), (5 * 6, 0));
}

#[test]
fn inside_an_async_runtime_the_export_starts_and_ends_as_elsewhere() {
    let Some(jaeger) = Jaeger::start() else { return };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .build()
        .unwrap_or_else(|error| panic!("{error}"));
    for (protocol, endpoint) in
        [(Protocol::Grpc, &jaeger.grpc), (Protocol::HttpProtobuf, &jaeger.http)]
    {
        let service = format!("async-{protocol:?}");
        runtime.block_on(async {
            let export = Export::to_endpoint(endpoint, protocol)
                .unwrap_or_else(|error| panic!("{error}"))
                .service_name(service.clone());
            let (layer, guard) = phasescope::builder().export(export).build();
            let stack =
                tracing_subscriber::registry().with(layer).with(guard.opentelemetry_layer());
            tracing::subscriber::with_default(stack, || phase!(forward).in_scope(|| {}));
            drop(guard);
        });
        assert_eq!(jaeger.spans(&service).len(), 1);
    }
}

#[test]
fn that_jaeger_takes_no_metrics_is_told_once_and_in_words() {
    let Some(jaeger) = Jaeger::start() else { return };
    for (protocol, endpoint) in [("grpc", &jaeger.grpc), ("http/protobuf", &jaeger.http)] {
        let done = train().args(&["--steps", "3"]).sending(endpoint, protocol, "metrics").run();
        assert_eq!(done.status, Some(0), "{}", done.err);
        let [metrics, last] = done.told()[..] else { panic!("{}", done.err) };
        assert!(metrics.starts_with(&format!("phasescope: {endpoint} takes no metrics (")));
        assert!(last.ends_with("0 failed, 0 dropped; 1 exports of metrics failed"), "{last}");
    }
}
