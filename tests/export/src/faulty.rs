use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// What a faulty endpoint does with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Behaviour {
    /// Takes it and never answers.
    Slow,
    /// Answers with an error for good.
    Refuse,
    /// Takes a batch of spans but for so many of them.
    Reject(u8),
}

/// An OTLP/HTTP endpoint that misbehaves. It ends with the test.
#[derive(Debug)]
pub struct Faulty {
    /// Its address.
    pub http: String,
    requests: Arc<AtomicUsize>,
}

impl Faulty {
    /// Starts one.
    ///
    /// # Panics
    ///
    /// When it cannot listen.
    #[must_use]
    pub fn start(behaviour: Behaviour) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap_or_else(|error| panic!("{error}"));
        let port = listener.local_addr().unwrap_or_else(|error| panic!("{error}")).port();
        let requests = Arc::new(AtomicUsize::new(0));
        let counter = requests.clone();
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let counter = counter.clone();
                // A client that goes away ends its thread.
                thread::spawn(move || serve(stream, behaviour, &counter));
            }
        });
        Self { http: format!("http://127.0.0.1:{port}"), requests }
    }

    /// Requests so far.
    #[must_use]
    pub fn requests(&self) -> usize {
        self.requests.load(Ordering::Relaxed)
    }
}

fn serve(stream: TcpStream, behaviour: Behaviour, requests: &AtomicUsize) -> Option<()> {
    let mut answers = stream.try_clone().ok()?;
    let mut reader = BufReader::new(stream);
    loop {
        let mut length = 0;
        let mut traces = false;
        let mut first = true;
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line).ok()? == 0 {
                return None;
            }
            let line = line.trim().to_ascii_lowercase();
            if first {
                traces = line.contains("/v1/traces");
                first = false;
            }
            if line.is_empty() {
                break;
            }
            if let Some(value) = line.strip_prefix("content-length:") {
                length = value.trim().parse().ok()?;
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).ok()?;
        requests.fetch_add(1, Ordering::Relaxed);
        match behaviour {
            Behaviour::Slow => loop {
                thread::park();
            },
            Behaviour::Refuse => {
                answers.write_all(b"HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\n\r\n").ok()?;
            }
            Behaviour::Reject(spans) => {
                // ExportTraceServiceResponse { partial_success { rejected_spans } }; of metrics all
                // are taken.
                let body = if traces { vec![0x0a, 2, 0x08, spans] } else { Vec::new() };
                let head = format!(
                    "HTTP/1.1 200 OK\r\ncontent-type: application/x-protobuf\r\n\
                     content-length: {}\r\n\r\n",
                    body.len()
                );
                answers.write_all(head.as_bytes()).ok()?;
                answers.write_all(&body).ok()?;
            }
        }
    }
}
