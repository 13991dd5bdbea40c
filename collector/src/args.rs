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
    /// Take OTLP from many programs, name the causes, and hand everything on.
    Serve(Serve),
}

/// Flags are over the environment (PHASESCOPE_SERVE_NEXT__ENDPOINT and the like), which is over the
/// file.
#[derive(Debug, clap::Args)]
pub(crate) struct Serve {
    /// The configuration, YAML; collector/serve.yaml has every option.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Where everything goes: an OTLP endpoint.
    #[arg(long, value_name = "URL")]
    next_endpoint: Option<String>,
    /// How the next hop is spoken to: grpc or http/protobuf.
    #[arg(long, value_name = "PROTOCOL")]
    next_protocol: Option<String>,
    /// Address and port for OTLP over gRPC.
    #[arg(long, value_name = "ADDRESS")]
    listen_grpc: Option<String>,
    /// Address and port for OTLP over HTTP.
    #[arg(long, value_name = "ADDRESS")]
    listen_http: Option<String>,
    /// Address and port for health, runs and metrics.
    #[arg(long, value_name = "ADDRESS")]
    listen_api: Option<String>,
    /// Any option by its name in the file, as limits.runs=100.
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,
}

impl Serve {
    /// The options that have flags of their own, by their names in the file.
    pub(crate) fn named(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let named = [
            ("next.endpoint", &self.next_endpoint),
            ("next.protocol", &self.next_protocol),
            ("listen.grpc", &self.listen_grpc),
            ("listen.http", &self.listen_http),
            ("listen.api", &self.listen_api),
        ];
        named.into_iter().filter_map(|(name, value)| Some((name, value.as_deref()?)))
    }
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
