//! Lines on standard error.

use std::io::Write;

/// Tells a line. A standard error that is closed is no reason to fail, as it is for `eprintln!`.
pub(crate) fn line(text: &str) {
    let _ = writeln!(std::io::stderr(), "phasescope: {text}");
}
