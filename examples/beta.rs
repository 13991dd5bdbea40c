//! beta: optimizer state takes the memory. AdamW makes two moments a parameter in its first step.

#[path = "workload/mod.rs"]
mod workload;

fn main() -> std::process::ExitCode {
    workload::main(workload::Case::Beta)
}
