use std::fmt;
use std::sync::Arc;

use phasescope::counters::{CounterSource, host::HostMemory};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Unit;

use crate::serve::gate::Gate;
use crate::serve::runs::Runs;

/// What the collector holds now.
#[derive(Debug)]
pub(super) struct Own {
    runs: Arc<Runs>,
    gate: Gate,
    memory: HostMemory,
}

impl Own {
    pub(super) fn new(runs: Arc<Runs>, gate: Gate) -> Self {
        Self { runs, gate, memory: HostMemory::new() }
    }
}

impl Collector for Own {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut tell = |name, help, unit: Option<&Unit>, value: &dyn Sample| {
            value.encode(&mut encoder, name, help, unit)
        };
        let (runs, ranks) = self.runs.len();
        let (evicted, expired) = self.runs.removed();
        tell("phasescope_collector_runs", "Runs that are judged", None, &Level(runs as u64))?;
        tell("phasescope_collector_ranks", "Ranks that are judged", None, &Level(ranks as u64))?;
        tell(
            "phasescope_collector_runs_evicted",
            "Runs that made room for busier ones",
            None,
            &Total(evicted),
        )?;
        tell(
            "phasescope_collector_runs_expired",
            "Runs that were forgotten since they sent nothing more",
            None,
            &Total(expired),
        )?;
        tell(
            "phasescope_collector_in_flight",
            "Requests that are being read, judged or handed on",
            Some(&Unit::Bytes),
            &Level(self.gate.in_flight() as u64),
        )?;
        if let Some(resident) = self.memory.read().host_rss {
            let help = "Resident memory of the collector";
            tell("process_resident_memory", help, Some(&Unit::Bytes), &Level(resident))?;
        }
        Ok(())
    }
}

trait Sample {
    fn encode(
        &self,
        encoder: &mut DescriptorEncoder<'_>,
        name: &str,
        help: &str,
        unit: Option<&Unit>,
    ) -> fmt::Result;
}

struct Level(u64);
struct Total(u64);

impl Sample for Level {
    fn encode(
        &self,
        encoder: &mut DescriptorEncoder<'_>,
        name: &str,
        help: &str,
        unit: Option<&Unit>,
    ) -> fmt::Result {
        let value = ConstGauge::new(self.0);
        let encoder = encoder.encode_descriptor(name, help, unit, value.metric_type())?;
        EncodeMetric::encode(&value, encoder)
    }
}

impl Sample for Total {
    fn encode(
        &self,
        encoder: &mut DescriptorEncoder<'_>,
        name: &str,
        help: &str,
        unit: Option<&Unit>,
    ) -> fmt::Result {
        let value = ConstCounter::new(self.0);
        let encoder = encoder.encode_descriptor(name, help, unit, value.metric_type())?;
        EncodeMetric::encode(&value, encoder)
    }
}
