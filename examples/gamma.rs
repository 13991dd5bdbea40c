//! gamma: every loss tensor is kept, and with it the autograd graph of its step.

#[path = "workload/mod.rs"]
mod workload;

fn main() -> std::process::ExitCode {
    workload::main(workload::Case::Gamma)
}
