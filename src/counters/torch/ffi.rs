//! The C functions of `allocator.cpp`.

use std::ffi::{c_char, c_int};

/// As in `allocator.cpp`, in the same order.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct DeviceStats {
    pub(super) allocated: i64,
    pub(super) peak_allocated: i64,
    pub(super) reserved: i64,
    pub(super) active: i64,
    pub(super) requested: i64,
    pub(super) inactive_split: i64,
    pub(super) alloc_retries: i64,
    pub(super) ooms: i64,
}

unsafe extern "C" {
    pub(super) fn phasescope_cpu_install();
    pub(super) fn phasescope_cpu_read(now: *mut i64, highest: *mut i64, ooms: *mut i64);
    pub(super) fn phasescope_cpu_read_and_reset_peak(
        now: *mut i64,
        highest: *mut i64,
        ooms: *mut i64,
    );
    pub(super) fn phasescope_device_read(kind: i8, index: i8, out: *mut DeviceStats) -> c_int;
    pub(super) fn phasescope_device_reset_peak(kind: i8, index: i8) -> c_int;
    pub(super) fn phasescope_device_memory(
        kind: i8,
        index: i8,
        free: *mut u64,
        total: *mut u64,
    ) -> c_int;
    pub(super) fn phasescope_load_cuda(text: *mut c_char, size: usize) -> c_int;
}
