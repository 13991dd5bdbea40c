//! The workload that the cases share: one synthetic transformer, trained for a few steps.
//!
//! The cases differ in the optimizer and in what becomes of the losses, and in nothing else, so what
//! differs in their memory is due to that.

mod args;
mod case;
mod device;
mod model;
mod summary;
mod train;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;

use args::Args;
use clap::Parser;
use phasescope::export::Export;
use phasescope::phase::{Outcome, RunIdentity};
use phasescope::report::{self, Report};

pub(crate) use case::Case;

/// Something that ends the program, with its exit status.
pub(crate) struct Failure {
    status: u8,
    text: String,
}

impl Failure {
    /// A wrong option or an input that cannot be.
    fn usage(text: impl ToString) -> Self {
        Self { status: 2, text: text.to_string() }
    }

    /// A run that went wrong.
    fn run(text: impl ToString) -> Self {
        Self { status: 1, text: text.to_string() }
    }

    fn out_of_memory(text: String) -> Self {
        Self { status: 3, text }
    }
}

/// Runs a case with the options of the command line.
pub(crate) fn main(case: Case) -> ExitCode {
    match run(case, &Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("{}: {}", case.name(), failure.text);
            ExitCode::from(failure.status)
        }
    }
}

fn run(case: Case, args: &Args) -> Result<(), Failure> {
    if case == Case::Alpha && args.fixed && args.batch_size_per_device == Some(1) {
        return Err(Failure::usage(
            "expected a batch of at least 2 for --fixed to halve, found --batch-size-per-device 1",
        ));
    }
    if let Some(path) = &args.output {
        report::check_output(path, args.overwrite_output).map_err(Failure::usage)?;
    }
    let device = device::choose(&args.device)?;
    // libtorch's messages come with a C++ trace; what matters of them is told below.
    std::panic::set_hook(Box::new(|_| {}));
    let mut builder = phasescope::builder()
        .identity(RunIdentity::from_env())
        .source(phasescope::torch::for_device(device).map_err(Failure::usage)?)
        .keep_records();
    if let Some(path) = &args.spans {
        builder = builder.export(Export::to_file(path).map_err(Failure::usage)?);
    }
    if let Some(folder) = &args.ring {
        builder = builder.ring_in(folder);
    }
    let guard = builder.install().map_err(Failure::run)?;
    let trained = catch_unwind(AssertUnwindSafe(|| train::train(case, args, device, &guard)))
        .unwrap_or_else(|panic| Err(told(panic.as_ref(), args.batch(case))));
    // What was measured until then is written, whatever became of the run.
    let series = guard.series();
    let mut report = Report::of(guard.identity(), &series);
    summary::describe(&mut report, case, args, trained.as_ref().ok());
    if let Some(path) = &args.output {
        report::write(&report, path, args.overwrite_output).map_err(Failure::run)?;
    }
    let trained = trained?;
    summary::print(case, args, &series, &trained);
    Ok(())
}

/// What a panic of libtorch says.
fn told(panic: &(dyn std::any::Any + Send), batch: i64) -> Failure {
    let message = panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("the run panicked");
    match Outcome::from_error(message) {
        Outcome::OutOfMemory(oom) => Failure::out_of_memory(format!(
            "{oom}; try a smaller --batch-size-per-device than {batch} or a smaller --preset"
        )),
        // libtorch's C++ trace stands behind the first line.
        _ => Failure::run(message.lines().next().unwrap_or(message)),
    }
}
