use serde::{Deserialize, Serialize};

use super::{Outcome, Phase};
use crate::counters::Counters;

/// One finished phase on one device: what the layer writes, the report keeps and the diagnosis
/// reads. Plain data, without a clock.
///
/// # Examples
///
/// ```
/// use phasescope::{Counters, Phase, PhaseRecord};
///
/// let mut forward = PhaseRecord::new(Some(0), Phase::Forward);
/// forward.start = Counters { allocated: Some(100), ..Counters::default() };
/// forward.end = Counters { allocated: Some(180), ..Counters::default() };
/// assert_eq!(forward.allocated_change(), Some(80));
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct PhaseRecord {
    /// The training step, counted from 0; `None` before training.
    pub step: Option<u64>,
    /// Which phase.
    pub phase: Phase,
    /// The span's name where it says more than the phase (always for [`Phase::Other`]).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<Box<str>>,
    /// How many phases were open around this one; 0 for a phase of its own.
    #[serde(default)]
    pub depth: u32,
    /// Counters at the start edge. Absent values were not measured.
    #[serde(default)]
    pub start: Counters,
    /// Counters at the end edge.
    #[serde(default)]
    pub end: Counters,
    /// Highest allocated bytes inside the phase, children included. `None` when it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak_allocated: Option<u64>,
    /// The program reset the allocator's peak inside the phase, so the peak may be too low.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub peak_disturbed: bool,
    /// Change of allocated bytes between the end of the phase before and the start of this one
    /// (phases of depth 0 only), the "outside phases" account. `None` where there was none before
    /// or it was not measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outside_change: Option<i64>,
    /// Seconds on the host between the edges; work on a device may still run after it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_seconds: Option<f64>,
    /// Elements of the input batch, as the program said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_elements: Option<u64>,
    /// Whether this step's optimizer ran; `Some(false)` for an accumulation micro-step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub optimizer_stepped: Option<bool>,
    /// How it ended.
    #[serde(default, skip_serializing_if = "Outcome::is_completed")]
    pub outcome: Outcome,
}

impl PhaseRecord {
    /// A record without any measurement.
    #[must_use]
    pub fn new(step: Option<u64>, phase: Phase) -> Self {
        Self {
            step,
            phase,
            name: None,
            depth: 0,
            start: Counters::default(),
            end: Counters::default(),
            peak_allocated: None,
            peak_disturbed: false,
            outside_change: None,
            host_seconds: None,
            input_elements: None,
            optimizer_stepped: None,
            outcome: Outcome::Completed,
        }
    }

    /// Allocated bytes at the end minus at the start; `None` unless both were measured.
    #[must_use]
    pub fn allocated_change(&self) -> Option<i64> {
        signed_difference(self.end.allocated?, self.start.allocated?)
    }
}

/// More than any device or host has: 1 PiB.
pub(crate) const MAX_BYTES: u64 = 1 << 50;

impl PhaseRecord {
    /// The first number that cannot be, as read from a file: its name and what stands there.
    pub(crate) fn absurd(&self) -> Option<(String, String)> {
        let too_many = |value: Option<u64>| value.filter(|value| *value > MAX_BYTES);
        for (edge, counters) in [("start", &self.start), ("end", &self.end)] {
            let peak = ("peak_allocated", counters.peak_allocated);
            for (name, value) in counters.edge_values().into_iter().chain([peak]) {
                // Names are made for what is wrong only: this is asked of every span.
                if let Some(value) = too_many(value) {
                    return Some((format!("{edge}.{name}"), value.to_string()));
                }
            }
        }
        let outside = self.outside_change.map(i64::unsigned_abs);
        for (name, value) in [("peak_allocated", self.peak_allocated), ("outside_change", outside)]
        {
            if let Some(value) = too_many(value) {
                return Some((name.to_owned(), value.to_string()));
            }
        }
        let step = self.step.filter(|step| i64::try_from(*step).is_err())?;
        Some(("step".to_owned(), step.to_string()))
    }
}

/// `to - from` as a signed number; `None` beyond the range of `i64`, which no memory reaches.
pub(crate) fn signed_difference(to: u64, from: u64) -> Option<i64> {
    i64::try_from(i128::from(to) - i128::from(from)).ok()
}
