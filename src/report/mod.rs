//! The report, `phasescope.report/v1`: one JSON file a run, with the counters at every phase edge.
//!
//! Reports of the Python original have the same core and are read as they are. MiB are numbers with
//! nine decimals, so that a block of 512 bytes is visible; bytes are integers.

mod build;
mod compare;
mod error;
mod file;
mod records;
mod schema;
mod series;
mod validate;

pub use build::indicators;
pub use compare::{Row, row};
pub use error::ReportError;
pub use file::{MAX_REPORT_BYTES, check_output, read, write};
pub use schema::{
    Framework, Indicators, IndicatorsBytes, ModelConfig, PeakReset, RankReport, Report, SCHEMA,
    Sample,
};
pub use series::Series;
