//! More runs than there is room for.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use phasescope_export_tests::{Answer, Client, Made, Serve, Sink};

/// Without optimization a tenth.
const SCALE: usize = if cfg!(debug_assertions) { 10 } else { 1 };
const RUNS: usize = 10_000 / SCALE;
const RANKS: u32 = 8;
/// Runs that go on while the others come and go: the first ones.
const BUSY: usize = 100 / SCALE;
/// Parts of the time. In each the busy runs send a step, and a part of the others send one.
const PARTS: usize = 50;
const LIMIT_RUNS: usize = 500 / SCALE;
const LIMIT_RANKS: usize = 4096 / SCALE;

/// One request with so many steps of every rank.
fn request(ranks: &mut [Made], steps: std::ops::Range<u64>) -> ExportTraceServiceRequest {
    let groups = ranks.iter_mut().map(|made| {
        let spans = steps.clone().flat_map(|step| made.step(step)).collect();
        made.group(spans)
    });
    ExportTraceServiceRequest { resource_spans: groups.collect() }
}

#[test]
fn ten_thousand_runs_stay_within_the_limits_evictions_are_counted_and_the_busiest_are_kept() {
    let sink = Sink::start(Answer::Discard);
    let options = [
        "--set",
        &format!("limits.runs={LIMIT_RUNS}"),
        "--set",
        &format!("limits.ranks={LIMIT_RANKS}"),
    ];
    let serve = Serve::with(&sink.address, &options);
    let mut client = Client::new(&serve.grpc, false);
    let name = |run: usize| format!("run-{run:05}");
    let mut runs: Vec<Vec<Made>> = (0..RUNS)
        .map(|run| (0..RANKS).map(|rank| Made::new(&name(run), rank, RANKS)).collect())
        .collect();
    let (busy, others) = runs.split_at_mut(BUSY);
    let begin = Instant::now();
    let mut spans = 0;
    let mut send = |ranks: &mut [Made], step: u64| {
        spans += 5 * u64::from(RANKS);
        client.deliver(&request(ranks, step..step + 1));
    };
    for (part, others) in others.chunks_mut((RUNS - BUSY).div_ceil(PARTS)).enumerate() {
        busy.iter_mut().for_each(|ranks| send(ranks, part as u64));
        // Twice, so that they are not there for the first time only.
        for step in 0..2 {
            others.iter_mut().for_each(|ranks| send(ranks, step));
        }
    }
    let known = serve.get("/api/runs");
    let known: HashSet<_> = known
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|run| run["run_id"].as_str().map(str::to_owned))
        .collect();
    let kept = (0..BUSY).filter(|run| known.contains(&name(*run))).count();
    let metric = |name: &str| serve.metric(name, &[]);
    let evicted = metric("phasescope_collector_runs_evicted_total");
    let unjudged = metric("phasescope_collector_spans_unjudged_total");
    let (peak, runs) = (serve.peak_memory() >> 20, metric("phasescope_collector_runs"));
    let ranks = metric("phasescope_collector_ranks");
    println!(
        "{RUNS} runs of {RANKS} ranks, {spans} spans in {:.0} s: {runs} runs and {ranks} ranks are \
         kept, {kept} of the {BUSY} busiest, {evicted} evictions, {unjudged} spans unjudged, peak \
         memory {peak} MiB",
        begin.elapsed().as_secs_f64()
    );
    assert_eq!(kept, BUSY, "the busiest are kept");
    assert!(known.len() <= LIMIT_RUNS && ranks <= LIMIT_RANKS as f64);
    assert!(evicted > 0.0, "evictions are counted");
    assert_eq!(metric("phasescope_collector_forwarded_items_total"), spans as f64);
    // What the documentation says of a rank, and what a process has anyway.
    assert!(peak < LIMIT_RANKS as u64 / 4 + 64, "{peak} MiB");
    for run in [0, BUSY / 2, BUSY - 1] {
        let judged = serve.get(&format!("/api/runs/{}", name(run)));
        let judged = judged.as_array().unwrap_or_else(|| panic!("{judged}"));
        assert_eq!(judged.len(), RANKS as usize);
        for rank in judged {
            assert_eq!(rank["findings"][0]["code"], "activations");
        }
    }
}

#[test]
fn a_run_that_sends_nothing_more_is_forgotten_with_its_metrics() {
    let sink = Sink::start(Answer::Accept);
    let serve = Serve::with(&sink.address, &["--set", "forget_after=1s"]);
    let mut client = Client::new(&serve.grpc, false);
    client.deliver(&Made::new("short", 0, 1).request(0..4));
    assert!(serve.metrics().contains("phasescope_run_id=\"short\""));
    let begin = Instant::now();
    serve.wait_until("it is forgotten", |serve| {
        serve.metric("phasescope_collector_runs_expired_total", &[]) >= 1.0
    });
    assert!(begin.elapsed() < Duration::from_secs(10));
    assert!(!serve.metrics().contains("short"));
    assert_eq!(serve.get("/api/runs"), serde_json::json!([]));
}

#[test]
fn a_run_with_more_ranks_than_there_is_room_for_is_passed_on_and_counted() {
    let sink = Sink::start(Answer::Accept);
    let serve = Serve::with(&sink.address, &["--set", "limits.ranks=4"]);
    let mut client = Client::new(&serve.grpc, false);
    let mut ranks: Vec<_> = (0..6).map(|rank| Made::new("wide", rank, 6)).collect();
    client.deliver(&request(&mut ranks, 0..4));
    assert_eq!(sink.spans().len(), 6 * 20, "all are passed on");
    assert_eq!(serve.metric("phasescope_collector_ranks", &[]), 4.0);
    let unjudged = serve.metric("phasescope_collector_spans_unjudged_total", &["rank_limit"]);
    assert_eq!(unjudged, 40.0);
}
