use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use bytes::Bytes;
use http::StatusCode;
use http::header::CONTENT_TYPE;
use tonic::codec::CompressionEncoding;
use tonic::server::{ClientStreamingService, Grpc};
use tonic::{Code, Status, Streaming};

use super::body::Meter;
use crate::serve::codec::RawCodec;
use crate::serve::failure::Failure;
use crate::serve::pipeline::{Pipeline, READ_TIMEOUT, Transport};
use crate::serve::signal::Signal;

/// The three services of OTLP.
pub(crate) fn router(pipeline: &Arc<Pipeline>) -> Router {
    let mut router = Router::new();
    for signal in Signal::ALL {
        let pipeline = pipeline.clone();
        let route = post(move |request| export(State((pipeline.clone(), signal)), request));
        router = router.route(signal.method(), route);
    }
    router.fallback(unknown)
}

async fn unknown(request: Request) -> Response {
    if !is_grpc(&request) {
        return (StatusCode::UNSUPPORTED_MEDIA_TYPE, "expected application/grpc\n").into_response();
    }
    let method = request.uri().path();
    Status::unimplemented(format!("expected a service of OTLP, found {method}")).into_http()
}

fn is_grpc(request: &Request) -> bool {
    let kind = request.headers().get(CONTENT_TYPE).map(http::HeaderValue::as_bytes);
    kind.is_some_and(|kind| kind.starts_with(b"application/grpc"))
}

async fn export(
    State((pipeline, signal)): State<(Arc<Pipeline>, Signal)>,
    request: Request,
) -> Response {
    if !is_grpc(&request) {
        return unknown(request).await;
    }
    let limits = pipeline.limits();
    let meter = Meter::new(pipeline.gate().enter(), limits.message);
    let mut server = Grpc::new(RawCodec)
        .accept_compressed(CompressionEncoding::Gzip)
        .max_decoding_message_size(limits.decompressed);
    let service = Export { pipeline, signal, meter: meter.clone() };
    let request = request.map(|body| meter.body(body));
    // A stream of one message: its errors are answered here, where tonic's own codes would have a
    // client try a request again that is too large for good.
    server.client_streaming(service, request).await.map(Body::new)
}

struct Export {
    pipeline: Arc<Pipeline>,
    signal: Signal,
    meter: Meter,
}

impl ClientStreamingService<Bytes> for Export {
    type Response = Bytes;
    type Future = Pin<Box<dyn Future<Output = Result<tonic::Response<Bytes>, Status>> + Send>>;

    fn call(&mut self, request: tonic::Request<Streaming<Bytes>>) -> Self::Future {
        let Self { pipeline, signal, meter } = self;
        let (pipeline, signal, meter) = (pipeline.clone(), *signal, meter.clone());
        Box::pin(async move {
            let counts = pipeline.counts();
            let answered = async {
                let message = read(request.into_inner(), &pipeline, &meter).await?;
                let mut charge = meter.charge().unwrap_or_else(|| pipeline.gate().enter());
                // What it was unpacked to, beside the bytes that came.
                charge.grow(message.len())?;
                pipeline.export(signal, message, charge).await
            };
            let answered = answered.await;
            counts.request(signal, Transport::Grpc, answered.as_ref().err());
            answered.map(tonic::Response::new).map_err(|failure| failure.grpc())
        })
    }
}

async fn read(
    mut messages: Streaming<Bytes>,
    pipeline: &Pipeline,
    meter: &Meter,
) -> Result<Bytes, Failure> {
    let read = tokio::time::timeout(READ_TIMEOUT, messages.message()).await;
    match read.map_err(|_| Failure::Slow(READ_TIMEOUT))? {
        Ok(Some(message)) => Ok(message),
        Ok(None) => Err(Failure::Malformed("expected a message, found none".to_owned())),
        Err(status) => Err(meter.failure().unwrap_or_else(|| match status.code() {
            Code::OutOfRange | Code::ResourceExhausted => Failure::TooLarge {
                limit: pipeline.limits().decompressed,
                what: "in a message, unpacked",
            },
            _ => Failure::Malformed(format!("expected a gRPC message: {}", status.message())),
        })),
    }
}
