//! What the standard variables decide.

use phasescope_export_tests::{Behaviour, Collector, Done, Faulty, Jaeger, Program, train};

fn told(program: Program) -> Done {
    let done = program.args(&["--steps", "3"]).run();
    assert_eq!(done.status, Some(0), "telemetry stops no training: {}", done.err);
    done
}

#[test]
fn without_an_endpoint_nothing_is_sent_and_nothing_is_told() {
    let endpoint = Faulty::start(Behaviour::Refuse);
    for variables in [
        &[][..],
        &[("OTEL_EXPORTER_OTLP_ENDPOINT", "")],
        &[("OTEL_SDK_DISABLED", "true"), ("OTEL_EXPORTER_OTLP_ENDPOINT", &endpoint.http)],
        &[
            ("OTEL_TRACES_EXPORTER", "none"),
            ("OTEL_METRICS_EXPORTER", "none"),
            ("OTEL_EXPORTER_OTLP_ENDPOINT", &endpoint.http),
        ],
    ] {
        let program =
            variables.iter().fold(train(), |program, (key, value)| program.env(key, value));
        assert_eq!(told(program).err, "", "{variables:?}");
    }
    assert_eq!(endpoint.requests(), 0);
}

#[test]
fn a_variable_that_cannot_be_is_told_with_its_name_and_training_goes_on() {
    for (variable, value, words) in [
        (
            "OTEL_EXPORTER_OTLP_ENDPOINT",
            "collector",
            "expected an endpoint such as http://localhost",
        ),
        ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "tcp://collector", "found \"tcp://collector\""),
        (
            "OTEL_EXPORTER_OTLP_PROTOCOL",
            "pigeon",
            "expected grpc or http/protobuf, found \"pigeon\"",
        ),
        ("OTEL_METRICS_EXPORTER", "prometheus", "expected otlp or none, found \"prometheus\""),
    ] {
        let program = train().env("OTEL_EXPORTER_OTLP_ENDPOINT", "http://localhost:4318");
        let done = told(program.env(variable, value));
        let [told] = done.told()[..] else { panic!("one line: {}", done.err) };
        assert!(
            told.starts_with(&format!("phasescope: nothing is exported: {variable}: ")),
            "{told}"
        );
        assert!(told.contains(words), "{told}");
    }
}

#[test]
fn each_signal_goes_to_its_own_endpoint_with_headers_compression_and_resource() {
    let Some(jaeger) = Jaeger::start() else { return };
    let Some(collector) = Collector::before(&jaeger) else { return };
    for (protocol, traces, metrics) in [
        ("grpc", jaeger.grpc.clone(), collector.grpc.clone()),
        (
            "http/protobuf",
            format!("{}/v1/traces", jaeger.http),
            format!("{}/v1/metrics", collector.http),
        ),
    ] {
        let service = format!("signals-{}", &protocol[..4]);
        let done = told(
            train()
                .env("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", &traces)
                .env("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", &metrics)
                .env("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)
                .env("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20secret")
                .env("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip")
                .env("OTEL_SERVICE_NAME", &service)
                .env("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=staging"),
        );
        assert_eq!(done.told().len(), 1, "{}", done.err);
        let spans = jaeger.spans(&service);
        assert_eq!(spans.len(), 1 + 3 * 5);
        assert_eq!(spans[0].resource["deployment.environment.name"], "staging");
        let job = format!("job=\"{service}\"");
        collector.wait_for_metrics(|line| line.contains(&job));
    }
}

#[test]
fn secrets_in_an_endpoint_are_not_told() {
    let endpoint = Faulty::start(Behaviour::Refuse);
    let address = endpoint.http.replace("http://", "http://secret:secret@") + "?key=secret";
    let done = told(train().env("OTEL_EXPORTER_OTLP_ENDPOINT", &address));
    assert!(done.err.contains(&endpoint.http) && !done.err.contains("secret"), "{}", done.err);
    // Refused by us, and by the exporter itself.
    for (protocol, address) in [
        ("grpc", "ftp://secret:secret@host"),
        ("grpc", "http://secret:secret@k\u{f6}ln:4317"),
        ("http/protobuf", "secret:secret@host:4318"),
    ] {
        let program = train().env("OTEL_EXPORTER_OTLP_ENDPOINT", address);
        let done = told(program.env("OTEL_EXPORTER_OTLP_PROTOCOL", protocol));
        assert!(!done.err.is_empty() && !done.err.contains("secret"), "{}", done.err);
    }
}

#[test]
fn a_queue_beyond_all_bounds_is_cut_to_one_that_fits() {
    let endpoint = Faulty::start(Behaviour::Refuse);
    let program = train().env("OTEL_EXPORTER_OTLP_ENDPOINT", &endpoint.http);
    let done = told(program.env("OTEL_BSP_MAX_QUEUE_SIZE", "18446744073709551615"));
    let last = done.told().last().map(|line| (*line).to_owned()).unwrap_or_default();
    assert!(
        last.contains("0 spans exported to ") && last.contains(", 16 failed, 0 dropped"),
        "{last}"
    );
}
