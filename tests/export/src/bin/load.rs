//! Measures how many spans a collector takes in a second of processor time, and what memory it needs:
//! `phasescope serve` with its diagnosis, and an OpenTelemetry Collector that only hands on.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use clap::Parser;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use phasescope_export_tests::{Answer, Client, Documented, Made, Serve, Sink, cpu, peak_memory};

/// Clients that send at once.
const CLIENTS: usize = 4;
/// Steps of a rank in a request: 500 spans, about a batch of an SDK.
const STEPS: u64 = 100;

#[derive(Debug, Parser)]
struct Args {
    /// Requests of 500 spans a round.
    #[arg(long, default_value_t = 400)]
    requests: usize,
    /// Rounds; the collectors take turns.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
}

/// What one round has shown.
#[derive(Clone, Copy, Debug)]
struct Round {
    cpu: Duration,
    wall: Duration,
    peak: u64,
}

/// Sends everything over some connections, as fast as it is taken.
fn send(address: &str, requests: &[ExportTraceServiceRequest]) -> Duration {
    let next = AtomicUsize::new(0);
    let begin = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                let mut client = Client::new(address, false);
                while let Some(request) = requests.get(next.fetch_add(1, Ordering::Relaxed)) {
                    client.deliver(request);
                }
            });
        }
    });
    begin.elapsed()
}

/// A round with a fresh process; the processor time from start-up on is in it.
fn round(name: &str, requests: &[ExportTraceServiceRequest]) -> Option<Round> {
    let sink = Sink::start(Answer::Discard);
    let measured = |pid, wall| Round { cpu: cpu(pid), wall, peak: peak_memory(pid) };
    if name == "phasescope serve" {
        let serve = Serve::before(&sink.address);
        let wall = send(&serve.grpc, requests);
        let judged = serve.metric("phasescope_collector_phases_judged_total", &[]);
        let phases = 4 * requests.len() as u64 * STEPS;
        assert_eq!(judged, phases as f64, "every phase was judged");
        return Some(measured(serve.id(), wall));
    }
    let plain = Documented::plain(&sink.address, name.ends_with("queue"))?;
    let wall = send(&plain.grpc, requests);
    // With a queue the last requests may still be on their way.
    std::thread::sleep(Duration::from_secs(1));
    Some(measured(plain.id(), wall))
}

fn main() {
    let args = Args::parse();
    // Eight ranks, whose requests come in turns and in order.
    let mut ranks: Vec<_> = (0..8).map(|rank| Made::new("load", rank, 8)).collect();
    let count = ranks.len();
    let requests: Vec<_> = (0..args.requests)
        .map(|number| {
            let first = STEPS * (number / count) as u64;
            ranks[number % count].request(first..first + STEPS)
        })
        .collect();
    let spans = 5 * STEPS * args.requests as u64;
    let names = ["phasescope serve", "otelcol, no queue", "otelcol, queue"];
    let mut found = names.map(|name| (name, Vec::new()));
    for _ in 0..args.rounds {
        for (name, rounds) in &mut found {
            rounds.extend(round(name, &requests));
        }
    }
    println!("{spans} spans a round, {} rounds, medians (lowest to highest)", args.rounds);
    println!("| | spans a core-second | spans a second | peak memory |");
    println!("|---|---|---|---|");
    for (name, rounds) in &found {
        let per = |time: fn(&Round) -> Duration| {
            middle(rounds.iter().map(|round| spans as f64 / time(round).as_secs_f64()))
        };
        let peak = middle(rounds.iter().map(|round| round.peak as f64 / f64::from(1 << 20)));
        let (core, wall) = (per(|round| round.cpu), per(|round| round.wall));
        println!("| {name} | {core} | {wall} | {peak} MiB |");
    }
}

fn middle(values: impl Iterator<Item = f64>) -> String {
    let mut values: Vec<_> = values.collect();
    values.sort_by(f64::total_cmp);
    match (values.first(), values.get(values.len() / 2), values.last()) {
        (Some(low), Some(middle), Some(high)) => format!("{middle:.0} ({low:.0} to {high:.0})"),
        _ => "not measured".to_owned(),
    }
}
