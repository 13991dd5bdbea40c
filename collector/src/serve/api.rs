//! Health, runs and metrics, for people and their tools.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderMap, StatusCode};
use serde_json::json;

use super::metrics::Metrics;
use super::runs::Runs;

/// What the API answers from.
#[derive(Debug)]
pub(crate) struct Api {
    pub(crate) runs: Arc<Runs>,
    pub(crate) metrics: Metrics,
    /// No new requests are taken.
    pub(crate) ending: AtomicBool,
}

/// Whether it lives and takes requests: for probes, which have no token.
pub(crate) fn health(api: &Arc<Api>) -> Router {
    let router = Router::new().route("/healthz", get(async || "ok\n"));
    router.route("/readyz", get(ready)).with_state(api.clone())
}

/// The runs and the metrics.
pub(crate) fn router(api: &Arc<Api>) -> Router {
    Router::new()
        .route("/api/runs", get(all))
        .route("/api/runs/{id}", get(one))
        .route("/metrics", get(metrics))
        // One of its own, so that the token stands before it too.
        .fallback(async || StatusCode::NOT_FOUND)
        .with_state(api.clone())
}

async fn ready(State(api): State<Arc<Api>>) -> Response {
    match api.ending.load(Ordering::Relaxed) {
        false => "ready\n".into_response(),
        true => (StatusCode::SERVICE_UNAVAILABLE, "shutting down\n").into_response(),
    }
}

async fn all(State(api): State<Arc<Api>>) -> Response {
    // Many runs take some milliseconds: not on a thread that answers others meanwhile.
    blocking(move || {
        let runs: Vec<_> = api.runs.all().iter().map(|run| run.summary()).collect();
        Json(runs).into_response()
    })
    .await
}

async fn one(State(api): State<Arc<Api>>, Path(id): Path<String>) -> Response {
    blocking(move || match api.runs.get(&id) {
        Some(run) => Json(run.judged()).into_response(),
        None => {
            let error = format!("expected the id of a run that is known, found {id:?}");
            (StatusCode::NOT_FOUND, Json(json!({ "error": error }))).into_response()
        }
    })
    .await
}

async fn metrics(State(api): State<Arc<Api>>, headers: HeaderMap) -> Response {
    blocking(move || {
        let accept = headers.get(ACCEPT).and_then(|accept| accept.to_str().ok());
        let (kind, text) = api.metrics.text(accept);
        ([(CONTENT_TYPE, kind)], text).into_response()
    })
    .await
}

async fn blocking(answer: impl FnOnce() -> Response + Send + 'static) -> Response {
    let answered = tokio::task::spawn_blocking(answer).await;
    answered.unwrap_or_else(|_| StatusCode::INTERNAL_SERVER_ERROR.into_response())
}
