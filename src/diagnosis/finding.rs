use std::fmt;

use serde::{Deserialize, Serialize};

use crate::phase::Phase;

/// A cause of memory use. The names are stable: they are written to reports, spans and metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Code {
    /// Autograd graphs are kept from step to step.
    RetainedGraph,
    /// Outputs, metrics or detached tensors are kept from step to step.
    RetainedTensors,
    /// Gradients live through the next forward.
    PersistentGradients,
    /// The device is nearly full.
    Capacity,
    /// Optimizer state.
    OptimizerState,
    /// Forward activations.
    Activations,
    /// Memory follows the size of the input.
    VariableShapes,
    /// Workspaces of the linear-algebra and convolution libraries.
    Workspace,
    /// The allocator's cache, at its normal size.
    CacheOnly,
}

impl Code {
    /// Every code.
    pub const ALL: [Self; 9] = [
        Self::RetainedGraph,
        Self::RetainedTensors,
        Self::PersistentGradients,
        Self::Capacity,
        Self::OptimizerState,
        Self::Activations,
        Self::VariableShapes,
        Self::Workspace,
        Self::CacheOnly,
    ];

    /// The stable name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::RetainedGraph => "retained_graph",
            Self::RetainedTensors => "retained_tensors",
            Self::PersistentGradients => "persistent_gradients",
            Self::Capacity => "capacity",
            Self::OptimizerState => "optimizer_state",
            Self::Activations => "activations",
            Self::VariableShapes => "variable_shapes",
            Self::Workspace => "workspace",
            Self::CacheOnly => "cache_only",
        }
    }

    /// `alpha`, `beta` or `gamma`, where the cause is one of the three teaching cases.
    #[must_use]
    pub fn label(self) -> Option<&'static str> {
        match self {
            Self::Activations => Some("alpha"),
            Self::OptimizerState => Some("beta"),
            Self::RetainedGraph => Some("gamma"),
            _ => None,
        }
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// How much a finding matters for the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Severity {
    /// Where the memory is; nothing is wrong.
    Info,
    /// Memory is wasted, or the device is nearly full.
    Warning,
    /// The run will fail, or has failed, because of it.
    Critical,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Info => "info",
            Self::Warning => "warning",
            Self::Critical => "critical",
        })
    }
}

/// How sure a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Confidence {
    /// Fits, but part of the evidence was not measured or was seen in few steps.
    Suspected,
    /// The whole signature was seen.
    Indicated,
    /// The signature was seen again and again, or a sweep bears it out.
    Confirmed,
}

impl fmt::Display for Confidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Suspected => "suspected",
            Self::Indicated => "indicated",
            Self::Confirmed => "confirmed",
        })
    }
}

/// The moment of a phase at which a counter was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Edge {
    /// When the phase began.
    Start,
    /// When it ended.
    End,
    /// The highest value inside it.
    Peak,
}

/// One number of the report that an evidence stands on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Measure {
    /// The step, or `None` before training.
    pub step: Option<u64>,
    /// The phase.
    pub phase: Phase,
    /// Which moment of the phase.
    pub edge: Edge,
    /// The counter's name, as in [`Counters::edge_values`](crate::Counters::edge_values).
    pub counter: Counter,
    /// Its value in bytes.
    pub bytes: u64,
}

/// The counters that evidence cites.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Counter {
    /// Live tensor storage.
    Allocated,
    /// Held by the caching allocator.
    Reserved,
    /// Used on the whole device.
    DeviceUsed,
    /// The device's size.
    DeviceTotal,
}

/// A sentence and the numbers it uses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Evidence {
    /// What was seen, with the arithmetic and the threshold it was held against.
    pub sentence: String,
    /// The derived number that the sentence is about, in bytes.
    pub bytes: i64,
    /// The measured numbers it is derived from.
    pub measures: Vec<Measure>,
}

/// Something to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Response {
    /// What to do.
    pub action: String,
    /// Bytes it is expected to save at the peak, where that can be told from one run.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub saves_bytes: Option<u64>,
    /// Why it acts on this cause.
    pub why: String,
}

/// Something people would try that does not help here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rejected {
    /// What they would try.
    pub action: String,
    /// Why it does not act on this cause.
    pub why: String,
}

/// A named cause with its size, its evidence and what to do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Finding {
    /// The cause.
    pub code: Code,
    /// Its teaching case, where it is one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub label: Option<String>,
    /// How much it matters.
    pub severity: Severity,
    /// One line: the cause and its size in words.
    pub title: String,
    /// The bytes it holds; for a growth, the bytes a step.
    pub bytes: u64,
    /// Whether `bytes` is counted a step rather than at the peak.
    pub per_step: bool,
    /// Bytes it holds at the end of the run: `bytes`, or what a growth has come to.
    pub held_bytes: u64,
    /// What it holds at the peak over the peak, from 0 to 1; `None` where no peak was measured.
    pub share_of_peak: Option<f64>,
    /// How sure it is.
    pub confidence: Confidence,
    /// The finding next in the order, and by how many held bytes it is behind.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub runner_up: Option<RunnerUp>,
    /// What was seen.
    pub evidence: Vec<Evidence>,
    /// What to do, the best first.
    pub responses: Vec<Response>,
    /// What does not help here.
    pub rejected: Vec<Rejected>,
}

/// The finding next in the order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunnerUp {
    /// Its code.
    pub code: Code,
    /// Bytes held by the finding before it minus bytes held by this one; negative where severity
    /// and not size decided the order.
    pub margin_bytes: i64,
}

/// A rule that could not decide, and what it would need.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Insufficient {
    /// The cause that could be neither found nor cleared.
    pub code: Code,
    /// What is missing.
    pub missing: String,
}
