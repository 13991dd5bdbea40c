//! Tensors older than the counting allocator. A binary of its own: the allocator stays installed.
#![cfg(feature = "torch")]

use phasescope::counters::CounterSource;
use phasescope::torch::CpuAllocator;
use tch::{Device, Kind, Tensor};

#[test]
fn older_tensors_are_not_counted_and_free_safely() {
    let old = Tensor::ones([1 << 18], (Kind::Float, Device::Cpu));
    let elsewhere = Tensor::ones([1 << 18], (Kind::Float, Device::Cpu));
    let cpu = CpuAllocator::install();
    assert_eq!(cpu.read().allocated, Some(0));

    let copy = old.copy();
    assert_eq!(cpu.read().allocated, Some(1 << 20));

    drop(old);
    std::thread::spawn(move || drop(elsewhere)).join().expect("the other thread frees it");
    assert_eq!(cpu.read().allocated, Some(1 << 20));
    assert_eq!(copy.double_value(&[(1 << 18) - 1]), 1.0);

    drop(copy);
    assert_eq!(cpu.read().allocated, Some(0));
}
