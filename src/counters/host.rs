//! Resident host memory of this process, from `/proc/self/statm`.

use std::fs::File;
use std::os::unix::fs::FileExt;

use super::{CounterSource, Counters, Scope};

/// Reads the resident set size. Costs one small read of an open file, about a microsecond, so it is
/// the dearest of the sources read at an edge.
///
/// Where there is no `/proc` (not Linux), `host_rss` stays absent.
///
/// # Examples
///
/// ```
/// use phasescope::counters::{CounterSource, host::HostMemory};
///
/// let counters = HostMemory::new().read();
/// assert!(counters.allocated.is_none());
/// if cfg!(target_os = "linux") {
///     assert!(counters.host_rss > Some(0));
/// }
/// ```
#[derive(Debug)]
pub struct HostMemory {
    statm: Option<File>,
    page_size: u64,
}

impl HostMemory {
    /// Opens the file once; later reads reuse it.
    #[must_use]
    pub fn new() -> Self {
        Self { statm: File::open("/proc/self/statm").ok(), page_size: page_size() }
    }

    fn resident(&self) -> Option<u64> {
        let mut buffer = [0_u8; 128];
        let length = self.statm.as_ref()?.read_at(&mut buffer, 0).ok()?;
        let text = std::str::from_utf8(&buffer[..length]).ok()?;
        let pages: u64 = text.split_ascii_whitespace().nth(1)?.parse().ok()?;
        pages.checked_mul(self.page_size)
    }
}

impl Default for HostMemory {
    fn default() -> Self {
        Self::new()
    }
}

impl CounterSource for HostMemory {
    fn scope(&self) -> Scope {
        Scope::Process
    }

    fn read(&self) -> Counters {
        Counters { host_rss: self.resident(), ..Counters::default() }
    }
}

/// Bytes in a page, which `statm` counts in.
fn page_size() -> u64 {
    rustix::param::page_size() as u64
}
