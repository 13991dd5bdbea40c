//! A run of a million steps.
#![cfg(not(debug_assertions))]

use phasescope_export_tests::{Collector, Jaeger, train};

const STEPS: u64 = 1_000_000;
/// Resident memory may differ by so much between the first half and the second.
const FLAT: u64 = 2 << 20;

#[test]
fn a_million_steps_are_sampled_as_configured_counted_whole_and_take_no_more_memory() {
    let Some(jaeger) = Jaeger::start() else { return };
    let Some(collector) = Collector::before(&jaeger) else { return };
    let done = train()
        .args(&["--steps", &STEPS.to_string(), "--measure"])
        .sending(&collector.grpc, "grpc", "long")
        .run();
    assert_eq!(done.status, Some(0), "{}", done.err);
    let numbers: Vec<Vec<f64>> = done
        .out
        .lines()
        .map(|line| line.split(' ').filter_map(|number| number.parse().ok()).collect())
        .collect();
    let (half, end) = (numbers[0][1] as u64, numbers[1][1] as u64);
    println!("{:.1} s, resident {half} B at half time, {end} B at the end", numbers[1][0]);
    assert!(end < half + FLAT, "{half} B at half time, {end} B at the end");

    let [told] = done.told()[..] else { panic!("{}", done.err) };
    println!("{told}");
    assert!(told.ends_with(", 0 failed, 0 dropped"), "{told}");
    let exported: u64 =
        told.split(' ').nth(1).and_then(|count| count.parse().ok()).unwrap_or_default();
    // The first hundred, then every hundredth, and the steps around the changes of verdict at the
    // beginning, which are among the first.
    let steps = 100 + (STEPS / 100 - 1);
    assert_eq!(exported, 1 + steps * 5, "bounded as configured");

    collector.wait_for_spans(exported as usize);
    let metrics = collector.wait_for_metrics(|line| {
        line.starts_with("phasescope_steps_total{") && line.ends_with(" 1e+06")
    });
    let value = |start: &str, label: &str| -> f64 {
        let line = metrics.lines().find(|line| line.starts_with(start) && line.contains(label));
        let number = line.and_then(|line| line.rsplit(' ').next()?.parse().ok());
        number.unwrap_or_else(|| panic!("{start} {label} in {metrics}"))
    };
    assert_eq!(value("phasescope_steps_total{", ""), STEPS as f64);
    for phase in ["forward", "backward", "optimizer_step", "clear_gradients"] {
        let label = format!("phasescope_phase=\"{phase}\"");
        let count = value("phasescope_phase_duration_seconds_count", &label);
        assert_eq!(count, STEPS as f64, "{phase}");
    }
    let left_out = value("phasescope_spans_total", "phasescope_outcome=\"unsampled\"");
    println!("{left_out} spans left out by the sampling");
}
