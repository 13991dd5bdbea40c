//! What was acknowledged is never lost: `phasescope serve` killed, its next hop killed, slow and
//! refusing.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use phasescope_export_tests::{Answer, Client, Made, Serve, Sink, free_port};

/// Kills of the collector under load.
const KILLS: usize = 20;
/// Clients that send at once.
const CLIENTS: usize = 4;

type Acknowledged = Arc<Mutex<HashSet<Vec<u8>>>>;

fn ids(request: &ExportTraceServiceRequest) -> Vec<Vec<u8>> {
    let scopes = request.resource_spans.iter().flat_map(|group| &group.scope_spans);
    scopes.flat_map(|scope| &scope.spans).map(|span| span.span_id.clone()).collect()
}

/// Clients that send and try again until they are told to end: what they have been told is taken.
fn clients(address: &str, end: &Arc<AtomicBool>) -> (Acknowledged, Vec<thread::JoinHandle<usize>>) {
    let acknowledged = Acknowledged::default();
    let threads = (0..CLIENTS).map(|number| {
        let (address, end, acknowledged) = (address.to_owned(), end.clone(), acknowledged.clone());
        thread::spawn(move || {
            let mut client = Client::new(&address, number % 2 == 0);
            let mut made = Made::new(&format!("client-{number}"), 0, 1);
            let (mut step, mut retries) = (0, 0);
            while !end.load(Ordering::Relaxed) {
                let request = made.request(step..step + 5);
                step += 5;
                retries += client.deliver(&request) - 1;
                let mut taken = acknowledged.lock().unwrap_or_else(PoisonError::into_inner);
                taken.extend(ids(&request));
            }
            retries
        })
    });
    let threads = threads.collect();
    (acknowledged, threads)
}

fn finish(
    end: &AtomicBool,
    acknowledged: &Acknowledged,
    threads: Vec<thread::JoinHandle<usize>>,
    sink: &Sink,
) -> (usize, usize) {
    end.store(true, Ordering::Relaxed);
    let joined = threads.into_iter().map(|thread| thread.join());
    let retries = joined.map(|retries| retries.unwrap_or_else(|_| panic!("a client failed"))).sum();
    let acknowledged = acknowledged.lock().unwrap_or_else(PoisonError::into_inner);
    let arrived = sink.spans();
    let lost = acknowledged.iter().filter(|id| !arrived.contains_key(*id)).count();
    assert_eq!(lost, 0, "acknowledged spans that did not arrive");
    (acknowledged.len(), retries)
}

