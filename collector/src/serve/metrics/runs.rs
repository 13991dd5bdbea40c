use std::fmt;
use std::sync::Arc;

use phasescope::Counters;
use phasescope::diagnosis::Finding;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;

use crate::serve::runs::{PhaseLevels, Runs};

/// Labels as the metrics of the library have them in Prometheus.
type Labels = Vec<(&'static str, String)>;

/// The memory and the findings of the runs, made anew from what is known at each scrape: a run that is
/// forgotten is gone from here too, and what was not measured has no sample.
#[derive(Debug)]
pub(super) struct Memory(Arc<Runs>);

/// One sample a row.
#[derive(Default)]
struct Rows {
    phases: Vec<(Labels, PhaseLevels)>,
    findings: Vec<(Labels, Finding)>,
    devices: Vec<(Labels, u64)>,
    steps_left: Vec<(Labels, u64)>,
    steps: Vec<(Labels, u64)>,
}

impl Memory {
    pub(super) fn new(runs: Arc<Runs>) -> Self {
        Self(runs)
    }

    fn rows(&self) -> Rows {
        let mut rows = Rows::default();
        for run in self.0.all() {
            for (number, rank) in run.ranks().iter_mut() {
                rank.settle();
                let who = vec![
                    ("phasescope_run_id", run.id.clone()),
                    ("phasescope_rank", number.to_string()),
                ];
                rows.steps.push((who.clone(), rank.steps));
                for device in &rank.devices {
                    let of_device = |more: &[(&'static str, &str)]| {
                        let mut labels = who.clone();
                        labels.push(("phasescope_device_name", device.name.to_string()));
                        labels.extend(more.iter().map(|(key, text)| (*key, (*text).to_owned())));
                        labels
                    };
                    let mut latest = Counters::default();
                    for (phase, levels) in &device.phases {
                        let labels = of_device(&[("phasescope_phase", phase.name())]);
                        rows.phases.push((labels, *levels));
                        latest = levels.end.or(latest);
                    }
                    // What the run has said stands for what was not measured.
                    let size = latest.device_total.or(rank.device_size());
                    rows.devices.extend(size.map(|size| (of_device(&[]), size)));
                    let left = device.now.steps_to_out_of_memory();
                    rows.steps_left.extend(left.map(|steps| (of_device(&[]), steps)));
                    for finding in device.now.finished().findings {
                        let labels = of_device(&[
                            ("phasescope_finding_code", finding.code.name()),
                            ("phasescope_finding_severity", &finding.severity.to_string()),
                        ]);
                        rows.findings.push((labels, finding));
                    }
                }
            }
        }
        rows
    }
}

impl Collector for Memory {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let rows = self.rows();
        type Level = fn(&PhaseLevels) -> Option<u64>;
        let levels: [(&str, &str, Level); 6] = [
            ("allocated", "Live tensor storage at the phase's last end", |l| l.end.allocated),
            ("reserved", "Held by the caching allocator at the phase's last end", |l| {
                l.end.reserved
            }),
            ("peak", "Highest allocated inside the phase, the last time", |l| l.peak),
            ("highest_peak", "Highest allocated inside the phase in the whole run", |l| {
                l.highest_peak
            }),
            ("device_used", "Used on the device by everyone at the phase's last end", |l| {
                l.end.device_used
            }),
            (
                "process_device_used",
                "Used on the device by the process at the phase's last end",
                |l| l.end.process_device_used,
            ),
        ];
        for (name, help, level) in levels {
            let name = format!("phasescope_memory_{name}");
            let samples = rows.phases.iter().map(|(labels, levels)| (labels, level(levels)));
            gauge(&mut encoder, &name, help, Some(&Unit::Bytes), samples)?;
        }
        let limits = rows.devices.iter().map(|(labels, size)| (labels, Some(*size)));
        let help = "The device's size";
        gauge(&mut encoder, "phasescope_memory_device_limit", help, Some(&Unit::Bytes), limits)?;
        let held = rows.findings.iter().map(|(labels, found)| (labels, Some(found.held_bytes)));
        let help = "What a finding holds";
        gauge(&mut encoder, "phasescope_finding_held", help, Some(&Unit::Bytes), held)?;
        let left = rows.steps_left.iter().map(|(labels, steps)| (labels, Some(*steps)));
        let help = "Steps until the device is full at the measured growth";
        gauge(&mut encoder, "phasescope_steps_to_out_of_memory", help, None, left)?;
        let help = "Steps whose phases have come";
        let mut steps =
            encoder.encode_descriptor("phasescope_steps", help, None, MetricType::Counter)?;
        for (labels, count) in &rows.steps {
            steps.encode_family(labels)?.encode_counter::<NoLabelSet, _, u64>(count, None)?;
        }
        Ok(())
    }
}

fn gauge<'a>(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    unit: Option<&Unit>,
    samples: impl Iterator<Item = (&'a Labels, Option<u64>)>,
) -> fmt::Result {
    let mut metric = encoder.encode_descriptor(name, help, unit, MetricType::Gauge)?;
    for (labels, value) in samples {
        if let Some(value) = value {
            metric.encode_family(labels)?.encode_gauge(&value)?;
        }
    }
    Ok(())
}
