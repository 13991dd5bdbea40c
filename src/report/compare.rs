use super::{Indicators, RankReport, Report, indicators};

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
    let told: Vec<Indicators> =
        report.rank_reports.iter().map(|rank| figures(report, rank)).collect();
    let largest = |figure: fn(&Indicators) -> Option<f64>| {
        told.iter().filter_map(figure).max_by(f64::total_cmp)
    };
    Row {
        case: report.case.clone(),
        preset: report.preset.clone(),
        batch: report.batch_size_per_device,
        first_persistent_mib: largest(|told| told.first_step_persistent_change_mib),
        step_growth_mib: largest(|told| told.between_step_growth_mib),
        forward_increase_mib: largest(|told| told.largest_forward_increase_mib),
        peak_mib: largest(|told| told.maximum_peak_allocated_mib),
    }
}

/// A rank's summary: what the report tells, else what its samples come to.
fn figures(report: &Report, rank: &RankReport) -> Indicators {
    let told = rank.indicators;
    let computed = indicators(&report.records(rank)).in_mib();
    Indicators {
        first_step_persistent_change_mib: told
            .first_step_persistent_change_mib
            .or(computed.first_step_persistent_change_mib),
        between_step_growth_mib: told.between_step_growth_mib.or(computed.between_step_growth_mib),
        largest_forward_increase_mib: told
            .largest_forward_increase_mib
            .or(computed.largest_forward_increase_mib),
        maximum_peak_allocated_mib: told
            .maximum_peak_allocated_mib
            .or(computed.maximum_peak_allocated_mib),
    }
}
