//! Reads the OpenTelemetry Collector's file format back: OTLP/JSON, one request a line.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::MAX_FILE_BYTES;
use super::spans::Processes;
use crate::diagnosis::RunFacts;
use crate::report::Series;

/// The longest line that is read, 64 MiB: far beyond a batch of spans, and what a reader has the
/// memory for.
const MAX_LINE_BYTES: u64 = 64 << 20;

/// What one process has exported.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ProcessSeries {
    /// The run's id, where the spans tell.
    pub run_id: Option<String>,
    /// The process's rank.
    pub rank: u32,
    /// `service.instance.id`: it tells two processes of one run and rank apart, as after a restart.
    pub instance: Option<String>,
    /// What was known of the run.
    pub facts: RunFacts,
    /// Every device's phases and what the engine says of them.
    pub series: Vec<Series>,
}

/// Why a file of spans could not be read. Every variant names the file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The file could not be read.
    #[error("{file}: {reason}")]
    File {
        /// The file.
        file: String,
        /// What the system says.
        reason: String,
    },
    /// A line is not what it should be.
    #[error("{file}: line {line}: expected {expected}, found {found}")]
    Line {
        /// The file.
        file: String,
        /// The line, from 1.
        line: usize,
        /// What was expected.
        expected: String,
        /// What was found.
        found: String,
    },
    /// There is nothing of phasescope's in it.
    #[error("{file}: expected spans with phasescope.phase, found none among {spans} spans")]
    NoPhases {
        /// The file.
        file: String,
        /// Spans in the file.
        spans: usize,
    },
}

/// The signals that a line may hold.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Signals {
    resource_spans: Option<IgnoredAny>,
    resource_metrics: Option<IgnoredAny>,
    resource_logs: Option<IgnoredAny>,
    resource_profiles: Option<IgnoredAny>,
}

/// Reads the phases out of a file of spans and has the engine judge them, process by process. Lines
/// of metrics and logs are passed over, spans that came twice count once, and a last line that was
/// not written to its end is left out.
///
/// # Errors
///
/// When the file cannot be read, is larger than [`MAX_FILE_BYTES`], has a line that is no OTLP/JSON,
/// or holds no phase.
///
/// # Examples
///
/// ```no_run
/// for process in phasescope::export::read("run.jsonl".as_ref())? {
///     println!("rank {}: {:?}", process.rank, process.series[0].diagnosis.findings);
/// }
/// # Ok::<(), phasescope::export::ReadError>(())
/// ```
pub fn read(path: &Path) -> Result<Vec<ProcessSeries>, ReadError> {
    let file = path.display().to_string();
    let failed =
        |error: std::io::Error| ReadError::File { file: file.clone(), reason: error.to_string() };
    let file_end = MAX_FILE_BYTES + 1;
    let mut reader = BufReader::new(File::open(path).map_err(failed)?.take(file_end));
    let mut processes = Processes::default();
    let mut text = Vec::new();
    let mut read = 0;
    for line in 1.. {
        text.clear();
        let most = MAX_LINE_BYTES + 1;
        let length = (&mut reader).take(most).read_until(b'\n', &mut text).map_err(failed)? as u64;
        if length == 0 {
            break;
        }
        read += length;
        let wrong = |expected: &str, found: String| ReadError::Line {
            file: file.clone(),
            line,
            expected: expected.to_owned(),
            found,
        };
        if read > MAX_FILE_BYTES {
            return Err(wrong(&format!("at most {MAX_FILE_BYTES} bytes"), "more".to_owned()));
        }
        if length > MAX_LINE_BYTES {
            return Err(wrong(&format!("at most {MAX_LINE_BYTES} bytes"), "more".to_owned()));
        }
        if text.trim_ascii().is_empty() {
            continue;
        }
        match spans(&text) {
            Ok(request) => {
                processes.add(&request).map_err(|error| wrong(&error.expected, error.found))?
            }
            // The process ended while it wrote.
            Err(_) if !text.ends_with(b"\n") && processes.spans() > 0 => break,
            Err(found) => return Err(wrong("a request of OTLP/JSON", found)),
        }
    }
    let spans = processes.spans();
    let found = processes.judge();
    if found.is_empty() { Err(ReadError::NoPhases { file, spans }) } else { Ok(found) }
}

fn spans(text: &[u8]) -> Result<ExportTraceServiceRequest, String> {
    let signals: Signals = serde_json::from_slice(text).map_err(|error| error.to_string())?;
    if signals.resource_spans.is_some() {
        return serde_json::from_slice(text).map_err(|error| error.to_string());
    }
    let other = [signals.resource_metrics, signals.resource_logs, signals.resource_profiles];
    if other.iter().any(Option::is_some) {
        return Ok(ExportTraceServiceRequest::default());
    }
    Err("an object without resourceSpans, resourceMetrics and resourceLogs".to_owned())
}
