use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

use crate::serve::failure::Failure;
use crate::serve::pipeline::Transport;
use crate::serve::runs::Unjudged;
use crate::serve::signal::Signal;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    signal: &'static str,
    transport: &'static str,
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct SignalLabels {
    signal: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabels {
    reason: &'static str,
}

/// What the collector has done, since it was started.
#[derive(Debug)]
pub(crate) struct Counts {
    requests: Family<RequestLabels, Counter>,
    items: Family<SignalLabels, Counter>,
    next_hop: Histogram,
    judged: Counter,
    repeated: Counter,
    late: Counter,
    unjudged: Family<ReasonLabels, Counter>,
    looped: Counter,
    unauthenticated: Counter,
}

impl Default for Counts {
    fn default() -> Self {
        // From half a millisecond to half a minute.
        let seconds = [
            0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
            30.0,
        ];
        let counts = Self {
            requests: Family::default(),
            items: Family::default(),
            next_hop: Histogram::new(seconds),
            judged: Counter::default(),
            repeated: Counter::default(),
            late: Counter::default(),
            unjudged: Family::default(),
            looped: Counter::default(),
            unauthenticated: Counter::default(),
        };
        // A count of nothing is told as zero from the start, so that an increase can be seen.
        for signal in Signal::ALL {
            let _ = counts.items.get_or_create(&SignalLabels { signal: signal.name() });
        }
        for reason in Unjudged::ALL {
            let _ = counts.unjudged.get_or_create(&ReasonLabels { reason: reason.reason() });
        }
        counts
    }
}

impl Counts {
    /// A request has been answered.
    pub(crate) fn request(&self, signal: Signal, transport: Transport, failure: Option<&Failure>) {
        let outcome = failure.map_or("accepted", Failure::kind);
        let labels = RequestLabels { signal: signal.name(), transport: transport.name(), outcome };
        self.requests.get_or_create(&labels).inc();
    }

    /// The next hop has taken so many spans, data points or log records.
    pub(crate) fn forwarded(&self, signal: Signal, items: u64) {
        self.items.get_or_create(&SignalLabels { signal: signal.name() }).inc_by(items);
    }

    /// The next hop has answered, or has not, after this time.
    pub(crate) fn next_hop(&self, time: Duration) {
        self.next_hop.observe(time.as_secs_f64());
    }

    pub(crate) fn judged(&self) {
        self.judged.inc();
    }

    pub(crate) fn repeated(&self) {
        self.repeated.inc();
    }

    pub(crate) fn late(&self) {
        self.late.inc();
    }

    pub(crate) fn unjudged(&self, reason: Unjudged, spans: u64) {
        self.unjudged.get_or_create(&ReasonLabels { reason: reason.reason() }).inc_by(spans);
    }

    pub(crate) fn looped(&self, spans: u64) {
        self.looped.inc_by(spans);
    }

    pub(crate) fn unauthenticated(&self) {
        self.unauthenticated.inc();
    }

    pub(super) fn register(&self, registry: &mut Registry) {
        let registry = registry.sub_registry_with_prefix("phasescope_collector");
        registry.register("requests", "Requests, by what became of them", self.requests.clone());
        registry.register(
            "forwarded_items",
            "Spans, data points and log records that the next hop has taken",
            self.items.clone(),
        );
        registry.register_with_unit(
            "next_hop_duration",
            "Time until the next hop answered",
            Unit::Seconds,
            self.next_hop.clone(),
        );
        registry.register("phases_judged", "Phases that the engine has seen", self.judged.clone());
        registry.register(
            "phases_repeated",
            "Phases that came a second time, as when a client tries again",
            self.repeated.clone(),
        );
        registry.register(
            "phases_late",
            "Phases that came after later ones were judged, and were passed on unjudged",
            self.late.clone(),
        );
        registry.register(
            "spans_unjudged",
            "Phases and steps that were passed on unjudged, by the limit that they were beyond",
            self.unjudged.clone(),
        );
        registry.register(
            "spans_looped",
            "Spans that came back from the next hop, and were not sent on again",
            self.looped.clone(),
        );
        registry.register(
            "unauthenticated_requests",
            "Requests without the bearer token",
            self.unauthenticated.clone(),
        );
    }
}