/// Waits until so many more spans have been acknowledged.
fn wait_for(acknowledged: &Acknowledged, more: usize) {
    let count = || acknowledged.lock().unwrap_or_else(PoisonError::into_inner).len();
    let (goal, begin) = (count() + more, Instant::now());
    while count() < goal {
        assert!(begin.elapsed() < Duration::from_secs(60), "nothing is acknowledged any more");
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn no_acknowledged_span_is_lost_over_twenty_kills_under_clients_that_try_again() {
    let sink = Sink::start(Answer::Accept);
    let listen = format!("127.0.0.1:{}", free_port());
    let start = || Serve::with(&sink.address, &["--listen-grpc", &listen]);
    let mut serve = start();
    let end = Arc::new(AtomicBool::new(false));
    let (acknowledged, threads) = clients(&serve.grpc, &end);
    for kill in 0..KILLS {
        // Never at the same place of a request.
        wait_for(&acknowledged, 50 + 37 * kill);
        serve.kill();
        serve = start();
    }
    wait_for(&acknowledged, 100);
    let (spans, retries) = finish(&end, &acknowledged, threads, &sink);
    println!("{KILLS} kills, {spans} spans acknowledged, 0 lost, {retries} tries again");
    assert!(retries >= KILLS, "the kills were felt: {retries}");
}

#[test]
fn no_acknowledged_span_is_lost_when_the_next_hop_is_killed_slow_or_refusing() {
    let mut sink = Sink::start(Answer::Accept);
    let serve = Serve::with(&sink.address, &["--set", "next.timeout=1s"]);
    let end = Arc::new(AtomicBool::new(false));
    let (acknowledged, threads) = clients(&serve.grpc, &end);
    for _ in 0..5 {
        wait_for(&acknowledged, 100);
        sink.kill();
        let failed = |serve: &Serve| {
            let name = "phasescope_collector_requests_total";
            serve.metric(name, &["next_hop_unavailable"])
        };
        let before = failed(&serve);
        serve.wait_until("the next hop is missed", |serve| failed(serve) > before);
        sink.revive();
        wait_for(&acknowledged, 100);
        // Slower than it is waited for: taken all the same, and sent again.
        for answer in [Answer::Unavailable, Answer::After(Duration::from_millis(1200))] {
            let before = failed(&serve);
            sink.answer(answer);
            serve.wait_until("it is felt", |serve| failed(serve) > before);
            sink.answer(Answer::Accept);
            wait_for(&acknowledged, 100);
        }
    }
    let (spans, retries) = finish(&end, &acknowledged, threads, &sink);
    println!("{spans} spans acknowledged, 0 lost, {retries} tries again");
    assert!(retries > 0);
    // What the engine saw twice counted once: every run is what a run without trouble is.
    let runs = serve.get("/api/runs");
    for run in 0..CLIENTS {
        assert_eq!(runs[run]["verdict"]["code"], "activations", "{runs}");
    }
    // Each change is told once, and so is the end of it.
    let log = serve.log();
    let told = |text: &str| log.iter().filter(|line| line.to_string().contains(text)).count();
    let (lost, back) = (told("clients are told to try again"), told("takes requests again"));
    assert!((1..100).contains(&lost) && lost.abs_diff(back) <= 1, "{lost} {back}");
}

#[test]
fn a_verdict_that_was_not_delivered_is_told_again_and_once() {
    let sink = Sink::start(Answer::Unavailable);
    let serve = Serve::before(&sink.address);
    let mut client = Client::new(&serve.grpc, false);
    let request = Made::new("again", 0, 1).request(0..6);
    for _ in 0..3 {
        let refused = client.export(request.clone());
        let status = refused.err().unwrap_or_else(|| panic!("it was taken"));
        assert_eq!(status.code(), tonic::Code::Unavailable);
        assert!(status.message().contains("the next hop answered Unavailable"), "{status}");
    }
    sink.answer(Answer::Accept);
    client.deliver(&request);
    client.deliver(&request);
    let traces = sink.traces();
    let changes = |request: &ExportTraceServiceRequest| {
        let scopes = request.resource_spans.iter().flat_map(|group| &group.scope_spans);
        let events = scopes.flat_map(|scope| &scope.spans).flat_map(|span| &span.events);
        events.filter(|event| event.name == "phasescope.verdict_changed").count()
    };
    assert_eq!(traces.iter().map(changes).collect::<Vec<_>>(), [1, 0]);
}

#[test]
fn a_request_that_the_next_hop_calls_wrong_is_refused_for_good() {
    let sink = Sink::start(Answer::Invalid);
    for protocol in ["grpc", "http/protobuf"] {
        let serve = Serve::with(&sink.address, &["--next-protocol", protocol]);
        let mut client = Client::new(&serve.grpc, false);
        let refused = client.export(Made::new("wrong", 0, 1).request(0..1));
        let status = refused.err().unwrap_or_else(|| panic!("it was taken"));
        assert_eq!(status.code(), tonic::Code::InvalidArgument, "{status}");
    }
}

#[test]
fn a_shutdown_takes_nothing_new_and_lets_what_is_in_flight_end() {
    let sink = Sink::start(Answer::After(Duration::from_secs(1)));
    let mut serve = Serve::before(&sink.address);
    let mut client = Client::new(&serve.grpc, false);
    let request = Made::new("drain", 0, 1).request(0..1);
    let sending = thread::spawn(move || client.export(request));
    serve.wait_until("it is in flight", |serve| {
        serve.metric("phasescope_collector_in_flight_bytes", &[]) > 0.0
    });
    serve.terminate();
    let answer = sending.join().unwrap_or_else(|_| panic!("the client failed"));
    assert!(answer.is_ok(), "{answer:?}");
    assert_eq!(serve.wait(), Some(0));
    assert_eq!(sink.spans().len(), 5);
    let log = serve.log();
    assert_eq!(log.last().map(|line| line["message"].clone()), Some("ended".into()), "{log:?}");
}

#[test]
fn a_shutdown_does_not_wait_for_ever_for_a_next_hop_that_does_not_answer() {
    let sink = Sink::start(Answer::After(Duration::from_secs(3600)));
    let options = ["--set", "shutdown_timeout=1s", "--set", "next.timeout=1h"];
    let mut serve = Serve::with(&sink.address, &options);
    let mut client = Client::new(&serve.grpc, false);
    let sending = thread::spawn(move || client.export(Made::new("stuck", 0, 1).request(0..1)));
    serve.wait_until("it is in flight", |serve| {
        serve.metric("phasescope_collector_in_flight_bytes", &[]) > 0.0
    });
    let begin = Instant::now();
    serve.terminate();
    assert_eq!(serve.wait(), Some(0));
    assert!(begin.elapsed() < Duration::from_secs(10));
    assert!(sending.join().is_ok_and(|answer| answer.is_err()), "it was not acknowledged");
}
