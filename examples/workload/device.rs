use phasescope::torch::load_cuda;
use tch::Device;

use super::Failure;

/// The device that an option names.
pub(crate) fn choose(name: &str) -> Result<Device, Failure> {
    match name {
        "auto" => Ok(load_cuda().map_or(Device::Cpu, |_| Device::Cuda(0))),
        "cpu" => Ok(Device::Cpu),
        _ => {
            let number = name.strip_prefix("cuda:").and_then(|number| number.parse().ok());
            let Some(number) = number else {
                return Err(Failure::usage(format!(
                    "expected the device auto, cpu or cuda:N, found \"{name}\""
                )));
            };
            let devices = load_cuda().map_err(Failure::usage)?;
            if i64::try_from(number).is_ok_and(|number| number < devices) {
                Ok(Device::Cuda(number))
            } else {
                Err(Failure::usage(format!("expected one of {devices} GPUs, found \"{name}\"")))
            }
        }
    }
}

/// The name that a report gives a device.
pub(crate) fn name(device: Device) -> String {
    match device {
        Device::Cuda(number) => format!("cuda:{number}"),
        _ => "cpu".to_owned(),
    }
}
