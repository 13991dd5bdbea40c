//! Values that cannot be are told with their place, before anything is concluded from them.

use std::collections::BTreeSet;

use serde_json::error::Category;

use super::{RankReport, Report, ReportError, SCHEMA, Sample};
use crate::phase::{MAX_BYTES, Phase};
use crate::units::to_mib;

/// [`MAX_BYTES`] in MiB.
const ABSURD_MIB: f64 = to_mib(MAX_BYTES);

impl Report {
    /// Reads a report from its text. `source` names it in errors.
    ///
    /// # Errors
    ///
    /// When the text is not JSON, not of the report's shape, or holds a value that cannot be: a
    /// negative or absurd counter, steps out of order, no sample of step 0, an empty list, an
    /// unknown schema or phase, one rank and device twice.
    pub fn parse(text: &str, source: &str) -> Result<Self, ReportError> {
        let mut json = serde_json::Deserializer::from_str(text);
        let report: Self = serde_path_to_error::deserialize(&mut json).map_err(|error| {
            let place = error.path().to_string();
            json_error(source, place, &error.into_inner())
        })?;
        json.end().map_err(|error| json_error(source, ".".to_owned(), &error))?;
        report.validate(source)?;
        Ok(report)
    }

    fn validate(&self, file: &str) -> Result<(), ReportError> {
        let check = Check { file };
        if let Some(schema) = self.schema.as_deref().filter(|schema| *schema != SCHEMA) {
            return check.fail(
                "schema".to_owned(),
                format!("\"{SCHEMA}\""),
                format!("\"{schema}\""),
            );
        }
        check.counter("parameters_fp32_mib", self.parameters_fp32_mib)?;
        if self.rank_reports.is_empty() {
            return check.fail("rank_reports".to_owned(), "one entry a rank", "none");
        }
        let mut seen = BTreeSet::new();
        for (place, rank) in self.rank_reports.iter().enumerate() {
            let place = format!("rank_reports[{place}]");
            if !seen.insert((rank.rank, rank.device.clone())) {
                let device = rank.device.as_deref().unwrap_or("no device named");
                let found = format!("rank {} ({device}) a second time", rank.rank);
                return check.fail(place, "one entry a rank and device", found);
            }
            check.rank(&place, rank)?;
        }
        Ok(())
    }
}

struct Check<'a> {
    file: &'a str,
}

impl Check<'_> {
    fn fail<T>(
        &self,
        place: String,
        expected: impl Into<String>,
        found: impl Into<String>,
    ) -> Result<T, ReportError> {
        Err(ReportError::Value {
            file: self.file.to_owned(),
            place,
            expected: expected.into(),
            found: found.into(),
        })
    }

    fn counter(&self, place: &str, value: Option<f64>) -> Result<(), ReportError> {
        match value {
            Some(value) if !(0.0..=ABSURD_MIB).contains(&value) => self.fail(
                place.to_owned(),
                format!("MiB from 0 to {ABSURD_MIB}, or nothing"),
                value.to_string(),
            ),
            _ => Ok(()),
        }
    }

    fn rank(&self, place: &str, rank: &RankReport) -> Result<(), ReportError> {
        self.counter(&format!("{place}.device_total_mib"), rank.device_total_mib)?;
        if rank.samples.is_empty() {
            return self.fail(format!("{place}.samples"), "one sample a phase", "none");
        }
        let mut before = -1;
        for (number, sample) in rank.samples.iter().enumerate() {
            let place = format!("{place}.samples[{number}]");
            if sample.step < -1 {
                return self.fail(
                    format!("{place}.step"),
                    "a step from 0 on, or -1 before training",
                    sample.step.to_string(),
                );
            }
            // What stands in no step, such as an evaluation between two, has no place in the order.
            if sample.step >= 0 && sample.step < before {
                return self.fail(
                    format!("{place}.step"),
                    format!("step {before} or a later one"),
                    sample.step.to_string(),
                );
            }
            before = before.max(sample.step);
            self.sample(&place, sample)?;
        }
        for (number, phase) in rank.phases.iter().enumerate() {
            if let Some((name, found)) = phase.absurd() {
                let place = format!("{place}.phases[{number}].{name}");
                return self.fail(place, format!("at most {MAX_BYTES}"), found);
            }
        }
        // Exact phases tell themselves where a run began: one that was resumed has no step 0, and one
        // that failed while the model was built has no step at all.
        let exact = !rank.phases.is_empty();
        if !exact && !rank.samples.iter().any(|sample| sample.step == 0) {
            return self.fail(format!("{place}.samples"), "samples of the first step, 0", "none");
        }
        Ok(())
    }

    fn sample(&self, place: &str, sample: &Sample) -> Result<(), ReportError> {
        if Phase::from_sample_name(&sample.phase).is_none() {
            return self.fail(
                format!("{place}.phase"),
                format!("one of {}", Phase::ALL.map(Phase::sample_name).join(", ")),
                format!("\"{}\"", sample.phase),
            );
        }
        for (name, value) in [
            ("allocated_mib", sample.allocated_mib),
            ("reserved_mib", sample.reserved_mib),
            ("peak_allocated_mib", sample.peak_allocated_mib),
            ("device_used_mib", sample.device_used_mib),
            ("active_mib", sample.active_mib),
            ("requested_mib", sample.requested_mib),
            ("inactive_split_mib", sample.inactive_split_mib),
            ("process_device_used_mib", sample.process_device_used_mib),
            ("host_rss_mib", sample.host_rss_mib),
        ] {
            self.counter(&format!("{place}.{name}"), value)?;
        }
        Ok(())
    }
}

fn json_error(source: &str, place: String, error: &serde_json::Error) -> ReportError {
    let reason = match error.classify() {
        Category::Eof => format!("expected more, found the end of the file ({error})"),
        Category::Syntax => format!(
            "expected JSON, found something else ({error}); NaN and Infinity are no JSON, leave \
             out what was not measured"
        ),
        _ => error.to_string(),
    };
    ReportError::Json { file: source.to_owned(), place, line: error.line(), reason }
}
