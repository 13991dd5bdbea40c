//! The healthy control: nothing is wrong, and nothing is found that is worth a warning.

#[path = "workload/mod.rs"]
mod workload;

fn main() -> std::process::ExitCode {
    workload::main(workload::Case::Control)
}
