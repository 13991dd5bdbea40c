//! What an endpoint costs the training, in pairs of runs. A file of its own, so that nothing else runs.

use phasescope_export_tests::{Behaviour, Faulty, Jaeger, Program, free_port, train};

/// Seconds of the steps of a run: fifteen milliseconds each, which is short for training.
fn seconds(program: Program) -> f64 {
    let done = program.args(&["--steps", "50", "--work", "5000", "--all-steps", "--measure"]).run();
    assert_eq!(done.status, Some(0), "{}", done.err);
    let last = done.out.lines().last().and_then(|line| line.split(' ').next());
    last.and_then(|seconds| seconds.parse().ok()).unwrap_or_else(|| panic!("{}", done.out))
}

#[test]
fn training_takes_no_longer_whatever_the_endpoint_does() {
    /// Longest that the best of the paired runs may take over the best without export.
    const NOISE: f64 = 1.03;
    /// Pairs at least, and at most: what else runs on the machine can only make a run longer, so more
    /// pairs come nearer to the truth, and an endpoint that does cost time is never overlooked.
    const PAIRS: usize = 5;
    const MOST_PAIRS: usize = 20;
    let slow = Faulty::start(Behaviour::Slow);
    let refusing = Faulty::start(Behaviour::Refuse);
    let down = format!("http://127.0.0.1:{}", free_port());
    let jaeger = Jaeger::start();
    let healthy = jaeger.as_ref().map(|jaeger| ("healthy", "grpc", &jaeger.grpc));
    let faulty = [
        ("down", "grpc", &down),
        ("down", "http/protobuf", &down),
        ("slow", "http/protobuf", &slow.http),
        ("refusing", "http/protobuf", &refusing.http),
    ];
    for (what, protocol, endpoint) in faulty.into_iter().chain(healthy) {
        let mut best = [f64::INFINITY; 3];
        for pair in 0..MOST_PAIRS {
            if pair >= PAIRS && best[1] < NOISE * best[0] {
                break;
            }
            let without = seconds(train());
            let with = train().sending(endpoint, protocol, "paired");
            let with = seconds(with.env("OTEL_EXPORTER_OTLP_TIMEOUT", "500"));
            let again = seconds(train());
            best = [best[0].min(without), best[1].min(with), best[2].min(again)];
        }
        println!(
            "{what}, {protocol}: {:.4} s without export, {:.4} s with: {:+.2} %; without again {:+.2} %",
            best[0],
            best[1],
            100.0 * (best[1] / best[0] - 1.0),
            100.0 * (best[2] / best[0] - 1.0)
        );
        assert!(best[1] < NOISE * best[0], "{what}, {protocol}: {best:?}");
    }
}
