//! From a report to the records that the diagnosis reads.

use super::{PeakReset, RankReport, Report, Sample};
use crate::counters::Counters;
use crate::diagnosis::RunFacts;
use crate::phase::{Phase, PhaseRecord};
use crate::units::MIB;

/// Bytes of one parameter in 32 bits.
const FP32_BYTES: u64 = 4;

impl Report {
    /// What the report tells of a rank's run besides its counters.
    #[must_use]
    pub fn facts(&self, rank: &RankReport) -> RunFacts {
        let counted = self.parameter_count.and_then(|count| count.checked_mul(FP32_BYTES));
        RunFacts {
            parameter_bytes: counted.or(bytes(self.parameters_fp32_mib)),
            device_total: bytes(rank.device_total_mib),
            local_batch_size: rank.local_batch_size.or(self.batch_size_per_device),
        }
    }

    /// A rank's phases: the exact ones where the report has them, else those between its samples. A
    /// phase then starts at the sample before it, and its own peak is known where its sample's peak
    /// is above the sample's before it.
    #[must_use]
    pub fn records(&self, rank: &RankReport) -> Vec<PhaseRecord> {
        if !rank.phases.is_empty() {
            return rank.phases.clone();
        }
        let reset = self.peak_reset.unwrap_or_default();
        let total = bytes(rank.device_total_mib);
        let mut before: Option<(i64, Counters)> = None;
        // The highest running peak so far, for peaks that are never reset.
        let mut highest = None;
        let mut records = Vec::with_capacity(rank.samples.len());
        for sample in &rank.samples {
            let Some(phase) = Phase::from_sample_name(&sample.phase) else { continue };
            let mut record = PhaseRecord::new(u64::try_from(sample.step).ok(), phase);
            record.end = Counters { device_total: total, ..counters(sample) };
            record.input_elements = sample.input_elements;
            record.optimizer_stepped = sample.optimizer_stepped;
            let running = record.end.peak_allocated;
            let same_step = before.filter(|(step, _)| *step == sample.step);
            record.peak_allocated = match reset {
                PeakReset::Span => running,
                PeakReset::Step => running.filter(|running| {
                    same_step.is_none_or(|(_, before)| {
                        before.peak_allocated.is_some_and(|before| before < *running)
                    })
                }),
                PeakReset::Never => running.filter(|running| highest < Some(*running)),
            };
            highest = highest.max(running);
            if let Some((_, before)) = before {
                record.start = before;
            }
            before = Some((sample.step, record.end));
            records.push(record);
        }
        records
    }
}

fn counters(sample: &Sample) -> Counters {
    Counters {
        allocated: bytes(sample.allocated_mib),
        reserved: bytes(sample.reserved_mib),
        peak_allocated: bytes(sample.peak_allocated_mib),
        active: bytes(sample.active_mib),
        requested: bytes(sample.requested_mib),
        inactive_split: bytes(sample.inactive_split_mib),
        device_used: bytes(sample.device_used_mib),
        process_device_used: bytes(sample.process_device_used_mib),
        host_rss: bytes(sample.host_rss_mib),
        ..Counters::default()
    }
}

/// MiB to bytes. Validation has kept the number within what a `u64` holds.
fn bytes(mib: Option<f64>) -> Option<u64> {
    mib.map(|mib| (mib * MIB as f64).round() as u64)
}
