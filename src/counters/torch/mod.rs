//! Counters of libtorch's allocators: [`CpuAllocator`] on the CPU, [`DeviceAllocator`] on a GPU.

mod cpu;
mod cuda;
mod device;
mod ffi;

use std::sync::Arc;

use tch::Device;

pub use cpu::CpuAllocator;
pub use cuda::{CudaError, load_cuda};
pub use device::{DeviceAllocator, DeviceError};

use super::CounterSource;

/// The source of a device's counters.
///
/// # Errors
///
/// For a device that libtorch cannot use, or whose allocator has no counters.
///
/// # Examples
///
/// ```
/// let source = phasescope::torch::for_device(tch::Device::Cpu)?;
/// assert!(source.read().allocated.is_some());
/// # Ok::<(), phasescope::torch::DeviceError>(())
/// ```
pub fn for_device(device: Device) -> Result<Arc<dyn CounterSource>, DeviceError> {
    match device {
        Device::Cpu => Ok(Arc::new(CpuAllocator::install())),
        device => Ok(Arc::new(DeviceAllocator::new(device)?)),
    }
}
