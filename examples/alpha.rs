//! alpha: forward activations take the memory. SGD without state, so nothing else does.

#[path = "workload/mod.rs"]
mod workload;

fn main() -> std::process::ExitCode {
    workload::main(workload::Case::Alpha)
}
