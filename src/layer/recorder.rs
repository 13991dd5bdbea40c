use crate::counters::DeviceName;
use crate::diagnosis::{Diagnoser, Diagnosis, Policy, RunFacts};
use crate::phase::PhaseRecord;
use crate::report::Series;

/// Phases of one step that wait for the step's end to be put into order; beyond it they are handed
/// on in the order in which their spans closed.
const MAX_PENDING: usize = 1024;

/// Records kept for a report, over all devices. Beyond it new ones are counted and not kept; the
/// diagnosis still sees them.
pub const MAX_KEPT_RECORDS: usize = 1 << 16;

/// What the layer has recorded: one series a device.
#[derive(Debug)]
pub(super) struct Recorder {
    facts: RunFacts,
    series: Vec<DeviceSeries>,
    pending: Vec<(u64, usize, PhaseRecord)>,
    keep: bool,
    kept: usize,
    pub(super) dropped: u64,
}

#[derive(Debug)]
struct DeviceSeries {
    device: DeviceName,
    diagnoser: Diagnoser,
    records: Vec<PhaseRecord>,
}

impl Recorder {
    pub(super) fn new<'a>(
        devices: impl Iterator<Item = &'a DeviceName>,
        policy: &Policy,
        facts: RunFacts,
        keep: bool,
    ) -> Self {
        let series = devices
            .map(|device| DeviceSeries {
                device: device.clone(),
                diagnoser: Diagnoser::new(policy.clone(), facts),
                records: Vec::new(),
            })
            .collect();
        Self { facts, series, pending: Vec::new(), keep, kept: 0, dropped: 0 }
    }

    /// Takes a phase of device number `device`. `order` is the place of its end among all ends: a
    /// span may close long after it was left for the last time.
    pub(super) fn push(&mut self, order: u64, device: usize, record: PhaseRecord) {
        let in_step = record.step.is_some();
        self.pending.push((order, device, record));
        if !in_step || self.pending.len() >= MAX_PENDING {
            self.flush();
        }
    }

    /// Hands on what waits: a step has ended, or somebody asks.
    pub(super) fn flush(&mut self) {
        self.pending.sort_by_key(|(order, ..)| *order);
        for (_, device, record) in self.pending.drain(..) {
            let Some(series) = self.series.get_mut(device) else { continue };
            series.diagnoser.observe(&record);
            if !self.keep {
                continue;
            }
            if self.kept < MAX_KEPT_RECORDS {
                self.kept += 1;
                series.records.push(record);
            } else {
                self.dropped += 1;
            }
        }
    }

    /// Every device's engine, the first device first.
    #[cfg(feature = "otlp")]
    pub(super) fn diagnosers(&self) -> impl Iterator<Item = &Diagnoser> {
        self.series.iter().map(|series| &series.diagnoser)
    }

    /// What the engine says of each device now.
    #[cfg(feature = "otlp")]
    pub(super) fn diagnoses(&self) -> Vec<(DeviceName, Diagnosis)> {
        let series = self.series.iter();
        series.map(|series| (series.device.clone(), series.diagnoser.finished())).collect()
    }

    #[cfg(feature = "otlp")]
    pub(super) fn facts(&self) -> RunFacts {
        self.facts
    }

    pub(super) fn set_facts(&mut self, facts: RunFacts) {
        self.facts = facts;
        for series in &mut self.series {
            series.diagnoser.set_facts(facts);
        }
    }

    pub(super) fn series(&mut self) -> Vec<Series> {
        self.flush();
        self.series
            .iter()
            .map(|series| Series {
                device: series.device.clone(),
                records: series.records.clone(),
                diagnosis: series.diagnoser.finished(),
            })
            .collect()
    }
}
