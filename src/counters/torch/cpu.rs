use super::ffi;
use crate::counters::{CounterSource, Counters, DeviceName, Scope};

/// Counts what libtorch allocates on the CPU, exactly, by wrapping its allocator.
///
/// A read costs some nanoseconds, a tensor 64 bytes more, which are not counted. Tensors made before the
/// wrapping are not counted, and free themselves as before. The count is of the whole process,
/// whatever thread allocates.
///
/// # Examples
///
/// ```
/// use phasescope::counters::CounterSource;
/// use phasescope::torch::CpuAllocator;
///
/// let cpu = CpuAllocator::install();
/// let before = cpu.read().allocated;
/// let tensor = tch::Tensor::zeros([1024], (tch::Kind::Float, tch::Device::Cpu));
/// assert_eq!(cpu.read().allocated, before.map(|bytes| bytes + 4096));
/// # drop(tensor);
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct CpuAllocator;

impl CpuAllocator {
    /// Wraps the allocator; a second call finds it wrapped. Do it early in `main`: libtorch asks
    /// for no allocation to be in progress on another thread at that moment.
    #[must_use]
    pub fn install() -> Self {
        // SAFETY: takes nothing, and guards itself against a second call.
        unsafe { ffi::phasescope_cpu_install() };
        Self
    }
}

impl CounterSource for CpuAllocator {
    fn scope(&self) -> Scope {
        Scope::Device(DeviceName::new("cpu"))
    }

    fn read(&self) -> Counters {
        counters(ffi::phasescope_cpu_read)
    }

    fn read_and_reset_peak(&self) -> (Counters, bool) {
        (counters(ffi::phasescope_cpu_read_and_reset_peak), true)
    }
}

fn counters(read: unsafe extern "C" fn(*mut i64, *mut i64, *mut i64)) -> Counters {
    let (mut now, mut highest, mut ooms) = (0, 0, 0);
    // SAFETY: the three places live for the call.
    unsafe { read(&mut now, &mut highest, &mut ooms) };
    Counters {
        allocated: u64::try_from(now).ok(),
        peak_allocated: u64::try_from(highest).ok(),
        ooms: u64::try_from(ooms).ok(),
        ..Counters::default()
    }
}
