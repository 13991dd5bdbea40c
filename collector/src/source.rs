use std::fs::File;
use std::io::Read;
use std::path::Path;

/// Bytes of a file that tell what it is.
const PROBE: u64 = 4096;

/// What a file holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    Report,
    /// OTLP/JSON, one request a line.
    Spans,
    Ring,
}

/// Looks into a file. What is none of the others is read as a report, whose errors say what a report
/// is.
pub(crate) fn of(path: &Path) -> Result<Source, String> {
    if path.extension().is_some_and(|extension| extension == "ring") {
        return Ok(Source::Ring);
    }
    let mut start = Vec::new();
    File::open(path)
        .and_then(|file| file.take(PROBE).read_to_end(&mut start))
        .map_err(|error| format!("{}: {error}", path.display()))?;
    let start = String::from_utf8_lossy(&start);
    if start.contains("\"format\":\"phasescope.ring/") {
        return Ok(Source::Ring);
    }
    let key = start.trim_start().strip_prefix('{').map(str::trim_start);
    if key.is_some_and(|key| key.starts_with("\"resource")) {
        return Ok(Source::Spans);
    }
    Ok(Source::Report)
}
