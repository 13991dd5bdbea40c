//! From records to a report.

use super::{Indicators, IndicatorsBytes, PeakReset, RankReport, Report, SCHEMA, Sample, Series};
use crate::counters::Counters;
use crate::phase::{Phase, PhaseRecord, RunIdentity, signed_difference};
use crate::units::{MIB, to_mib};

impl Report {
    /// A report of what the layer recorded, one entry a device. What else is known of the run is
    /// set on it afterwards.
    ///
    /// # Examples
    ///
    /// ```
    /// use phasescope::report::Report;
    ///
    /// let (_layer, guard) = phasescope::builder().keep_records().build();
    /// let mut report = Report::of(guard.identity(), &guard.series());
    /// report.case = Some("alpha".to_owned());
    /// ```
    #[must_use]
    pub fn of(identity: &RunIdentity, series: &[Series]) -> Self {
        Self {
            schema: Some(SCHEMA.to_owned()),
            run_id: Some(identity.run_id.clone()),
            world_size: Some(identity.world_size),
            peak_reset: Some(PeakReset::Span),
            rank_reports: series.iter().map(|series| rank_report(identity, series)).collect(),
            ..Self::default()
        }
    }
}

fn rank_report(identity: &RunIdentity, series: &Series) -> RankReport {
    let bytes = indicators(&series.records);
    let total = series.records.iter().rev().find_map(|record| record.end.device_total);
    RankReport {
        rank: identity.rank,
        local_rank: Some(identity.local_rank),
        device: Some(series.device.as_str().to_owned()),
        device_total_mib: total.map(mib),
        samples: series.records.iter().filter(|record| record.depth == 0).map(sample).collect(),
        indicators: bytes.in_mib(),
        indicators_bytes: Some(bytes),
        phases: series.records.clone(),
        diagnosis: Some(series.diagnosis.clone()),
        ..RankReport::default()
    }
}

fn sample(record: &PhaseRecord) -> Sample {
    let Counters { allocated, reserved, active, requested, inactive_split, .. } = record.end;
    Sample {
        step: record.step.and_then(|step| i64::try_from(step).ok()).unwrap_or(-1),
        phase: record.phase.sample_name().to_owned(),
        allocated_mib: allocated.map(mib),
        reserved_mib: reserved.map(mib),
        peak_allocated_mib: record.peak_allocated.map(mib),
        device_used_mib: record.end.device_used.map(mib),
        active_mib: active.map(mib),
        requested_mib: requested.map(mib),
        inactive_split_mib: inactive_split.map(mib),
        process_device_used_mib: record.end.process_device_used.map(mib),
        host_rss_mib: record.end.host_rss.map(mib),
        input_elements: record.input_elements,
        optimizer_stepped: record.optimizer_stepped,
    }
}

/// The original's summary of a rank, in bytes; what cannot be computed is absent.
#[must_use]
pub fn indicators(records: &[PhaseRecord]) -> IndicatorsBytes {
    let outer = || records.iter().filter(|record| record.depth == 0);
    let mut input = None;
    let mut floor = None;
    let mut first_floor = None;
    let mut forward: Option<i64> = None;
    for record in outer() {
        let Some(end) = record.end.allocated else { continue };
        match record.phase {
            Phase::Input => {
                input.get_or_insert(end);
                floor = floor.or(Some(end));
            }
            Phase::Forward => {
                let rise = floor.and_then(|floor| signed_difference(end, floor));
                forward = forward.max(rise);
            }
            Phase::ClearGradients => {
                floor = Some(end);
                first_floor = first_floor.or(floor);
            }
            _ => {}
        }
    }
    let change = |to: Option<u64>, from: Option<u64>| signed_difference(to?, from?);
    IndicatorsBytes {
        first_step_persistent_change: change(first_floor, input),
        between_step_growth: first_floor.and(change(floor, first_floor)),
        largest_forward_increase: forward,
        maximum_peak_allocated: outer()
            .filter_map(|record| record.peak_allocated)
            .max()
            .and_then(|peak| i64::try_from(peak).ok()),
    }
}

impl IndicatorsBytes {
    /// The same in MiB, as the original writes them.
    #[must_use]
    pub fn in_mib(&self) -> Indicators {
        let mib = |bytes: Option<i64>| bytes.map(|bytes| rounded(bytes as f64 / MIB as f64));
        Indicators {
            first_step_persistent_change_mib: mib(self.first_step_persistent_change),
            between_step_growth_mib: mib(self.between_step_growth),
            largest_forward_increase_mib: mib(self.largest_forward_increase),
            maximum_peak_allocated_mib: mib(self.maximum_peak_allocated),
        }
    }
}

/// Nine decimals: a block of 512 bytes is 0.000488281.
fn mib(bytes: u64) -> f64 {
    rounded(to_mib(bytes))
}

fn rounded(mib: f64) -> f64 {
    (mib * 1e9).round() / 1e9
}
