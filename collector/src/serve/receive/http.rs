use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use bytes::{Bytes, BytesMut};
use http::header::{CONTENT_ENCODING, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderValue};
use http_body_util::BodyExt;
use prost::Message;
use tonic_types::pb::Status;
use tower_http::decompression::RequestDecompressionLayer;

use super::body::Meter;
use super::json;
use crate::serve::failure::Failure;
use crate::serve::pipeline::{Pipeline, READ_TIMEOUT, Transport};
use crate::serve::signal::Signal;

/// How a body is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Encoding {
    Protobuf,
    Json,
}

/// The paths of OTLP.
pub(crate) fn router(pipeline: &Arc<Pipeline>) -> Router {
    let mut router = Router::new();
    for signal in Signal::ALL {
        let pipeline = pipeline.clone();
        let route = post(move |request| export(State((pipeline.clone(), signal)), request));
        router = router.route(signal.path(), route);
    }
    router
}

async fn export(
    State((pipeline, signal)): State<(Arc<Pipeline>, Signal)>,
    request: Request,
) -> Response {
    let encoding = encoding(request.headers());
    let known = encoding.clone().and_then(|known| packing(request.headers()).map(|()| known));
    let wire = Meter::new(pipeline.gate().enter(), pipeline.limits().message);
    let request = request.map(|body| wire.body(body));
    let taken = match known {
        Ok(encoding) => take(&pipeline, signal, encoding, request, &wire).await,
        Err(failure) => {
            drop(request);
            Err(failure)
        }
    };
    if taken.is_err() {
        wire.drain().await;
    }
    pipeline.counts().request(signal, Transport::Http, taken.as_ref().err());
    let encoding = encoding.unwrap_or(Encoding::Json);
    match taken {
        Ok(body) => (content_type(encoding), body).into_response(),
        Err(failure) => refuse(&failure, encoding),
    }
}

async fn take(
    pipeline: &Pipeline,
    signal: Signal,
    encoding: Encoding,
    request: Request,
    wire: &Meter,
) -> Result<Bytes, Failure> {
    // `wire` has seen the bytes that come, this sees those that they are unpacked to.
    let unpacked = Meter::new(pipeline.gate().enter(), pipeline.limits().decompressed);
    let body = unpack(request).await?;
    let body = unpacked.body(body);
    let read = tokio::time::timeout(READ_TIMEOUT, collect(body)).await;
    let body = read.map_err(|_| Failure::Slow(READ_TIMEOUT))?.map_err(|error| {
        let broken = || Failure::Malformed(format!("the body could not be read: {error}"));
        wire.failure().or_else(|| unpacked.failure()).unwrap_or_else(broken)
    })?;
    drop(wire.charge());
    let mut charge = unpacked.charge().unwrap_or_else(|| pipeline.gate().enter());
    let request = match encoding {
        Encoding::Protobuf => body,
        Encoding::Json => {
            charge.grow(json::cost(&body))?;
            json::request(signal, &body)?
        }
    };
    let answer = pipeline.export(signal, request, charge).await?;
    match encoding {
        Encoding::Protobuf => Ok(answer),
        Encoding::Json => Ok(json::answer(signal, &answer)),
    }
}

/// Unpacks what is packed with gzip.
async fn unpack(request: Request) -> Result<Body, Failure> {
    use tower::{Layer, ServiceExt};
    let pass = tower::service_fn(async |request: http::Request<_>| {
        Ok::<_, std::convert::Infallible>(http::Response::new(Body::new(request.into_body())))
    });
    let response = RequestDecompressionLayer::new().layer(pass).oneshot(request).await;
    response
        .map(|response| Body::new(response.into_body()))
        .map_err(|error| Failure::Malformed(format!("the body could not be read: {error}")))
}

fn packing(headers: &HeaderMap) -> Result<(), Failure> {
    match headers.get(CONTENT_ENCODING).map(HeaderValue::as_bytes) {
        None | Some(b"identity" | b"gzip") => Ok(()),
        Some(other) => {
            let found = String::from_utf8_lossy(other).into_owned();
            Err(Failure::Unsupported { expected: "the encoding gzip or none", found })
        }
    }
}

async fn collect(mut body: Body) -> Result<Bytes, axum::Error> {
    let mut whole = BytesMut::new();
    while let Some(frame) = body.frame().await {
        if let Ok(data) = frame?.into_data() {
            whole.extend_from_slice(&data);
        }
    }
    Ok(whole.freeze())
}

fn encoding(headers: &HeaderMap) -> Result<Encoding, Failure> {
    let kind = headers.get(CONTENT_TYPE).map(|value| String::from_utf8_lossy(value.as_bytes()));
    let kind = kind.unwrap_or_default();
    let essence = kind.split(';').next().unwrap_or_default().trim();
    if essence.eq_ignore_ascii_case("application/x-protobuf") {
        Ok(Encoding::Protobuf)
    } else if essence.eq_ignore_ascii_case("application/json") {
        Ok(Encoding::Json)
    } else {
        let found = if essence.is_empty() { "none".to_owned() } else { essence.to_owned() };
        let expected = "the content type application/x-protobuf or application/json";
        Err(Failure::Unsupported { expected, found })
    }
}

fn content_type(encoding: Encoding) -> [(http::HeaderName, HeaderValue); 1] {
    let value = match encoding {
        Encoding::Protobuf => "application/x-protobuf",
        Encoding::Json => "application/json",
    };
    [(CONTENT_TYPE, HeaderValue::from_static(value))]
}

/// A `google.rpc.Status`, as OTLP has it.
fn refuse(failure: &Failure, encoding: Encoding) -> Response {
    let (code, message) = (failure.code() as i32, failure.to_string());
    let body = match encoding {
        Encoding::Protobuf => Status { code, message, details: Vec::new() }.encode_to_vec(),
        Encoding::Json => {
            serde_json::json!({ "code": code, "message": message }).to_string().into_bytes()
        }
    };
    let mut response = (failure.http(), content_type(encoding), body).into_response();
    if let Some(delay) = failure.retry_after() {
        // Whole seconds, at least one.
        let seconds = HeaderValue::from(delay.as_secs().max(1));
        response.headers_mut().insert(RETRY_AFTER, seconds);
    }
    response
}
