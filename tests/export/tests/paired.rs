//! What an endpoint costs the training, in pairs of runs. A file of its own, so that nothing else runs.

use phasescope_export_tests::{Behaviour, DOWN, Faulty, Jaeger, Program, train};

/// Seconds of the steps of a run: fifteen milliseconds each, which is short for training.
fn seconds(program: Program) -> f64 {
    let done = program.args(&["--steps", "50", "--work", "5000", "--all-steps", "--measure"]).run();
    assert_eq!(done.status, Some(0), "{}", done.err);
    let last = done.out.lines().last().and_then(|line| line.split(' ').next());
    last.and_then(|seconds| seconds.parse().ok()).unwrap_or_else(|| panic!("{}", done.out))
}

/// The middle one of an odd number.
fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers[numbers.len() / 2]
}

#[test]
fn training_takes_no_longer_whatever_the_endpoint_does() {
    /// Longest that the middle one of the paired runs may take over its partner without export.
    const NOISE: f64 = 1.03;
    /// And each over the slowest of those: a stall of some runs only.
    const STALL: f64 = 2.0;
    const PAIRS: usize = 9;
    let slow = Faulty::start(Behaviour::Slow);
    let refusing = Faulty::start(Behaviour::Refuse);
    let jaeger = Jaeger::start();
    let healthy = jaeger.as_ref().map(|jaeger| ("healthy", "grpc", jaeger.grpc.as_str()));
    let faulty = [
        ("down", "grpc", DOWN),
        ("down", "http/protobuf", DOWN),
        ("slow", "http/protobuf", &slow.http),
        ("refusing", "http/protobuf", &refusing.http),
    ];
    for (what, protocol, endpoint) in faulty.into_iter().chain(healthy) {
        let pair = |_| {
            let without = seconds(train());
            let with = train().sending(endpoint, protocol, "paired");
            let with = seconds(with.env("OTEL_EXPORTER_OTLP_TIMEOUT", "500"));
            [without, with, seconds(train())]
        };
        let runs: Vec<[f64; 3]> = (0..PAIRS).map(pair).collect();
        let ratio = |place: usize| median(runs.iter().map(|run| run[place] / run[0]).collect());
        let (with, again) = (ratio(1), ratio(2));
        println!(
            "{what}, {protocol}: {:+.2} % with export; without again {:+.2} %",
            100.0 * (with - 1.0),
            100.0 * (again - 1.0)
        );
        assert!(with < NOISE, "{what}, {protocol}: {runs:?}");
        let slowest = runs.iter().map(|run| run[0]).fold(0.0, f64::max);
        assert!(runs.iter().all(|run| run[1] < STALL * slowest), "{what}, {protocol}: {runs:?}");
    }
}
