//! Reads and writes report files. The one place of this module that touches the file system.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use super::{Report, ReportError};

/// The largest file that is read, 1 GiB: far beyond the report of any run.
pub const MAX_REPORT_BYTES: u64 = 1 << 30;

/// Reads a report.
///
/// # Errors
///
/// When the file cannot be read, is larger than [`MAX_REPORT_BYTES`], or is no report (see
/// [`Report::parse`]).
///
/// # Examples
///
/// ```no_run
/// let report = phasescope::report::read("alpha.json".as_ref())?;
/// # Ok::<(), phasescope::report::ReportError>(())
/// ```
pub fn read(path: &Path) -> Result<Report, ReportError> {
    let metadata = fs::metadata(path).map_err(|error| failed(path, &error))?;
    if metadata.len() > MAX_REPORT_BYTES {
        return Err(ReportError::TooLarge {
            file: path.display().to_string(),
            limit: MAX_REPORT_BYTES,
            found: metadata.len(),
        });
    }
    let text = fs::read_to_string(path).map_err(|error| failed(path, &error))?;
    Report::parse(&text, &path.display().to_string())
}

/// Says whether a report could be written there, before the run that it is to tell of.
///
/// # Errors
///
/// When the folder is missing, or the file is there and `overwrite` is not set.
pub fn check_output(path: &Path, overwrite: bool) -> Result<(), ReportError> {
    let folder = folder(path);
    if !folder.is_dir() {
        return Err(ReportError::NoFolder {
            file: path.display().to_string(),
            folder: folder.display().to_string(),
        });
    }
    if path.symlink_metadata().is_ok() && (!overwrite || path.is_dir()) {
        return Err(ReportError::Exists { file: path.display().to_string() });
    }
    Ok(())
}

/// Writes a report, whole or not at all: it is written beside its place and then put there.
///
/// # Errors
///
/// As [`check_output`], and when the system refuses. What stood there before is then still there.
pub fn write(report: &Report, path: &Path, overwrite: bool) -> Result<(), ReportError> {
    check_output(path, overwrite)?;
    let text = serde_json::to_string_pretty(report)
        .map_err(|error| failed(path, &std::io::Error::other(error)))?;
    let beside = beside(path);
    let text = text + "\n";
    let written = create(&beside, &text).and_then(|()| {
        if overwrite { fs::rename(&beside, path) } else { publish(&beside, path, &text) }
    });
    written.map_err(|error| {
        // The partial file is of no use to anybody; that it stays is no further error.
        let _ = fs::remove_file(&beside);
        if error.kind() == ErrorKind::AlreadyExists {
            return ReportError::Exists { file: path.display().to_string() };
        }
        failed(path, &error)
    })
}

/// A name beside the output that no other write has, in this process or another.
fn beside(path: &Path) -> PathBuf {
    static WRITES: AtomicU64 = AtomicU64::new(0);
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let write = WRITES.fetch_add(1, Ordering::Relaxed);
    folder(path).join(format!(".{name}.partial-{}-{write}", std::process::id()))
}

fn create(path: &Path, text: &str) -> std::io::Result<()> {
    let mut file = File::create_new(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

/// Puts the file in its place unless something has come there meanwhile: a link then fails where a
/// rename would replace it. Some file systems have no links; there the place is taken first.
fn publish(beside: &Path, path: &Path, text: &str) -> std::io::Result<()> {
    match fs::hard_link(beside, path) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => return Err(error),
        Err(_) => create(path, text)?,
        Ok(()) => {}
    }
    // The report is in its place: a partial file that stays is no error.
    let _ = fs::remove_file(beside);
    Ok(())
}

fn folder(path: &Path) -> PathBuf {
    match path.parent() {
        Some(folder) if folder != Path::new("") => folder.to_path_buf(),
        _ => PathBuf::from("."),
    }
}

fn failed(path: &Path, error: &std::io::Error) -> ReportError {
    ReportError::File { file: path.display().to_string(), reason: error.to_string() }
}
