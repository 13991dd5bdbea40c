//! Memory counters and where they come from.
//!
//! A [`CounterSource`] is read at the edges of phases. One source reads one device's allocator
//! (`torch`, with the feature of that name) or this process ([`host`]); [`scripted`] plays a series
//! for tests. Several sources of one device complete each other, several devices stay apart.

pub mod host;
pub mod scripted;
#[cfg(feature = "torch")]
pub mod torch;

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// Memory counters of one device at one moment, in bytes. Absent is not zero: `None` means that it
/// was not measured.
///
/// # Examples
///
/// ```
/// use phasescope::Counters;
///
/// let allocator = Counters { allocated: Some(4096), ..Counters::default() };
/// let process = Counters { host_rss: Some(1 << 30), ..Counters::default() };
/// let both = allocator.or(process);
/// assert_eq!((both.allocated, both.reserved, both.host_rss), (Some(4096), None, Some(1 << 30)));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Counters {
    /// Live tensor storage.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allocated: Option<u64>,
    /// Held by the caching allocator, live or not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reserved: Option<u64>,
    /// Highest `allocated` since the last reset of the peak.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peak_allocated: Option<u64>,
    /// `allocated` plus blocks that wait for other streams.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub active: Option<u64>,
    /// What was asked for, before rounding.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requested: Option<u64>,
    /// Free bytes in blocks that are split and so cannot be released.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inactive_split: Option<u64>,
    /// How often the allocator had to flush its cache and try again (a count, not bytes).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub alloc_retries: Option<u64>,
    /// How often the allocator refused (a count, not bytes).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ooms: Option<u64>,
    /// Used on the whole device, by everyone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device_used: Option<u64>,
    /// The device's size.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device_total: Option<u64>,
    /// Used on the device by this process, context and communication buffers included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub process_device_used: Option<u64>,
    /// Resident host memory of this process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_rss: Option<u64>,
}

impl Counters {
    /// These counters, with the absent ones taken from `other`.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self {
            allocated: self.allocated.or(other.allocated),
            reserved: self.reserved.or(other.reserved),
            peak_allocated: self.peak_allocated.or(other.peak_allocated),
            active: self.active.or(other.active),
            requested: self.requested.or(other.requested),
            inactive_split: self.inactive_split.or(other.inactive_split),
            alloc_retries: self.alloc_retries.or(other.alloc_retries),
            ooms: self.ooms.or(other.ooms),
            device_used: self.device_used.or(other.device_used),
            device_total: self.device_total.or(other.device_total),
            process_device_used: self.process_device_used.or(other.process_device_used),
            host_rss: self.host_rss.or(other.host_rss),
        }
    }

    /// Name and value of every counter but the peak, in a fixed order. The peak belongs to a span,
    /// not to an edge, and is told apart.
    pub fn edge_values(&self) -> [(&'static str, Option<u64>); 11] {
        [
            ("allocated", self.allocated),
            ("reserved", self.reserved),
            ("active", self.active),
            ("requested", self.requested),
            ("inactive_split", self.inactive_split),
            ("alloc_retries", self.alloc_retries),
            ("ooms", self.ooms),
            ("device_used", self.device_used),
            ("device_total", self.device_total),
            ("process_device_used", self.process_device_used),
            ("host_rss", self.host_rss),
        ]
    }
}

impl Counters {
    /// The counters whose [`edge_values`](Self::edge_values) are these.
    #[cfg(feature = "otlp")]
    pub(crate) fn from_edge_values(values: [Option<u64>; 11]) -> Self {
        let [
            allocated,
            reserved,
            active,
            requested,
            inactive_split,
            alloc_retries,
            ooms,
            device_used,
            device_total,
            process_device_used,
            host_rss,
        ] = values;
        Self {
            allocated,
            reserved,
            peak_allocated: None,
            active,
            requested,
            inactive_split,
            alloc_retries,
            ooms,
            device_used,
            device_total,
            process_device_used,
            host_rss,
        }
    }
}

/// A device's name as libtorch writes it: `cpu`, `cuda:0`. Cheap to clone.
///
/// # Examples
///
/// ```
/// use phasescope::counters::DeviceName;
///
/// assert_eq!(DeviceName::new("cuda:0").as_str(), "cuda:0");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DeviceName(Arc<str>);

impl DeviceName {
    /// A name; any text is one.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self(name.into())
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The name, shared and not copied.
    #[cfg(feature = "otlp")]
    pub(crate) fn shared(&self) -> Arc<str> {
        self.0.clone()
    }
}

impl fmt::Display for DeviceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What a source's counters belong to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// One device.
    Device(DeviceName),
    /// This process: its counters go to every device.
    Process,
}

/// Reads memory counters.
///
/// A source is read once at every edge of every phase, on the training thread, so a read must be
/// cheap (well under a microsecond), must not wait for a device, and must not fail: what it cannot
/// measure it leaves absent. It must not create `tracing` spans.
///
/// # Examples
///
/// ```
/// use phasescope::counters::{CounterSource, Counters, DeviceName, Scope};
///
/// #[derive(Debug)]
/// struct Pool;
///
/// impl CounterSource for Pool {
///     fn scope(&self) -> Scope {
///         Scope::Device(DeviceName::new("npu:0"))
///     }
///
///     fn read(&self) -> Counters {
///         Counters { allocated: Some(1024), ..Counters::default() }
///     }
/// }
/// ```
pub trait CounterSource: fmt::Debug + Send + Sync {
    /// What the counters belong to. Asked once, when the layer is built.
    fn scope(&self) -> Scope;

    /// The counters now.
    fn read(&self) -> Counters;

    /// Counters that are too dear for an edge, such as a question to the driver. Asked when metrics
    /// are collected, on another thread. The default has none.
    fn sample(&self) -> Counters {
        Counters::default()
    }

    /// Reads the counters and sets the peak to what is allocated now, in one where the source can:
    /// what another thread allocates and frees between a read and a reset would be in no peak.
    /// Whether there is a peak that was reset comes with them; the default has none.
    fn read_and_reset_peak(&self) -> (Counters, bool) {
        (self.read(), false)
    }
}
