use std::path::PathBuf;

use clap::{Parser, Subcommand, ValueEnum};
use phasescope::diagnosis::{Code, Severity};

/// Which training phase takes the memory, why, and what to do about it.
///
/// Exit status: 0 done, whatever was found; 1 when --fail-on was met; 2 for bad input or usage.
#[derive(Debug, Parser)]
#[command(name = "phasescope", version)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Name the causes of memory use in reports, spans and ring files, with evidence and responses.
    Diagnose(Diagnose),
    /// Print one row a report, without naming a cause.
    Compare(Compare),
}

#[derive(Debug, clap::Args)]
pub(crate) struct Diagnose {
    /// Reports, files of spans (OTLP/JSON lines) and ring files.
    #[arg(required = true)]
    pub(crate) files: Vec<PathBuf>,
    /// How to print.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
    /// Exit with 1 when this cause, or anything of this severity or above, was found.
    #[arg(long, value_name = "CODE|warning|critical", value_parser = FailOn::parse)]
    pub(crate) fail_on: Option<FailOn>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Compare {
    /// Report files.
    #[arg(required = true)]
    pub(crate) files: Vec<PathBuf>,
    /// Print the counters after each phase of the first and the last step too.
    #[arg(long)]
    pub(crate) show_phases: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people.
    Text,
    /// A list of objects, one a run and rank.
    Json,
}

/// What `--fail-on` waits for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum FailOn {
    Code(Code),
    Severity(Severity),
}

impl FailOn {
    fn parse(text: &str) -> Result<Self, String> {
        match text {
            "warning" => Ok(Self::Severity(Severity::Warning)),
            "critical" => Ok(Self::Severity(Severity::Critical)),
            _ => Code::ALL.into_iter().find(|code| code.name() == text).map(Self::Code).ok_or_else(
                || {
                    let codes = Code::ALL.map(Code::name).join(", ");
                    format!("expected warning, critical or one of {codes}, found \"{text}\"")
                },
            ),
        }
    }
}
