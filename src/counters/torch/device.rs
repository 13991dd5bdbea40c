use tch::{Device, Kind, Tensor};

use super::ffi::{self, DeviceStats};
use crate::counters::{CounterSource, Counters, DeviceName, Scope};

/// libtorch's number for CUDA devices (`c10::DeviceType::CUDA`).
const CUDA: i8 = 1;

/// Reads libtorch's caching allocator of one device: about 0.1 microseconds a read, without a
/// question to the driver.
///
/// # Examples
///
/// ```no_run
/// use phasescope::counters::CounterSource;
/// use phasescope::torch::{DeviceAllocator, load_cuda};
///
/// load_cuda()?;
/// let gpu = DeviceAllocator::new(tch::Device::Cuda(0))?;
/// println!("{:?}", gpu.read().reserved);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct DeviceAllocator {
    index: i8,
    /// The device's size, which does not change.
    total: Option<u64>,
}

/// A device whose allocator cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// There is no caching allocator of this device.
    #[error("expected a CUDA device, found {found}: the CPU is counted by CpuAllocator")]
    NotCaching {
        /// The device.
        found: String,
    },
    /// It could not be used.
    #[error("expected a usable {device}, but libtorch says: {reason}")]
    Unusable {
        /// The device.
        device: String,
        /// libtorch's own words.
        reason: String,
    },
}

impl DeviceAllocator {
    /// Makes the device ready (its context, on first use) and reads its allocator from then on.
    ///
    /// # Errors
    ///
    /// For a device without a caching allocator, and for one that libtorch cannot use, with
    /// libtorch's reason.
    pub fn new(device: Device) -> Result<Self, DeviceError> {
        let Device::Cuda(number) = device else {
            return Err(DeviceError::NotCaching { found: format!("{device:?}").to_lowercase() });
        };
        let unusable = |reason: String| DeviceError::Unusable {
            device: format!("cuda:{number}"),
            reason: first_line(&reason).to_owned(),
        };
        // Before its first use the allocator has no counters; an empty tensor allocates nothing.
        let _ready = Tensor::f_empty([0], (Kind::Float, device))
            .map_err(|error| unusable(error.to_string()))?;
        let index = i8::try_from(number)
            .map_err(|_| unusable("libtorch numbers devices from 0 to 127".to_owned()))?;
        let mut allocator = Self { index, total: None };
        allocator.total = allocator.memory_info().map(|(_, total)| total);
        Ok(allocator)
    }

    /// Free and total bytes of the device. Asks the driver: some microseconds, so not at an edge.
    #[must_use]
    pub fn memory_info(&self) -> Option<(u64, u64)> {
        let (mut free, mut total) = (0, 0);
        // SAFETY: both places live for the call.
        let status =
            unsafe { ffi::phasescope_device_memory(CUDA, self.index, &mut free, &mut total) };
        (status == 0).then_some((free, total))
    }
}

impl CounterSource for DeviceAllocator {
    fn scope(&self) -> Scope {
        Scope::Device(DeviceName::new(&format!("cuda:{}", self.index)))
    }

    fn read(&self) -> Counters {
        let mut stats = DeviceStats::default();
        // SAFETY: the place lives for the call and has the C layout.
        if unsafe { ffi::phasescope_device_read(CUDA, self.index, &mut stats) } != 0 {
            return Counters::default();
        }
        let bytes = |value: i64| u64::try_from(value).ok();
        Counters {
            allocated: bytes(stats.allocated),
            peak_allocated: bytes(stats.peak_allocated),
            reserved: bytes(stats.reserved),
            active: bytes(stats.active),
            requested: bytes(stats.requested),
            inactive_split: bytes(stats.inactive_split),
            alloc_retries: bytes(stats.alloc_retries),
            ooms: bytes(stats.ooms),
            device_total: self.total,
            ..Counters::default()
        }
    }

    fn sample(&self) -> Counters {
        let used = self.memory_info().and_then(|(free, total)| total.checked_sub(free));
        Counters { device_used: used, device_total: self.total, ..Counters::default() }
    }

    /// libtorch has no call that does both: what another thread allocates and frees in the tenth of a
    /// microsecond in between is in no peak.
    fn read_and_reset_peak(&self) -> (Counters, bool) {
        let counters = self.read();
        // SAFETY: takes numbers only.
        (counters, unsafe { ffi::phasescope_device_reset_peak(CUDA, self.index) == 0 })
    }
}

/// libtorch's messages carry a C++ trace behind their first line.
pub(super) fn first_line(message: &str) -> &str {
    message.lines().next().unwrap_or(message)
}
