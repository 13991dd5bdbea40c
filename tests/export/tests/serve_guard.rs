//! Who may come in, how much, and how it is told.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;

use phasescope_export_tests::{Answer, Client, Made, Serve, Sink, train};
use prost::Message;
use reqwest::blocking::Client as Http;
use tonic::Code;

const TOKEN: &str = "a-secret-of-this-test";

fn token_file(folder: &Path) -> String {
    let path = folder.join("token");
    fs::write(&path, format!("{TOKEN}\n")).unwrap_or_else(|error| panic!("{error}"));
    format!("token_file={}", path.display())
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().unwrap_or_else(|error| panic!("{error}"))
}

fn status(sent: Result<reqwest::blocking::Response, reqwest::Error>) -> u16 {
    sent.unwrap_or_else(|error| panic!("{error}")).status().as_u16()
}

#[test]
fn without_the_token_every_port_refuses_and_with_it_a_program_gets_through() {
    let folder = folder();
    let sink = Sink::start(Answer::Accept);
    let serve = Serve::with(&sink.address, &["--set", &token_file(folder.path())]);
    let http = Http::new();
    let request = Made::new("guarded", 0, 1).request(0..1);
    for wrong in [None, Some("Bearer"), Some("Bearer wrong"), Some(TOKEN), Some("Basic YTpi")] {
        let with = |request: reqwest::blocking::RequestBuilder| match wrong {
            Some(value) => request.header("authorization", value).send(),
            None => request.send(),
        };
        for path in ["/v1/traces", "/v1/metrics", "/v1/logs", "/other"] {
            assert_eq!(status(with(http.post(format!("{}{path}", serve.http)))), 401, "{path}");
        }
        for path in ["/api/runs", "/api/runs/x", "/metrics", "/other"] {
            assert_eq!(status(with(http.get(format!("{}{path}", serve.api)))), 401, "{path}");
        }
    }
    let refused = Client::new(&serve.grpc, false).export(request);
    assert_eq!(refused.err().map(|status| status.code()), Some(Code::Unauthenticated));
    assert!(sink.requests().is_empty());
    // Probes have no token.
    for path in ["/healthz", "/readyz"] {
        assert_eq!(status(http.get(format!("{}{path}", serve.api)).send()), 200);
    }
    for (protocol, endpoint) in [("grpc", &serve.grpc), ("http/protobuf", &serve.http)] {
        let done = train()
            .sending(endpoint, protocol, "guarded")
            .env("OTEL_EXPORTER_OTLP_HEADERS", &format!("authorization=Bearer {TOKEN}"))
            .run();
        assert!(done.err.contains(", 0 failed, 0 dropped"), "{}", done.err);
    }
    let api = http.get(format!("{}/metrics", serve.api)).bearer_auth(TOKEN);
    let text = api.send().and_then(reqwest::blocking::Response::text);
    let text = text.unwrap_or_else(|error| panic!("{error}"));
    assert!(text.contains("phasescope_collector_unauthenticated_requests_total 41"), "{text}");
    assert!(!serve.log().iter().any(|line| line.to_string().contains(TOKEN)));
}

#[test]
fn with_a_certificate_every_port_speaks_tls() {
    let folder = folder();
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned(), "localhost".to_owned()]);
    let made = made.unwrap_or_else(|error| panic!("{error}"));
    let write = |name: &str, text: String| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap_or_else(|error| panic!("{error}"));
        path.display().to_string()
    };
    let certificate = write("certificate.pem", made.cert.pem());
    let key = write("key.pem", made.signing_key.serialize_pem());
    let sink = Sink::start(Answer::Accept);
    let [first, second] = [format!("tls.certificate={certificate}"), format!("tls.key={key}")];
    let serve = Serve::with(&sink.address, &["--set", &first, "--set", &second]);
    let root = reqwest::Certificate::from_pem(made.cert.pem().as_bytes());
    let root = root.unwrap_or_else(|error| panic!("{error}"));
    let client = Http::builder().tls_certs_only([root]).build();
    let client = client.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(status(client.get(format!("{}/healthz", serve.api)).send()), 200);
    let body = Made::new("tls", 0, 1).request(0..2).encode_to_vec();
    let post = client.post(format!("{}/v1/traces", serve.http));
    let post = post.header("content-type", "application/x-protobuf").body(body);
    assert_eq!(status(post.send()), 200);
    // A second one hands on to the first by TLS, and is reached without.
    for (protocol, next) in [("grpc", &serve.grpc), ("http/protobuf", &serve.http)] {
        let root = format!("next.ca_certificate={certificate}");
        let options = ["--next-protocol", protocol, "--set", &root];
        let before = Serve::with(next, &options);
        let mut client = Client::new(&before.grpc, false);
        client.deliver(&Made::new(protocol, 0, 1).request(0..2));
    }
    assert_eq!(sink.spans().len(), 30);
    // Without TLS nothing is to be had.
    let plain = serve.http.replace("https:", "http:");
    assert!(Http::new().get(format!("{plain}/v1/traces")).send().is_err());
}

