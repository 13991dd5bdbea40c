//! Several `phasescope serve` behind one load balancer.

use std::collections::BTreeMap;

use phasescope_export_tests::{Answer, Client, Documented, Jaeger, Made, Serve, Sink, train};
use serde_json::Value;

const RUNS: u64 = 8;
const RANKS: u32 = 4;

fn run_name(run: u64) -> String {
    format!("split-{run}")
}

/// Every second run keeps its graphs.
fn leaks(run: u64) -> bool {
    run % 2 == 1
}

/// The runs that a collector knows: their ranks and what it says of them.
fn known(serve: &Serve) -> BTreeMap<String, Value> {
    let runs = serve.get("/api/runs");
    let runs = runs.as_array().into_iter().flatten();
    runs.map(|run| (run["run_id"].as_str().unwrap_or_default().to_owned(), run.clone())).collect()
}

#[test]
fn eight_runs_of_four_ranks_are_each_diagnosed_in_one_place_and_rightly() {
    let sink = Sink::start(Answer::Accept);
    let serves = [Serve::before(&sink.address), Serve::before(&sink.address)];
    let Some(balancer) = Documented::load_balancer(&serves[0].grpc, &serves[1].grpc) else {
        return;
    };
    let programs = (0..RUNS).flat_map(|run| (0..RANKS).map(move |rank| (run, rank)));
    let mut running = Vec::new();
    for (run, rank) in programs {
        let leak = if leaks(run) { "5" } else { "1000" };
        let mut program = train()
            .args(&["--steps", "30", "--work", "500", "--leak-from", leak])
            .sending(&balancer.grpc, "grpc", "split")
            .env("OTEL_METRICS_EXPORTER", "none")
            .env("PHASESCOPE_RUN_ID", &run_name(run))
            .env("RANK", &rank.to_string())
            .env("WORLD_SIZE", &RANKS.to_string());
        running.push(program.command.spawn().unwrap_or_else(|error| panic!("{error}")));
    }
    for mut program in running {
        assert!(program.wait().is_ok_and(|status| status.success()));
    }
    let steps = || {
        let of = |serve: &Serve| serve.metric("phasescope_steps_total", &[]);
        serves.iter().map(of).sum::<f64>()
    };
    serves[0]
        .wait_until("all steps have come", |_| steps() >= 30.0 * f64::from(RANKS) * RUNS as f64);
    let found = serves.each_ref().map(known);
    println!("runs: {} and {}", found[0].len(), found[1].len());
    assert!(found.iter().all(|runs| !runs.is_empty()), "both have a share");
    assert_eq!(found[0].len() + found[1].len(), RUNS as usize, "every run is in one place");
    for run in 0..RUNS {
        let name = run_name(run);
        let (place, known) = found
            .iter()
            .enumerate()
            .find_map(|(place, runs)| Some((place, runs.get(&name)?)))
            .unwrap_or_else(|| panic!("{name} is nowhere"));
        assert_eq!(known["ranks"], RANKS, "all ranks are there: {known}");
        let expected = if leaks(run) { "retained_graph" } else { "activations" };
        let judged = serves[place].get(&format!("/api/runs/{name}"));
        let judged = judged.as_array().unwrap_or_else(|| panic!("{judged}"));
        assert_eq!(judged.len(), RANKS as usize);
        for rank in judged {
            assert_eq!(rank["findings"][0]["code"], expected, "{name} rank {}", rank["rank"]);
        }
    }
    let spans = sink.spans();
    assert_eq!(spans.len() as u64, RUNS * u64::from(RANKS) * 151, "no span is lost");
    assert!(spans.values().all(|count| *count == 1), "none is doubled");
}

#[test]
fn the_documented_configuration_of_a_collector_on_both_sides_works() {
    let Some(jaeger) = Jaeger::start() else { return };
    let back = phasescope_export_tests::free_port();
    let serve = Serve::before(&format!("http://127.0.0.1:{back}"));
    let Some(around) = Documented::both_sides(&serve.grpc, back, &jaeger) else { return };
    let mut client = Client::new(&around.grpc, false);
    client.deliver(&Made::new("around", 0, 1).request(0..20));
    let spans = jaeger.wait_for("made", 100);
    assert_eq!(spans.len(), 100);
    let told = spans.iter().filter(|span| span.tags.contains_key("phasescope.verdict.code"));
    assert!(told.count() >= 15);
}
