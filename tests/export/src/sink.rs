use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode};
use http_body_util::{BodyExt, Full};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use prost::Message;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tonic::Status;

/// How a sink answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It takes everything.
    Accept,
    /// It takes everything, without looking at it.
    Discard,
    /// It waits as long before it takes anything.
    After(Duration),
    /// It says that it is not available.
    Unavailable,
    /// It says that the request is wrong.
    Invalid,
}

/// A next hop of the test's own, by gRPC and HTTP on one port: it keeps what it has taken.
#[derive(Debug)]
pub struct Sink {
    shared: Arc<Shared>,
    runtime: Option<Runtime>,
    port: u16,
    /// Its address.
    pub address: String,
}

#[derive(Debug)]
struct Shared {
    answer: watch::Sender<Answer>,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    requests: Vec<(String, Bytes)>,
    spans: HashMap<Vec<u8>, usize>,
}

impl Sink {
    /// Starts one.
    ///
    /// # Panics
    ///
    /// When it cannot listen.
    #[must_use]
    pub fn start(answer: Answer) -> Self {
        let (answer, _) = watch::channel(answer);
        let shared = Arc::new(Shared { answer, taken: Mutex::default() });
        let (runtime, port) = listen(&shared, 0);
        let address = format!("http://127.0.0.1:{port}");
        Self { shared, runtime: Some(runtime), port, address }
    }

    /// Answers otherwise from now on.
    pub fn answer(&self, answer: Answer) {
        self.shared.answer.send_replace(answer);
    }

    /// Goes away, with all connections.
    pub fn kill(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_timeout(Duration::from_secs(5));
        }
    }

    /// Comes back at the same port.
    pub fn revive(&mut self) {
        self.kill();
        self.runtime = Some(listen(&self.shared, self.port).0);
    }

    /// The requests that it has taken, each with its path.
    #[must_use]
    pub fn requests(&self) -> Vec<(String, Bytes)> {
        self.shared.taken().requests.clone()
    }

    /// The requests of traces.
    ///
    /// # Panics
    ///
    /// When one is none.
    #[must_use]
    pub fn traces(&self) -> Vec<ExportTraceServiceRequest> {
        let requests = self.requests();
        let traces = requests.iter().filter(|(path, _)| is_traces(path));
        traces
            .map(|(_, request)| {
                ExportTraceServiceRequest::decode(&request[..])
                    .unwrap_or_else(|error| panic!("{error}"))
            })
            .collect()
    }

    /// How often each span, by its id, was taken.
    #[must_use]
    pub fn spans(&self) -> HashMap<Vec<u8>, usize> {
        self.shared.taken().spans.clone()
    }
}

impl Shared {
    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_traces(path: &str) -> bool {
    path.ends_with("/v1/traces") || path.contains(".TraceService/")
}

fn listen(shared: &Arc<Shared>, port: u16) -> (Runtime, u16) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap_or_else(|error| panic!("{error}"));
    let listener = runtime.block_on(TcpListener::bind(("127.0.0.1", port)));
    let listener = listener.unwrap_or_else(|error| panic!("port {port}: {error}"));
    let port = listener.local_addr().unwrap_or_else(|error| panic!("{error}")).port();
    let router = Router::new().fallback(take).with_state(shared.clone());
    runtime.spawn(async move { axum::serve(listener, router).await });
    (runtime, port)
}

async fn take(State(shared): State<Arc<Shared>>, request: Request) -> Response {
    let path = request.uri().path().to_owned();
    let grpc = path.contains("Service/");
    let Ok(body) = request.into_body().collect().await else {
        return StatusCode::BAD_REQUEST.into_response();
    };
    let answer = *shared.answer.borrow();
    if let Answer::After(delay) = answer {
        tokio::time::sleep(delay).await;
    }
    match (answer, grpc) {
        (Answer::Unavailable, true) => return Status::unavailable("not now").into_http(),
        (Answer::Unavailable, false) => return StatusCode::SERVICE_UNAVAILABLE.into_response(),
        (Answer::Invalid, true) => return Status::invalid_argument("not so").into_http(),
        (Answer::Invalid, false) => return StatusCode::BAD_REQUEST.into_response(),
        _ => {}
    }
    let body = body.to_bytes();
    // Before the message stand its compression, none, and its length.
    let message = if grpc { body.slice(5.min(body.len())..) } else { body };
    if answer != Answer::Discard {
        keep(&shared, path, message);
    }
    if !grpc {
        return [("content-type", "application/x-protobuf")].into_response();
    }
    let trailers = HeaderMap::from_iter([(
        http::HeaderName::from_static("grpc-status"),
        HeaderValue::from_static("0"),
    )]);
    let empty = Full::new(Bytes::from_static(&[0; 5]));
    let body = empty.with_trailers(async { Some(Ok::<_, Infallible>(trailers)) });
    ([("content-type", "application/grpc")], Body::new(body)).into_response()
}

fn keep(shared: &Shared, path: String, message: Bytes) {
    let mut taken = shared.taken();
    if is_traces(&path)
        && let Ok(request) = ExportTraceServiceRequest::decode(&message[..])
    {
        let groups = request.resource_spans.iter().flat_map(|group| &group.scope_spans);
        for span in groups.flat_map(|scope| &scope.spans) {
            *taken.spans.entry(span.span_id.clone()).or_default() += 1;
        }
    }
    taken.requests.push((path, message));
}