#[test]
fn a_request_that_is_too_large_is_refused_for_good_and_one_that_does_not_fit_now_is_not() {
    let sink = Sink::start(Answer::Accept);
    let limits = ["limits.message=64KiB", "limits.decompressed=256KiB", "limits.in_flight=576KiB"];
    let mut options: Vec<_> = limits.iter().flat_map(|limit| ["--set", limit]).collect();
    options.extend(["--set", "next.timeout=1h"]);
    let serve = Serve::with(&sink.address, &options);
    let mut client = Client::new(&serve.grpc, false);
    let mut packed = Client::new(&serve.grpc, true);
    // Larger than either limit, as it comes or unpacked.
    let refused = client.export(Made::new("large", 0, 1).request(0..20));
    let refused = refused.err().unwrap_or_else(|| panic!("it was taken"));
    assert_eq!(refused.code(), Code::InvalidArgument, "{refused}");
    assert!(refused.message().contains("at most 65536 bytes in a request's body"), "{refused}");
    let refused = packed.export(Made::new("bomb", 0, 1).request(0..60));
    let refused = refused.err().unwrap_or_else(|| panic!("it was taken"));
    assert_eq!(refused.code(), Code::InvalidArgument, "{refused}");
    assert!(refused.message().contains("at most 262144 bytes"), "{refused}");
    packed.deliver(&Made::new("packed", 0, 1).request(0..10));

    // As much as fits is held by the next hop.
    sink.answer(Answer::After(Duration::from_secs(3600)));
    let address = serve.grpc.clone();
    let held: Vec<_> = (0..12)
        .map(|run| {
            let address = address.clone();
            std::thread::spawn(move || {
                let mut client = Client::new(&address, false);
                client.export(Made::new(&format!("held-{run}"), 0, 1).request(0..6))
            })
        })
        .collect();
    let busy = |serve: &Serve| serve.metric("phasescope_collector_requests_total", &["busy"]);
    serve.wait_until("it is full", |serve| busy(serve) >= 1.0);
    let post = Http::new().post(format!("{}/v1/traces", serve.http));
    let body = Made::new("more", 0, 1).request(0..6).encode_to_vec();
    let answer = post.header("content-type", "application/x-protobuf").body(body).send();
    let answer = answer.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(answer.status(), 429);
    assert_eq!(answer.headers()["retry-after"], "1");
    drop(serve);
    let taken = held.into_iter().filter_map(|thread| thread.join().ok()?.ok()).count();
    assert_eq!(taken, 0, "nothing that the next hop has not taken is acknowledged");
}

#[test]
fn a_client_that_does_not_go_on_is_let_go() {
    let sink = Sink::start(Answer::Accept);
    let serve = Serve::before(&sink.address);
    let begun = [&serve.grpc, &serve.http, &serve.api].map(|port| {
        let address = port.trim_start_matches("http://");
        let mut stream = TcpStream::connect(address).unwrap_or_else(|error| panic!("{error}"));
        let patience = Some(Duration::from_secs(60));
        stream.set_read_timeout(patience).unwrap_or_else(|error| panic!("{error}"));
        let half = b"POST /v1/traces HTTP/1.1\r\n";
        stream.write_all(half).unwrap_or_else(|error| panic!("{error}"));
        stream
    });
    for mut stream in begun {
        // To the end of the connection, which the server brings about.
        let ended = stream.read_to_end(&mut Vec::new());
        let waited = |error: &std::io::Error| error.kind() == std::io::ErrorKind::WouldBlock;
        assert!(!ended.as_ref().is_err_and(waited), "{ended:?}");
    }
}

#[test]
fn a_port_that_is_taken_and_an_unknown_run_are_told() {
    let sink = Sink::start(Answer::Accept);
    let serve = Serve::before(&sink.address);
    let taken = serve.http.trim_start_matches("http://");
    let log = Serve::try_with(&sink.address, &["--listen-http", taken]).err();
    let log = log.unwrap_or_else(|| panic!("it started"));
    let told = log.last().map(ToString::to_string).unwrap_or_default();
    assert!(told.contains(&format!("listen.http: {taken}: Address already in use")), "{told}");
    let answer = Http::new().get(format!("{}/api/runs/none", serve.api)).send();
    let answer = answer.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(answer.status(), 404);
    let text = answer.text().unwrap_or_default();
    assert!(text.contains("expected the id of a run that is known"), "{text}");
}
