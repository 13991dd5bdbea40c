use std::ffi::{CStr, c_char};
use std::sync::OnceLock;

use tch::{Cuda, Device, Kind, Tensor};

use super::device::first_line;
use super::ffi;

/// Longest path or reason that is taken over from the loader.
const TEXT_SIZE: usize = 4096;

/// Why CUDA cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CudaError {
    /// This libtorch has no CUDA part.
    #[error("expected libtorch's CUDA part at {path}, found none: this is a CPU build of libtorch")]
    NotThere {
        /// Where it would be.
        path: String,
    },
    /// It is there, and the loader refused it.
    #[error("expected to load libtorch's CUDA part, but the loader says: {reason}")]
    NotLoaded {
        /// The loader's own words.
        reason: String,
    },
    /// It is loaded, and finds no GPU that it can use.
    #[error("expected a usable GPU, but libtorch says: {reason}")]
    NoDevice {
        /// libtorch's own words.
        reason: String,
    },
}

/// Loads libtorch's CUDA part, so that `tch` can train on GPUs.
///
/// Linkers drop a library that no symbol is taken from, and no Rust program takes one from
/// `libtorch_cuda`; so a program linked against a full libtorch still says that there is no GPU.
/// This opens the library beside the libtorch that is loaded. Once a process; later calls repeat
/// the answer. Gives the number of GPUs.
///
/// Call it before anything else asks libtorch about CUDA, `tch::Cuda::is_available()` included:
/// libtorch remembers the first answer for good.
///
/// # Errors
///
/// Says whether the CUDA part is missing, was refused by the loader, or finds no usable GPU.
///
/// # Examples
///
/// ```
/// match phasescope::torch::load_cuda() {
///     Ok(devices) => println!("{devices} GPUs"),
///     Err(reason) => println!("training on the CPU: {reason}"),
/// }
/// ```
pub fn load_cuda() -> Result<i64, CudaError> {
    static ANSWER: OnceLock<Result<i64, CudaError>> = OnceLock::new();
    ANSWER.get_or_init(load).clone()
}

fn load() -> Result<i64, CudaError> {
    let mut text: [c_char; TEXT_SIZE] = [0; TEXT_SIZE];
    // SAFETY: the buffer lives for the call and its size is told; the text ends with a zero.
    let (status, text) = unsafe {
        let status = ffi::phasescope_load_cuda(text.as_mut_ptr(), text.len());
        (status, CStr::from_ptr(text.as_ptr()).to_string_lossy().into_owned())
    };
    match status {
        0 => {}
        // Linked in from elsewhere.
        1 if Cuda::is_available() => return Ok(Cuda::device_count()),
        1 => return Err(CudaError::NotThere { path: text }),
        _ => return Err(CudaError::NotLoaded { reason: text }),
    }
    match Tensor::f_empty([0], (Kind::Float, Device::Cuda(0))) {
        Ok(_) if Cuda::is_available() => Ok(Cuda::device_count()),
        Ok(_) => Err(CudaError::NoDevice { reason: "no device was found".to_owned() }),
        Err(error) => {
            Err(CudaError::NoDevice { reason: first_line(&error.to_string()).to_owned() })
        }
    }
}
