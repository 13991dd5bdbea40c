/// Why a report could not be read or written. Every variant names the file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReportError {
    /// The file could not be read or written.
    #[error("{file}: {reason}")]
    File {
        /// The file.
        file: String,
        /// What the system says.
        reason: String,
    },
    /// The file is larger than any report.
    #[error("{file}: expected at most {limit} bytes, found {found}")]
    TooLarge {
        /// The file.
        file: String,
        /// The limit in bytes.
        limit: u64,
        /// The size in bytes.
        found: u64,
    },
    /// It is not JSON, or not of the report's shape.
    #[error("{file}: at {place}, line {line}: {reason}")]
    Json {
        /// The file.
        file: String,
        /// The path of the value, such as `rank_reports[0].samples[3].step`.
        place: String,
        /// The line in the file.
        line: usize,
        /// What was expected and what was found.
        reason: String,
    },
    /// It has the shape, and a value that cannot be.
    #[error("{file}: at {place}: expected {expected}, found {found}")]
    Value {
        /// The file.
        file: String,
        /// The path of the value.
        place: String,
        /// What was expected.
        expected: String,
        /// What was found.
        found: String,
    },
    /// The output is there already.
    #[error("{file}: expected no such file, found one: it is not overwritten unasked")]
    Exists {
        /// The file.
        file: String,
    },
    /// The folder of the output is missing.
    #[error("{file}: expected the folder {folder}, found none")]
    NoFolder {
        /// The file.
        file: String,
        /// Its folder.
        folder: String,
    },
}
