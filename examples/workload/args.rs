use std::path::PathBuf;

use clap::{Parser, ValueEnum};

use super::case::Case;

/// Trains a small synthetic transformer, measures each phase, and names what takes the memory.
///
/// Exit status: 0 done, 1 failed, 2 bad usage, 3 out of memory.
#[derive(Debug, Parser)]
pub(crate) struct Args {
    /// The model's size: small (4 layers, hidden 384, sequence 256) or medium (8, 512, 512).
    #[arg(long, value_enum, default_value_t = Preset::Small)]
    pub(crate) preset: Preset,
    /// Samples in the batch [default: 2, the control's 1].
    #[arg(long, value_name = "SAMPLES", value_parser = clap::value_parser!(i64).range(1..))]
    pub(crate) batch_size_per_device: Option<i64>,
    /// Training steps. Growth is judged from 6 on.
    #[arg(long, default_value_t = 6, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) steps: u64,
    /// Number format of parameters and activations.
    #[arg(long, value_enum, default_value_t = Precision::Fp32)]
    pub(crate) precision: Precision,
    /// Seed of the parameters and the batch.
    #[arg(long, default_value_t = 1234)]
    pub(crate) seed: i64,
    /// Write the report there.
    #[arg(long)]
    pub(crate) output: Option<PathBuf>,
    /// Replace the report if it is there.
    #[arg(long)]
    pub(crate) overwrite_output: bool,
    /// Write spans and metrics there, as OTLP/JSON lines; without it they go where the OTEL_EXPORTER_*
    /// variables say, if they do.
    #[arg(long, value_name = "FILE")]
    pub(crate) spans: Option<PathBuf>,
    /// Keep the last phases in a ring file in this folder, in case the process is killed.
    #[arg(long, value_name = "FOLDER")]
    pub(crate) ring: Option<PathBuf>,
    /// auto takes the first GPU where there is one.
    #[arg(long, default_value = "auto", value_name = "auto|cpu|cuda:N")]
    pub(crate) device: String,
    /// Run the repaired twin: alpha takes half the batch, beta uses SGD, gamma keeps numbers.
    #[arg(long)]
    pub(crate) fixed: bool,
}

impl Args {
    /// Samples in the batch of a case.
    pub(crate) fn batch(&self, case: Case) -> i64 {
        case.batch(self.batch_size_per_device, self.fixed)
    }
}

/// A size of the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Preset {
    Small,
    Medium,
}

impl Preset {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Small => "small",
            Self::Medium => "medium",
        }
    }
}

/// A number format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Precision {
    /// 32 bits.
    Fp32,
    /// bfloat16 throughout, parameters included.
    Bf16,
}

impl Precision {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Fp32 => "fp32",
            Self::Bf16 => "bf16",
        }
    }

    pub(crate) fn kind(self) -> tch::Kind {
        match self {
            Self::Fp32 => tch::Kind::Float,
            Self::Bf16 => tch::Kind::BFloat16,
        }
    }
}
