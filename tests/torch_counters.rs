//! The counting CPU allocator under a real libtorch.
#![cfg(feature = "torch")]

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use phasescope::counters::{CounterSource, DeviceName, Scope};
use phasescope::torch::{
    CpuAllocator, CudaError, DeviceAllocator, DeviceError, for_device, load_cuda,
};
use tch::{Device, Kind, Tensor};

const FLOAT: (Kind, Device) = (Kind::Float, Device::Cpu);
const MIB: u64 = 1 << 20;

/// The counters are the whole process's, so one test at a time.
fn alone() -> (CpuAllocator, MutexGuard<'static, ()>) {
    static TURN: Mutex<()> = Mutex::new(());
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    (CpuAllocator::install(), turn)
}

fn allocated(cpu: CpuAllocator) -> u64 {
    cpu.read().allocated.expect("the CPU's allocated bytes are always counted")
}

fn mebibyte() -> Tensor {
    Tensor::zeros([1 << 18], FLOAT)
}

#[test]
fn a_tensor_counts_its_bytes_and_gives_them_back() {
    let (cpu, _turn) = alone();
    let start = allocated(cpu);
    for elements in [0_i64, 1, 3, 1000, 1 << 20] {
        let tensor = Tensor::zeros([elements], FLOAT);
        assert_eq!(allocated(cpu) - start, 4 * elements as u64, "{elements} elements");
        drop(tensor);
        assert_eq!(allocated(cpu), start, "{elements} elements");
    }
}

#[test]
fn a_second_installation_counts_once() {
    let (cpu, _turn) = alone();
    let start = allocated(cpu);
    let again = CpuAllocator::install();
    let _tensor = mebibyte();
    assert_eq!(allocated(again) - start, MIB);
}

#[test]
fn the_peak_holds_until_it_is_reset() {
    let (cpu, _turn) = alone();
    assert!(cpu.read_and_reset_peak().1);
    let start = allocated(cpu);
    drop(mebibyte());
    let after = cpu.read();
    assert_eq!((after.allocated, after.peak_allocated), (Some(start), Some(start + MIB)));
    assert!(cpu.read_and_reset_peak().1);
    assert_eq!(cpu.read().peak_allocated, Some(start));
}

#[test]
fn what_the_cpu_has_not_is_absent() {
    let (cpu, _turn) = alone();
    let read = cpu.read();
    assert_eq!(cpu.scope(), Scope::Device(DeviceName::new("cpu")));
    assert_eq!((read.reserved, read.active, read.device_total), (None, None, None));
}

#[test]
fn threads_come_out_even() {
    let (cpu, _turn) = alone();
    cpu.read_and_reset_peak();
    let start = allocated(cpu);
    thread::scope(|scope| {
        for seed in 1..=8_i64 {
            scope.spawn(move || {
                let mut kept = Vec::new();
                for round in 0..500 {
                    kept.push(Tensor::zeros([seed * 31 + round], FLOAT));
                    if round % 3 == 0 {
                        drop(kept.swap_remove(0));
                    }
                }
            });
        }
    });
    assert_eq!(allocated(cpu), start);
    assert!(cpu.read().peak_allocated > Some(start));
}

#[test]
fn a_refusal_is_counted_and_changes_nothing_else() {
    let (cpu, _turn) = alone();
    cpu.read_and_reset_peak();
    let before = cpu.read();
    assert!(Tensor::f_zeros([1 << 50], FLOAT).is_err());
    let after = cpu.read();
    assert_eq!(after.ooms, before.ooms.map(|ooms| ooms + 1));
    assert_eq!((after.allocated, after.peak_allocated), (before.allocated, before.peak_allocated));
}

#[test]
fn a_retained_graph_stays_counted() {
    let (cpu, _turn) = alone();
    let x = mebibyte().set_requires_grad(true);
    let left_after_backward = |keep_graph: bool| {
        let start = allocated(cpu);
        let loss = x.exp().sum(Kind::Float);
        drop(Tensor::run_backward(&[&loss], &[&x], keep_graph, false));
        let left = allocated(cpu) - start;
        drop(loss);
        assert_eq!(allocated(cpu), start, "a dropped loss gives its graph back");
        left
    };
    left_after_backward(false);
    assert!(left_after_backward(false) < 4096);
    assert!(left_after_backward(true) >= MIB);
}

#[test]
fn bf16_products_use_the_raw_interface() {
    let (cpu, _turn) = alone();
    let ones = Tensor::ones([64, 64], (Kind::BFloat16, Device::Cpu));
    let product = || ones.matmul(&ones).sum(Kind::Float).double_value(&[]);
    product();
    let start = allocated(cpu);
    assert!((product() - 64.0 * 64.0 * 64.0).abs() < 1.0);
    assert_eq!(allocated(cpu), start);
}

#[test]
fn the_device_chooses_the_source() {
    let (_cpu, _turn) = alone();
    let cpu = for_device(Device::Cpu).expect("the CPU is always there");
    assert!(cpu.read().allocated.is_some());
    let error = DeviceAllocator::new(Device::Cpu).expect_err("the CPU has no caching allocator");
    assert!(matches!(error, DeviceError::NotCaching { .. }));
    assert!(error.to_string().contains("CpuAllocator"), "{error}");
}

#[test]
fn cuda_is_there_or_the_reason_is_told() {
    let (_cpu, _turn) = alone();
    let answer = load_cuda();
    assert_eq!(load_cuda(), answer);
    match answer {
        Ok(devices) => assert!(devices > 0),
        Err(CudaError::NotThere { path }) => assert!(path.ends_with("/libtorch_cuda.so"), "{path}"),
        Err(error) => assert!(error.to_string().len() > "expected a usable GPU".len(), "{error}"),
    }
}
