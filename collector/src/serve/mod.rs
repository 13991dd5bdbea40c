//! `phasescope serve`: OTLP in, the diagnosis, OTLP out.
//!
//! receive -> check -> judge -> next hop -> answer. Nothing is answered before the next hop has taken
//! it, and nothing waits in between, so a crash loses nothing that was acknowledged.

mod api;
mod codec;
mod config;
mod failure;
mod gate;
mod listen;
mod log;
mod metrics;
mod next;
mod pipeline;
mod receive;
mod runs;
mod signal;
mod wire;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use axum_server::Handle;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;
use tracing::{info, warn};

use crate::args::Serve;
use config::Config;
use listen::Port;
use receive::{Refusal, Token, guarded};

/// How often runs that have sent nothing for long are looked for.
const EXPIRY_INTERVAL: Duration = Duration::from_secs(1);

/// Serves until it is told to end, by SIGTERM or SIGINT.
///
/// # Errors
///
/// When the configuration is wrong, a port is taken, or a port fails.
pub(crate) fn run(args: &Serve) -> Result<(), String> {
    let config = config::load(args)?;
    log::start(&config.log);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| format!("the runtime: {error}"))?;
    runtime.block_on(serve(&config))
}

async fn serve(config: &Config) -> Result<(), String> {
    let token = config.token()?.map(|token| Token::new(&token));
    let tls = match &config.tls {
        Some(tls) => Some(listen::certificate(tls).await?),
        None => None,
    };
    let counts = Arc::new(metrics::Counts::default());
    let runs = Arc::new(runs::Runs::new(config.limits.runs, config.limits.ranks));
    let in_flight = usize::try_from(config.limits.in_flight.as_u64()).unwrap_or(usize::MAX);
    let gate = gate::Gate::new(in_flight);
    let longest = usize::try_from(config.limits.name.as_u64()).unwrap_or(usize::MAX);
    let enricher = runs::Enricher::new(runs.clone(), counts.clone(), longest);
    let next = next::Next::new(&config.next)?;
    let metrics = metrics::Metrics::new(&counts, &runs, &gate);
    let pipeline = pipeline::Pipeline::new(enricher, next, gate, &config.limits, counts.clone());
    let pipeline = Arc::new(pipeline);
    let api = Arc::new(api::Api { runs: runs.clone(), metrics, ending: AtomicBool::new(false) });

    let guard = |router, refusal| guarded(router, token.as_ref(), refusal, &counts);
    let ports = [
        (
            Port::take("grpc", config.listen.grpc)?,
            guard(receive::grpc_router(&pipeline), Refusal::Grpc),
        ),
        (
            Port::take("http", config.listen.http)?,
            guard(receive::http_router(&pipeline), Refusal::Http),
        ),
        (
            Port::take("api", config.listen.api)?,
            guard(api::router(&api), Refusal::Http).merge(api::health(&api)),
        ),
    ];
    let [grpc, http, own] = [&ports[0], &ports[1], &ports[2]].map(|(port, _)| port.address);
    let open = [grpc, http, own].iter().any(|address| !address.ip().is_loopback());
    if open && token.is_none() {
        warn!("it listens beyond this machine without a token: everybody there can read and write");
    }
    // Both streams end by handles: a signal ends all three ports.
    let handle: Handle<SocketAddr> = Handle::new();
    let mut serving = JoinSet::new();
    for (port, router) in ports {
        serving.spawn(port.serve(router, tls.clone(), handle.clone()));
    }
    let (mut terminate, mut interrupt) = signals()?;
    info!(%grpc, %http, api = %own, next = shown(&config.next.endpoint), "ready");
    let expiry = tokio::spawn(expire(runs, config.forget_after));
    let failed = tokio::select! {
        _ = terminate.recv() => None,
        _ = interrupt.recv() => None,
        ended = serving.join_next() => ended,
    };
    api.ending.store(true, Ordering::Relaxed);
    expiry.abort();
    if let Some(ended) = failed {
        return ended.map_err(|error| error.to_string())?;
    }
    info!(connections = handle.connection_count(), "shutting down");
    handle.graceful_shutdown(Some(config.shutdown_timeout));
    while let Some(ended) = serving.join_next().await {
        ended.map_err(|error| error.to_string())??;
    }
    info!("ended");
    Ok(())
}

type Signal = tokio::signal::unix::Signal;

fn signals() -> Result<(Signal, Signal), String> {
    let wait = |kind| signal(kind).map_err(|error| format!("signals: {error}"));
    Ok((wait(SignalKind::terminate())?, wait(SignalKind::interrupt())?))
}

async fn expire(runs: Arc<runs::Runs>, after: Duration) {
    let mut interval = tokio::time::interval(EXPIRY_INTERVAL);
    loop {
        interval.tick().await;
        runs.expire(after, Instant::now());
    }
}

/// An endpoint without what may be secret in it.
fn shown(endpoint: &str) -> &str {
    endpoint.split(['?', '#']).next().unwrap_or_default()
}
