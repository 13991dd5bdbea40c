//! What Prometheus is told at `/metrics` is what the field contract says, with the runs' numbers.

use std::collections::{BTreeMap, BTreeSet};

use phasescope_export_tests::{Answer, Client, Made, Serve, Sink};

/// Kind and labels of a metric.
type Metrics = BTreeMap<String, (String, BTreeSet<String>)>;

/// The rows of the table under a sentence of the contract.
fn table(after: &str, more: &[&str]) -> Metrics {
    let contract = include_str!("../../../docs/fields.md");
    let (_, rest) =
        contract.split_once(after).unwrap_or_else(|| panic!("no \"{after}\" in the contract"));
    let rows = rest.lines().skip_while(|line| !line.starts_with('|'));
    let rows = rows.take_while(|line| line.starts_with('|')).skip(2);
    rows.map(|row| {
        let cells: Vec<_> = row.trim_matches('|').split('|').map(str::trim).collect();
        let quoted = |cell: &str| -> Vec<String> {
            cell.split('`').skip(1).step_by(2).map(str::to_owned).collect()
        };
        let labels =
            quoted(cells[2]).into_iter().chain(more.iter().map(|label| (*label).to_owned()));
        (quoted(cells[0])[0].clone(), (cells[1].to_owned(), labels.collect()))
    })
    .collect()
}

/// What a scrape says: every metric with its kind and all labels that it has.
fn scraped(text: &str) -> Metrics {
    let mut found = Metrics::new();
    let mut kinds = BTreeMap::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap_or_else(|| panic!("{line}"));
            kinds.insert(name.to_owned(), kind.to_owned());
        }
        if line.starts_with('#') {
            continue;
        }
        let name = line.split(['{', ' ']).next().unwrap_or_default();
        let parts = ["_bucket", "_sum", "_count"];
        let family = parts.iter().find_map(|part| name.strip_suffix(part)).unwrap_or(name);
        let kind = kinds.get(family).unwrap_or_else(|| panic!("{line} has no type"));
        let labels = line
            .split_once('{')
            .map_or("", |(_, rest)| rest.rsplit_once('}').map_or("", |(labels, _)| labels));
        let names = labels.split(',').filter_map(|label| Some(label.split_once('=')?.0.to_owned()));
        let entry =
            found.entry(family.to_owned()).or_insert_with(|| (kind.clone(), BTreeSet::new()));
        entry.1.extend(names.filter(|name| name != "le"));
    }
    found
}

#[test]
fn every_metric_is_in_the_contract_with_its_kind_and_labels_and_none_else() {
    let sink = Sink::start(Answer::Accept);
    let serve = Serve::before(&sink.address);
    let mut client = Client::new(&serve.grpc, false);
    for rank in 0..2 {
        client.deliver(&Made::new("told", rank, 2).leaking_from(2).request(0..20));
    }
    let mut expected = table(
        "# Prometheus metrics of `phasescope serve`",
        &["phasescope_run_id", "phasescope_rank"],
    );
    expected.extend(table("The collector's own, without a run:", &[]));
    assert_eq!(scraped(&serve.metrics()), expected);
}

#[test]
fn the_numbers_are_those_of_the_spans_and_what_was_not_measured_has_no_sample() {
    const MIB: f64 = 1_048_576.0;
    let sink = Sink::start(Answer::Accept);
    let serve = Serve::before(&sink.address);
    let mut client = Client::new(&serve.grpc, false);
    client.deliver(&Made::new("numbers", 3, 4).leaking_from(2).request(0..20));
    let of = |metric: &str, phase: &str| {
        let phase = format!("phasescope_phase=\"{phase}\"");
        let labels = ["phasescope_run_id=\"numbers\"", "phasescope_rank=\"3\"", &phase];
        serve.metric(&format!("phasescope_memory_{metric}_bytes"), &labels) / MIB
    };
    // 100 MiB, and 50 more after each of 18 steps.
    assert_eq!(of("allocated", "forward"), 1000.0);
    assert_eq!(of("allocated", "clear_gradients"), 1000.0);
    assert_eq!(of("peak", "backward"), 1030.0);
    assert_eq!(of("highest_peak", "backward"), 1030.0);
    assert_eq!(of("reserved", "forward"), 1400.0);
    assert_eq!(serve.metric("phasescope_memory_device_limit_bytes", &[]), 80_000.0 * MIB);
    let held = serve.metric("phasescope_finding_held_bytes", &["retained_graph", "critical"]);
    assert_eq!(held, 900.0 * MIB);
    // 80 000 MiB, of which 3030 are in use, at 50 a step.
    assert_eq!(serve.metric("phasescope_steps_to_out_of_memory", &[]), 1539.0);
    assert_eq!(serve.metric("phasescope_steps_total", &[]), 20.0);
    let text = serve.metrics();
    assert!(!text.contains("NaN") && !text.contains("phasescope_phase=\"input\""));
    // A scraper that asks for OpenMetrics gets it.
    let scrape = reqwest::blocking::Client::new().get(format!("{}/metrics", serve.api));
    let answer = scrape.header("accept", "application/openmetrics-text; version=1.0.0").send();
    let answer = answer.unwrap_or_else(|error| panic!("{error}"));
    let kind = answer.headers()["content-type"].to_str().unwrap_or_default().to_owned();
    assert!(kind.starts_with("application/openmetrics-text"), "{kind}");
    assert!(answer.text().is_ok_and(|text| text.ends_with("# EOF\n")));
}
