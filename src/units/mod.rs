//! How bytes are written where people read them.

use std::fmt;

/// Bytes in one mebibyte.
pub const MIB: u64 = 1 << 20;

/// Bytes, displayed for people: MiB with one decimal, KiB or B where that would read as zero.
///
/// The value keeps its sign, so a difference can be shown as well as a level.
///
/// # Examples
///
/// ```
/// use phasescope::units::Readable;
///
/// assert_eq!(Readable(55_050_240).to_string(), "52.5 MiB");
/// assert_eq!(Readable(512).to_string(), "512 B");
/// assert_eq!(Readable(-4608).to_string(), "-4.5 KiB");
/// assert_eq!(Readable(150_110_011_392).to_string(), "143156.1 MiB");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Readable(pub i64);

impl Readable {
    /// A level: bytes that are in use. Values beyond `i64::MAX` are shown as `i64::MAX`.
    #[must_use]
    pub fn level(bytes: u64) -> Self {
        Self(i64::try_from(bytes).unwrap_or(i64::MAX))
    }
}

impl fmt::Display for Readable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let magnitude = self.0.unsigned_abs();
        let value = self.0 as f64;
        if magnitude >= MIB / 10 {
            write!(f, "{:.1} MiB", value / MIB as f64)
        } else if magnitude >= 1024 {
            write!(f, "{:.1} KiB", value / 1024.0)
        } else {
            write!(f, "{} B", self.0)
        }
    }
}

/// Bytes as a number of MiB, exact to well under a byte for every counter a device can show.
#[must_use]
pub const fn to_mib(bytes: u64) -> f64 {
    bytes as f64 / MIB as f64
}
