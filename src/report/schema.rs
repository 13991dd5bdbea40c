use serde::{Deserialize, Deserializer, Serialize};

use crate::diagnosis::Diagnosis;
use crate::phase::PhaseRecord;

/// The schema that is written.
pub const SCHEMA: &str = "phasescope.report/v1";

/// A report. What is not known is absent; unknown fields are passed over on reading.
///
/// # Examples
///
/// ```
/// use phasescope::report::Report;
///
/// let text = r#"{"case": "alpha", "rank_reports": [{"rank": 0, "samples": [
///     {"step": 0, "phase": "after_forward", "allocated_mib": 90.5}]}]}"#;
/// let report = Report::parse(text, "alpha.json")?;
/// assert_eq!(report.rank_reports[0].samples[0].allocated_mib, Some(90.5));
/// # Ok::<(), phasescope::report::ReportError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Report {
    /// The schema's name; absent in reports of the original.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schema: Option<String>,
    /// The case or experiment.
    pub case: Option<String>,
    /// The run's id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_id: Option<String>,
    /// The name of the model's size.
    pub preset: Option<String>,
    /// The model's dimensions.
    pub model_config: Option<ModelConfig>,
    /// Number of parameters.
    pub parameter_count: Option<u64>,
    /// Their size in 32 bits each.
    pub parameters_fp32_mib: Option<f64>,
    /// Samples in a rank's batch.
    pub batch_size_per_device: Option<u64>,
    /// Samples that rank 0 has more than the others.
    pub rank_zero_extra_samples: Option<u64>,
    /// Steps that were to be trained.
    pub steps: Option<u64>,
    /// `fp32` or `bf16`.
    pub precision: Option<String>,
    /// Number of processes.
    pub world_size: Option<u32>,
    /// Seed of parameters and data.
    pub seed: Option<u64>,
    /// Loss of the last step.
    pub final_loss_rank_zero: Option<f64>,
    /// What trained.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub framework: Option<Framework>,
    /// What resets `peak_allocated_mib` of the samples; absent means at every step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peak_reset: Option<PeakReset>,
    /// One entry a rank and device.
    pub rank_reports: Vec<RankReport>,
}

/// The model's dimensions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ModelConfig {
    /// Transformer blocks.
    pub layers: Option<u64>,
    /// Width.
    pub hidden_size: Option<u64>,
    /// Attention heads.
    pub attention_heads: Option<u64>,
    /// Width of the feed-forward part.
    pub feedforward_size: Option<u64>,
    /// Tokens in a sample.
    pub sequence_length: Option<u64>,
    /// Different tokens.
    pub vocabulary_size: Option<u64>,
    /// Classes.
    pub classes: Option<u64>,
}

/// The framework that trained.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Framework {
    /// Its name.
    pub name: String,
    /// Its version.
    #[serde(default)]
    pub version: Option<String>,
}

/// What resets the peak between samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum PeakReset {
    /// The start of a step: a sample's peak is that of its step so far.
    #[default]
    Step,
    /// The start of a phase: a sample's peak is its phase's own.
    Span,
    /// Nothing: a sample's peak is that of the run so far.
    Never,
}

/// What one rank measured on one device.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RankReport {
    /// The rank, from 0.
    pub rank: u32,
    /// The rank on its host.
    pub local_rank: Option<u32>,
    /// The device's name; a process with several devices has an entry for each.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// Samples in this rank's batch.
    pub local_batch_size: Option<u64>,
    /// The GPU's product name.
    pub gpu_name: Option<String>,
    /// The device's size.
    pub device_total_mib: Option<f64>,
    /// Free on the device at the end.
    pub device_free_at_end_mib: Option<f64>,
    /// The file of an allocator snapshot.
    pub snapshot: Option<String>,
    /// Counters at the end of each phase.
    pub samples: Vec<Sample>,
    /// The original's summary, in MiB.
    pub indicators: Indicators,
    /// The same in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub indicators_bytes: Option<IndicatorsBytes>,
    /// The exact phases.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub phases: Vec<PhaseRecord>,
    /// What the engine said in the process; absent where a later version said what this one does
    /// not know.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "known_diagnosis")]
    pub diagnosis: Option<Diagnosis>,
}

fn known_diagnosis<'de, D: Deserializer<'de>>(json: D) -> Result<Option<Diagnosis>, D::Error> {
    Ok(serde_json::from_value(serde_json::Value::deserialize(json)?).ok().flatten())
}

/// Counters at the end of a phase, in MiB.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// The step; -1 before training.
    pub step: i64,
    /// `after_forward` and so on.
    pub phase: String,
    /// Live tensor storage.
    #[serde(default)]
    pub allocated_mib: Option<f64>,
    /// Held by the allocator.
    #[serde(default)]
    pub reserved_mib: Option<f64>,
    /// Peak since the last reset, see [`Report::peak_reset`].
    #[serde(default)]
    pub peak_allocated_mib: Option<f64>,
    /// Used on the whole device.
    #[serde(default)]
    pub device_used_mib: Option<f64>,
    /// Allocated plus what waits for other streams.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub active_mib: Option<f64>,
    /// Asked for, before rounding.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requested_mib: Option<f64>,
    /// Free in split blocks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inactive_split_mib: Option<f64>,
    /// Used on the device by this process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process_device_used_mib: Option<f64>,
    /// Resident host memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_rss_mib: Option<f64>,
    /// Elements of the input batch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_elements: Option<u64>,
    /// Whether the step's optimizer ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub optimizer_stepped: Option<bool>,
}

/// The original's summary of a rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Indicators {
    /// After clearing in step 0 minus after the input.
    pub first_step_persistent_change_mib: Option<f64>,
    /// After clearing in the last step minus in step 0.
    pub between_step_growth_mib: Option<f64>,
    /// The largest allocation after forward minus the level after clearing before it.
    pub largest_forward_increase_mib: Option<f64>,
    /// The largest peak.
    pub maximum_peak_allocated_mib: Option<f64>,
}

/// The same summary in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct IndicatorsBytes {
    /// After clearing in step 0 minus after the input.
    pub first_step_persistent_change: Option<i64>,
    /// After clearing in the last step minus in step 0.
    pub between_step_growth: Option<i64>,
    /// The largest allocation after forward minus the level after clearing before it.
    pub largest_forward_increase: Option<i64>,
    /// The largest peak.
    pub maximum_peak_allocated: Option<i64>,
}
