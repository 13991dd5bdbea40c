//! What Prometheus is told at `/metrics`: the collector's own counts, and the memory of the runs.

mod counts;
mod own;
mod runs;

use std::sync::Arc;

use prometheus_client::encoding::{prometheus_text, text};
use prometheus_client::registry::Registry;

pub(crate) use counts::Counts;

use super::gate::Gate;
use super::runs::Runs;

/// The content type of Prometheus' older text.
const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";
/// The content type of OpenMetrics.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Everything that is told.
#[derive(Debug)]
pub(crate) struct Metrics(Registry);

impl Metrics {
    pub(crate) fn new(counts: &Counts, runs: &Arc<Runs>, gate: &Gate) -> Self {
        let mut registry = Registry::default();
        counts.register(&mut registry);
        registry.register_collector(Box::new(own::Own::new(runs.clone(), gate.clone())));
        registry.register_collector(Box::new(runs::Memory::new(runs.clone())));
        Self(registry)
    }

    /// The text, with its content type: OpenMetrics where the scraper asks for it.
    pub(crate) fn text(&self, accept: Option<&str>) -> (&'static str, String) {
        let mut text = String::new();
        let open = accept.is_some_and(|accept| accept.contains("application/openmetrics-text"));
        // Writing to a string cannot fail.
        let _ = match open {
            true => text::encode(&mut text, &self.0),
            false => prometheus_text::encode(&mut text, &self.0),
        };
        (if open { OPEN_METRICS } else { TEXT }, text)
    }
}
