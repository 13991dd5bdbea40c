use super::{RankReport, Report};
use crate::units::to_mib;

/// One report in a comparison; each figure is the largest over its ranks, in MiB.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Row {
    /// The case.
    pub case: Option<String>,
    /// The preset.
    pub preset: Option<String>,
    /// Samples in a rank's batch.
    pub batch: Option<u64>,
    /// What the first step left behind.
    pub first_persistent_mib: Option<f64>,
    /// What the level between steps grew by.
    pub step_growth_mib: Option<f64>,
    /// The largest rise in forward.
    pub forward_increase_mib: Option<f64>,
    /// The largest peak.
    pub peak_mib: Option<f64>,
}

/// A report's row. Figures that the report does not carry are computed from its samples.
///
/// # Examples
///
/// ```
/// use phasescope::report::{Report, row};
///
/// let text = r#"{"case": "alpha", "rank_reports": [{"samples": [
///     {"step": 0, "phase": "after_forward", "allocated_mib": 90.0, "peak_allocated_mib": 91.0}]}]}"#;
/// let row = row(&Report::parse(text, "alpha.json")?);
/// assert_eq!(row.peak_mib, Some(91.0));
/// assert_eq!(row.step_growth_mib, None);
/// # Ok::<(), phasescope::report::ReportError>(())
/// ```
#[must_use]
pub fn row(report: &Report) -> Row {
    let largest = |figure: fn(&Report, &RankReport) -> Option<f64>| {
        report.rank_reports.iter().filter_map(|rank| figure(report, rank)).max_by(f64::total_cmp)
    };
    Row {
        case: report.case.clone(),
        preset: report.preset.clone(),
        batch: report.batch_size_per_device,
        first_persistent_mib: largest(|report, rank| {
            let told = rank.indicators.first_step_persistent_change_mib;
            told.or_else(|| computed(report, rank).first_step_persistent_change.map(change))
        }),
        step_growth_mib: largest(|report, rank| {
            let told = rank.indicators.between_step_growth_mib;
            told.or_else(|| computed(report, rank).between_step_growth.map(change))
        }),
        forward_increase_mib: largest(|report, rank| {
            let told = rank.indicators.largest_forward_increase_mib;
            told.or_else(|| computed(report, rank).largest_forward_increase.map(change))
        }),
        peak_mib: largest(|report, rank| {
            let told = rank.indicators.maximum_peak_allocated_mib;
            told.or_else(|| computed(report, rank).maximum_peak_allocated.map(change))
        }),
    }
}

fn computed(report: &Report, rank: &RankReport) -> super::IndicatorsBytes {
    super::indicators(&report.records(rank))
}

fn change(bytes: i64) -> f64 {
    to_mib(bytes.unsigned_abs()) * bytes.signum() as f64
}
