use tch::nn::{self, Optimizer, OptimizerConfig, VarStore};
use tch::{TchError, Tensor};

use super::Failure;

/// Learning rate of SGD.
const SGD_RATE: f64 = 1e-3;
/// Learning rate of AdamW.
const ADAMW_RATE: f64 = 1e-4;

/// What is different about a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(dead_code)] // Each example makes one of them.
pub(crate) enum Case {
    Alpha,
    Beta,
    Gamma,
    Control,
}

impl Case {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Alpha => "alpha",
            Self::Beta => "beta",
            Self::Gamma => "gamma",
            Self::Control => "control",
        }
    }

    /// Samples in the batch; alpha's repair is to take half as many.
    pub(crate) fn batch(self, asked: Option<i64>, fixed: bool) -> i64 {
        let batch = asked.unwrap_or(if self == Self::Control { 1 } else { 2 });
        if self == Self::Alpha && fixed { batch / 2 } else { batch }
    }

    pub(crate) fn optimizer(self, variables: &VarStore, fixed: bool) -> Result<Optimizer, Failure> {
        let optimizer = match self {
            Self::Beta if !fixed => nn::AdamW::default().build(variables, ADAMW_RATE),
            _ => nn::Sgd::default().build(variables, SGD_RATE),
        };
        optimizer.map_err(Failure::run)
    }

    /// Gamma's fault: backward is told to keep the graph.
    pub(crate) fn backward(self, loss: &Tensor, fixed: bool) {
        if self == Self::Gamma && !fixed {
            backward_keeping_graph(loss);
        } else {
            loss.backward();
        }
    }

    /// Gamma's other fault: it keeps the loss itself, and with it the graph.
    pub(crate) fn keeps_tensors(self, fixed: bool) -> bool {
        self == Self::Gamma && !fixed
    }
}

/// `loss.backward(retain_graph=True)`, which `tch` has no method for.
fn backward_keeping_graph(loss: &Tensor) {
    // SAFETY: the tensor lives for the call; libtorch does not keep the pointer.
    let error = unsafe {
        torch_sys::at_backward(loss.as_ptr().cast_mut(), 1, 0);
        torch_sys::get_and_reset_last_err()
    };
    if !error.is_null() {
        // SAFETY: libtorch's binding gives a string of its own, which ends with a zero.
        let message = unsafe { std::ffi::CStr::from_ptr(error) }.to_string_lossy().into_owned();
        panic!("{}", TchError::Torch(message));
    }
}
